"""The plugin with each Kubernetes of docs/compatibility.md: its API versions and its gates."""

import api_cluster
import plugin_process
import pytest

from dra_driver.logic.offering import publishing

pytestmark = pytest.mark.sampled(11)

COUNTERS, SHARES = "DRAPartitionableDevices", "DRAConsumableCapacity"
WHOLE = ("gpu-0", "gpu-1")
PLAIN, COMBINED, SPLIT = publishing.Layout
BETA = ("v1beta1",)
BOTH = ("v1beta2", "v1beta1")
NOT_KEPT = (
    "the API server dropped what was reported of devices; going on without. "
    "Is the feature gate DRAResourceClaimDeviceStatus off?"
)


@pytest.fixture
def scene():
    """Makes an API server of a version, and a plugin at it that is to make MIG instances."""
    made = []

    def make(minor, versions, gates=(), **flags):
        cluster = api_cluster.Cluster(
            # Schedulers of the first patch releases fail at counters: see `hazards`.
            kubernetes_version=f"v1.{minor}.9-sim",
            resource_versions=versions,
            enabled_gates=frozenset(gates),
        )
        machine = plugin_process.Machine()
        plugin = plugin_process.Plugin(machine, cluster, mig_mode="dynamic", **flags)
        made.append((cluster, machine, plugin))
        plugin.start()
        return cluster, plugin

    yield make
    for cluster, machine, plugin in made:
        plugin.kill()
        complaints = plugin.complaints()
        cluster.close()
        machine.close()
        assert complaints == []


def specs(cluster):
    """What is in the slices, as v1."""
    return [publishing.from_version(body, cluster.version)["spec"] for body in cluster.slices()]


def devices(cluster):
    return [device for spec in specs(cluster) for device in spec.get("devices") or ()]


def layout(cluster):
    """Where the counters are."""
    found = [spec for spec in specs(cluster) if spec.get("sharedCounters")]
    if not found:
        return PLAIN
    return COMBINED if any(spec.get("devices") for spec in found) else SPLIT


def wait_published(cluster, count):
    api_cluster.wait_for(
        lambda: len(devices(cluster)) >= count, f"{count} devices: {devices(cluster)}"
    )


@pytest.mark.parametrize(
    ("minor", "versions", "gates", "expected"),
    [
        (32, BETA, (), PLAIN),
        (33, BOTH, (), PLAIN),
        (33, BOTH, (COUNTERS,), PLAIN),
        (34, ("v1",), (), PLAIN),
        (34, ("v1",), (COUNTERS,), COMBINED),
        (35, ("v1",), (), PLAIN),
        (35, ("v1",), (COUNTERS,), SPLIT),
        (36, ("v1",), (), SPLIT),
        (37, ("v1",), (), SPLIT),
        (38, ("v1",), (), SPLIT),
    ],
)
def test_partitions_are_offered_where_their_counters_are_kept(
    scene, minor, versions, gates, expected
):
    cluster, plugin = scene(minor, versions, gates)
    wait_published(cluster, 2 if expected is PLAIN else 3)
    assert layout(cluster) is expected
    names = {device["name"] for device in devices(cluster)}
    assert (names == set(WHOLE)) is (expected is PLAIN)
    ref = cluster.claim("gpu-1")
    assert plugin.kubelet.prepare(ref) == [plugin_process.device(ref, "gpu-1")]


@pytest.mark.parametrize(
    ("minor", "versions", "gates", "expected"),
    [
        (32, BETA, (), False),
        (33, BOTH, (), False),
        (34, ("v1",), (), False),
        (34, ("v1",), (SHARES,), True),
        (35, ("v1",), (), False),
        (35, ("v1",), (SHARES,), True),
        (36, ("v1",), (), True),
        (37, ("v1",), (), True),
        (38, ("v1",), (), True),
    ],
)
def test_where_shares_are_not_kept_a_device_goes_to_one_claim_and_that_is_said(
    scene, minor, versions, gates, expected
):
    cluster, plugin = scene(minor, versions, gates, shares="memory", gpus="t4:1")
    wait_published(cluster, 1)
    if not expected:
        [line] = plugin.wait_log(
            "the API server dropped fields of ResourceSlices; going on without them. "
            "Is the feature gate off?"
        )
        assert "devices[].allowMultipleAllocations" in line["fields"]
        ref = cluster.claim("gpu-0")
        assert plugin.kubelet.prepare(ref) == [plugin_process.device(ref, "gpu-0")]
    [device] = devices(cluster)
    assert device.get("allowMultipleAllocations", False) is expected


@pytest.mark.parametrize(
    ("minor", "versions", "expected"),
    [
        (32, BETA, False),
        (33, BOTH, True),
        (34, ("v1",), True),
        (36, ("v1",), True),
        (38, ("v1",), True),
    ],
)
def test_what_became_of_a_claim_is_in_its_status_where_that_is_kept(
    scene, minor, versions, expected
):
    cluster, plugin = scene(minor, versions)
    wait_published(cluster, 2)
    ref = cluster.claim("gpu-1")
    plugin.kubelet.prepare(ref)
    if not expected:
        plugin.wait_log(NOT_KEPT)
    else:
        api_cluster.wait_for(
            lambda: cluster.get_claim(ref)["status"].get("devices"), "status.devices"
        )
    assert bool(cluster.get_claim(ref)["status"].get("devices")) is expected
