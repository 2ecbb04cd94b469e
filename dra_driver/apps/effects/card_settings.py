"""What GPUs are set to for claims: time slices and compute modes; and what they were before.

Whoever calls holds the locks of the GPUs. What a GPU was set to before goes into its ledger first,
so that the last claim that needs the setting can put it back.
"""

import contextlib
from collections.abc import Iterable, Iterator

from dra_driver import errors, telemetry
from dra_driver.adapters.disk import ledgers
from dra_driver.adapters.nvml import nvidia_smi, nvml_compute, nvml_errors
from dra_driver.model import prepared

Others = Iterable[prepared.Record]
"""The records of all other claims."""

_EXCLUSIVE = nvml_compute.ComputeMode.EXCLUSIVE_PROCESS


class CardSettings:
    """Sets GPUs as claims need them, sees to it that they stay so, and puts them back."""

    def __init__(
        self, smi: nvidia_smi.NvidiaSmi, modes: nvml_compute.ComputeModes, books: ledgers.Ledgers
    ) -> None:
        self._smi = smi
        self._modes = modes
        self._books = books
        self._log = telemetry.logger("settings")

    def set_time_slice(self, wanted: prepared.TimeSlice) -> None:
        """Have a GPU switch between processes as the claim wants it; it is read back.

        Raises:
            errors.Rejected: it has no time slices.
            errors.Retryable: it does not stay, or the GPU does not answer.
        """
        ledger = self._books.get(wanted.gpu)
        if ledger.time_slice_before is None:
            before = self._smi.time_slice(wanted.gpu)
            if before is None:
                raise nvidia_smi.NotSupported(
                    f"device {wanted.device!r}: {wanted.gpu} has no time slices to set, as its "
                    "driver says. Remove `sharing`: processes take turns anyway; or select another "
                    "GPU (`productName`)"
                )
            self._books.put(ledger.model_copy(update={"time_slice_before": before}))
        self._smi.set_time_slice(wanted.gpu, wanted.number)

    def make_exclusive(self, use: prepared.MpsUse) -> None:
        """Have the whole GPUs of a use for its daemon alone, which is to be started now.

        Raises:
            errors.Rejected: a GPU has no such mode.
            errors.Retryable: the driver or the GPU does not answer.
        """
        if use.exclusive:
            with self._modes.kept():
                for gpu in use.gpus:
                    self._make_exclusive(gpu)

    @contextlib.contextmanager
    def remembered(self) -> Iterator[None]:
        """Have no mode forgotten in the block, in which a daemon starts.

        From then on the daemon keeps it from being forgotten. It is not for longer: an open NVML is
        a client of every GPU of the node, and none of them could be reset meanwhile.

        Raises:
            errors.Retryable: the driver is not there.
        """
        with self._modes.kept():
            yield

    def confirm_exclusive(self, use: prepared.MpsUse) -> None:
        """See to it that the GPUs of a use have the mode, now that its daemon runs.

        Raises:
            errors.Retryable: also if it does not stay.
        """
        if use.exclusive:
            for gpu in use.gpus:
                self.keep_exclusive(gpu)

    def keep_time_slice(self, wanted: prepared.TimeSlice) -> None:
        """Set the time slice of a prepared claim again, if the GPU has another one."""
        found = self._smi.time_slice(wanted.gpu)
        if found != wanted.number:
            self._log.warning("time slice was lost: set again", gpu=wanted.gpu, found=found)
            self.set_time_slice(wanted)

    def keep_exclusive(self, gpu: str) -> None:
        """Set the compute mode of a prepared claim again, if the GPU has another one.

        Raises:
            errors.Retryable: also if the mode does not stay.
        """
        with self._modes.kept():
            found = self._modes.get(gpu)
            if found != _EXCLUSIVE:
                told = nvml_compute.name(found)
                self._log.warning("compute mode was lost: set again", gpu=gpu, found=told)
                self._make_exclusive(gpu)
        self._modes.check(gpu, _EXCLUSIVE)

    def settle(self, gpu: str, others: Others) -> None:
        """Put a GPU back to what it was before, as far as none of the records needs it set."""
        try:
            self._put_back(gpu, others)
        except nvml_errors.GpuGone as error:
            # What it was set to, it forgets with its driver.
            self._log.warning("GPU is gone, and its settings with it", reason=str(error))
            forgotten = {"time_slice_before": None, "compute_mode_before": None}
            self._books.put(self._books.get(gpu).model_copy(update=forgotten))

    def _make_exclusive(self, gpu: str) -> None:
        ledger = self._books.get(gpu)
        if ledger.compute_mode_before is None:
            before = self._modes.get(gpu)
            self._books.put(ledger.model_copy(update={"compute_mode_before": before}))
        self._modes.set(gpu, _EXCLUSIVE)

    def _put_back(self, gpu: str, others: Others) -> None:
        """Put settings back that no claim needs any more."""
        ledger = self._books.get(gpu)
        if ledger.is_blank:
            # Away with what somebody who was killed had begun to write.
            self._books.put(ledger)
            return
        slices = {one.gpu for record in others for one in record.sharing.time_slices}
        if ledger.time_slice_before is not None and gpu not in slices:
            # To set one that is there already takes permission, too.
            if self._smi.time_slice(gpu) != ledger.time_slice_before:
                self._smi.set_time_slice(gpu, ledger.time_slice_before)
            ledger = ledger.model_copy(update={"time_slice_before": None})
            self._books.put(ledger)
        exclusive = {
            one for record in others for use in record.sharing.mps if use.exclusive
            for one in use.gpus
        }  # fmt: skip
        if ledger.compute_mode_before is not None and gpu not in exclusive:
            self._put_mode_back(gpu, ledger.compute_mode_before)
            self._books.put(ledger.model_copy(update={"compute_mode_before": None}))

    def _put_mode_back(self, gpu: str, mode: int) -> None:
        """Set it; that it does not stay holds nobody up: it would not have stayed before."""
        self._modes.set(gpu, mode)
        try:
            self._modes.check(gpu, mode)
        except errors.Retryable as error:
            self._log.warning("GPU is not what it was before", reason=str(error))
