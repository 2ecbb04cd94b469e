"""What the variables of NVIDIA's kubelet plugin mean as settings."""

import pathlib

import pytest

from dra_driver import errors, settings
from dra_driver.settings import vendor_environment

OPERATOR = {
    "HTTP_ENDPOINT": ":8080",
    "METRICS_PATH": "/metrics",
    "LOG_VERBOSITY": "4",
    "MASK_NVIDIA_DRIVER_PARAMS": "",
    "NVIDIA_VISIBLE_DEVICES": "void",
    "CDI_ROOT": "/var/run/cdi",
    "HOST_ROOT": "/host",
    "NVIDIA_MIG_CONFIG_DEVICES": "all",
    "NODE_NAME": "node-1",
    "NAMESPACE": "gpu-operator",
    "IMAGE_NAME": "registry.example/dra-driver:1",
    "KUBELET_REGISTRAR_DIRECTORY_PATH": "/var/lib/kubelet/plugins_registry",
    "KUBELET_PLUGINS_DIRECTORY_PATH": "/var/lib/kubelet/plugins",
    "HEALTHCHECK_PORT": "51516",
    # From the file that the operator's init container writes.
    "IS_HOST_DRIVER": "false",
    "NVIDIA_DRIVER_ROOT": "/run/nvidia/driver",
    "DRIVER_ROOT_CTR_PATH": "/driver-root",
    "NVIDIA_DEV_ROOT": "/run/nvidia/driver",
    "DEV_ROOT_CTR_PATH": "/driver-root",
}
"""As the GPU operator's pod has them."""
WITHOUT = settings.KubeletPlugin(node_name="node-1")


def meaning(environment, verbosity=None, driver_name="gpu.nvidia.com"):
    return vendor_environment.meaning(environment, verbosity=verbosity, driver_name=driver_name)


def changed(environment=(), verbosity=None, **sources):
    """The settings that these variables make other than the defaults."""
    variables = {"NODE_NAME": "node-1"} | dict(environment)
    config = settings.resolve(
        settings.KubeletPlugin,
        environment=variables,
        flags=sources.pop("flags", {}),
        translated=meaning(variables, verbosity).given,
        **sources,
    )
    return {
        name: getattr(config, name)
        for name in settings.KubeletPlugin.model_fields
        if getattr(config, name) != getattr(WITHOUT, name)
    }


def refusal(**environment):
    with pytest.raises(errors.Fatal) as caught:
        changed(environment)
    return str(caught.value)


def test_the_operator_s_pod_means_these_settings_and_nothing_is_told():
    assert changed(OPERATOR, "4") == {
        "metrics_address": ":8080",
        "health_address": ":51516",
        "proc_root": pathlib.Path("/host/proc"),
        "pod_namespace": "gpu-operator",
        "mps_image": "registry.example/dra-driver:1",
        "registry_dir": pathlib.Path("/var/lib/kubelet/plugins_registry"),
        "plugin_dir": pathlib.Path("/var/lib/kubelet/plugins/gpu.nvidia.com"),
        "driver_root": pathlib.Path("/run/nvidia/driver"),
        "driver_root_seen": pathlib.Path("/driver-root"),
    }
    assert meaning(OPERATOR, "4").told == ()


def test_without_such_variables_nothing_is_meant():
    assert meaning({}) == vendor_environment.Meaning()


@pytest.mark.parametrize(
    ("variable", "value", "setting", "expected"),
    [
        ("CDI_ROOT", "/etc/cdi", "cdi_dir", pathlib.Path("/etc/cdi")),
        ("HOST_DRIVER_ROOT", "/opt/nvidia", "driver_root", pathlib.Path("/opt/nvidia")),
        ("NVIDIA_CDI_HOOK_PATH", "/usr/bin/hook", "cdi_hook", pathlib.Path("/usr/bin/hook")),
        ("IMAGE_PULL_POLICY", "Always", "mps_image_pull_policy", "Always"),
        ("IMAGE_PULL_SECRETS", "one,two", "mps_image_pull_secrets", ("one", "two")),
        ("SERVICE_ACCOUNT_NAME", "mps", "mps_service_account", "mps"),
        ("HOST_ROOT", "/", "proc_root", pathlib.Path("/proc")),
        ("HTTP_ENDPOINT", "", "metrics_address", ""),
        ("HEALTHCHECK_PORT", "-1", "health_address", ""),
        ("HEALTHCHECK_PORT", "", "health_address", ""),
        (
            "ADDITIONAL_XIDS_TO_IGNORE",
            "94, 143,",
            "health_effects",
            ("xid=94:None", "xid=143:None"),
        ),
        ("ADDITIONAL_XIDS_TO_IGNORE", " ,", "health_effects", ()),
    ],
)
def test_a_variable_means_a_setting(variable, value, setting, expected):
    found = changed({variable: value})
    assert found.get(setting, getattr(WITHOUT, setting)) == expected
    assert set(found) <= {setting}


def test_the_driver_s_own_directory_has_its_name():
    given = meaning(
        {"KUBELET_PLUGINS_DIRECTORY_PATH": "/k/plugins/"}, driver_name="gpu.example.com"
    ).given
    assert [each[:2] for each in given] == [("plugin_dir", "/k/plugins/gpu.example.com")]


def test_of_two_names_for_the_driver_root_the_newer_counts():
    both = {"HOST_DRIVER_ROOT": "/old", "NVIDIA_DRIVER_ROOT": "/new"}
    assert changed(both) == {"driver_root": pathlib.Path("/new")}


def test_our_own_variables_and_flags_go_before_and_the_file_goes_after():
    theirs = {"CDI_ROOT": "/theirs"}
    assert changed(theirs, file={"cdiDir": "/file"})["cdi_dir"] == pathlib.Path("/theirs")
    ours = theirs | {"DRA_DRIVER_CDI_DIR": "/ours"}
    assert changed(ours)["cdi_dir"] == pathlib.Path("/ours")
    assert changed(ours, flags={"cdi_dir": "/flag"})["cdi_dir"] == pathlib.Path("/flag")


def test_a_value_that_is_not_allowed_is_told_with_the_variable_s_own_name():
    assert refusal(HTTP_ENDPOINT="8080").startswith(
        "environment variable HTTP_ENDPOINT: '8080': write HOST:PORT"
    )
    assert refusal(IMAGE_PULL_POLICY="Sometimes").startswith(
        "environment variable IMAGE_PULL_POLICY: 'Sometimes'"
    )


@pytest.mark.parametrize("port", ["0", "65536", "http", "--1", "51516 "])
def test_a_health_port_is_a_port(port):
    assert refusal(HEALTHCHECK_PORT=port) == (
        f"environment variable HEALTHCHECK_PORT: {port!r}: write a port from 1 to 65535, or -1 "
        "for no health service"
    )


@pytest.mark.parametrize(("verbosity", "level"), [("0", "info"), ("5", "info"), ("6", "debug")])
def test_the_verbosity_is_a_level(verbosity, level):
    given = meaning({}, verbosity).given
    assert given == (("log_level", level, "flag -v"),)


def test_a_verbosity_is_a_number():
    with pytest.raises(errors.Fatal, match="flag -v: 'all': write a number from 0 on"):
        meaning({}, "all")


def test_metrics_at_another_path_are_told_of_and_without_one_there_are_none():
    endpoint = {"HTTP_ENDPOINT": ":8080"}
    elsewhere = endpoint | {"METRICS_PATH": "/stats"}
    assert changed(elsewhere) == {"metrics_address": ":8080"}
    assert meaning(elsewhere).told == (
        "METRICS_PATH=/stats has no effect: metrics are served at /metrics",
    )
    assert changed(endpoint | {"METRICS_PATH": ""}) == {}


@pytest.mark.parametrize("number", ["NVL", "-1", "9.4", "79;94", "\u0669"])
def test_an_xid_to_ignore_is_a_number(number):
    assert refusal(ADDITIONAL_XIDS_TO_IGNORE=f"31,{number}") == (
        f"environment variable ADDITIONAL_XIDS_TO_IGNORE: {number!r}: write numbers of XIDs, "
        "separated by commas, for example 94,143"
    )


@pytest.mark.parametrize("variable", ["KUBE_API_QPS", "KUBE_API_BURST"])
def test_what_has_no_meaning_here_is_told(variable):
    [told] = meaning({variable: "13"}).told
    assert told.startswith(f"{variable} has no effect: this driver does not ")


# Feature gates


@pytest.mark.parametrize(("value", "mode"), [("true", "dynamic"), ("false", "static")])
def test_dynamic_mig_is_a_mode(value, mode):
    gates = {"FEATURE_GATES": f"DynamicMIG={value}"}
    assert [each[:2] for each in meaning(gates).given] == [("mig_mode", mode)]
    assert meaning(gates).told == ()


def test_what_is_always_on_is_told_whether_it_is_asked_for_or_not():
    gates = "MPSSupport=true, TimeSlicingSettings=false,NVMLDeviceHealthCheck=true"
    assert changed({"FEATURE_GATES": gates}) == {}
    assert meaning({"FEATURE_GATES": gates}).told == (
        "FEATURE_GATES: MPSSupport=true has no effect: this driver always has MPS",
        (
            "FEATURE_GATES: TimeSlicingSettings=false has no effect: this driver always has time "
            "slices"
        ),
        (
            "FEATURE_GATES: NVMLDeviceHealthCheck=true has no effect: this driver always has "
            "health checks"
        ),
    )


@pytest.mark.parametrize("gate", ["VGPUSupport", "DeviceMetadata", "FabricManagerPartitioning"])
def test_what_is_not_there_is_refused_and_left_off_without_a_word(gate):
    text = refusal(FEATURE_GATES=f"MPSSupport=true,{gate}=true")
    assert text.startswith(f"FEATURE_GATES: {gate}=true: this driver does not have ")
    assert text.endswith("Take it out of spec.draDriver.featureGates of the GPUCluster")
    assert meaning({"FEATURE_GATES": f"{gate}=false"}) == vendor_environment.Meaning()


def test_with_the_gate_for_them_gpus_go_to_virtual_machines_too():
    gates = {"FEATURE_GATES": "PassthroughSupport=true"}
    assert changed(gates) == {"vfio": "on"}
    found = changed(gates | {"HOST_ROOT": "/host"})
    assert {key: str(value) for key, value in found.items()} == {
        "vfio": "on", "host_root": "/host", "proc_root": "/host/proc"
    }  # fmt: skip
    assert changed({"FEATURE_GATES": "PassthroughSupport=false"}) == {}


def test_gates_of_what_this_driver_has_nothing_of_are_told():
    assert meaning({"FEATURE_GATES": "ComputeDomainCliques=true"}).told == (
        (
            "FEATURE_GATES: ComputeDomainCliques=true has no effect: it switches nothing of this "
            "driver"
        ),
    )


def test_a_gate_that_is_not_known_is_refused_with_those_that_are():
    text = refusal(FEATURE_GATES="DynamicMig=true")
    assert text.startswith("FEATURE_GATES: 'DynamicMig' is unknown; known are AllAlpha, ")
    assert "DynamicMIG" in text


@pytest.mark.parametrize("entry", ["DynamicMIG", "DynamicMIG=", "DynamicMIG=yes"])
def test_a_gate_is_true_or_false(entry):
    assert refusal(FEATURE_GATES=entry).startswith(
        f"FEATURE_GATES: {entry!r}: write NAME=true or NAME=false"
    )


@pytest.mark.parametrize(("asked", "shares"), [("memory", "memory"), ("4", "4")])
def test_consumable_shares_are_shares_with_their_gate(asked, shares):
    variables = {"CONSUMABLE_SHARES": asked}
    assert changed(variables | {"FEATURE_GATES": "ConsumableShares=true"}) == {"shares": shares}
    assert refusal(**variables).startswith(
        f"CONSUMABLE_SHARES={asked} needs the feature gate ConsumableShares"
    )


def test_shares_that_are_disabled_are_off_and_without_number_there_are_none():
    gates = {"FEATURE_GATES": "ConsumableShares=true"}
    assert changed(gates | {"CONSUMABLE_SHARES": "disabled"}) == {}
    assert changed(gates) == {}
    assert refusal(**gates, CONSUMABLE_SHARES="unlimited").startswith(
        "CONSUMABLE_SHARES=unlimited: shares are memory, or a number of equal ones"
    )
    assert refusal(**gates, CONSUMABLE_SHARES="many").startswith(
        "environment variable CONSUMABLE_SHARES: 'many': allowed are off, memory, and a number"
    )
