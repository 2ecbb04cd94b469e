"""NVML through nvidia-ml-py: what GPUs this node has. The only importer of `pynvml`."""

import contextlib
import ctypes
import pathlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

from dra_driver import errors
from dra_driver.adapters.driver import driver_root
from dra_driver.adapters.nvml import nvml_codes, nvml_facts, nvml_gate, nvml_questions
from dra_driver.model import devices

RELEASE_SECONDS = 5.0
SONAME = "libnvidia-ml.so.1"
_HERE = driver_root.Layout(driver_root.Root("/", pathlib.Path("/")))


class NoLibrary(errors.Retryable):
    """NVML's library is not there (yet), or cannot be loaded."""


class Mismatch(errors.Retryable):
    """Library and kernel module of the driver are of different versions."""


class Outdated(Mismatch):
    """So they are, and a new process may do better.

    This one has the library that it has loaded until it ends.
    """


class Nvml:
    """NVML of this node. Safe to use from several threads, whose calls run side by side.

    NVML itself takes calls from several threads, and counts how often it was opened.

    Args:
        library: an object with the functions of `pynvml`. None imports `pynvml` itself, at the
            first use and not before; the other arguments are for that alone.
        layout: where the driver is installed.
        opener: loads a shared library by its absolute path, or raises OSError.
    """

    def __init__(
        self,
        library: Any = None,
        *,
        layout: driver_root.Layout = _HERE,
        opener: Callable[[str], object] = ctypes.CDLL,
    ) -> None:
        self._library = library
        self._given = library is not None
        self._layout = layout
        self._opener = opener
        self._opened: object | None = None
        self._loaded: tuple[object, ...] | None = None
        self._has_worked = False
        self._tell_outdated: Callable[[str], None] = lambda _: None
        self._let_go: Callable[[float], object] = lambda _: None
        self._take_again: Callable[[], None] = lambda: None
        self._lock = threading.RLock()
        self._gate = nvml_gate.Gate()

    def when_outdated(self, tell: Callable[[str], None]) -> None:
        """Have `tell` called, with the reason, as often as `Outdated` is raised."""
        self._tell_outdated = tell

    def held_by(self, let_go: Callable[[float], object], take_again: Callable[[], None]) -> None:
        """Whoever holds NVML open for long: `let_go`, within seconds, has it closed for a while."""
        self._let_go, self._take_again = let_go, take_again

    @contextlib.contextmanager
    def released(self, seconds: float = RELEASE_SECONDS) -> Iterator[None]:
        """A block in which nobody in this process holds NVML open for long; sessions may be.

        Whoever does not let go of it within the seconds still holds it.
        """
        self._let_go(seconds)
        try:
            yield
        finally:
            self._take_again()

    def init(self) -> None:
        """Open NVML. Counted: each `init` needs its `shutdown`. After a failure try again later.

        A GPU that is added while NVML is open is not seen until it was closed and opened again.

        Raises:
            NoLibrary: the driver is not there (yet).
            Mismatch: its library does not fit its kernel module.
            nvml_gate.Closed: it is closed for now, see `closed`.
            errors.Retryable: it does not answer.
        """
        self._gate.enter()
        try:
            self._open()
        except BaseException:
            self._gate.leave()
            raise

    def _open(self) -> None:
        with self._lock:
            library = self._import()
            flags = library.NVML_INIT_FLAG_NO_GPUS
            try:
                if self._given:
                    library.nvmlInitWithFlags(flags)
                elif self._layout.root.seen == pathlib.Path("/"):
                    self._init_from_loader(library, flags)
                else:
                    self._init_from_root(library, flags)
            except library.NVMLError as error:
                raise self._unavailable(error) from error
            self._has_worked = True

    def shutdown(self) -> None:
        """Close NVML once. Closing more often than it was opened does nothing."""
        try:
            self._close()
        finally:
            self._gate.leave()

    def _close(self) -> None:
        with self._lock:
            library = self._import()
            try:
                library.nvmlShutdown()
            except library.NVMLError as error:
                if error.value != nvml_codes.Code.UNINITIALIZED:
                    raise self._unavailable(error) from error

    @contextlib.contextmanager
    def closed(self, seconds: float) -> Iterator[None]:
        """Have this process without NVML for the length of the block, so that a GPU can be reset.

        Whoever holds it for long lets go; those who have it open are waited for; those who want it
        wait, see `nvml_gate.Closed`.

        Raises:
            errors.Retryable: somebody had it open for longer than `seconds`.
        """
        with self.released(seconds), self._gate.closed(seconds):
            yield

    @contextlib.contextmanager
    def session(self) -> Iterator[Any]:
        """The library, open; closed at the end. Takes about 10 ms with persistence mode on.

        Sessions of several threads overlap: nobody waits for what another one asks of NVML.

        Raises:
            errors.Retryable: the driver is not there (yet).
        """
        library = self.opened()
        try:
            yield library
        finally:
            self.shutdown()

    def opened(self) -> Any:
        """The library, open, until whoever asked for it calls `shutdown`. Raises as `init`."""
        self.init()
        return self._import()

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
                raise self._unavailable(error) from error
        return found

    def _import(self) -> Any:
        if self._library is None:
            import pynvml  # noqa: PLC0415 - the plugin answers on its sockets before it loads this

            self._library = pynvml
        return self._library

    def _init_from_loader(self, library: Any, flags: int) -> None:
        """With the library of the settings, or else with that which the dynamic loader finds."""
        if self._layout.given:
            self._open_one_of(self._layout.libraries(SONAME, self._layout.given))
        before = self._loaded or self._on_disk()
        try:
            library.nvmlInitWithFlags(flags)
        except library.NVMLError as error:
            if error.value != nvml_codes.Code.LIBRARY_NOT_FOUND:
                self._loaded = before
                raise
            # The dynamic loader remembers directories that did not exist, so a driver that was
            # installed after the first attempt is found by its path only.
            why_not = self._open_one_of(self._layout.libraries(SONAME))
            if why_not:
                raise NoLibrary(f"NVML error {error.value} ({error}): {why_not}") from error
            library.nvmlInitWithFlags(flags)
        else:
            self._loaded = before

    def _init_from_root(self, library: Any, flags: int) -> None:
        why_not = self._open_one_of(self._layout.libraries(SONAME))
        if why_not:
            raise NoLibrary(why_not)
        library.nvmlInitWithFlags(flags)

    def _open_one_of(self, places: Iterator[driver_root.Place]) -> str:
        """Load a library by its path: from then on the loader answers its SONAME with that one.

        Why there is none; empty if there is.
        """
        refused = []
        for place in places if self._opened is None else ():
            before = _signature(place)
            try:
                self._opened = self._opener(str(place.seen))
            except OSError as error:
                refused.append(f"{self._layout.root.host_path(place.path)}: {error}")
            else:
                self._loaded = before
                break
        if self._opened is not None:
            return ""
        if refused:
            return f"NVML's library cannot be loaded: {'; '.join(refused)}"
        return self._layout.why_no_library(SONAME)

    def _on_disk(self) -> tuple[object, ...] | None:
        place = self._layout.library(SONAME)
        return None if place is None else _signature(place)

    def _unavailable(self, error: Any) -> errors.Retryable:
        what = f"no answer from the NVIDIA driver: {nvml_codes.describe(error)}"
        if error.value == nvml_codes.Code.LIBRARY_NOT_FOUND:
            return NoLibrary(what)
        if error.value != nvml_codes.Code.LIB_RM_VERSION_MISMATCH:
            return errors.Retryable(what)
        # A container that is started anew also sees a driver root that was mounted anew.
        if self._has_worked or (not self._given and self._loaded != self._on_disk()):
            self._tell_outdated(what)
            return Outdated(what)
        return Mismatch(what)


def _signature(place: driver_root.Place) -> tuple[object, ...] | None:
    """What tells a file from the one that takes its place."""
    try:
        facts = place.seen.stat()
    except OSError:
        return None
    return place.resolved, facts.st_dev, facts.st_ino, facts.st_size, facts.st_mtime_ns


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
        except nvml_facts.Lacking as error:
            found = nvml_facts.failure(library, index, handle, str(error), error.missing)
            failures.append(found)
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
