import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dra_driver.logic.preparing import cdi
from dra_driver.model import driver

DRIVER = "gpu.nvidia.com"
UID = "0a1b2c3d-0000-4000-8000-000000000000"

GPU0 = driver.DeviceNode("/dev/nvidia0", "/dev/nvidia0", 195, 0, 0o666)
CONTROL = driver.DeviceNode("/dev/nvidiactl", "/run/nvidia/driver/dev/nvidiactl", 195, 255, 0o660)

FULL = cdi.Injection(
    common=cdi.Edits(
        env={"NVIDIA_VISIBLE_DEVICES": "void", "LD_LIBRARY_PATH": "/usr/local/nvidia/lib64"},
        device_nodes=(CONTROL,),
        mounts=(
            cdi.Mount("/host/libcuda.so.1", "/usr/local/nvidia/lib64/libcuda.so.1"),
            cdi.Mount("/host/socket", "/run/socket", ("ro", "noexec")),
        ),
        hooks=(
            cdi.Hook("/usr/bin/nvidia-cdi-hook", ("nvidia-cdi-hook", "update-ldcache"), ("A=b",)),
            cdi.Hook("/usr/bin/true", ()),
        ),
    ),
    devices={"gpu-1": cdi.Edits(env={"WHO": "one"}), "gpu-0": cdi.Edits(device_nodes=(GPU0,))},
)

DOCUMENT = {
    "cdiVersion": "0.5.0",
    "kind": "k8s.gpu.nvidia.com/claim",
    "devices": [
        {
            "name": f"{UID}-gpu-0",
            "containerEdits": {
                "deviceNodes": [
                    {
                        "path": "/dev/nvidia0",
                        "hostPath": "/dev/nvidia0",
                        "type": "c",
                        "major": 195,
                        "minor": 0,
                        "fileMode": 438,
                        "permissions": "rw",
                    }
                ]
            },
        },
        {"name": f"{UID}-gpu-1", "containerEdits": {"env": ["WHO=one"]}},
    ],
    "containerEdits": {
        "env": ["LD_LIBRARY_PATH=/usr/local/nvidia/lib64", "NVIDIA_VISIBLE_DEVICES=void"],
        "deviceNodes": [
            {
                "path": "/dev/nvidiactl",
                "hostPath": "/run/nvidia/driver/dev/nvidiactl",
                "type": "c",
                "major": 195,
                "minor": 255,
                "fileMode": 432,
                "permissions": "rw",
            }
        ],
        "mounts": [
            {
                "hostPath": "/host/libcuda.so.1",
                "containerPath": "/usr/local/nvidia/lib64/libcuda.so.1",
                "options": ["ro", "nosuid", "nodev", "rbind", "rprivate"],
            },
            {
                "hostPath": "/host/socket",
                "containerPath": "/run/socket",
                "options": ["ro", "noexec"],
            },
        ],
        "hooks": [
            {
                "hookName": "createContainer",
                "path": "/usr/bin/nvidia-cdi-hook",
                "args": ["nvidia-cdi-hook", "update-ldcache"],
                "env": ["A=b"],
            },
            {"hookName": "createContainer", "path": "/usr/bin/true", "args": []},
        ],
    },
}


def test_a_spec_has_the_edits_of_each_device_and_the_common_ones():
    text = cdi.spec(DRIVER, UID, FULL)
    assert json.loads(text) == DOCUMENT
    assert text.splitlines() == [
        "{",
        *(f' "{name}": {json.dumps(DOCUMENT[name])},' for name in list(DOCUMENT)[:-1]),
        f' "{list(DOCUMENT)[-1]}": {json.dumps(DOCUMENT[list(DOCUMENT)[-1]])}',
        "}",
    ]


def test_equal_injections_give_equal_bytes():
    other = cdi.Injection(
        cdi.Edits(
            env=dict(reversed(FULL.common.env.items())),
            device_nodes=FULL.common.device_nodes,
            mounts=FULL.common.mounts,
            hooks=FULL.common.hooks,
        ),
        dict(reversed(FULL.devices.items())),
    )
    assert cdi.spec(DRIVER, UID, other) == cdi.spec(DRIVER, UID, FULL)


def test_a_device_that_brings_nothing_gets_a_variable_since_empty_edits_are_invalid():
    text = cdi.spec(DRIVER, "0a-1b", cdi.Injection(cdi.Edits(), {"gpu-0": cdi.Edits()}))
    assert json.loads(text) == {
        "cdiVersion": "0.5.0",
        "kind": "k8s.gpu.nvidia.com/claim",
        "devices": [
            {
                "name": "0a-1b-gpu-0",
                "containerEdits": {"env": ["DRA_CLAIM_0A_1B_GPU_0=gpu-0"]},
            }
        ],
    }


def test_names_are_those_of_the_peer():
    assert cdi.kind(DRIVER) == "k8s.gpu.nvidia.com/claim"
    assert cdi.device_id(DRIVER, "0a1b", "gpu-0") == "k8s.gpu.nvidia.com/claim=0a1b-gpu-0"
    assert cdi.file_name(DRIVER, "0a1b") == "k8s.gpu.nvidia.com-claim_0a1b.json"


@pytest.mark.parametrize(
    ("name", "uid"),
    [
        ("k8s.gpu.nvidia.com-claim_0a1b.json", "0a1b"),
        ("k8s.gpu.nvidia.com-claim_0a1b.yaml", None),
        (".k8s.gpu.nvidia.com-claim_0a1b.json.new", None),
        ("k8s.gpu.example.com-claim_0a1b.json", None),
        ("k8s.gpu.nvidia.com.other-claim_0a1b.json", None),
        ("nvidia.json", None),
    ],
)
def test_only_our_own_spec_files_name_a_claim(name, uid):
    assert cdi.claim_uid(DRIVER, name) == uid


def test_the_devices_of_a_spec_are_read_back():
    assert cdi.device_keys(UID, cdi.spec(DRIVER, UID, FULL)) == ("gpu-0", "gpu-1")


@pytest.mark.parametrize(
    "text",
    ["", "{", "null", "[]", "{}", '{"devices": 1}', '{"devices": [{}]}', '{"devices": [1]}',
     '{"devices": [{"name": 5}]}', '{"devices": [{"name": null}]}'],
)  # fmt: skip
def test_a_damaged_spec_has_no_devices(text):
    assert cdi.device_keys(UID, text) == ()


def test_variables_and_mounts_of_devices_are_read_back_from_a_spec():
    mounts = (
        cdi.Mount("/var/lib/mps/0/pipe", "/tmp/nvidia-mps"),
        cdi.Mount("/var/lib/mps/0/shm", "/dev/shm", ("rw", "nosuid")),
    )
    own = cdi.Edits({"A": "b=c", "D": ""}, (GPU0,), mounts)
    written = cdi.Injection(cdi.Edits(env={"ALL": "1"}), {"gpu-0": own, "gpu-1": cdi.Edits()})
    found = cdi.edits(UID, cdi.spec(DRIVER, UID, written))
    assert found["gpu-0"] == cdi.Edits({"A": "b=c", "D": ""}, mounts=mounts)
    assert found["gpu-1"].mounts == ()


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", '{"devices": [{"name": "x"}]}',
     '{"devices": [{"name": "x", "containerEdits": {"env": ["no equals sign"]}}]}'],
)  # fmt: skip
def test_a_damaged_spec_tells_no_variables_and_mounts(text):
    assert cdi.edits(UID, text) == {}


def test_every_spec_is_valid_and_may_be_injected_twice():
    check(cdi.spec(DRIVER, UID, FULL))
    once = inject(DOCUMENT, [f"{UID}-gpu-0", f"{UID}-gpu-1"])
    twice = inject(DOCUMENT, [f"{UID}-gpu-0", f"{UID}-gpu-1", f"{UID}-gpu-0", f"{UID}-gpu-1"])
    assert once == twice
    assert len(once["hooks"]) == 2


PATHS = st.from_regex(r"/[a-z]{1,4}(/[a-z0-9.]{1,4}){0,2}", fullmatch=True)
EDITS = st.builds(
    cdi.Edits,
    env=st.dictionaries(st.from_regex(r"[A-Z_]{1,6}", fullmatch=True), st.text(max_size=5)),
    device_nodes=st.lists(
        st.builds(driver.DeviceNode, PATHS, PATHS, *[st.integers(0, 255)] * 2,
                  st.integers(0, 0o777)), max_size=2, unique_by=lambda node: node.path,
    ).map(tuple),
    mounts=st.lists(st.builds(cdi.Mount, PATHS, PATHS), max_size=2).map(tuple),
)  # fmt: skip
NAMES = st.from_regex(r"[a-z]([a-z0-9-]{0,10}[a-z0-9])?", fullmatch=True)
INJECTIONS = st.builds(cdi.Injection, EDITS, st.dictionaries(NAMES, EDITS, min_size=1, max_size=4))


@given(st.uuids().map(str), INJECTIONS)
def test_every_injection_gives_a_valid_spec_with_each_device_once(uid, injection):
    document = check(cdi.spec(DRIVER, uid, injection))
    assert [device["name"] for device in document["devices"]] == [
        f"{uid}-{name}" for name in sorted(injection.devices)
    ]
    every = [device["name"] for device in document["devices"]]
    assert inject(document, every) == inject(document, every * 2)


# What a runtime's CDI library accepts at version 0.5.0: `specs-go/config.go`, `schema/schema.json`
# and `pkg/cdi/spec.go` of cncf-tags/container-device-interface.
FIELDS = {"env", "deviceNodes", "mounts", "hooks"}
NODE_FIELDS = {
    "path", "hostPath", "type", "major", "minor", "fileMode", "permissions", "uid", "gid",
}  # fmt: skip
HOOKS = {
    "prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop",
}  # fmt: skip


def check(text):
    document = json.loads(text)
    assert document.keys() <= {"cdiVersion", "kind", "devices", "containerEdits"}
    assert document["cdiVersion"] == "0.5.0"
    assert re.fullmatch(r"[A-Za-z][\w.-]*[A-Za-z0-9]/[A-Za-z][\w-]*[A-Za-z0-9]", document["kind"])
    names = [device["name"] for device in document["devices"]]
    assert names
    assert len(set(names)) == len(names)
    for device in document["devices"]:
        assert device.keys() == {"name", "containerEdits"}
        assert re.fullmatch(r"[A-Za-z0-9]([\w.:-]*[A-Za-z0-9])?", device["name"], re.ASCII)
        check_edits(device["containerEdits"])
    if "containerEdits" in document:
        check_edits(document["containerEdits"])
    return document


def check_edits(edits):
    assert edits
    assert edits.keys() <= FIELDS
    assert all(edits.values())
    for variable in edits.get("env", ()):
        assert re.match(r"[^=]+=", variable)
    for node in edits.get("deviceNodes", ()):
        assert {"path"} <= node.keys() <= NODE_FIELDS
        assert node["path"].startswith("/")
        assert node["type"] in ("b", "c", "u", "p")
        assert set(node["permissions"]) <= set("rwm")
    for mount in edits.get("mounts", ()):
        assert {"hostPath", "containerPath"} <= mount.keys() <= {
            "hostPath", "containerPath", "options", "type",
        }  # fmt: skip
        assert mount["hostPath"]
        assert mount["containerPath"]
    for hook in edits.get("hooks", ()):
        assert {"hookName", "path"} <= hook.keys() <= {
            "hookName", "path", "args", "env", "timeout",
        }  # fmt: skip
        assert hook["hookName"] in HOOKS
        assert hook["path"]


def inject(document, names):
    """What a container gets: as `InjectDevices` and `ContainerEdits.Apply` of the library do it."""
    container = {"env": {}, "nodes": {}, "mounts": {}, "hooks": []}
    devices = {device["name"]: device["containerEdits"] for device in document["devices"]}
    edits = [document.get("containerEdits", {}), *(devices[name] for name in names)]
    for edit in edits:
        for variable in edit.get("env", ()):
            key, _, value = variable.partition("=")
            container["env"][key] = value
        for node in edit.get("deviceNodes", ()):
            container["nodes"][node["path"]] = node
        for mount in edit.get("mounts", ()):
            container["mounts"].pop(mount["containerPath"], None)
            container["mounts"][mount["containerPath"]] = mount
        container["hooks"] += edit.get("hooks", ())
    return container
