"""How workloads exchange their pods, as the API server completes and refuses it, over HTTP."""

import pytest
from workload_scene import workload

APPS = "/apis/apps/v1/namespaces/default"
PATHS = {kind: f"{APPS}/{kind.lower()}s" for kind in ("Deployment", "StatefulSet", "DaemonSet")}
NO_PERCENTAGE = "a valid percent string must be a numeric string followed by an ending '%'"
NEGATIVE = "must be greater than or equal to 0"


def deployment(**rolling):
    return workload("Deployment", strategy={"rollingUpdate": rolling})


def daemon_set(**rolling):
    return workload("DaemonSet", updateStrategy={"rollingUpdate": rolling})


@pytest.mark.parametrize(
    ("body", "strategy"),
    [
        (deployment(maxSurge=1),
         {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": "25%"}}),
        (workload("Deployment", strategy={"type": "Recreate"}), {"type": "Recreate"}),
        (workload("Deployment", strategy=None),
         {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}}),
        (daemon_set(maxUnavailable="50%"),
         {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": "50%"}}),
        (workload("DaemonSet", updateStrategy={"type": "OnDelete"}), {"type": "OnDelete"}),
        (workload("StatefulSet", updateStrategy={"rollingUpdate": {"partition": 2}}),
         {"type": "RollingUpdate", "rollingUpdate": {"partition": 2}}),
        (workload("StatefulSet", updateStrategy={"type": "RollingUpdate"}),
         {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}}),
        (workload("StatefulSet", updateStrategy={"type": "OnDelete"}), {"type": "OnDelete"}),
    ],
)  # fmt: skip
def test_what_is_left_open_is_completed(shared_api, body, strategy):
    made = shared_api.create(PATHS[body["kind"]], body, dryRun="All")
    field = "strategy" if body["kind"] == "Deployment" else "updateStrategy"
    assert made["spec"][field] == strategy


@pytest.mark.parametrize(
    ("body", "cause"),
    [
        (deployment(maxSurge="some"),
         f'spec.strategy.rollingUpdate.maxSurge: Invalid value: "some": {NO_PERCENTAGE}'),
        (deployment(maxUnavailable=1.5),
         f"spec.strategy.rollingUpdate.maxUnavailable: Invalid value: 1.5: {NO_PERCENTAGE}"),
        (deployment(maxUnavailable=True),
         f"spec.strategy.rollingUpdate.maxUnavailable: Invalid value: true: {NO_PERCENTAGE}"),
        (deployment(maxSurge=-1),
         f"spec.strategy.rollingUpdate.maxSurge: Invalid value: -1: {NEGATIVE}"),
        (deployment(maxUnavailable="101%"),
         ('spec.strategy.rollingUpdate.maxUnavailable: Invalid value: "101%": '
          "must not be greater than 100%")),
        (deployment(maxSurge=0, maxUnavailable="0%"),
         ('spec.strategy.rollingUpdate.maxUnavailable: Invalid value: "0%": '
          "may not be 0 when `maxSurge` is 0")),
        (workload("Deployment", strategy={"type": "Recreate", "rollingUpdate": {"maxSurge": 1}}),
         ("spec.strategy.rollingUpdate: Forbidden: "
          "may not be specified when strategy `type` is 'Recreate'")),
        (workload("Deployment", strategy={"type": "BlueGreen"}),
         ('spec.strategy.type: Unsupported value: "BlueGreen": '
          'supported values: "Recreate", "RollingUpdate"')),
        (workload("Deployment", revisionHistoryLimit=-1),
         f"spec.revisionHistoryLimit: Invalid value: -1: {NEGATIVE}"),
        (daemon_set(maxUnavailable="x"),
         f'spec.updateStrategy.rollingUpdate.maxUnavailable: Invalid value: "x": {NO_PERCENTAGE}'),
        (daemon_set(maxUnavailable=0),
         ("spec.updateStrategy.rollingUpdate.maxUnavailable: Required value: "
          "cannot be 0 when maxSurge is 0")),
        (daemon_set(maxSurge=1, maxUnavailable=1),
         ("spec.updateStrategy.rollingUpdate.maxSurge: Invalid value: 1: "
          "may not be set when maxUnavailable is non-zero")),
        (workload("DaemonSet", updateStrategy={"type": "Recreate"}),
         ('spec.updateStrategy.type: Unsupported value: "Recreate": '
          'supported values: "OnDelete", "RollingUpdate"')),
        (workload("StatefulSet", updateStrategy={"rollingUpdate": {"partition": -1}}),
         f"spec.updateStrategy.rollingUpdate.partition: Invalid value: -1: {NEGATIVE}"),
        (workload("StatefulSet", podManagementPolicy="Some"),
         ('spec.podManagementPolicy: Invalid value: "Some": '
          "must be 'OrderedReady' or 'Parallel'")),
        (workload("StatefulSet", ordinals={"start": -1}),
         f"spec.ordinals.start: Invalid value: -1: {NEGATIVE}"),
    ],
)  # fmt: skip
def test_what_no_controller_can_do_is_refused(shared_api, body, cause):
    answer = shared_api.send("POST", PATHS[body["kind"]], body, dryRun="All")
    assert answer.status == 422, answer
    assert [each for each in answer.causes if each.startswith(cause)], answer.causes


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (workload("Deployment", strategy=["Recreate"]), "spec.strategy"),
        (workload("Deployment", paused="yes"), "spec.paused"),
        (workload("DaemonSet", updateStrategy="OnDelete"), "spec.updateStrategy"),
        (workload("StatefulSet", ordinals={"start": "a"}), "spec.ordinals.start"),
        (workload("StatefulSet", updateStrategy={"rollingUpdate": {"partition": "a"}}),
         "spec.updateStrategy.rollingUpdate.partition"),
    ],
)  # fmt: skip
def test_a_field_of_another_type_is_refused(shared_api, body, field):
    answer = shared_api.send("POST", PATHS[body["kind"]], body, dryRun="All")
    assert answer.status == 400, answer
    assert f"Go struct field {field} of type" in answer.body["message"]
