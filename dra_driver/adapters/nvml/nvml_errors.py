"""A GPU by its UUID, for a change through NVML; and what NVML's answers mean for the caller."""

import contextlib
import types
from collections.abc import Iterator, Mapping
from typing import Any

from dra_driver import errors
from dra_driver.adapters.nvml import nvml, nvml_codes

_HOPELESS = (
    nvml_codes.Code.INVALID_ARGUMENT,
    nvml_codes.Code.NOT_SUPPORTED,
    nvml_codes.Code.NO_PERMISSION,
    nvml_codes.Code.FUNCTION_NOT_FOUND,
    nvml_codes.Code.RESET_REQUIRED,
)
"""Answers that stay the same however often NVML is asked."""


class GpuGone(errors.Rejected):
    """The node has no such GPU, or it has fallen off the bus; its instances went with it."""


class InUse(errors.Retryable):
    """A process, or an instance inside, holds what was to be changed."""


_KINDS: Mapping[int, type[errors.DriverError]] = {
    nvml_codes.Code.IN_USE: InUse,
    nvml_codes.Code.GPU_IS_LOST: GpuGone,
    **dict.fromkeys(_HOPELESS, errors.Rejected),
}


@contextlib.contextmanager
def gpu(
    nvml_: nvml.Nvml,
    uuid: str,
    doing: str,
    remedies: Mapping[int, str],
    kinds: Mapping[int, type[errors.DriverError]] = types.MappingProxyType({}),
) -> Iterator[tuple[Any, Any]]:
    """The library and a handle of the GPU with this UUID; errors of NVML become ours.

    Args:
        nvml_: NVML of this node.
        uuid: as NVML tells it.
        doing: what the block does, for messages: `removing GPU instance 3`.
        remedies: what to do about a return code; they come before the general ones.
        kinds: which error a return code is; they come before the general ones.

    Raises:
        GpuGone: the node has no such GPU.
        errors.Retryable: the driver does not answer, or what was done may work in a moment.
        errors.Rejected: asking again does not help.
    """
    what = f"{uuid}: {doing}"
    with nvml_.session() as library:
        try:
            handle = library.nvmlDeviceGetHandleByUUID(uuid)
        except library.NVMLError as error:
            if error.value == nvml_codes.Code.NOT_FOUND:
                raise gone(what) from error
            raise _meaning(error, what, remedies, kinds) from error
        try:
            yield library, handle
        except library.NVMLError as error:
            raise _meaning(error, what, remedies, kinds) from error


def gone(what: str) -> GpuGone:
    """The error for a GPU that is not there; `what` names it, and what was to be done."""
    return GpuGone(f"{what}: the node has no such GPU any more (nvidia-smi -L)")


def _meaning(
    error: Any,
    what: str,
    remedies: Mapping[int, str],
    kinds: Mapping[int, type[errors.DriverError]],
) -> errors.DriverError:
    kind = {**_KINDS, **kinds}.get(error.value, errors.Retryable)
    return kind(f"{what}: {nvml_codes.describe(error, remedies)}")
