"""What else is in a container, and in a pod, when its resources become claims."""

import converting_scene as scene
import pytest
from converting_scene import container, one, share

GPU, MEMORY, CORES = "nvidia.com/gpu", "nvidia.com/gpumem", "nvidia.com/gpucores"


def hami(mib, cores=None):
    limits = {GPU: 1, MEMORY: mib}
    return limits if cores is None else {**limits, CORES: cores}


@pytest.mark.parametrize("where", ["limits", "requests"])
def test_resources_are_taken_from_where_they_are(where):
    other = "requests" if where == "limits" else "limits"
    body = scene.pod(container(resources={where: hami(10240, 30), other: {"cpu": "1"}}))
    made = scene.converted(body)
    assert scene.specs(made) == {"gpu-main": one(share("10Gi", "30"))}
    assert made.pod["spec"]["containers"][0]["resources"] == {
        other: {"cpu": "1"},
        "claims": [{"name": "gpu-main"}],
    }


def test_resources_of_which_some_are_limits_and_some_requests_are_one_ask():
    body = scene.pod(container(resources={"limits": {GPU: 1}, "requests": {MEMORY: 10240}}))
    made = scene.converted(body)
    assert scene.specs(made) == {"gpu-main": one(share("10Gi", "12"))}
    assert made.pod["spec"]["containers"][0]["resources"] == {"claims": [{"name": "gpu-main"}]}


def test_an_amount_may_be_written_in_another_way_in_requests():
    resources = {"limits": hami(10240), "requests": {GPU: "1", MEMORY: "10Ki"}}
    made = scene.converted(scene.pod(container(resources=resources)))
    assert scene.specs(made) == {"gpu-main": one(share("10Gi", "12"))}


def test_claims_and_variables_that_are_there_come_first():
    claims = [{"name": "net", "resourceClaimTemplateName": "nics"}]
    body = scene.pod(
        container(
            resources={
                "limits": hami(1024, 5) | {"nvidia.com/priority": 1},
                "claims": [{"name": "net"}],
            },
            env=[{"name": "A", "value": "1"}],
        ),
        resourceClaims=claims,
    )
    spec = scene.converted(body).pod["spec"]
    assert spec["containers"][0] == {
        "name": "main",
        "image": "none",
        "resources": {"claims": [{"name": "net"}, {"name": "gpu-main"}]},
        "env": [
            {"name": "A", "value": "1"},
            {"name": "CUDA_MPS_CLIENT_PRIORITY", "value": "1"},
        ],
    }
    assert spec["resourceClaims"][0] == claims[0]
    assert [claim["name"] for claim in spec["resourceClaims"]] == ["net", "gpu-main"]


def test_lists_that_are_null_are_as_if_they_were_not_there():
    resources = {"limits": hami(1024, 5), "requests": None, "claims": None}
    body = scene.pod(container(resources=resources, env=None), resourceClaims=None)
    spec = scene.converted(body).pod["spec"]
    assert spec["containers"][0]["resources"]["claims"] == [{"name": "gpu-main"}]
    assert [claim["name"] for claim in spec["resourceClaims"]] == ["gpu-main"]


def test_a_variable_of_that_name_stays_with_a_warning():
    env = [{"name": "CUDA_MPS_CLIENT_PRIORITY", "value": "1"}]
    limits = hami(1024, 5) | {"nvidia.com/priority": 0}
    made = scene.converted(scene.pod(container(limits=limits, env=env)))
    assert made.pod["spec"]["containers"][0]["env"] == env
    scene.begins(
        scene.told(made.warnings),
        ["container main: env CUDA_MPS_CLIENT_PRIORITY: stays as it is"],
    )


LEFT_OVER = {
    "a runtime class": ({"runtimeClassName": "nvidia"}, "pod: runtimeClassName: nvidia: "),
    "HAMi's scheduler": (
        {"schedulerName": "hami-scheduler"},
        "pod: schedulerName: hami-scheduler: ",
    ),
    "the host's IPC": ({"hostIPC": True}, "pod: hostIPC: true: "),
}


@pytest.mark.parametrize("case", LEFT_OVER)
def test_what_claims_do_not_need_is_dropped_by_the_command(case):
    fields, beginning = LEFT_OVER[case]
    made = scene.converted(scene.pod(container(limits=hami(1024, 5)), **fields))
    assert not made.pod["spec"].keys() & fields.keys()
    assert any(text.startswith(f"{beginning}dropped: ") for text in scene.told(made.lines))
    assert made.warnings == ()


@pytest.mark.parametrize("case", LEFT_OVER)
def test_what_claims_do_not_need_stays_with_a_warning_in_the_webhook(case):
    fields, beginning = LEFT_OVER[case]
    policy = scene.policy(scene.card(80), command=False)
    made = scene.converted(scene.pod(container(limits=hami(1024, 5)), **fields), policy)
    assert {name: made.pod["spec"][name] for name in fields} == fields
    scene.begins(scene.told(made.warnings), [f"{beginning}stays"])


def test_the_variable_that_gives_devices_is_dropped_by_the_command_and_told_by_the_webhook():
    env = [{"name": "A", "value": "1"}, {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]
    other = container("other", env=list(env))
    body = scene.pod(container(limits=hami(1024, 5), env=env), other)
    made = scene.converted(body)
    assert made.pod["spec"]["containers"][0]["env"] == env[:1]
    assert made.pod["spec"]["containers"][1] == other
    made = scene.converted(body, scene.policy(scene.card(80), command=False))
    assert made.pod["spec"]["containers"][0]["env"] == env
    beginning = "container main: env NVIDIA_VISIBLE_DEVICES: all: stays"
    scene.begins(scene.told(made.warnings), [beginning])


@pytest.mark.parametrize(
    "fields",
    [{"runtimeClassName": "gvisor"}, {"schedulerName": "mine"}, {"hostIPC": False}],
    ids=["a runtime class", "a scheduler", "no IPC of the host"],
)
def test_what_has_another_purpose_stays(fields):
    made = scene.converted(scene.pod(container(limits=hami(1024, 5)), **fields))
    assert {name: made.pod["spec"].get(name) for name in fields} == fields
    assert made.warnings == ()


def test_the_host_s_ipc_stays_for_what_is_not_shared():
    made = scene.converted(scene.pod(container(limits={"nvidia.com/mig-1g.10gb": 1}), hostIPC=True))
    assert made.pod["spec"]["hostIPC"] is True


RECORDS = {
    "hami.io/vgpu-node": "node-a",
    "hami.io/vgpu-devices-allocated": "GPU-a,NVIDIA,1024,30:",
    "hami.io/bind-time": "1700000000",
    "volcano.sh/vgpu-ids-new": "GPU-a",
}


def test_records_of_where_another_pod_was_are_dropped_by_the_command():
    metadata = {"annotations": {"kept": "1", **RECORDS}}
    body = scene.pod(container(limits=hami(1024, 5)), metadata=metadata)
    made = scene.converted(body)
    assert made.pod["metadata"]["annotations"] == {"kept": "1"}
    assert made.warnings == ()
    lines = scene.told(made.lines)
    for name in RECORDS:
        assert any(text.startswith(f"pod: annotation {name}: dropped") for text in lines)


def test_records_of_where_another_pod_was_are_told_by_the_webhook():
    metadata = {"annotations": {"kept": "1", **RECORDS}}
    body = scene.pod(container(limits=hami(1024, 5)), metadata=metadata)
    made = scene.converted(body, scene.policy(scene.card(80), command=False))
    assert made.pod["metadata"]["annotations"] == metadata["annotations"]
    scene.begins(scene.told(made.warnings), [f"pod: annotation {name}: stays" for name in RECORDS])
