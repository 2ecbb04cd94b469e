"""What is told of claims whose GPU a virtual machine has."""

from dra_driver.apps.telling import gpu_health
from dra_driver.logic.health import conditions, meaning
from dra_driver.model import devices, health


def test_a_virtual_machine_s_gpu_is_not_gone_and_its_health_is_not_known(new_node, api):
    node = new_node(vfio="on")
    made = []
    told = gpu_health.GpuHealth(node.gpus, on_change=lambda *change: made.append(change))
    ref = api.make("gpu-vfio-0", "gpu-1")
    node.prepare(ref)
    node.gpus.look()
    told.tell(node.store.records.contents().records.values())
    assert made == []
    record = node.record(ref)
    assert told.gone(record) == {}
    found = gpu_health.reported(record, conditions.View())
    assert (found["gpu-vfio-0"].healthy, found["gpu-1"].healthy) == (None, True)
    assert found["gpu-vfio-0"].reason == "Unmonitored"
    assert found["gpu-vfio-0"].message == (
        f"bound to vfio-pci for claim default/{ref.name}: NVML does not see it"
    )


def test_a_virtual_machine_s_gpu_that_is_stranded_is_unhealthy(new_node, api):
    node = new_node(vfio="on")
    ref = api.make("gpu-vfio-0")
    node.prepare(ref)
    gpu = devices.GpuUuid(node.uuid(0))
    finding = meaning.stranded(gpu, "it has no driver", meaning.Policy())
    view = conditions.View((health.Condition(finding, "2026-11-30T10:00:00Z"),))
    found = gpu_health.reported(node.record(ref), view)["gpu-vfio-0"]
    assert (found.healthy, found.reason, found.message) == (
        False,
        "Passthrough",
        "it has no driver",
    )
