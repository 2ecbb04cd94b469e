"""This driver's CDI specs as the CDI libraries of container runtimes read them.

The rules are those of cncf-tags/container-device-interface 05ae4b5b, specs-go/version.go (the least
version for the fields of a spec: a library refuses a spec that says less, and one of a version that
it does not know) and pkg/cdi/cache.go, spec.go (directories, names of files, devices of one name).
"""

import json
import pathlib
import re

import pytest

from dra_driver import settings
from dra_driver.logic.preparing import cdi
from dra_driver.model import driver

DIRECTORIES = [pathlib.Path("/etc/cdi"), pathlib.Path("/var/run/cdi")]
"""Where libraries look by default; of one name in both the later directory's device counts."""
OLDEST = "0.5.0"
"""The newest that libraries of 0.5 know; containerd has one since 1.7 (its pull request 7374)."""


def every_edit(spec):
    return [device["containerEdits"] for device in spec["devices"]] + [
        spec.get("containerEdits", {})
    ]


def least_version(spec):
    """The least version in which all fields of a spec are known."""
    edits = every_edit(spec)
    resctrl = [edit["intelRdt"] for edit in edits if "intelRdt" in edit]
    nodes = [node for edit in edits for node in edit.get("deviceNodes", ())]
    mounts = [mount for edit in edits for mount in edit.get("mounts", ())]
    names = [device["name"] for device in spec["devices"]]
    if any(edit.get("netDevices") for edit in edits) or any(
        "schemata" in one or one.get("enableMonitoring") for one in resctrl
    ):
        return "1.1.0"
    if resctrl or any(edit.get("additionalGids") for edit in edits):
        return "0.7.0"
    annotated = [spec, *spec["devices"]]
    if any(one.get("annotations") for one in annotated) or "." in spec["kind"].partition("/")[2]:
        return "0.6.0"
    if any(name[0].isdigit() for name in names) or any(node.get("hostPath") for node in nodes):
        return "0.5.0"
    return "0.4.0" if any(mount.get("type") for mount in mounts) else "0.3.0"


def numbers(version):
    return tuple(int(part) for part in version.split("."))


@pytest.fixture(scope="module")
def written(fleet):
    """The specs of claims of each kind of device and sharing."""
    small = {"cel": {"expression": 'device.attributes["gpu.nvidia.com"].profile == "1g.10gb"'}}
    share = {"capacity": {"requests": {"memory": "1Gi", "cores": "5"}}}
    wanted = [
        ("plain", "mps.gpu.nvidia.com", {}),
        ("plain", "gpu.nvidia.com", {}),
        ("mig", "mig.nvidia.com", {"selectors": [small]}),
        ("shared", "shared.gpu.nvidia.com", share),
    ]
    pods = [
        fleet.pod(
            [{"name": "gpu", "exactly": {"deviceClassName": name, **fields}}], node=node
        ).wait_running()
        for node, name, fields in wanted
    ]
    yield [spec for node in ("plain", "mig", "shared") for spec in fleet.specs(node)]
    for pod in pods:
        pod.delete()


def real(uid):
    """The spec of a claim with what a real GPU brings: nodes of another root, files, a hook."""
    node = driver.DeviceNode("/dev/nvidia0", "/run/nvidia/driver/dev/nvidia0", 195, 0, 0o666)
    hook = cdi.Hook("/usr/bin/nvidia-cdi-hook", ("nvidia-cdi-hook", "update-ldcache"))
    mount = cdi.Mount("/run/nvidia/driver/usr/bin/nvidia-smi", "/usr/bin/nvidia-smi")
    common = cdi.Edits(env={"NVIDIA_VISIBLE_DEVICES": "void"}, mounts=(mount,), hooks=(hook,))
    injection = cdi.Injection(common, {"gpu-0": cdi.Edits(device_nodes=(node,))})
    return json.loads(cdi.spec("gpu.nvidia.com", uid, injection))


def test_specs_say_the_least_version_with_all_their_fields(written):
    specs = [
        *written,
        real("0a1b2c3d-0000-4000-8000-000000000000"),
        real("fa1b2c3d-0000-4000-8000-000000000000"),
    ]
    # One of each claim, and one that mounts what its containers read of their devices.
    assert len(specs) == 4 * 2 + 2
    assert {spec["cdiVersion"] for spec in specs} == {OLDEST}
    least = [numbers(least_version(spec)) for spec in specs]
    assert max(least) == numbers(OLDEST)


def test_a_spec_for_a_real_gpu_needs_that_version_whatever_the_claim_is_called():
    for uid in ("0a1b2c3d-0000-4000-8000-000000000000", "fa1b2c3d-0000-4000-8000-000000000000"):
        assert least_version(real(uid)) == OLDEST


def test_specs_are_where_libraries_look_by_default():
    assert settings.KubeletPlugin(node_name="node").cdi_dir in DIRECTORIES


def test_files_have_names_that_are_read_and_no_device_is_in_two(fleet, written):
    directory = fleet.running.nodes["plain"].cdi_dir
    names = [path.name for path in directory.iterdir()]
    assert names
    assert all(re.fullmatch(r"[^.].*\.(json|yaml)", name) for name in names)
    devices = [(spec["kind"], device["name"]) for spec in written for device in spec["devices"]]
    assert len(devices) == len(set(devices))


def test_names_are_those_that_the_library_takes(written):
    for spec in written:
        vendor, _, kind = spec["kind"].partition("/")
        assert re.fullmatch(r"[A-Za-z]([\w.-]*[A-Za-z0-9])?", vendor, re.ASCII)
        assert re.fullmatch(r"[A-Za-z]([\w-]*[A-Za-z0-9])?", kind, re.ASCII)
        for device in spec["devices"]:
            assert re.fullmatch(r"[A-Za-z0-9]([\w.:-]*[A-Za-z0-9])?", device["name"], re.ASCII)
