"""What the doctor makes of the health of each GPU: what is wrong with it, and what to do."""

from collections.abc import Iterable, Mapping, Sequence

from dra_driver.logic.doctor import diagnosis
from dra_driver.logic.health import conditions
from dra_driver.model import devices, health, taints

_CHECK = "health"
_EMPTY = "end the pods that have the GPU (dra-driver status tells them), then run "
_RESET = f"{_EMPTY}nvidia-smi --gpu-reset -i {{gpu}} on the node; --recovery reset does it alone"
_REBOOT = "kubectl drain {node}, and reboot the node"
_REMEDIES: Mapping[tuple[health.Key, str], str] = {
    (health.Key.RECOVERY, "reboot"): _REBOOT,
    (health.Key.RECOVERY, "drain"): "end the pods that have the GPU (dra-driver status tells them)",
    (health.Key.RECOVERY, ""): _RESET,
    (health.Key.MEMORY, "remap-failed"): "have the card replaced",
    (health.Key.MEMORY, ""): _RESET,
    (health.Key.GPU_LOST, ""): f"dmesg | grep -i xid on the node tells why; {_REBOOT}",
    (health.Key.DRIVER, ""): "modprobe nvidia on the node; dmesg | grep -i nvrm tells why it fails",
    (health.Key.FABRIC, ""): "systemctl status nvidia-fabricmanager, and nvidia-smi nvlink -s",
    (health.Key.THERMAL, ""): "look at cooling and power: nvidia-smi -q -d PERFORMANCE",
    (health.Key.UNMONITORED, ""): "update the NVIDIA driver, or go by nvidia-smi -q",
    (health.Key.PASSTHROUGH, ""): (
        "the driver tries it again and again; dmesg | grep -i -e vfio -e nvrm tells what is in the "
        "way. If nothing else helps: kubectl drain {node}, and reboot the node"
    ),
    (health.Key.XID, ""): "docs/health.md tells what XIDs mean; dmesg | grep -i xid has more",
}


def findings(
    gpus: Sequence[devices.Gpu], known: Iterable[health.Condition], looked_at: str, *, node: str
) -> list[diagnosis.Finding]:
    """A line for each thing that is wrong with a GPU; one if there is none.

    `known` are conditions that count, of this look and of those before; of equal ones the oldest.
    """
    if not gpus:
        return []
    found = []
    view = conditions.View(tuple(known))
    for gpu in gpus:
        told: dict[tuple[str, str], health.Condition] = {}
        for one in view.of_gpu(gpu.uuid):
            told.setdefault((one.finding.key, one.finding.value), one)
        found += [_finding(gpu, one, looked_at, node) for one in told.values()]
    return found or [diagnosis.fine(_CHECK, looked_at, "the driver complains of no GPU")]


def unlisted(
    gpus: Sequence[devices.Gpu], known: Iterable[health.Condition], looked_at: str, *, node: str
) -> list[diagnosis.Finding]:
    """What is remembered of GPUs that NVML does not list, since a virtual machine had them."""
    listed = {gpu.uuid for gpu in gpus}
    return [
        _told(f"GPU {one.finding.gpu}", one, looked_at, node)
        for one in known
        if one.finding.key is health.Key.PASSTHROUGH and one.finding.gpu not in listed
    ]


def _finding(
    gpu: devices.Gpu, one: health.Condition, looked_at: str, node: str
) -> diagnosis.Finding:
    return _told(f"GPU {gpu.index} ({gpu.product_name})", one, looked_at, node, gpu.uuid)


def _told(
    name: str, one: health.Condition, looked_at: str, node: str, uuid: str = ""
) -> diagnosis.Finding:
    finding = one.finding
    place = "" if finding.spot is None else f", its instance at {finding.spot.placement}"
    since = f" since {one.since}" if one.since else ""
    cause = f"{name}{place}{since}: {finding.message}"
    remedy = _REMEDIES.get((finding.key, finding.value)) or _REMEDIES[finding.key, ""]
    remedy = remedy.format(gpu=uuid, node=node)
    kind = diagnosis.note if finding.effect == taints.NONE else diagnosis.problem
    return kind(_CHECK, looked_at, cause, remedy)
