"""NVML through nvidia-ml-py: what GPUs this node has. The only importer of `pynvml`."""

import contextlib
import ctypes
import pathlib
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from dra_driver import errors
from dra_driver.adapters import nvml_codes, nvml_facts, nvml_questions
from dra_driver.model import devices, driver

_SONAME = "libnvidia-ml.so.1"


class Nvml:
    """NVML of this node. Safe to use from several threads, whose calls run side by side.

    NVML itself takes calls from several threads, and counts how often it was opened.

    Args:
        library: an object with the functions of `pynvml`. None imports `pynvml` itself, at the
            first use and not before; the other arguments are for that alone.
        driver_root: the directory under which the driver is installed, as this process sees it.
        library_dirs: where under `driver_root` its libraries are looked for.
        opener: loads a shared library by its absolute path, or raises OSError.
    """

    def __init__(
        self,
        library: Any = None,
        *,
        driver_root: pathlib.Path = pathlib.Path("/"),
        library_dirs: Sequence[str] = driver.LIBRARY_DIRS,
        opener: Callable[[str], object] = ctypes.CDLL,
    ) -> None:
        self._library = library
        self._given = library is not None
        self._driver_root = driver_root
        self._library_dirs = library_dirs
        self._opener = opener
        self._opened: object | None = None
        self._lock = threading.RLock()

    def init(self) -> None:
        """Open NVML. Counted: each `init` needs its `shutdown`. After a failure try again later.

        A GPU that is added while NVML is open is not seen until it was closed and opened again.

        Raises:
            errors.Retryable: the driver is not there (yet).
        """
        with self._lock:
            library = self._import()
            flags = library.NVML_INIT_FLAG_NO_GPUS
            try:
                if self._given:
                    library.nvmlInitWithFlags(flags)
                elif self._driver_root == pathlib.Path("/"):
                    self._init_from_loader(library, flags)
                else:
                    self._init_from_root(library, flags)
            except library.NVMLError as error:
                raise _unavailable(error) from error

    def shutdown(self) -> None:
        """Close NVML once. Closing more often than it was opened does nothing."""
        with self._lock:
            library = self._import()
            try:
                library.nvmlShutdown()
            except library.NVMLError as error:
                if error.value != nvml_codes.Code.UNINITIALIZED:
                    raise _unavailable(error) from error

    @contextlib.contextmanager
    def session(self) -> Iterator[Any]:
        """The library, open; closed at the end. Takes about 10 ms with persistence mode on.

        Sessions of several threads overlap: nobody waits for what another one asks of NVML.

        Raises:
            errors.Retryable: the driver is not there (yet).
        """
        self.init()
        try:
            yield self._import()
        finally:
            self.shutdown()

    def discover(self) -> devices.Discovery:
        """Every GPU that the driver serves. No GPU at all is an empty answer, not an error.

        NVML looks at the bus when it is opened, so GPUs that came or went are seen only if nobody
        else in this process holds it open; else a later look sees them.

        Raises:
            errors.Retryable: the driver is not there (yet).
        """
        with self.session() as library:
            try:
                found = _read_all(library)
            except library.NVMLError as error:
                raise _unavailable(error) from error
        return found

    def _import(self) -> Any:
        if self._library is None:
            import pynvml  # noqa: PLC0415 - the plugin answers on its sockets before it loads this

            self._library = pynvml
        return self._library

    def _init_from_loader(self, library: Any, flags: int) -> None:
        try:
            library.nvmlInitWithFlags(flags)
        except library.NVMLError as error:
            # The dynamic loader remembers directories that did not exist, so a driver that was
            # installed after the first attempt is found by its path only.
            if error.value != nvml_codes.Code.LIBRARY_NOT_FOUND or not self._open_from_dirs():
                raise
            library.nvmlInitWithFlags(flags)

    def _init_from_root(self, library: Any, flags: int) -> None:
        if not self._open_from_dirs():
            searched = ", ".join(self._library_dirs)
            raise errors.Retryable(
                f"driver root {str(self._driver_root)!r}: no {_SONAME} that can be loaded in "
                f"{searched}; wait for the driver to be installed, or correct the driver root"
            )
        library.nvmlInitWithFlags(flags)

    def _open_from_dirs(self) -> bool:
        """Load the library by path: from then on the loader answers its SONAME with this one."""
        for directory in self._library_dirs:
            if self._opened is not None:
                break
            with contextlib.suppress(OSError):
                self._opened = self._opener(
                    str(self._driver_root / directory.lstrip("/") / _SONAME)
                )
        return self._opened is not None


def _read_all(library: Any) -> devices.Discovery:
    """What answers and what does not. An error that is the driver's, not a GPU's, is raised."""
    gpus: list[devices.Gpu] = []
    failures: list[devices.GpuFailure] = []
    answers = {}
    count = library.nvmlDeviceGetCount()
    common = nvml_questions.Questions(library)
    system = nvml_facts.read_system(common)
    for index in range(count):
        handle = None
        asked = nvml_questions.Questions(library)
        try:
            handle = asked.nvmlDeviceGetHandleByIndex(index)
            gpu = nvml_facts.read_gpu(asked, index, handle, system)
        except library.NVMLError as error:
            if error.value in nvml_codes.DRIVER_IS_GONE:
                raise
            reason, lost = nvml_codes.describe(error), error.value in nvml_codes.GPU_IS_GONE
            failures.append(nvml_facts.failure(library, index, handle, reason, is_lost=lost))
        except (UnicodeDecodeError, errors.Rejected) as error:
            reason = f"NVML gave an answer that makes no sense: {error}"
            failures.append(nvml_facts.failure(library, index, handle, reason))
        else:
            gpus.append(gpu)
            answers[gpu.uuid] = {**common.answers, **asked.answers}
    return devices.Discovery(
        gpus=tuple(sorted(gpus, key=lambda gpu: gpu.minor)),
        failures=tuple(failures),
        answers=answers,
    )


def _unavailable(error: Any) -> errors.Retryable:
    return errors.Retryable(f"no answer from the NVIDIA driver: {nvml_codes.describe(error)}")
