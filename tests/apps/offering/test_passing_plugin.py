"""The plugin publishes GPUs for virtual machines, of a simulated PCI bus."""

import api_cluster
import fabric_library
import pytest

pytestmark = pytest.mark.sampled(3)

PANICS = "v1.36.1"


def attributes(cluster, name):
    [device] = [
        one
        for piece in cluster.slices()
        for one in piece["spec"].get("devices") or ()
        if one["name"] == name
    ]
    return {key: next(iter(value.values())) for key, value in device["attributes"].items()}


def test_each_gpu_is_published_for_virtual_machines_too(own_plugin, own_cluster):
    own_plugin(gpus="t4:2", vfio="on").start()
    own_cluster.wait_devices("gpu-0", "gpu-1", "gpu-vfio-0", "gpu-vfio-1")
    told = [attributes(own_cluster, name) for name in ("gpu-0", "gpu-vfio-0")]
    assert told[1]["type"] == "vfio"
    assert told[1]["gpuUUID"] == told[0]["uuid"]
    place = "resource.kubernetes.io/pciBusID"
    assert told[1][place] == told[0][place]
    [sets] = [one for one in own_cluster.slices() if one["spec"].get("sharedCounters")]
    assert [one["name"] for one in sets["spec"]["sharedCounters"]] == [
        "gpu-0-counter-set", "gpu-1-counter-set"
    ]  # fmt: skip


def test_where_counters_stop_the_scheduler_gpus_are_whole_and_it_is_said(own_plugin, own_cluster):
    own_cluster.upgrade(kubernetes_version=PANICS)
    plugin = own_plugin(gpus="t4:1", vfio="on").start()
    own_cluster.wait_devices("gpu-0")
    api_cluster.wait_for(
        lambda: any(
            line["event"].startswith("VFIO devices are not offered: kube-scheduler v1.36.1 panics")
            for line in plugin.log()
        ),
        "the log to say so",
    )


def test_for_virtual_machines_alone_they_are_published_without_counters(own_plugin, own_cluster):
    own_cluster.upgrade(kubernetes_version=PANICS)
    own_plugin(gpus="t4:1", vfio="only").start()
    own_cluster.wait_devices("gpu-vfio-0")


def test_partitions_of_fabric_manager_are_attributes(own_plugin, own_cluster, own_machine):
    fabric_library.Library(partitions=((0, (1, 2)), (1, (1,)), (2, (2,))), knows=1).compile(
        own_machine.simulation / "driver/usr/lib64/libnvfm.so.1"
    )
    own_plugin(gpus="h100-80gb-hbm3:2", vfio="on", fabric_manager="127.0.0.1:6666").start()
    own_cluster.wait_devices("gpu-0", "gpu-1", "gpu-vfio-0", "gpu-vfio-1")

    def told(name):
        known = attributes(own_cluster, name)
        return [known.get(one) for one in ("gpuModuleID", "partition1", "partition2", "partition4")]

    expected = {"gpu-0": [1, 1, 0, None], "gpu-vfio-1": [2, 2, 0, None]}
    api_cluster.wait_for(
        lambda: {name: told(name) for name in expected} == expected, "partitions to be told"
    )


def test_a_fabric_manager_that_does_not_answer_is_told_and_keeps_nothing_back(
    own_plugin, own_cluster
):
    plugin = own_plugin(gpus="t4:1", vfio="on", fabric_manager="unix:/run/nowhere").start()
    own_cluster.wait_devices("gpu-0", "gpu-vfio-0")
    api_cluster.wait_for(
        lambda: any(
            line["event"] == "Fabric Manager tells no partitions"
            and "no libnvfm.so.1 or libnvfm.so in" in line["reason"]
            for line in plugin.log()
        ),
        "the log to say so",
    )
