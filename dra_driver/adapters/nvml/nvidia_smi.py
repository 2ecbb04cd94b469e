"""Time slices of GPUs, through `nvidia-smi compute-policy`, and resets, through `nvidia-smi
--gpu-reset`: NVML has no function for them.

Outside facts, seen with driver 580 on an H100 and in the program's own texts: a listing is a table
with a row `Timeslice` for each GPU; failures are told on standard output, with the reason at the
end of a line after a colon. Exit statuses are those of nvidia-smi(1), and equal NVML's return
codes. A reset that is refused ends with 255 and says for each GPU why (NVIDIA/NVSentinel issue
1690, NVIDIA/gpu-operator issue 118, and the texts of the program of driver 580.159.04).
"""

import re
import subprocess
from collections.abc import Callable, Sequence

from dra_driver import errors
from dra_driver.adapters.driver import driver_programs
from dra_driver.adapters.nvml import nvml_codes, nvml_errors
from dra_driver.adapters.system import short_runs
from dra_driver.model import sharing

PROGRAM = "nvidia-smi"
LIBRARY = "libnvidia-ml.so.1"
"""What the program loads."""

_RESET_OPTION = "--gpu-reset"
RESET_SECONDS = 60.0
"""How long a reset may take; one of a healthy card takes a few."""

_SECONDS = 10.0
_UUID = re.compile(r"GPU-[0-9A-Za-z-]+")
_HEADING = re.compile(r"^\| GPU compute policies: +\|$", re.MULTILINE)
_ROW = re.compile(r"^\| +\d+ +Timeslice +(\S.*?) +\|$", re.MULTILINE)
_UNSUPPORTED = re.compile(r"\bnot supported\b", re.IGNORECASE)
_RESET = re.compile(r"\bsuccessfully reset\b", re.IGNORECASE)
_IN_USE = re.compile(r"\bin use by\b|\bbeing used by\b", re.IGNORECASE)
_NUMBERS = {interval.value: interval.number for interval in sharing.Interval}


class NotSupported(errors.Rejected):
    """The GPU has no time slices to set."""


class Hung(errors.Retryable):
    """It did not end in time, and was killed; what it did is not known."""


class NvidiaSmi:
    """Runs nvidia-smi of the driver, without a shell and without this process's variables.

    Every function raises `nvml_errors.GpuGone` if there is no such GPU, `errors.Retryable` if the
    program is not there (yet) or does not end within seconds, and `errors.Rejected` if asking
    again does not help: no permission, an answer that cannot be understood.
    """

    def __init__(
        self,
        program: Callable[[], driver_programs.Program],
        *,
        seconds: float = _SECONDS,
        reset_seconds: float = RESET_SECONDS,
    ) -> None:
        """`program` is asked at every call. How many seconds one run may take, and one reset."""
        self._program = program
        self._seconds = seconds
        self._reset_seconds = reset_seconds

    def time_slice(self, gpu_uuid: str) -> int | None:
        """The number of the time slice, see `sharing.Interval.number`; None: the GPU has none."""
        doing = f"{_checked(gpu_uuid)}: reading its time slice"
        try:
            return _parsed(self._run(doing, "-i", gpu_uuid, "-l"), doing)
        except NotSupported:
            return None

    def with_time_slices(self, gpu_uuids: Sequence[str]) -> frozenset[str]:
        """Those of the GPUs that have a time slice to set: one question, if all of them do."""
        try:
            listed = self._run("reading the time slices of all GPUs", "-l")
            if len(_ROW.findall(listed)) >= len(gpu_uuids):
                return frozenset(gpu_uuids)
        except NotSupported:
            # One of them has none, which is all that the program says then.
            pass
        return frozenset(uuid for uuid in gpu_uuids if self.time_slice(uuid) is not None)

    def set_time_slice(self, gpu_uuid: str, number: int) -> None:
        """Have all processes on a GPU run for this long at a time; it is read back.

        Raises:
            NotSupported: the GPU has no time slices to set.
            errors.Rejected: also if there is no time slice of this number.
            errors.Retryable: also if the GPU has another one afterwards.
        """
        if number not in _NUMBERS.values():
            known = ", ".join(f"{value} ({name})" for name, value in _NUMBERS.items())
            raise errors.Rejected(f"time slice {number}: it is one of {known}")
        doing = f"{_checked(gpu_uuid)}: setting its time slice to {number}"
        self._run(doing, "-i", gpu_uuid, "--set-timeslice", str(number))
        held = self.time_slice(gpu_uuid)
        if held != number:
            raise errors.Retryable(
                f"{doing}: {PROGRAM} succeeded, and now it is {held}: see whether something else "
                "sets it, and whether persistence mode is on (nvidia-smi -q)"
            )

    def reset(self, gpu_uuids: Sequence[str]) -> None:
        """Reset GPUs, all of them at once.

        Raises:
            nvml_errors.InUse: somebody has one of them open; nothing was done.
            errors.Rejected: also if one of them cannot be reset, or not without others.
            Hung: it did not end within `RESET_SECONDS`.
        """
        listed = ",".join(_checked(uuid) for uuid in gpu_uuids)
        doing = f"resetting {listed}"
        done = self._done(doing, self._reset_seconds, _RESET_OPTION, "-i", listed)
        text = f"{done.stdout}\n{done.stderr}"
        if done.returncode == 0 and len(_RESET.findall(text)) >= len(gpu_uuids):
            return
        told = f"{doing}: {PROGRAM} ended with {done.returncode} and said: {_said(text)}"
        if _IN_USE.search(text) and not _RESET.search(text):
            raise nvml_errors.InUse(told)
        if done.returncode == nvml_codes.Code.GPU_IS_LOST:
            raise nvml_errors.GpuGone(f"{told}: reboot the node")
        raise errors.Rejected(told)

    def traces(self, gpu_uuid: str) -> tuple[str, ...]:
        """What is in the command line of a process that resets this GPU; it may outlive us."""
        return str(self._program().path), _RESET_OPTION, gpu_uuid

    def _run(self, doing: str, *arguments: str) -> str:
        done = self._done(doing, self._seconds, "compute-policy", *arguments)
        if done.returncode != 0 or _UNSUPPORTED.search(done.stdout):
            raise _failure(doing, done.returncode, f"{done.stdout}\n{done.stderr}")
        return done.stdout

    def _done(
        self, doing: str, seconds: float, *arguments: str
    ) -> "subprocess.CompletedProcess[str]":
        """What a run said, whether it worked or not."""
        program = self._program()
        command = [str(program.path), *arguments]
        try:
            return short_runs.run(command, program.environment, seconds)
        except FileNotFoundError as error:
            raise errors.Retryable(
                f"{doing}: {program.path} cannot be run: it, or what it needs, is not there; "
                "wait for the driver to be installed, or correct the driver root"
            ) from error
        except OSError as error:
            raise errors.Rejected(f"{doing}: {program.path} cannot be run: {error}") from error
        except subprocess.TimeoutExpired as error:
            raise Hung(
                f"{doing}: {' '.join(command)} did not end within {seconds:g} s: see whether "
                "the GPU hangs (Xid messages in the kernel log)"
            ) from error


def _failure(doing: str, status: int, text: str) -> errors.DriverError:
    told = f"{doing}: {PROGRAM} ended with {status} and said: {_said(text)}"
    if status == nvml_codes.Code.NOT_SUPPORTED or _UNSUPPORTED.search(text):
        return NotSupported(
            f"{told}: the GPU has no time slices to set; ask for none, or for another GPU"
        )
    match status:
        case nvml_codes.Code.NOT_FOUND:
            return nvml_errors.gone(told)
        case nvml_codes.Code.GPU_IS_LOST:
            return nvml_errors.GpuGone(f"{told}: reset the GPU or reboot the node")
        case nvml_codes.Code.NO_PERMISSION:
            return errors.Rejected(f"{told}: run the plugin as root: it takes root to change it")
        case nvml_codes.Code.INVALID_ARGUMENT | nvml_codes.Code.FUNCTION_NOT_FOUND:
            return errors.Rejected(f"{told}: if it has no such command, install a newer driver")
    return errors.Retryable(told)


def _said(text: str) -> str:
    return "; ".join(line.strip() for line in text.splitlines() if line.strip()) or "nothing"


def _parsed(output: str, doing: str) -> int:
    found = _ROW.findall(output)
    if not _HEADING.search(output) or len(found) != 1 or found[0] not in _NUMBERS:
        raise errors.Rejected(
            f"{doing}: {PROGRAM} said {output!r}: expected a table with one row Timeslice, which "
            f"is {', '.join(_NUMBERS)}; this version of the driver is not known here"
        )
    return _NUMBERS[found[0]]


def _checked(gpu_uuid: str) -> str:
    """So that it is one GPU, and no option."""
    if not _UUID.fullmatch(gpu_uuid):
        raise errors.Rejected(
            f"GPU {gpu_uuid!r}: expected the UUID of a whole GPU (GPU-…); only those have time "
            "slices, and are reset"
        )
    return gpu_uuid
