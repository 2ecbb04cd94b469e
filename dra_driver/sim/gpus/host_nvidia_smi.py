"""Stand-in for `nvidia-smi compute-policy`, and `--gpu-reset`, on a node of simulated GPUs.

It is a program in the directory of those GPUs. Texts, table and exit statuses are those of the real
one with driver 580.159.04 on an H100; statuses are NVML's return codes.
"""

import dataclasses
import os
import pathlib
import sys
from collections.abc import Sequence

from dra_driver.adapters.disk import files
from dra_driver.sim.gpus import (
    gpu_errors,
    gpu_models,
    gpu_session,
    gpu_state,
    gpus,
    host_gpu_reset,
)

NAME = "host-nvidia-smi"
NAMES = ("Default", "Short", "Medium", "Long")
"""By the number of a time slice."""

_PACKAGES = pathlib.Path(__file__).resolve().parents[3]
_INVALID = gpu_errors.CODES["NVML_ERROR_INVALID_ARGUMENT"]
_UNSUPPORTED = gpu_errors.CODES["NVML_ERROR_NOT_SUPPORTED"]
_NOT_FOUND = gpu_errors.CODES["NVML_ERROR_NOT_FOUND"]
_RESET = ("-r", "--gpu-reset")
_VOLTA = (7, 0)
_RULE = "+-------------------------------------+"
_HEAD = (
    _RULE,
    "| GPU compute policies:               |",
    "| GPU     Name           Value        |",
    "|=====================================|",
)
_HELP = """
    Compute Policy -- Control and list compute policies.

    Usage: nvidia-smi compute-policy [options]

    Options include:
    [-i | --id]: GPU device ID's. Provide comma
                 separated values for more than one device

    [-l | --list]: List all compute policies

    [ | --set-timeslice]: Set timeslice config for a GPU:
                          0=DEFAULT, 1=SHORT, 2=MEDIUM, 3=LONG

    [-h | --help]: Display help information

"""


class _Ended(Exception):  # noqa: N818 - that is what it says
    """The program ends with this status and these last words."""

    def __init__(self, status: int, words: str) -> None:
        super().__init__(words)
        self.status = status


@dataclasses.dataclass(slots=True)
class _Options:
    gpus: str | None = None
    listing: bool = False
    time_slice: str | None = None
    help: bool = False


def write(directory: pathlib.Path) -> pathlib.Path:
    """Put the program into the directory of some simulated GPUs; its path."""
    path = directory / NAME
    text = (
        f"#!{sys.executable}\n"
        "import sys\n"
        f"sys.path.insert(0, {str(_PACKAGES)!r})\n"
        "from dra_driver.sim.gpus import host_nvidia_smi\n"
        f"sys.exit(host_nvidia_smi.main({str(directory.resolve())!r}, sys.argv[1:]))\n"
    )
    files.write(path, text, mode=0o755, durable=False)
    return path


def main(directory: str | os.PathLike[str], arguments: Sequence[str]) -> int:
    """Do what the arguments say with the GPUs in a directory; the exit status."""
    try:
        if arguments and arguments[0] in _RESET:
            return _reset(pathlib.Path(directory), arguments[1:])
        _run(pathlib.Path(directory), _options(arguments))
    except _Ended as ended:
        _say(str(ended))
        return ended.status
    except gpu_errors.NVMLError as error:
        _say(f"NVIDIA-SMI has failed: {gpu_errors.text(error.value)}")
        return error.value
    return 0


def with_time_slices(directory: pathlib.Path, uuids: Sequence[str]) -> list[str]:
    """Those of the GPUs in a directory that have time slices, without running the program."""
    known = {gpu.uuid: gpu for gpu in gpu_state.open_file(directory).read().gpus}
    return [uuid for uuid in uuids if uuid in known and _has_time_slices(known[uuid])]


def _options(arguments: Sequence[str]) -> _Options:
    if not arguments or arguments[0] != "compute-policy":
        raise _Ended(
            _INVALID,
            f"nvidia-smi: {' '.join(arguments)}: not available, the GPUs are simulated; "
            "available is compute-policy, and --gpu-reset",
        )
    options = _Options()
    rest = [part for argument in arguments[1:] for part in argument.split("=", 1)]
    while rest:
        match rest.pop(0):
            case "-i" | "--id" if rest:
                options.gpus = rest.pop(0)
            case "-l" | "--list":
                options.listing = True
            case "--set-timeslice" if rest:
                options.time_slice = rest.pop(0)
            case "-h" | "--help":
                options.help = True
            case other:
                raise _Ended(_INVALID, f'Option "{other}" is not recognized.')
    return options


def _run(directory: pathlib.Path, options: _Options) -> None:
    if options.help:
        _say(_HELP)
        return
    if options.listing == (options.time_slice is not None):
        raise _Ended(_INVALID, "One, and only one, compute-policy command allowed at a time")
    chosen = _found(directory, options.gpus)
    if options.time_slice is None:
        _list(directory, chosen)
    else:
        _set(directory, chosen, options.time_slice)


def _reset(directory: pathlib.Path, arguments: Sequence[str]) -> int:
    """With `-i` the GPUs that it names, else all of them; the exit status."""
    parts = [part for argument in arguments for part in argument.split("=", 1)]
    match parts:
        case []:
            ids = None
        case ["-i" | "--id", ids]:
            pass
        case [other, *_]:
            raise _Ended(_INVALID, f'Option "{other}" is not recognized.')
    status, text = host_gpu_reset.run(directory, list(_found(directory, ids).values()))
    _say(text)
    return status


def _found(directory: pathlib.Path, ids: str | None) -> dict[int, str]:
    """As `_chosen`, with NVML open no longer than for that."""
    library = gpus.SimulatedNvml(directory)
    library.nvmlInit()
    try:
        return _chosen(library, ids)
    finally:
        library.nvmlShutdown()


def _chosen(library: gpus.SimulatedNvml, ids: str | None) -> dict[int, str]:
    """UUIDs by index of the GPUs that were asked for: by UUID, PCI address or index."""
    count = library.nvmlDeviceGetCount()
    found: dict[int, str] = {}
    for one in map(str, range(count)) if ids is None else ids.split(","):
        try:
            if one.isdecimal():
                handle = library.nvmlDeviceGetHandleByIndex(int(one))
            elif ":" in one:
                handle = library.nvmlDeviceGetHandleByPciBusId(one)
            else:
                handle = library.nvmlDeviceGetHandleByUUID(one)
        except gpu_errors.NVMLError as error:
            if error.value in {_INVALID, _NOT_FOUND}:
                raise _Ended(_NOT_FOUND, "No devices were found") from error
            raise
        found[library.nvmlDeviceGetIndex(handle)] = library.nvmlDeviceGetUUID(handle)
    return found


def _list(directory: pathlib.Path, chosen: dict[int, str]) -> None:
    state = gpu_state.open_file(directory).read()
    rows: list[str] = []
    for index, uuid in chosen.items():
        gpu = gpu_session.find(state, uuid)
        if not _has_time_slices(gpu):
            reason = gpu_errors.text(_UNSUPPORTED)
            _say(f"Failed to get compute policies for GPU {index} : {reason}")
            raise _Ended(
                _UNSUPPORTED,
                f"Failed to retrieve compute policies for requested devices : {reason}",
            )
        rows.append(f"| {index:>3}   {'Timeslice':<15} {NAMES[gpu.time_slice]:<13} |")
    _say("\n".join((*_HEAD, *(f"{row}\n{_RULE}" for row in rows))))


def _set(directory: pathlib.Path, chosen: dict[int, str], text: str) -> None:
    number = int(text) if text.isdecimal() and int(text) < len(NAMES) else None
    name = "Unknown" if number is None else NAMES[number]
    with gpu_state.open_file(directory).edit() as state:
        for index, uuid in chosen.items():
            gpu = gpu_session.find(state, uuid)
            if number is None or not _has_time_slices(gpu):
                code = _INVALID if number is None else _UNSUPPORTED
                reason = gpu_errors.text(code)
                _say(f"Failed to set timeslice policy with value {name} for GPU {index} : {reason}")
                raise _Ended(code, f"Failed to set timeslice for requested devices : {reason}")
            gpu.time_slice = number
    for index in chosen:
        _say(f"Successfully set timeslice policy with value {name} for GPU {index}")


def _has_time_slices(gpu: gpu_state.Gpu) -> bool:
    return gpu.time_slice_supported and gpu_models.load(gpu.model).compute_capability >= _VOLTA


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
