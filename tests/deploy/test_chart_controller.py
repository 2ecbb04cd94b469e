"""The controller of the chart: its pods and their settings."""

import chart
import pytest
import yaml

from dra_driver import settings
from dra_driver.settings import controller as controller_settings

pytestmark = pytest.mark.sampled(7)

VALUES = yaml.safe_load((chart.PATH / "values.yaml").read_text("utf-8"))
BY_THE_CHART = {
    "converted_templates": "whether the webhook converts pods",
    "identity": "of the pod: DRA_DRIVER_IDENTITY",
    "kubeconfig": "the pod's service account is used",
    "lease": "of the release",
    "namespace": "of the release",
    "status_address": "a port of the pod's own, for probes and metrics",
}
"""Settings that are no values, since they follow from how the pod is made."""
AS_THE_PLUGIN = {"driver_name", "log_format", "log_level"}
"""Settings that are those of the kubelet plugin, below `settings`."""
POD = {"DRA_DRIVER_IDENTITY": "controller-1"}


def parts(values=None, **options):
    """The objects of the controller."""
    return chart.part(chart.objects(values, **options), "controller")


def flags(values=None, **options):
    """The settings that the container's arguments make, as the command reads them."""
    return chart.deployed_settings(
        "controller", controller_settings.Controller, values, environment=POD, **options
    )


def test_it_is_there_unless_it_is_switched_off():
    assert parts()
    assert parts({"controller": {"enabled": False}}) == []


def test_each_setting_is_a_value_or_follows_from_the_pod():
    fields = controller_settings.Controller.model_fields
    values = {n for n, field in fields.items() if (field.alias or n) in VALUES["controller"]}
    assert values == {
        "grace_seconds",
        "lease_seconds",
        "matching_seconds",
        "parameters",
        "parameters_seconds",
        "retry_seconds",
        "sweep_seconds",
        "unused_seconds",
    }
    assert values | set(BY_THE_CHART) | AS_THE_PLUGIN == set(fields)
    assert {fields[name].alias or name for name in AS_THE_PLUGIN} <= set(VALUES["settings"])


def test_the_flags_are_what_the_values_say():
    values = {
        "controller": {
            "graceSeconds": 86400,
            "leaseSeconds": 60,
            "matchingSeconds": 90,
            "parameters": False,
            "parametersSeconds": 1.5,
            "retrySeconds": 0.5,
            "sweepSeconds": 10,
            "unusedSeconds": 3600,
        },
        "settings": {"driverName": "gpu.example.com", "logLevel": "debug", "logFormat": "console"},
    }
    config = flags(values)
    assert (config.grace_seconds, config.lease_seconds) == (86400, 60)
    assert (config.retry_seconds, config.sweep_seconds) == (0.5, 10)
    assert config.unused_seconds == 3600
    assert (config.parameters, config.parameters_seconds) == (False, 1.5)
    assert config.matching_seconds == 90
    assert (config.driver_name, config.log_level) == ("gpu.example.com", "debug")
    assert config.log_format == "console"


def test_the_default_values_are_the_defaults_of_the_command_but_for_the_log():
    config = flags()
    default = settings.resolve(controller_settings.Controller, environment=POD, flags={})
    assert {
        name for name in config.model_dump() if getattr(config, name) != getattr(default, name)
    } == {"log_format"}


def test_it_is_told_the_names_of_this_release():
    config = flags(name="second", namespace="gpus")
    assert (config.namespace, config.lease) == ("gpus", "second-dra-driver-controller")


def test_its_lease_is_the_release_s_and_nobody_s_yet():
    """So it goes with the release; an upgrade has no such fields, and leaves them as they are."""
    lease = chart.the(parts(name="second", namespace="gpus"), "Lease")
    config = flags(name="second", namespace="gpus")
    metadata = lease["metadata"]
    assert (metadata["name"], metadata["namespace"]) == (config.lease, config.namespace)
    assert "spec" not in lease


def test_each_pod_is_a_candidate_of_its_own():
    [container] = chart.deployed("controller")["spec"]["containers"]
    [variable] = container["env"]
    assert variable["name"] == f"{settings.ENVIRONMENT_PREFIX}IDENTITY"
    assert variable["valueFrom"] == {"fieldRef": {"fieldPath": "metadata.name"}}
    assert chart.the(parts(), "Deployment")["spec"]["replicas"] == 2


def test_it_looks_for_pods_of_mps_daemons_where_the_plugin_makes_them():
    options = {"namespace": "gpus"}
    [container] = chart.the(chart.objects({}, **options), "DaemonSet")["spec"]["template"]["spec"][
        "containers"
    ]
    [variable] = [each for each in container["env"] if each["name"] == "POD_NAMESPACE"]
    assert variable["valueFrom"] == {"fieldRef": {"fieldPath": "metadata.namespace"}}
    assert flags({}, **options).namespace == "gpus"


def test_the_probes_ask_where_the_command_tells_its_state():
    [container] = chart.deployed("controller")["spec"]["containers"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert ports == {"status": int(flags().status_address.rpartition(":")[2])}
    for probe in ("livenessProbe", "readinessProbe"):
        assert container[probe]["httpGet"] == {"path": "/healthz", "port": "status"}


def test_a_lease_that_runs_out_between_two_tries_is_refused():
    values = {"controller": {"leaseSeconds": 5, "retrySeconds": 5}}
    with pytest.raises(
        chart.helm.HelmRenderError, match=r"less than controller\.leaseSeconds 5, or the Lease"
    ):
        chart.texts(values)


@pytest.mark.parametrize(
    "values",
    [{"sweepSeconds": 0}, {"leaseSeconds": 0.5}, {"replicas": 0}, {"graceseconds": 1}],
    ids=str,
)
def test_a_value_that_cannot_work_is_refused(values):
    with pytest.raises(chart.helm.HelmValuesError):
        chart.texts({"controller": values})


# What it has in common with the webhook

BOTH = pytest.mark.parametrize("component", ["webhook", "controller"])


@BOTH
def test_the_pods_have_no_more_than_they_need(component):
    pod = chart.deployed(component)["spec"]
    [container] = pod["containers"]
    assert pod["securityContext"] == {
        "runAsNonRoot": True,
        "runAsUser": 65532,
        "runAsGroup": 65532,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert {"hostPID", "hostNetwork", "hostIPC", "volumes"}.isdisjoint(pod)


@BOTH
def test_on_openshift_the_pods_name_no_user(component):
    """The constraints `restricted-v2` refuse users that are not the namespace's."""
    context = chart.deployed(component, {"openshift": {"scc": True}})["spec"]["securityContext"]
    assert context == {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}


@BOTH
def test_the_notes_say_how_to_wait_for_it(component):
    line = f"rollout status deployment/dra-driver-{component}\n"
    assert line in chart.texts()["NOTES.txt"]
    assert line not in chart.texts({component: {"enabled": False}})["NOTES.txt"]


@BOTH
def test_its_objects_find_its_pods_and_no_others(component):
    bodies = parts() if component == "controller" else chart.part(chart.objects(), component)
    labels = chart.deployed(component)["metadata"]["labels"]
    selectors = [
        chart.the(bodies, "Deployment")["spec"]["selector"]["matchLabels"],
        chart.the(bodies, "PodDisruptionBudget")["spec"]["selector"]["matchLabels"],
        *(body["spec"]["selector"] for body in bodies if body["kind"] == "Service"),
        *(
            constraint["labelSelector"]["matchLabels"]
            for constraint in chart.deployed(component)["spec"]["topologySpreadConstraints"]
        ),
    ]
    assert len(selectors) >= 4
    for selector in selectors:
        assert selector.items() <= labels.items()
        assert selector[chart.COMPONENT] == component


@BOTH
def test_nodes_can_be_drained_one_pod_at_a_time(component):
    bodies = chart.part(chart.objects({component: {"replicas": 1}}), component)
    budget = chart.the(bodies, "PodDisruptionBudget")["spec"]
    assert budget["maxUnavailable"] == 1
    # Pods that run and are not ready would count as unavailable, and none could be evicted.
    assert budget["unhealthyPodEvictionPolicy"] == "AlwaysAllow"


@BOTH
def test_it_runs_where_every_node_has_the_taint_of_nodes_with_gpus(component):
    tolerated = chart.deployed(component)["spec"]["tolerations"]
    assert tolerated == [{"key": "nvidia.com/gpu", "operator": "Exists"}]


@BOTH
def test_where_and_how_its_pods_run_are_values(component):
    affinity = {"nodeAffinity": {}}
    given = {
        "replicas": 3,
        "priorityClassName": "gpu-node",
        "nodeSelector": {"kubernetes.io/os": "linux", "a": "b"},
        "affinity": affinity,
        "tolerations": [{"operator": "Exists"}],
        "podAnnotations": {"c": "d"},
        "podLabels": {"e": "f"},
        "resources": {"limits": {"memory": "1Gi"}},
    }
    values = {component: given, "imagePullSecrets": [{"name": "registry"}]}
    values["image"] = {"repository": "r/d", "tag": "2", "pullPolicy": "Always"}
    bodies = chart.part(chart.objects(values), component)
    assert chart.the(bodies, "Deployment")["spec"]["replicas"] == 3
    template = chart.deployed(component, values)
    spec = template["spec"]
    assert template["metadata"]["annotations"] == {"c": "d"}
    assert template["metadata"]["labels"]["e"] == "f"
    assert spec["imagePullSecrets"] == [{"name": "registry"}]
    for name in ("priorityClassName", "nodeSelector", "tolerations"):
        assert spec[name] == given[name]
    assert spec["affinity"] == affinity
    [container] = spec["containers"]
    assert (container["image"], container["imagePullPolicy"]) == ("r/d:2", "Always")
    assert container["resources"]["limits"]["memory"] == "1Gi"
    account = chart.the(bodies, "ServiceAccount")["metadata"]["name"]
    assert spec["serviceAccountName"] == account


@BOTH
def test_the_pods_go_to_nodes_of_the_system_that_the_image_is_for(component):
    """Nodes with Windows have no taint everywhere."""
    spec = chart.deployed(component)["spec"]
    assert spec["nodeSelector"] == {"kubernetes.io/os": "linux"}
