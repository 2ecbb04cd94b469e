"""The Helm chart and the manifests that are rendered from it."""

import importlib.util
import json
import re

import chart
import foreign_schemas
import jsonschema
import pytest
import yaml

from dra_driver import cli, settings
from dra_driver.settings import resolving

pytestmark = pytest.mark.sampled(9)

PLACED = {
    "affinity": {"nodeAffinity": {}},
    "nodeSelector": {"a": "b"},
    "podAnnotations": {"c": "d"},
    "podLabels": {"e": "f"},
    "priorityClassName": "gpu-node",
    "tolerations": [{"operator": "Exists"}],
}
ALL = {
    "allowOtherDrivers": True,
    "controller": PLACED,
    "criticalPodsQuota": True,
    "imagePullSecrets": [{"name": "registry"}],
    "kubeletPlugin": {
        "env": [{"name": "GRPC_VERBOSITY", "value": "debug"}],
        "podAnnotations": {"a": "b"},
        "podLabels": {"c": "d"},
        "updateAtOnce": 2,
    },
    "metrics": {"serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}}},
    "networkPolicy": {"enabled": True, "metricsFrom": [{"namespaceSelector": {}}]},
    "openshift": {"scc": True},
    "priorityClass": {"create": True, "name": "gpu-node"},
    "serviceAccount": {"annotations": {"e": "f"}},
    "settings": {"rebootCondition": "GPUNeedsReboot"},
    "webhook": PLACED | {"convert": {"enabled": True}},
}
"""Everything that can be switched on."""
SMALLEST = {
    "admissionPolicy": {"create": False},
    "controller": {"enabled": False},
    "deviceClasses": {"create": False},
    "kubeletPlugin": {
        "affinity": None,
        "cdiHook": False,
        "nodeSelector": None,
        "resources": None,
        "tolerations": [],
    },
    "metrics": {"enabled": False},
    "rbac": {"create": False},
    "serviceAccount": {"create": False, "name": "own"},
    "webhook": {"enabled": False},
}
CASES = {
    "defaults": {},
    "all": ALL,
    "smallest": SMALLEST,
    "cert-manager": {"webhook": {"certManager": {"enabled": True}}},
    "all with cert-manager": ALL
    | {"webhook": PLACED | {"certManager": {"enabled": True}, "convert": {"enabled": True}}},
    "without resources": {"controller": {"resources": None}, "webhook": {"resources": None}},
    "roles of others": {"rbac": {"create": False}},
    "no role for people": {"rbac": {"viewer": False}, "networkPolicy": {"enabled": True}},
    "v1beta1": {"resourceApiVersion": "v1beta1"},
    "v1beta2": {"resourceApiVersion": "v1beta2"},
}
BY_THE_CHART = {
    "node_name": "of the pod's node: NODE_NAME",
    "pod_namespace": "of the pod: POD_NAMESPACE",
    "rolling_update_uid": "of the pod: DRA_DRIVER_ROLLING_UPDATE_UID",
    "driver_root_seen": "where the chart mounts the driver root",
    "metrics_address": "metrics.port",
    "health_address": "the probes of the chart are commands",
    "kubeconfig": "the pod's service account is used",
    "registry_dir": "below kubeletRoot",
    "plugin_dir": "below kubeletRoot",
    "state_dir": "the plugin's directory: it outlives the pod, and is not lost with a reboot",
    "simulation_dir": "below the plugin's directory",
    "sysfs_root": "the container has the host's",
    "host_root": "where the chart mounts it, if vfio is not off",
    "proc_root": "the container has the host's, with hostPID",
    "boot_id_file": "the container has the host's",
}
"""Settings that are no values, since they follow from how the pod is made."""


# Objects


@pytest.mark.parametrize("values", CASES.values(), ids=CASES)
def test_each_object_is_one_that_kubernetes_knows(values):
    for body in chart.objects(values):
        chart.check(body)


@pytest.mark.parametrize("values", CASES.values(), ids=CASES)
def test_no_object_is_there_twice_and_all_others_are_in_the_release_s_namespace(values):
    bodies = chart.objects(values)
    names = [(body["kind"], body["metadata"]["name"]) for body in bodies]
    assert len(names) == len(set(names))
    assert {body["metadata"].get("namespace", chart.NAMESPACE) for body in bodies} == {
        chart.NAMESPACE
    }


def test_a_field_that_kubernetes_does_not_know_is_noticed():
    body = chart.the(chart.objects(), "DaemonSet")
    body["spec"]["template"]["spec"]["hostPid"] = True
    with pytest.raises(AssertionError):
        chart.check(body)


@pytest.mark.parametrize("kind", foreign_schemas.SCHEMAS)
def test_what_a_kind_of_others_does_not_know_or_needs_is_noticed(kind):
    kinds = {**{b["kind"]: b for b in chart.objects(CASES["all with cert-manager"])}}
    body = kinds[kind]
    spec = body.get("spec", body)
    spec["selectors"] = {}
    with pytest.raises(jsonschema.ValidationError, match="'selectors' was unexpected"):
        chart.check(body)
    del spec["selectors"]
    chart.check(body)
    spec.pop(next(key for key in spec if key not in ("apiVersion", "kind", "metadata")))
    with pytest.raises(jsonschema.ValidationError, match="is a required property"):
        chart.check(body)


def test_every_kind_of_the_chart_is_in_some_case():
    """So that none is rendered in no case and looked at in none."""
    sources = [*(chart.PATH / "templates").iterdir(), *(chart.PATH / "files").iterdir()]
    text = "".join(path.read_text("utf-8") for path in sources)
    rendered = {body["kind"] for values in CASES.values() for body in chart.objects(values)}
    assert rendered == set(re.findall(r"^kind: (\w+)$", text, re.MULTILINE))


def test_the_manifests_are_the_chart_with_its_default_values():
    path = chart.DEPLOY / "render.py"
    spec = importlib.util.spec_from_file_location("render", path)
    render = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(render)
    written = {p.name: p.read_text("utf-8") for p in render.MANIFESTS.iterdir()}
    assert written == render.rendered(), "run `python deploy/render.py`"
    assert [body for body in chart.manifests() if body["kind"] != "Namespace"] == chart.objects()
    assert next(iter(sorted(written))) == "0-namespace.yaml"


def test_everything_is_there_that_the_files_beside_the_manifests_have():
    ours = {(b["kind"], b["metadata"]["name"]): b for b in chart.manifests()}
    for name in ("rbac.yaml", "device-classes.yaml"):
        for body in yaml.safe_load_all((chart.DEPLOY / name).read_text("utf-8")):
            found = ours[body["kind"], body["metadata"]["name"]]
            spec = dict(found.get("spec", {}))
            # Only where the name is not another driver's.
            spec.pop("extendedResourceName", None)
            assert spec == body.get("spec", {})
            for key in ("rules", "roleRef", "subjects"):
                assert found.get(key) == body.get(key)


def test_helm_has_nothing_to_complain_of():
    report = chart.helm.lint(chart.PATH, ALL, strict=True)
    assert report["errors"] == []
    assert [line["error"] for line in report["messages"]] == ["icon is recommended"]


def test_the_chart_is_of_the_version_of_the_driver():
    about = yaml.safe_load((chart.PATH / "Chart.yaml").read_text("utf-8"))
    assert (about["version"], about["appVersion"]) == (cli.VERSION, cli.VERSION)


# Settings


def test_each_setting_is_a_value_or_follows_from_the_pod():
    values = yaml.safe_load((chart.PATH / "values.yaml").read_text("utf-8"))["settings"]
    fields = settings.KubeletPlugin.model_fields
    by_name = {fields[name].alias or name: name for name in fields}
    assert sorted({by_name[key] for key in values} | set(BY_THE_CHART)) == sorted(fields)
    assert {by_name[key] for key in values} & set(BY_THE_CHART) == set()


def test_the_flags_of_the_container_are_settings_and_are_what_the_values_say():
    config = chart.plugin_settings(
        {
            "settings": {
                "adoptForeignMig": True,
                "driverRoot": "/run/nvidia/driver",
                "fabricManager": "unix:/run/nvidia-fabricmanager/socket",
                "gpus": [
                    {
                        "selector": "device.attributes['a'].b == \"c, d\"",
                        "shares": "memory",
                        "shareEnforcement": "None",
                    }
                ],
                "libraryDirs": ["/opt/one", "/opt/two"],
                "healthEffects": ["xid=94:NoSchedule", "thermal:NoSchedule"],
                "healthEvict": ["recovery", "xid=79"],
                "healthHoldSeconds": 0,
                "migMode": "static",
                "rebootCondition": "GPUNeedsReboot",
                "recovery": "reset",
                "repackingSeconds": 0.5,
                "shares": 4,
                "simulateGpus": "t4:1,h200-141gb:8",
                "vfio": "only",
            }
        }
    )
    assert (config.adopt_foreign_mig, str(config.driver_root)) == (True, "/run/nvidia/driver")
    assert [rule.selector for rule in config.gpus] == ["device.attributes['a'].b == \"c, d\""]
    assert [rule.share_enforcement for rule in config.gpus] == ["None"]
    assert config.library_dirs == ("/opt/one", "/opt/two")
    assert (config.mig_mode.value, config.repacking_seconds, config.shares) == ("static", 0.5, "4")
    assert config.simulate_gpus == "t4:1,h200-141gb:8"
    assert config.vfio.value == "only"
    assert config.fabric_manager == "unix:/run/nvidia-fabricmanager/socket"
    assert config.health_effects == ("xid=94:NoSchedule", "thermal:NoSchedule")
    assert (config.health_evict, config.health_hold_seconds) == (("recovery", "xid=79"), 0)
    assert (config.recovery, config.reboot_condition) == ("reset", "GPUNeedsReboot")


def test_an_off_without_quotes_which_yaml_reads_as_false_is_off():
    settings_ = "migMode: off, shares: off, recovery: off, gpus: [{selector: 'true', shares: off}]"
    config = chart.plugin_settings(chart.helm.values_from_yaml(f"settings: {{{settings_}}}"))
    assert (config.mig_mode.value, config.shares, config.gpus[0].shares) == ("off", "off", "off")
    assert config.recovery == "off"


def test_an_on_without_quotes_which_yaml_reads_as_true_is_on():
    settings_ = "vfio: on, gpus: [{selector: 'true', vfio: off}]"
    config = chart.plugin_settings(chart.helm.values_from_yaml(f"settings: {{{settings_}}}"))
    assert (config.vfio.value, config.gpus[0].vfio.value) == ("on", "off")


ROOT = {
    "name": "host-root",
    "mountPath": "/host",
    "readOnly": True,
    "mountPropagation": "HostToContainer",
}


@pytest.mark.parametrize(
    ("given", "sees"),
    [
        ({}, False),
        ({"vfio": "off", "gpus": [{"selector": "true", "migMode": "off"}]}, False),
        ({"gpus": [{"selector": "true", "vfio": "off"}]}, False),
        ({"vfio": "on"}, True),
        ({"vfio": True}, True),
        ({"vfio": "only"}, True),
        ({"vfio": "off", "gpus": [{"selector": "true", "vfio": "on"}]}, True),
    ],
)
def test_the_root_of_the_host_is_seen_only_where_gpus_go_to_virtual_machines(given, sees):
    values = {"settings": given}
    pod = chart.the(chart.objects(values), "DaemonSet")["spec"]["template"]["spec"]
    roots = [one["name"] for one in pod["volumes"] if one.get("hostPath", {}).get("path") == "/"]
    assert roots == (["driver-root", "host-root"] if sees else ["driver-root"])
    for container in (pod["containers"][0], *pod["initContainers"][:1]):
        assert (ROOT in container["volumeMounts"]) == sees
        assert ("--host-root=/host" in container["args"]) == sees
    config = chart.plugin_settings(values)
    assert (str(config.host_root), config.passes_any) == (("/host", True) if sees else ("/", False))


def test_the_default_values_are_the_defaults_of_the_driver_but_for_those_of_a_pod():
    config = chart.plugin_settings()
    different = {
        name
        for name, field in settings.KubeletPlugin.model_fields.items()
        if getattr(config, name) != field.default
    }
    assert different == {
        "cdi_hook",
        "driver_root_seen",
        "log_format",
        "metrics_address",
        "mps_image",
        "mps_launcher",
        "mps_priority_class",
        "mps_service_account",
        "node_name",
        "pod_namespace",
    }


def test_the_schema_knows_every_value_and_every_choice():
    values = yaml.safe_load((chart.PATH / "values.yaml").read_text("utf-8"))
    schema = json.loads((chart.PATH / "values.schema.json").read_text("utf-8"))

    def compare(value, part, path):
        if "properties" in part:
            assert part["additionalProperties"] is False or not path, path
            if path[-1:] == ["mpsConfig"]:
                return  # What is left out there has the driver's own defaults.
            known = set(part["properties"]) - {"global", "initialDelaySeconds"}
            assert set(value) == known, path
            for key, below in value.items():
                compare(below, part["properties"][key], [*path, key])

    compare(values, schema, [])
    assert schema["additionalProperties"] is False
    for key, part in schema["properties"]["settings"]["properties"].items():
        name = re.sub("([A-Z])", lambda match: "_" + match[1].lower(), key)
        metavar = resolving._metavar(name, settings.KubeletPlugin.model_fields[name].annotation)
        if "enum" in part:
            choices = [choice for choice in part["enum"] if choice not in (False, True, "")]
            assert sorted(choices) == sorted(metavar.split("|"))


@pytest.mark.parametrize(
    "values",
    [
        {"settings": {"migmode": "off"}},
        {"settings": {"migMode": "on"}},
        {"settings": {"driverRoot": "run/nvidia/driver"}},
        {"settings": {"gpus": [{"selector": "true"}]}},
        {"settings": {"shares": "some"}},
        {"settings": {"healthEffects": ["xid=94"]}},
        {"settings": {"healthEffects": ["thermal:NoExecute"]}},
        {"settings": {"healthEvict": ["xids"]}},
        {"settings": {"recovery": "reboot"}},
        {"settings": {"rebootCondition": "GPU needs reboot"}},
        {"image": {"digest": "1.0"}},
        {"kubeletPlugin": {"updateAtOnce": 0}},
    ],
    ids=str,
)
def test_a_value_that_cannot_work_is_refused(values):
    with pytest.raises(chart.helm.HelmValuesError):
        chart.texts(values)


def test_each_value_has_a_comment():
    lines = (chart.PATH / "values.yaml").read_text("utf-8").splitlines()
    values = yaml.safe_load("\n".join(lines))
    # What is below these is Kubernetes' own.
    parts = (values["kubeletPlugin"], values["webhook"], values["controller"])
    whole = set().union(*parts) - {"certManager", "convert"}
    above, bare = "", []
    for before, line in zip(["", *lines], lines, strict=False):
        if found := re.match("( *)([a-zA-Z]+):", line):
            depth, key = len(found[1]), found[2]
            if depth <= 2:
                above = key
            if not before.strip().startswith("#") and not (depth > 2 and above in whole):
                bare.append(key)
    assert bare == []


# Refusals


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"settings": {"driverName": "gpu.of-the-second-team.example.com"}}, "at most 27 letters"),
        ({"priorityClass": {"create": True}}, "choose another name"),
        (
            {"metrics": {"enabled": False, "serviceMonitor": {"enabled": True}}},
            "needs metrics.enabled",
        ),
        ({"serviceAccount": {"create": False}}, "which one, if serviceAccount.create is false"),
    ],
    ids=str,
)
def test_values_that_do_not_go_together_are_refused_with_the_reason(values, reason):
    with pytest.raises(chart.helm.HelmRenderError, match=reason):
        chart.texts(values)


def test_the_notes_name_the_next_commands_for_this_release():
    notes = chart.texts()["NOTES.txt"]
    assert "kubectl -n dra-driver rollout status daemonset/dra-driver-kubelet-plugin\n" in notes
    assert "--field-selector spec.driver=gpu.nvidia.com" in notes
    [overrides] = re.findall(r"--overrides '(.*)'", notes)
    [container] = json.loads(overrides)["spec"]["containers"]
    assert container["resources"] == {"limits": {"nvidia.com/gpu": "1"}}
