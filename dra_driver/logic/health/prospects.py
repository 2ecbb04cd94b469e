"""What a taint says to those who want its device, or have it: what is wrong, what to wait for."""

from collections.abc import Mapping
from types import MappingProxyType

from dra_driver.logic.health import xids
from dra_driver.model import health, taints

_Key = health.Key

_GONE = "wait until it is gone"
"""For a taint of somebody else."""
_RESET = "wait for the reset of the card"
_REBOOT = "wait for a reboot of the node"

_ROWS: Mapping[tuple[str, str], tuple[str, str]] = MappingProxyType(
    {
        (_Key.GPU_LOST, ""): ("the GPU is lost", "wait until its node has it again"),
        (_Key.RECOVERY, "reset"): ("the driver wants the GPU reset", _RESET),
        (_Key.RECOVERY, "reboot"): (
            "the driver wants the node rebooted",
            _REBOOT,
        ),
        (_Key.RECOVERY, "drain"): (
            "the driver wants no more traffic with the GPU's peers",
            "wait until the pods on it and its peers have ended",
        ),
        (_Key.RECOVERY, "drain-and-reset"): (
            "the driver wants the GPU emptied, and then reset",
            "wait until the pods on it have ended, and for the reset of the card",
        ),
        (_Key.MEMORY, "remap-pending"): ("bad memory is replaced with the next reset", _RESET),
        (_Key.MEMORY, "remap-failed"): (
            "bad memory could not be replaced",
            "wait until the card is replaced",
        ),
        (_Key.MEMORY, "ecc"): ("memory errors could not be corrected", _RESET),
        (_Key.THERMAL, ""): (
            "the GPU runs slowly, for heat or want of power",
            "wait until it is cool and has its power",
        ),
        (_Key.FABRIC, ""): (
            "the GPU's NVLink fabric is not as it should be",
            "wait until the fabric is well again",
        ),
        (_Key.DRIVER, ""): ("NVIDIA's driver does not answer", "wait until it does"),
        (_Key.UNMONITORED, ""): ("events of the GPU are not heard", "wait until they are"),
        (_Key.PASSTHROUGH, ""): (
            "the GPU was bound for a virtual machine, and is not where it should be",
            "wait until NVIDIA's driver has it again",
        ),
    }
)
_OF_KEYS = frozenset(_Key)


def meaning(taint: taints.Taint, driver: str) -> str:
    """What is wrong with a device of a driver; empty for a taint that is not this driver's."""
    xid = _xid(taint, driver)
    return _row(taint, driver)[0] if xid is None else xid.message


def awaited(taint: taints.Taint, driver: str) -> str:
    """What to wait for, as a call to do so."""
    xid = _xid(taint, driver)
    if xid is None:
        return _row(taint, driver)[1]
    if xid.fault is health.Fault.APPLICATION:
        return "wait until the pods that have it have ended"
    if "reboot" in xid.done:
        return _REBOOT
    return _RESET if "reset" in xid.done else f"{_GONE}: {xid.done}"


def told(taint: taints.Taint, driver: str) -> str:
    """All of it: `KEY=VALUE:EFFECT since TIME: what is wrong`."""
    what = meaning(taint, driver)
    return f"{taint}{since(taint)}{': ' if what else ''}{what}"


def since(taint: taints.Taint) -> str:
    """Since when it is there, to be put behind it; empty where that is not known."""
    return f" since {taint.added}" if taint.added else ""


def is_own(key: str, driver: str) -> bool:
    """Whether a taint's key is one that the driver gives for the health of a device."""
    return _own(key, driver) in _OF_KEYS


def _own(key: str, driver: str) -> str:
    domain, _, name = key.partition("/")
    return name if domain == driver else ""


def _row(taint: taints.Taint, driver: str) -> tuple[str, str]:
    own = _own(taint.key, driver)
    return _ROWS.get((own, taint.value)) or _ROWS.get((own, "")) or ("", _GONE)


def _xid(taint: taints.Taint, driver: str) -> xids.Xid | None:
    is_one = _own(taint.key, driver) == _Key.XID and taint.value.isdecimal()
    return xids.of(int(taint.value)) if is_one else None
