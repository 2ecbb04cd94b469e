import pathlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dra_driver import errors, settings
from dra_driver.model import mig

Plugin = settings.KubeletPlugin
NODE = {"NODE_NAME": "node-1"}


def resolve(*, file=None, environment=NODE, **flags):
    return settings.resolve(Plugin, file=file, environment=environment, flags=flags)


def refusal(**sources):
    with pytest.raises(errors.Fatal) as caught:
        resolve(**sources)
    return str(caught.value)


# Order of the sources

VALUES = {
    "a text": (
        "driver_name",
        "driverName",
        ["one.example.com", "two.example.com", "three.example"],
    ),
    "a path": ("state_dir", "stateDir", ["/one", "/two", "/three"]),
    "a number": ("rescan_seconds", "rescanSeconds", ["1.5", "2", "3"]),
    "a choice": ("log_level", "logLevel", ["debug", "warning", "error"]),
    "a list": ("library_dirs", "libraryDirs", ["/a", "/b,/c", "/d,,/e,"]),
    "a text with a common variable": ("node_name", "nodeName", ["n1", "n2", "n3"]),
}
PARSED = {
    "state_dir": pathlib.Path,
    "rescan_seconds": float,
    "library_dirs": lambda text: tuple(part for part in text.split(",") if part),
}


@pytest.mark.parametrize(("field", "key", "values"), VALUES.values(), ids=VALUES)
def test_flags_go_before_the_environment_and_that_before_the_file(field, key, values):
    in_file, in_environment, in_flag = values
    parse = PARSED.get(field, str)
    variable = {f"DRA_DRIVER_{field.upper()}": in_environment}
    file = {key: in_file}

    def value(**sources):
        return getattr(resolve(**sources), field)

    assert value(file=file) == parse(in_file) or field == "node_name"
    assert value(file=file, environment=NODE | variable) == parse(in_environment)
    everything = {"file": file, "environment": NODE | variable, field: in_flag}
    assert value(**everything) == parse(in_flag)
    assert value(environment=NODE, **{field: in_flag}) == parse(in_flag)


def test_a_common_variable_serves_between_the_file_and_our_own():
    file = {"nodeName": "of-file"}
    assert resolve(file=file, environment={}).node_name == "of-file"
    assert resolve(file=file, environment={"NODE_NAME": "common"}).node_name == "common"
    both = {"NODE_NAME": "common", "DRA_DRIVER_NODE_NAME": "own"}
    assert resolve(environment=both).node_name == "own"
    config = {"NODE_NAME": "n", "KUBECONFIG": "/k"}
    assert resolve(environment=config).kubeconfig == pathlib.Path("/k")
    assert resolve(environment={"NODE_NAME": "", "DRA_DRIVER_NODE_NAME": "n"}).node_name == "n"


def test_a_flag_that_is_not_given_changes_nothing():
    assert resolve(file={"stateDir": "/x"}, state_dir=None).state_dir == pathlib.Path("/x")


def test_an_empty_variable_is_one_that_is_not_set():
    empty = {f"DRA_DRIVER_{name.upper()}": "" for name in Plugin.model_fields}
    assert resolve(environment=NODE | empty) == resolve()
    assert resolve(file={"stateDir": "/x"}, environment=NODE | empty).state == pathlib.Path("/x")


def test_the_defaults_are_those_of_a_usual_node():
    config = resolve()
    assert config.model_dump(exclude={"node_name"}) == {
        "kubeconfig": None,
        "log_level": "info",
        "log_format": "auto",
        "driver_name": "gpu.nvidia.com",
        "kubelet_root": pathlib.Path("/var/lib/kubelet"),
        "registry_dir": None,
        "plugin_dir": None,
        "state_dir": None,
        "cdi_dir": pathlib.Path("/var/run/cdi"),
        "driver_root": pathlib.Path("/"),
        "driver_root_seen": None,
        "library_dirs": (),
        "cdi_hook": None,
        "sysfs_root": pathlib.Path("/sys"),
        "host_root": pathlib.Path("/"),
        "fabric_manager": "",
        "device_metadata": True,
        "proc_root": pathlib.Path("/proc"),
        "boot_id_file": pathlib.Path("/proc/sys/kernel/random/boot_id"),
        "rolling_update_uid": None,
        "mig_mode": mig.Mode.DYNAMIC,
        "gpus": (),
        "scheduler_defects": "avoid",
        "packing": "adaptive",
        "repacking_seconds": 1.0,
        "adopt_foreign_mig": False,
        "shares": "off",
        "share_enforcement": "MPS",
        "vfio": "off",
        "mps_launcher": "process",
        "mps_shm_size": "1Gi",
        "mps_cpu": "10m",
        "mps_memory": "128Mi",
        "mps_image": "",
        "mps_image_pull_policy": "IfNotPresent",
        "mps_image_pull_secrets": (),
        "mps_service_account": "",
        "mps_priority_class": "",
        "pod_namespace": "",
        "rescan_seconds": 10.0,
        "health_effects": (),
        "health_evict": (),
        "health_hold_seconds": 30.0,
        "recovery": "off",
        "reboot_condition": "",
        "metrics_address": "",
        "health_address": "",
        "simulate_gpus": None,
        "simulation_dir": None,
    }


def test_settings_do_not_change():
    with pytest.raises(ValueError, match="frozen"):
        resolve().node_name = "other"


# What is refused


def test_a_key_of_the_file_that_is_unknown_is_refused_with_those_that_are_known():
    text = refusal(file={"node_name": "n"})
    assert text.startswith(
        "settings file: 'node_name' is unknown; known are adoptForeignMig, bootIdFile, "
    )
    assert ", nodeName, " in text
    assert "node_name" not in text.partition("known are")[2]


@pytest.mark.parametrize(("content", "kind"), [([], "list"), ("text", "str"), (5, "int")])
def test_a_file_that_is_no_mapping_is_refused(content, kind):
    assert refusal(file=content) == f"settings file: a mapping is needed, not {kind}"


def test_an_empty_file_says_nothing():
    assert resolve(file=None) == resolve(file={})


@pytest.mark.parametrize("name", ["DRA_DRIVER_NODENAME", "DRA_DRIVER_NODE_NAMES", "DRA_DRIVER_"])
def test_a_variable_of_ours_that_is_unknown_is_refused_with_those_that_are_known(name):
    text = refusal(environment=NODE | {name: "x"})
    assert text.startswith(
        f"environment variable {name} is unknown; known are DRA_DRIVER_ADOPT_FOREIGN_MIG, "
    )
    assert "DRA_DRIVER_CONFIG" in text
    assert "DRA_DRIVER_NODE_NAME," in text


@pytest.mark.parametrize(
    "name",
    [
        "DRA_DRIVER_SERVICE_HOST", "DRA_DRIVER_SERVICE_PORT", "DRA_DRIVER_SERVICE_PORT_HTTPS",
        "DRA_DRIVER_PORT", "DRA_DRIVER_PORT_443_TCP", "DRA_DRIVER_PORT_443_TCP_ADDR",
        "DRA_DRIVER_WEBHOOK_SERVICE_HOST", "DRA_DRIVER_WEBHOOK_SERVICE_PORT",
        "DRA_DRIVER_WEBHOOK_PORT", "DRA_DRIVER_WEBHOOK_PORT_443_TCP_PROTO", "DRA_DRIVER_CONFIG",
        "OTHER_DRA_DRIVER_X", "DRA_DRIVERS", "PATH",
    ],
)  # fmt: skip
def test_variables_of_a_service_of_that_name_and_of_others_are_passed_over(name):
    assert resolve(environment=NODE | {name: "tcp://10.0.0.1:443"}) == resolve()


def test_what_is_required_is_asked_for_by_flag_and_variable():
    assert refusal(environment={}) == (
        "node_name is not set: give --node-name or DRA_DRIVER_NODE_NAME"
    )


NAMES = "allowed are lower-case letters and digits, and inside hyphens and dots"


@pytest.mark.parametrize(
    ("sources", "text"),
    [
        (
            {"file": {"rescanSeconds": 0}},
            "rescanSeconds in the settings file: 0: Input should be greater than 0",
        ),
        (
            {"environment": NODE | {"DRA_DRIVER_RESCAN_SECONDS": "soon"}},
            "environment variable DRA_DRIVER_RESCAN_SECONDS: 'soon': Input should be a valid",
        ),
        (
            {"rescan_seconds": "3601"},
            "flag --rescan-seconds: '3601': Input should be less than or equal to 3600",
        ),
        (
            {"environment": {"NODE_NAME": "Node_1"}},
            f"environment variable NODE_NAME: 'Node_1': {NAMES}",
        ),
        (
            {"log_level": "loud"},
            "flag --log-level: 'loud': Input should be 'debug', 'info', 'warning' or 'error'",
        ),
        (
            {"file": {"driverName": 5}},
            "driverName in the settings file: 5: Input should be a valid string",
        ),
        (
            {"file": {"libraryDirs": ["/a", 5]}},
            "libraryDirs in the settings file, at [1]: 5: Input should be a valid string",
        ),
        (
            {"rolling_update_uid": "../x"},
            "flag --rolling-update-uid: '../x': allowed are letters, digits and hyphens, at most",
        ),
        (
            {"metrics_address": "localhost"},
            "flag --metrics-address: 'localhost': write HOST:PORT, for example :8080 or [::]:8080",
        ),
        (
            {"shares": "lots"},
            "flag --shares: 'lots': allowed are off, memory, and a number from 1 to 100",
        ),
        ({"mps_cpu": "0"}, "flag --mps-cpu: '0': more than 0 is needed"),
        (
            {"gpus": '[{"selector": "true", "migmode": "off"}]'},
            "flag --gpus, at [0].migmode: 'off': this key is unknown; known are selector, migMode",
        ),
    ],
)  # fmt: skip
def test_a_value_that_is_not_allowed_is_told_with_its_source(sources, text):
    assert refusal(**sources).startswith(text)


def test_each_wrong_value_is_told():
    text = refusal(
        file={"rescanSeconds": -1}, environment={"DRA_DRIVER_LOG_LEVEL": "loud"}, log_format="xml"
    )
    assert [part.partition(":")[0] for part in text.split("; ")] == [
        "environment variable DRA_DRIVER_LOG_LEVEL", "flag --log-format", "node_name is not set",
        "rescanSeconds in the settings file",
    ]  # fmt: skip


def test_a_wrong_value_that_is_overridden_does_not_matter():
    assert resolve(file={"rescanSeconds": "soon"}, rescan_seconds="2").rescan_seconds == 2.0


@given(st.dictionaries(st.text(max_size=12), st.one_of(st.none(), st.integers(), st.text())))
def test_no_file_leads_to_anything_but_settings_or_a_refusal(file):
    refused = ""
    try:
        resolve(file=file)
    except errors.Fatal as error:
        refused = str(error)
    assert "settings file" in refused or not file


# Derived paths


def test_paths_follow_from_the_kubelet_root_and_the_driver_name():
    config = resolve(kubelet_root="/data/kubelet", driver_name="gpu.example.com")
    assert config.registry == pathlib.Path("/data/kubelet/plugins_registry")
    assert config.plugin == pathlib.Path("/data/kubelet/plugins/gpu.example.com")
    assert config.state == config.plugin
    assert config.simulation == config.plugin / "simulation"
    assert config.registration_socket == config.registry / "gpu.example.com-reg.sock"
    assert config.service_socket == config.plugin / "dra.sock"


def test_each_path_can_be_set_on_its_own():
    config = resolve(
        registry_dir="/registry", plugin_dir="/plugin", state_dir="/state", simulation_dir="/sim"
    )
    assert config.registration_socket == pathlib.Path("/registry/gpu.nvidia.com-reg.sock")
    assert config.service_socket == pathlib.Path("/plugin/dra.sock")
    assert (config.state, config.simulation) == (pathlib.Path("/state"), pathlib.Path("/sim"))
    assert resolve(state_dir="/state").simulation == pathlib.Path("/state/simulation")


def test_an_instance_of_a_rolling_update_has_sockets_of_its_own_and_shares_the_state():
    config = resolve(rolling_update_uid="0a1b-2c")
    assert config.registration_socket.name == "gpu.nvidia.com-0a1b-2c-reg.sock"
    assert config.service_socket.name == "dra-0a1b-2c.sock"
    assert config.state == resolve().state


def test_relative_paths_are_made_absolute_for_they_are_told_to_others(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config = resolve(kubelet_root="kubelet", cdi_dir="../cdi", driver_root="/")
    assert config.service_socket == tmp_path / "kubelet/plugins/gpu.nvidia.com/dra.sock"
    assert config.cdi_dir.is_absolute()
    assert config.driver_root == pathlib.Path("/")


def test_fabric_manager_is_asked_where_it_is_said_to_listen_and_by_default_nowhere():
    assert resolve().fabric_manager == ""
    assert resolve(fabric_manager="").fabric_manager == ""
    found = resolve(file={"fabricManager": "unix:/run/nvidia-fabricmanager/socket"})
    assert found.fabric_manager == "unix:/run/nvidia-fabricmanager/socket"
    assert "write unix:PATH with an absolute path" in refusal(fabric_manager="localhost:6666")
