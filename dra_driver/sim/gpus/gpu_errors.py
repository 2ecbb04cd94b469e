"""The errors of NVML as `pynvml` raises them: codes, a class for each code, texts."""

import string
from typing import Any, ClassVar

NVML_SUCCESS = 0

CODES = {
    "NVML_ERROR_UNINITIALIZED": 1,
    "NVML_ERROR_INVALID_ARGUMENT": 2,
    "NVML_ERROR_NOT_SUPPORTED": 3,
    "NVML_ERROR_NO_PERMISSION": 4,
    "NVML_ERROR_ALREADY_INITIALIZED": 5,
    "NVML_ERROR_NOT_FOUND": 6,
    "NVML_ERROR_INSUFFICIENT_SIZE": 7,
    "NVML_ERROR_INSUFFICIENT_POWER": 8,
    "NVML_ERROR_DRIVER_NOT_LOADED": 9,
    "NVML_ERROR_TIMEOUT": 10,
    "NVML_ERROR_IRQ_ISSUE": 11,
    "NVML_ERROR_LIBRARY_NOT_FOUND": 12,
    "NVML_ERROR_FUNCTION_NOT_FOUND": 13,
    "NVML_ERROR_CORRUPTED_INFOROM": 14,
    "NVML_ERROR_GPU_IS_LOST": 15,
    "NVML_ERROR_RESET_REQUIRED": 16,
    "NVML_ERROR_OPERATING_SYSTEM": 17,
    "NVML_ERROR_LIB_RM_VERSION_MISMATCH": 18,
    "NVML_ERROR_IN_USE": 19,
    "NVML_ERROR_MEMORY": 20,
    "NVML_ERROR_NO_DATA": 21,
    "NVML_ERROR_VGPU_ECC_NOT_SUPPORTED": 22,
    "NVML_ERROR_INSUFFICIENT_RESOURCES": 23,
    "NVML_ERROR_FREQ_NOT_SUPPORTED": 24,
    "NVML_ERROR_ARGUMENT_VERSION_MISMATCH": 25,
    "NVML_ERROR_DEPRECATED": 26,
    "NVML_ERROR_NOT_READY": 27,
    "NVML_ERROR_GPU_NOT_FOUND": 28,
    "NVML_ERROR_INVALID_STATE": 29,
    "NVML_ERROR_RESET_TYPE_NOT_SUPPORTED": 30,
    "NVML_ERROR_UNKNOWN": 999,
}

LIBRARY_TEXTS = {
    NVML_SUCCESS: "Success",
    1: "Uninitialized",
    2: "Invalid Argument",
    3: "Not Supported",
    4: "Insufficient Permissions",
    5: "Already Initialized",
    6: "Not Found",
    7: "Insufficient Size",
    8: "Insufficient External Power",
    9: "Driver Not Loaded",
    10: "Timeout",
    11: "Interrupt Request Issue",
    12: "NVML Shared Library Not Found",
    13: "Function Not Found",
    14: "Corrupted infoROM",
    15: "GPU is lost",
    16: "GPU requires reset",
    17: "GPU access blocked by the operating system",
    18: "Driver/library version mismatch",
    19: "In use by another client",
    20: "Insufficient Memory",
    21: "No data",
    22: "vGPU ECC not supported",
    23: "Insufficient Resources",
    24: "Invalid Frequency",
    25: "Argument version mismatch",
    26: "Requested functionality has been deprecated",
    27: "System is not in ready state",
    28: "No supported GPUs were found",
    29: "Resource not in correct state to perform requested operation",
    30: "Reset type is not supported for given device",
    999: "Unknown Error",
}
"""What `nvmlErrorString` of libnvidia-ml 580.159.04 answers."""

_BINDING_TEXTS = LIBRARY_TEXTS | {
    16: "GPU requires restart",
    17: "The operating system has blocked the request.",
    18: "RM has detected an NVML/RM version mismatch.",
}
"""What nvidia-ml-py puts into an exception: its own table first, then the library's."""


def text(code: int) -> str:
    """What the library calls this code; one that it does not know is an unknown error."""
    return LIBRARY_TEXTS.get(code, LIBRARY_TEXTS[999])


class NVMLError(Exception):  # noqa: PLW1641 - nvidia-ml-py's cannot be hashed either
    """An error code of NVML. Making one gives the class of that code."""

    value: int
    classes: ClassVar[dict[int, type["NVMLError"]]] = {}

    def __new__(cls, value: int) -> "NVMLError":  # noqa: PYI034 - the class depends on the value
        """An exception of the class that belongs to the code."""
        error = Exception.__new__(NVMLError.classes.get(value, cls) if cls is NVMLError else cls)
        error.value = value
        return error

    def __str__(self) -> str:
        """The text that nvidia-ml-py shows."""
        return _BINDING_TEXTS.get(self.value, text(self.value))

    def __eq__(self, other: object) -> bool:
        """Whether both carry one code."""
        return isinstance(other, NVMLError) and self.value == other.value


def _class_of(name: str, value: int) -> type[NVMLError]:
    words = string.capwords(name.removeprefix("NVML_ERROR_"), "_").replace("_", "")

    def new(cls: type[NVMLError], *_arguments: Any) -> NVMLError:
        return NVMLError.__new__(cls, value)

    return type(f"NVMLError_{words}", (NVMLError,), {"__new__": new})


NVMLError.classes.update({value: _class_of(name, value) for name, value in CODES.items()})


class Names:
    """All of the above under the names that `pynvml` has, as attributes of an object."""

    NVML_SUCCESS = NVML_SUCCESS
    NVMLError = NVMLError


for _name, _value in CODES.items():
    setattr(Names, _name, _value)
for _class in NVMLError.classes.values():
    setattr(Names, _class.__name__, _class)
