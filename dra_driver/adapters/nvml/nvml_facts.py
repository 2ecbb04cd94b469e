"""How one GPU is read through NVML. `library` is `pynvml` or an object with its functions."""

import ctypes
import dataclasses
import re
from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeVar

from dra_driver import errors
from dra_driver.adapters.nvml import nvml_codes, nvml_mig_facts
from dra_driver.model import devices, mig

T = TypeVar("T")

_PCI_ADDRESS = re.compile(
    r"(?P<domain>[0-9a-f]{4,8}):(?P<bus>[0-9a-f]{2}):(?P<slot>[0-9a-f]{2})\.(?P<function>[0-7])"
)

# go-nvlib's texts of nvmlBrandType_t, nvmlDeviceArchitecture_t and the addressing modes: what the
# peer publishes, and so what users select on.
_BRANDS = {
    0: "Unknown",
    1: "Quadro",
    2: "Tesla",
    3: "NVS",
    4: "Grid",
    5: "GeForce",
    6: "Titan",
    7: "NvidiaVApps",
    8: "NvidiaVPC",
    9: "NvidiaVCS",
    10: "NvidiaVWS",
    11: "NvidiaCloudGaming",
    12: "QuadroRTX",
    13: "NvidiaRTX",
    14: "Nvidia",
    15: "GeForceRTX",
    16: "TitanRTX",
}
_ARCHITECTURES = {
    2: "Kepler",
    3: "Maxwell",
    4: "Pascal",
    5: "Volta",
    6: "Turing",
    7: "Ampere",
    8: "Ada Lovelace",
    9: "Hopper",
    10: "Blackwell",
    13: "Rubin",
    0xFFFFFFFF: "Unknown",
}
_NEVER_TOLD = frozenset(
    {
        nvml_codes.Code.NOT_SUPPORTED,
        nvml_codes.Code.NO_PERMISSION,
        nvml_codes.Code.FUNCTION_NOT_FOUND,
    }
)
_NOT_THERE = frozenset({nvml_codes.Code.NOT_SUPPORTED, nvml_codes.Code.FUNCTION_NOT_FOUND})
_ADDRESSING_MODES = {0: "None", 1: "HMM", 2: "ATS"}
_VIRTUALIZATIONS = {one.value: one for one in devices.Virtualization}
_REQUIRED = {
    "nvmlDeviceGetMinorNumber": "minor number",
    "nvmlDeviceGetUUID": "UUID",
    "nvmlDeviceGetName": "name",
    "nvmlDeviceGetPciInfo": "PCI address",
}
"""What nobody can be given a GPU without: its device node, its identity, its place in sysfs."""


class Lacking(errors.Rejected):
    """NVML never tells facts of a GPU that nobody can do without; they are `missing`."""

    def __init__(self, missing: tuple[str, ...]) -> None:
        super().__init__(
            f"NVML does not support telling its {', '.join(missing)}, so it cannot be handed out"
        )
        self.missing = missing


@dataclasses.dataclass(frozen=True, slots=True)
class System:
    """What is the same for every GPU of a node."""

    driver_version: str | None
    cuda_driver_version: tuple[int, int] | None


class _Reader:
    """Calls functions of the library with fixed arguments."""

    def __init__(self, library: Any, *arguments: Any) -> None:
        self._library = library
        self._arguments = arguments

    def required(self, function: str) -> Any:
        """The answer; any error is raised."""
        return getattr(self._library, function)(*self._arguments)

    def all_of(self, facts: Mapping[str, str]) -> Mapping[str, Any]:
        """The answers of these functions, which are given with what they tell.

        Raises:
            Lacking: for some of them there is none, ever.
        """
        found: dict[str, Any] = {}
        for function in facts:
            try:
                found[function] = self.required(function)
            except self._library.NVMLError as error:
                if error.value not in _NOT_THERE:
                    raise
        if missing := tuple(fact for function, fact in facts.items() if function not in found):
            raise Lacking(missing)
        return found

    def optional(self, function: str, absent: Collection[int] = nvml_codes.NO_SUCH_FACT) -> Any:
        """The answer, or None if there is no such fact. Other errors are raised."""
        if not hasattr(self._library, function):
            return None
        try:
            return self.required(function)
        except self._library.NVMLError as error:
            if error.value not in absent:
                raise
        return None

    def told(self, function: str) -> Any:
        """As `optional`, for what decides nothing: a GPU that keeps failing to tell it is there."""
        return self.optional(function, nvml_codes.NO_SUCH_FACT | {nvml_codes.Code.UNKNOWN})

    def glimpse(self, function: str, convert: Callable[[Any], T]) -> T | None:
        """The answer, or None after any error: for what is told about a GPU that fails."""
        try:
            return convert(self.required(function))
        except (self._library.NVMLError, UnicodeDecodeError, errors.Rejected):
            return None

    def mig(self) -> tuple[bool | None, bool | None, bool | None]:
        """Whether the GPU can be partitioned, and its MIG mode now and after the next reset.

        None for what is never told. A mode that could not be read is a failure: a card that is cut
        must not pass for whole.
        """
        try:
            current, pending = self.required("nvmlDeviceGetMigMode")
        except self._library.NVMLError as error:
            if error.value in _NOT_THERE:
                return False, False, False
            if error.value in _NEVER_TOLD:
                return None, None, None
            raise
        return True, current == 1, pending == 1


def read_system(library: Any) -> System:
    """The versions of the driver and of the newest CUDA that it serves."""
    reader = _Reader(library)
    version = reader.told("nvmlSystemGetDriverVersion")
    cuda = reader.told("nvmlSystemGetCudaDriverVersion")
    return System(
        driver_version=None if version is None else _text(version),
        cuda_driver_version=None if cuda is None else (cuda // 1000, cuda % 1000 // 10),
    )


def read_gpu(library: Any, index: int, handle: Any, system: System) -> devices.Gpu:
    """The GPU with this handle; what sysfs knows of it is not filled in.

    Raises:
        library.NVMLError: the GPU or the driver fails.
        Lacking: it is one of which NVML does not tell what it has to.
        errors.Rejected, UnicodeDecodeError: an answer makes no sense.
    """
    reader = _Reader(library, handle)
    known = reader.all_of(_REQUIRED)
    memory = reader.optional("nvmlDeviceGetMemoryInfo")
    capability = reader.optional("nvmlDeviceGetCudaComputeCapability")
    mig_capable, mig_enabled, mig_pending = reader.mig()
    profiles = nvml_mig_facts.profiles(library, handle) if mig_capable else ()
    instances = _instances(library, handle, profiles) if mig_enabled else ()
    return devices.Gpu(
        index=index,
        minor=known["nvmlDeviceGetMinorNumber"],
        uuid=_uuid(known["nvmlDeviceGetUUID"]),
        product_name=_text(known["nvmlDeviceGetName"]),
        pci_address=pci_address(known["nvmlDeviceGetPciInfo"]),
        brand=_BRANDS.get(reader.told("nvmlDeviceGetBrand")),
        architecture=_ARCHITECTURES.get(reader.told("nvmlDeviceGetArchitecture")),
        compute_capability=None if capability is None else (capability[0], capability[1]),
        # None at all is what some cards say whose memory is the system's.
        memory_bytes=None if memory is None else memory.total or None,
        driver_version=system.driver_version,
        cuda_driver_version=system.cuda_driver_version,
        addressing_mode=_ADDRESSING_MODES.get(reader.told("nvmlDeviceGetAddressingMode")),
        mig_capable=mig_capable,
        mig_enabled=mig_enabled,
        mig_pending=mig_pending,
        virtualization=_VIRTUALIZATIONS.get(reader.optional("nvmlDeviceGetVirtualizationMode")),
        persistence_mode=_bool(reader.told("nvmlDeviceGetPersistenceMode")),
        compute_mode=reader.told("nvmlDeviceGetComputeMode"),
        profiles=profiles,
        instances=instances,
        module_id=_module_id(library, handle),
    )


def _module_id(library: Any, handle: Any) -> int | None:
    """Its number on the baseboard; 0 is what products without one say (nvml.h)."""
    # By default the bindings put the answers of all threads into one place.
    reader = _Reader(library, handle, ctypes.c_uint())
    return reader.told("nvmlDeviceGetModuleId") or None


def failure(
    library: Any,
    index: int,
    handle: Any,
    reason: str,
    missing: tuple[str, ...] = (),
    *,
    is_lost: bool = False,
) -> devices.GpuFailure:
    """What is known of a GPU that cannot be used. `handle` is None if there was not even that."""
    if handle is None:
        return devices.GpuFailure(index, None, None, reason, missing, is_lost)
    reader = _Reader(library, handle)
    return devices.GpuFailure(
        index=index,
        uuid=reader.glimpse("nvmlDeviceGetUUID", _uuid),
        pci_address=reader.glimpse("nvmlDeviceGetPciInfo", pci_address),
        reason=reason,
        missing=missing,
        is_lost=is_lost,
    )


def _instances(
    library: Any, handle: Any, profiles: tuple[mig.Profile, ...]
) -> tuple[mig.Instance, ...]:
    """The instances, or none where NVML never tells. An answer that failed is no empty GPU."""
    try:
        return nvml_mig_facts.instances(library, handle, profiles)
    except library.NVMLError as error:
        if error.value not in _NEVER_TOLD:
            raise
    return ()


def pci_address(info: Any) -> devices.PciAddress:
    """The address as sysfs writes it: lower case, and a domain of 4 digits where that is enough.

    Raises:
        errors.Rejected: it is no PCI address.
    """
    text = _text(info.busId).lower()
    match = _PCI_ADDRESS.fullmatch(text)
    if match is None:
        raise errors.Rejected(f"PCI bus id {text!r}: expected the form 00000000:00:00.0")
    domain = f"{int(match['domain'], 16):04x}"
    return devices.PciAddress(f"{domain}:{match['bus']}:{match['slot']}.{match['function']}")


def _bool(value: int | None) -> bool | None:
    return None if value is None else value == 1


def _uuid(value: str | bytes) -> devices.GpuUuid:
    return devices.GpuUuid(_text(value))


def _text(value: str | bytes) -> str:
    """Versions of nvidia-ml-py differ in whether they decode."""
    return value.decode() if isinstance(value, bytes) else value
