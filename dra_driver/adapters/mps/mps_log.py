"""What an MPS control daemon says, kept in files that cannot fill a disk.

Any client can have the daemon write: driver 580 logs what it does not understand, at more than
10 MB/s. So it writes to a pipe, and what comes out of that faster than is good is dropped.
"""

import contextlib
import fcntl
import os
import pathlib
import re
import selectors
import threading
import time
from typing import IO

_LAST_LINES = 3
_LAST_BYTES = 4096
_LONGEST = 400
_TIME = re.compile(r"^\[\d{4}-[^\]]*\]\s*")
"""What the program puts before each line: the time, its part, its pid."""
_PIPE_BYTES = 1024**2
_READ_BYTES = 65536
MOST_BYTES = 1024**2
"""Of a file; the one before it is kept as well."""
RATE_BYTES, BURST_BYTES = 64 * 1024, 256 * 1024
"""What is kept in a second, and at once."""


class Log:
    """The log of one daemon. `close` it before another is started.

    No trouble with the file is worth a daemon's clients: what cannot be written is dropped.
    """

    def __init__(
        self,
        path: pathlib.Path,
        *,
        most: int = MOST_BYTES,
        rate: float = RATE_BYTES,
        burst: int = BURST_BYTES,
    ) -> None:
        """`most` bytes are kept in a file, `rate` a second in the long run, `burst` at once."""
        self._file = _BoundedFile(path, most)
        self._rate, self._burst = rate, burst
        self._budget, self._counted = float(burst), time.monotonic()
        self._dropped = 0
        self._tail = b""
        self._guard = threading.Lock()
        self._pipe: int | None = None
        self._end: int | None = None
        self._thread: threading.Thread | None = None

    def open(self) -> IO[bytes]:
        """For a daemon that is started now, what it may write to; `follow` once it has been.

        Raises:
            OSError: there are too many open files.
        """
        self.close()
        self._tail = b""
        self._pipe, writing = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        os.set_blocking(writing, True)
        with contextlib.suppress(OSError):
            fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        return os.fdopen(writing, "wb", buffering=0)

    def follow(self) -> None:
        """Keep what is written, in a thread: until then this process may fork safely."""
        self._end = os.eventfd(0)
        self._thread = threading.Thread(target=self._run, name="mps-log", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """No more is kept, whoever still has the other end; there is no thread then."""
        if self._thread is not None and self._end is not None:
            os.eventfd_write(self._end, 1)
            self._thread.join()
            os.close(self._end)
        self._drain()
        if self._pipe is not None:
            os.close(self._pipe)
        self._thread = self._pipe = self._end = None

    def last_words(self) -> str:
        """The end of what the daemon said that was started last, on one line, for a message."""
        self._drain()
        return _words(self._tail)

    def _run(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._pipe, selectors.EVENT_READ)  # type: ignore[arg-type]
            selector.register(self._end, selectors.EVENT_READ)  # type: ignore[arg-type]
            while True:
                ready = {key.fd for key, _ in selector.select()}
                if self._end in ready or self._read() == b"":
                    return

    def _drain(self) -> None:
        """Keep what is in the pipe now."""
        # Whoever writes without end is not waited for.
        for _ in range(2 * _PIPE_BYTES // _READ_BYTES):
            if not self._read():
                return

    def _read(self) -> bytes | None:
        """Keep what one read gives; empty at the end, None where there is nothing now."""
        if self._pipe is None:
            return None
        with self._guard:
            try:
                text = os.read(self._pipe, _READ_BYTES)
            except BlockingIOError:
                return None
            self._tail = (self._tail + text)[-_LAST_BYTES:]
            self._keep(text)
        return text

    def _keep(self, text: bytes) -> None:
        now = time.monotonic()
        earned = (now - self._counted) * self._rate
        self._budget, self._counted = min(self._budget + earned, self._burst), now
        kept = text[: int(self._budget)]
        if self._dropped and (len(kept) == len(text) or not text):
            note = f"[... {self._dropped} bytes were too much, and are not kept ...]\n"
            self._file.write(note.encode())
            self._dropped = 0
        self._dropped += len(text) - len(kept)
        self._budget -= len(kept)
        self._file.write(kept)


class _BoundedFile:
    """A file that is written to at its end; once it is large it makes way for another one."""

    def __init__(self, path: pathlib.Path, most: int) -> None:
        self._path = path
        self._most = most

    def write(self, text: bytes) -> None:
        """Write, or drop it where that is not possible."""
        if not text:
            return
        with contextlib.suppress(OSError), self._path.open("ab", buffering=0) as file:
            if file.tell() < self._most:
                file.write(text)
                return
            try:
                _make_way(self._path)
            except OSError:
                file.truncate(0)
        with contextlib.suppress(OSError), self._path.open("ab", buffering=0) as file:
            file.write(text)


def bound_output(path: pathlib.Path, *, most: int = MOST_BYTES) -> None:
    """Have this process write to a new file, if what it writes to is this one, and is large.

    Raises:
        OSError: it could not be put aside, or another not be made.
    """
    written = os.fstat(2)
    try:
        there = path.stat()
    except FileNotFoundError:
        return
    if not os.path.samestat(written, there) or there.st_size <= most:
        return
    _make_way(path)
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
    for output in (1, 2):
        if os.path.samestat(os.fstat(output), written):
            os.dup2(descriptor, output)
    os.close(descriptor)


def last_words(path: pathlib.Path) -> str:
    """The end of what is in a log, on one line, for a message."""
    try:
        return _words(end_of(path))
    except OSError as error:
        return f"its log cannot be read: {error}"


def last_lines(text: str) -> str:
    """The last lines of a text as one, without their times, and with nothing that is no text."""
    lines = [_TIME.sub("", line).strip() for line in text.splitlines()]
    shown = " | ".join([line for line in lines if line][-_LAST_LINES:])
    printable = "".join(letter if letter.isprintable() else "?" for letter in shown)
    return printable if len(printable) <= _LONGEST else f"…{printable[1 - _LONGEST :]}"


def _make_way(path: pathlib.Path) -> None:
    path.replace(path.with_name(f"{path.name}.1"))


def end_of(path: pathlib.Path) -> bytes:
    """The last few kilobytes of a log.

    Raises:
        OSError: it cannot be read.
    """
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - _LAST_BYTES))
        return file.read(_LAST_BYTES)


def _words(text: bytes) -> str:
    return f"its log ends with: {last_lines(text.decode(errors='replace')) or 'nothing'}"
