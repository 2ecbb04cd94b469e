"""What the XIDs of NVIDIA's driver mean: a table, not code.

Source: NVIDIA, "XID Errors", the catalog for Ampere and newer, and the list for older GPUs, whose
immediate action decides here: where an application is to be restarted, or nothing to be done, the
card stays in use; where the card or the node is to be reset, it is withdrawn. An XID is not in the
table where that catalog calls it unused: it counts as `UNKNOWN`.
"""

import dataclasses
from collections.abc import Mapping

from dra_driver.model import health, taints

_APP, _DRIVER = health.Fault.APPLICATION, health.Fault.DRIVER
_CARD, _BUS, _FABRIC = health.Fault.HARDWARE, health.Fault.BUS, health.Fault.FABRIC

_RESTART = "restart the application"
_NOTHING = "nothing has to be done"
_RESET = "the GPU needs a reset"
_REBOOT = "the node needs a reboot"
_SUPPORT = "if it comes again, ask the vendor of the machine"
_LINK = "the GPU needs a reset; if it comes again, have the NVLink connection checked"
_POWER = "power down the node and check the card's power cables and seat"
_UPDATE = "update the driver and the firmware"


@dataclasses.dataclass(frozen=True, slots=True)
class Xid:
    """What one XID says: `what` has happened, whose `fault` it is, and what is to be `done`."""

    number: int
    what: str
    fault: health.Fault
    withdraws: bool
    done: str

    @property
    def effect(self) -> str:
        """That of its taint."""
        return taints.NO_SCHEDULE if self.withdraws else taints.NONE

    @property
    def message(self) -> str:
        """For the users of the card."""
        whose = ": this is the application's" if self.fault is _APP else ""
        return f"XID {self.number}: {self.what}{whose}; {self.done}"


NEVER_WITHDRAW = frozenset({13, 31, 43, 45, 68, 109})
"""The application's whatever the settings say; the peer has the same."""


def of(number: int) -> Xid:
    """What an XID means."""
    known = TABLE.get(number)
    return known or Xid(number, "an error that is not known here", _CARD, True, _UNKNOWN_DONE)  # noqa: FBT003


_UNKNOWN_DONE = f"{_RESET}; look it up in NVIDIA's list of XIDs"


def _rows(
    fault: health.Fault, done: str, rows: Mapping[int, str], *, withdraws: bool
) -> dict[int, Xid]:
    return {number: Xid(number, what, fault, withdraws, done) for number, what in rows.items()}


_COPY_ENGINES = {70: 3, 71: 4, 72: 5, 75: 6, 76: 7, 77: 8, 85: 9}
_COPY_ENGINES |= {126 + number: 10 + number for number in range(10)}
_DECODERS = {68: 0, 83: 1, 84: 2, 88: 3, 89: 4, 96: 5, 97: 6, 98: 7}
_JPEG_ENGINES = {82: 0} | {99 + number: 1 + number for number in range(7)}

TABLE: Mapping[int, Xid] = {
    **_rows(
        _APP,
        _RESTART,
        {
            8: "the GPU stopped processing a channel",
            11: "an invalid or corrupted stream of commands",
            13: "an exception in the graphics engine, as of an access out of bounds",
            25: "an invalid stream of commands",
            31: "a page fault in the GPU's memory",
            39: "an exception in copy engine 0",
            40: "an exception in copy engine 1",
            41: "an exception in copy engine 2",
            43: "the GPU stopped a process after a fault of its software",
            45: "a process was cleaned up after an earlier error or its end",
            60: "an exception in the video processor",
            69: "an error of class in the graphics engine",
            80: "corrupted data was sent to the GPU",
            86: "an exception in optical flow accelerator 0",
            109: "a context switch took too long",
            137: "an access to a peer over NVLink that is not allowed",
            139: "an exception in optical flow accelerator 1",
            141: "an error on CUDA's fast path",
            **{xid: f"an error in copy engine {number}" for xid, number in _COPY_ENGINES.items()},
            **{xid: f"an error in video decoder {number}" for xid, number in _DECODERS.items()},
            **{xid: f"an error in JPEG engine {number}" for xid, number in _JPEG_ENGINES.items()},
        },
        withdraws=False,
    ),
    **_rows(
        _DRIVER,
        f"{_NOTHING}; {_SUPPORT}",
        {
            14: "a test error that somebody injected",
            37: "an error in the driver's firmware",
            38: "the driver's firmware took too long",
            44: "a fault in the graphics engine at a context switch",
            66: "an illegal access by the driver",
            67: "an illegal access by the driver",
            106: "a test message of the management interface",
            107: "a test message of the management interface",
            154: "the driver's wish for recovery has changed",
            160: "a channel was retired",
            161: "a channel could not be retired",
        },
        withdraws=False,
    ),
    **_rows(
        _DRIVER,
        _RESET,
        {
            46: "the GPU stopped processing",
            62: "an internal micro-controller has halted",
            119: "the GPU's system processor (GSP) does not answer",
            120: "an error in the GPU's system processor (GSP)",
            143: "the GPU could not be initialised",
            158: "the GPU did not answer in time",
            159: "an error on the connection to the processor's memory",
            169: "an internal micro-controller has halted",
        },
        withdraws=True,
    ),
    **_rows(
        _DRIVER,
        _UPDATE,
        {78: "a vGPU could not be started", 151: "an error at the rotation of keys"},
        withdraws=True,
    ),
    **_rows(
        _CARD,
        f"{_NOTHING} at once; {_SUPPORT}",
        {
            63: "bad memory was marked to be replaced",
            92: "many corrected memory errors",
            93: "the limit of writes to the card's InfoROM is reached",
            121: "corrected errors on the connection to the processor",
            157: "nothing is left to repair a bad part of the chip with",
            162: "power smoothing is on again",
            163: "power smoothing is off",
            164: "power smoothing will wear out soon",
            165: "power smoothing is worn out",
        },
        withdraws=False,
    ),
    **_rows(
        _CARD,
        f"{_RESTART}; reset the GPU when that is convenient",
        {94: "a memory error, contained in one application"},
        withdraws=False,
    ),
    **_rows(
        _CARD,
        f"{_RESET}; {_SUPPORT}",
        {
            48: "a memory error that could not be corrected",
            64: "bad memory could not be marked to be replaced",
            95: "a memory error that may have reached several applications",
            110: "a security fault",
            140: "a memory error that the driver could not recover from",
            156: "a bad part of the chip is to be replaced",
            168: "errors in protected memory",
            171: "a memory error that could not be corrected (DRAM)",
            172: "a memory error that could not be corrected (SRAM)",
        },
        withdraws=True,
    ),
    **_rows(_CARD, _POWER, {54: "the card's own power cable is not connected"}, withdraws=True),
    **_rows(_CARD, f"{_RESET}; {_SUPPORT}", {142: "an error in video encoder 3"}, withdraws=True),
    **_rows(
        _BUS,
        f"{_RESTART}; {_SUPPORT}",
        {32: "a corrupted stream of commands, mostly for want of quality of the PCI bus"},
        withdraws=False,
    ),
    **_rows(
        _BUS,
        _REBOOT,
        {
            79: "the GPU has fallen off the bus",
            167: "the PCI bus did not answer in time",
        },
        withdraws=True,
    ),
    **_rows(
        _FABRIC,
        _LINK,
        {
            74: "an error of NVLink",
            136: "an NVLink could not be trained",
            144: "an error of NVLink (SAW)",
            145: "an error of NVLink (RLW)",
            146: "an error of NVLink (TLW)",
            147: "an error of NVLink (TREX)",
            148: "an error of NVLink (NVLPW)",
            149: "an error of NVLink (NETIR)",
            150: "an error of NVLink (MSE)",
            155: "an NVLink went down that software has set",
            166: "traffic on NVLink before it was encrypted",
            170: "an error of encrypted traffic on NVLink",
        },
        withdraws=True,
    ),
}
