"""A stand-in for `nvidia-cuda-mps-control`; `cuda_program` has the programs that connect to it.

Run as a file it is the program that starts one: `-M -f`, `-M -d`; it imports only the standard
library. Without these flags it is `mps_question`. What the daemon answers, and how, is what the
real one of driver 580 was seen to do, except that it does not insist on being root for `-M`.
Like the real one it forgets its limits when it ends, and takes its servers, which are processes,
with it. Like the real one it speaks first on each connection, and waits for the other end, however
long that says nothing; nobody else is served meanwhile.

A number in a memory limit, the daemon's or the client's, is that of a device in the client's own
order, whatever order the daemon has its devices in. A client whose variable names a device that it
does not see has no memory limit.
"""

import contextlib
import dataclasses
import json
import os
import pathlib
import runpy
import selectors
import shlex
import signal
import socket
import stat
import struct
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

NAME = "nvidia-cuda-mps-control"
PIPE_VARIABLE = "CUDA_MPS_PIPE_DIRECTORY"
_GPUS_VARIABLE = "SIMULATED_GPUS"
_MIB = 1024**2
_UNITS = {"K": 1024, "M": _MIB, "G": 1024 * _MIB, "B": 1}
_ANSWER_SECONDS = 60
MESSAGE_BYTES = 65536
# As in `mps_question`, which a program that is one file cannot import.
_GREETING = b"OUTBHELL\0"
_PERSON = b"PERSON\n"
_ANSWER = b"ANSWER\n"
_PERCENTAGE_VARIABLE = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
_MEMORY_VARIABLE = "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"


def install(root: pathlib.Path, gpus: pathlib.Path | None = None) -> pathlib.Path:
    """Put the program where the driver root has it; its path. `gpus` is where its GPUs are kept."""
    path = root / "usr/bin" / NAME
    path.parent.mkdir(parents=True, exist_ok=True)
    # A daemon may be starting from it at this moment.
    aside = path.with_name(f".{NAME}.{os.getpid()}")
    known = "" if gpus is None else f"export {_GPUS_VARIABLE}={shlex.quote(str(gpus.resolve()))}\n"
    here = pathlib.Path(__file__).resolve()
    python, question = f'"{sys.executable}" -I -S', here.with_name("mps_question.py")
    starts = f'case " $* " in *" -f "*|*" -d "*) exec {python} "{here}" "$@" ;; esac'
    script = f'#!/bin/sh\n{known}{starts}\nexec {python} "{question}"\n'
    aside.write_text(script, encoding="utf-8")
    aside.chmod(0o755)
    aside.rename(path)
    return path


@dataclasses.dataclass(slots=True)
class Caps:
    """What a client may take: percent of the multiprocessors, and bytes; None is all."""

    percentage: float = 100.0
    memory: int | None = None
    """Of the first device."""
    others: dict[str, int | None] = dataclasses.field(default_factory=dict)
    """Of the others: by number for a daemon and its servers, by UUID for a client."""

    def of(self, number: int) -> int | None:
        """Of the device with this number."""
        return self.memory if number == 0 else self.others.get(str(number))

    def lowered(self, environment: Mapping[str, str], devices: Sequence[str]) -> "Caps":
        """What is left of them for a client with these variables, which lower them.

        `devices` are the UUIDs of those that it sees, in its own order. A variable that names
        another one, by UUID or number, leaves no memory limit at all.
        """
        percentage = float(environment.get(_PERCENTAGE_VARIABLE, self.percentage))
        entries = environment.get(_MEMORY_VARIABLE, "").split(",")
        own = {name: _size(size) for name, _, size in (entry.partition("=") for entry in entries)}
        numbers = [str(number) for number in range(len(devices))]
        named = [name for name in own if name.startswith("GPU-") or name.isdecimal()]
        if set(named) - {*devices, *numbers}:
            return Caps(min(percentage, self.percentage), None, dict.fromkeys(devices[1:]))
        left = []
        for number, device in enumerate(devices):
            known = (self.of(number), own.get(str(number)), own.get(device))
            left.append(min((one for one in known if one is not None), default=None))
        others = dict(zip(devices[1:], left[1:], strict=True))
        return Caps(min(percentage, self.percentage), left[0], others)


@dataclasses.dataclass(slots=True)
class _Server:
    """One server process. It ends when its end of the pipe, which `lifeline` is of, is closed."""

    pid: int
    lifeline: int
    caps: Caps
    clients: list[socket.socket]


class Daemon:
    """The control daemon of one pipe directory."""

    def __init__(self, directory: pathlib.Path) -> None:
        """Listen there."""
        self._directory = directory
        self._caps = Caps()
        self._server: _Server | None = None
        self._selector = selectors.DefaultSelector()
        self._quit_at: float | None = None
        self._quitter: socket.socket | None = None
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        path = directory / "control"
        path.unlink(missing_ok=True)
        self._listener.bind(str(path))
        path.chmod(0o666)
        self._listener.listen(128)
        self._selector.register(self._listener, selectors.EVENT_READ, self._accept)
        (directory / f"{NAME}.pid").write_text(f"{os.getpid()}\n", encoding="utf-8")
        _say("Starting control daemon using socket", path)

    def serve(self) -> None:
        """Until it is told to quit."""
        while not self._is_over():
            left = None if self._quit_at is None else max(0.0, self._quit_at - time.monotonic())
            for key, _ in self._selector.select(left):
                key.data(key.fileobj)
        self._drop_server()
        if self._quitter is not None:
            _answer(self._quitter, _ANSWER)

    def _is_over(self) -> bool:
        if self._quit_at is None:
            return False
        return self._server is None or not self._server.clients or time.monotonic() >= self._quit_at

    def _accept(self, listener: socket.socket) -> None:
        connection, _ = listener.accept()
        try:
            connection.send(_GREETING)
            said = connection.recv(MESSAGE_BYTES)
            asked: Any = _commands(said) if said.startswith(_PERSON) else json.loads(said)
        except (OSError, ValueError):
            connection.close()
            return
        if isinstance(asked, list):
            self._serve_person(connection, asked)
        else:
            self._serve_client(connection, asked["client"], asked.get("devices", ()))

    def _serve_client(
        self, connection: socket.socket, environment: Mapping[str, str], seen: Sequence[str]
    ) -> None:
        server = self._server or self._start_server()
        server.clients.append(connection)
        served = _served()
        devices = [device for device in seen if device in served] or served
        caps = server.caps.lowered(environment, devices)
        given = {"server": server.pid, **dataclasses.asdict(caps)}
        _answer(connection, json.dumps(given).encode())
        self._selector.register(connection, selectors.EVENT_READ, self._forget_client)

    def _forget_client(self, connection: socket.socket) -> None:
        if connection.fileno() < 0:  # It went with its server, which ended at the same moment.
            return
        self._selector.unregister(connection)
        connection.close()
        if self._server is not None and connection in self._server.clients:
            self._server.clients.remove(connection)

    def _start_server(self) -> _Server:
        reading, lifeline = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(lifeline)
            self._listener.close()
            os.read(reading, 1)
            os._exit(0)
        os.close(reading)
        descriptor = os.pidfd_open(pid)
        self._selector.register(descriptor, selectors.EVENT_READ, self._bury_server)
        self._server = _Server(pid, lifeline, dataclasses.replace(self._caps), [])
        _say("Starting new server", pid)
        return self._server

    def _bury_server(self, descriptor: int) -> None:
        self._selector.unregister(descriptor)
        os.close(descriptor)
        self._drop_server()

    def _drop_server(self) -> None:
        server, self._server = self._server, None
        if server is None:
            return
        os.close(server.lifeline)
        os.waitpid(server.pid, 0)
        for connection in server.clients:
            self._selector.unregister(connection)
            connection.close()

    def _serve_person(self, connection: socket.socket, commands: Sequence[str]) -> None:
        _say("NEW UI")
        answers = []
        for command in commands:
            _say("Cmd:", command)
            name, *arguments = command.split() or [""]
            if name == "quit":
                seconds = float(arguments[1]) if arguments[:1] == ["-t"] else _ANSWER_SECONDS
                self._quit_at = time.monotonic() + seconds
                self._quitter = connection
                return
            act = _COMMANDS.get(name)
            if act is None:
                answers.append(f'Unknown command "{name}"')
                continue
            with contextlib.suppress(TypeError):  # A wrong number of arguments is passed over.
                answers.append(act(self, *arguments))
        told = "".join(f"{answer}\n" for answer in answers if answer)
        _answer(connection, _ANSWER + told.encode())
        connection.close()

    def _get_server_list(self) -> str:
        return "" if self._server is None else str(self._server.pid)

    def _default_percentage(self, value: str | None = None) -> str:
        return _percentage(self._caps, value)

    def _default_memory(self, device: str, value: str | None = None) -> str:
        return _memory(self._caps, device, value)

    def _server_percentage(self, server: str, value: str | None = None) -> str:
        found = self._server_caps(server)
        return found if isinstance(found, str) else _percentage(found, value)

    def _server_memory(self, server: str, device: str, value: str | None = None) -> str:
        found = self._server_caps(server)
        return found if isinstance(found, str) else _memory(found, device, value)

    def _server_caps(self, server: str) -> Caps | str:
        if self._server is None or server != str(self._server.pid):
            return f"Server {server} not found"
        return self._server.caps


_COMMANDS: dict[str, Callable[..., str]] = {
    "get_server_list": Daemon._get_server_list,  # noqa: SLF001 - the table is part of the class
    "get_default_active_thread_percentage": Daemon._default_percentage,  # noqa: SLF001
    "set_default_active_thread_percentage": Daemon._default_percentage,  # noqa: SLF001
    "get_default_device_pinned_mem_limit": Daemon._default_memory,  # noqa: SLF001
    "set_default_device_pinned_mem_limit": Daemon._default_memory,  # noqa: SLF001
    "get_active_thread_percentage": Daemon._server_percentage,  # noqa: SLF001
    "set_active_thread_percentage": Daemon._server_percentage,  # noqa: SLF001
    "get_device_pinned_mem_limit": Daemon._server_memory,  # noqa: SLF001
    "set_device_pinned_mem_limit": Daemon._server_memory,  # noqa: SLF001
}


def _percentage(caps: Caps, value: str | None) -> str:
    """A value out of range changes nothing, and is answered like any other."""
    with contextlib.suppress(ValueError):
        if value is not None and 0 < float(value) <= 100:
            caps.percentage = float(value)
    return str(caps.percentage)


def _memory(caps: Caps, device: str, value: str | None) -> str:
    """Setting is not answered; what is no size takes the limit away. Only its devices are there."""
    if device not in map(str, range(len(_served()))):
        return ""
    if value is not None:
        held = _size(value) or None
        if device == "0":
            caps.memory = held
        else:
            caps.others[device] = held
        return ""
    memory = caps.of(int(device))
    if memory is None:
        return ""
    unit = next(unit for unit in "GMKB" if memory >= _UNITS[unit])
    return f"{memory // _UNITS[unit]}{unit}"


def _commands(said: bytes) -> list[str]:
    lines = said.removeprefix(_PERSON).decode().splitlines()
    return [line.strip() for line in lines if line.strip()]


def _served() -> list[str]:
    """The devices of the daemon that this process is."""
    return os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")


def _size(text: str) -> int | None:
    digits, unit = (text[:-1], text[-1]) if text[-1:] in _UNITS else (text, "B")
    return int(digits) * _UNITS[unit] if digits.isdecimal() else None


def open_socket() -> socket.socket:
    """A socket whose `connect` and `recv` wait, as a CUDA program's do, but not for ever."""
    opened = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    for option in (socket.SO_SNDTIMEO, socket.SO_RCVTIMEO):
        opened.setsockopt(socket.SOL_SOCKET, option, struct.pack("ll", _ANSWER_SECONDS, 0))
    return opened


def say(connection: socket.socket, message: Any) -> None:
    """Say what is wanted of a daemon, once it has spoken.

    Raises:
        OSError: it has hung up.
    """
    if connection.recv(MESSAGE_BYTES) != _GREETING:
        raise ConnectionError("MPS daemon: no greeting")
    send(connection, message)


def send(connection: socket.socket, message: Any) -> None:
    """Send one message."""
    connection.send(json.dumps(message).encode())


def _answer(connection: socket.socket, message: bytes) -> None:
    """Send, unless whoever asked has ended meanwhile."""
    with contextlib.suppress(OSError):
        connection.send(message)


def _say(*words: Any) -> None:
    sys.stdout.write(f"[Control {os.getpid()}] {' '.join(map(str, words))}\n")
    sys.stdout.flush()


@contextlib.contextmanager
def _open_cards() -> Iterator[None]:
    """Have the daemon's cards open for as long as it runs, as the real one has."""
    gpus, devices = (os.environ.get(name, "") for name in (_GPUS_VARIABLE, "CUDA_VISIBLE_DEVICES"))
    if not pathlib.Path(gpus, "gpus.json").is_file():
        yield
        return
    clients = runpy.run_path(str(pathlib.Path(__file__).with_name("gpu_clients.py")))
    place = pathlib.Path(gpus)
    opened = clients["attach"](place, clients["cards_of"](place, devices.split(",")))
    yield
    clients["detach"](opened)


def _background(log_dir: pathlib.Path) -> bool:
    """Go on in a process of its own; false in the one that was called."""
    if os.fork() != 0:
        return False
    os.setsid()
    log = os.open(log_dir / "control.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    for descriptor in (1, 2):
        os.dup2(log, descriptor)
    return True


def main(arguments: Sequence[str]) -> int:
    """The program; its exit status."""
    directory = pathlib.Path(os.environ.get(PIPE_VARIABLE, "/tmp/nvidia-mps"))  # noqa: S108
    if not stat.S_ISDIR(directory.stat().st_mode if directory.exists() else 0):
        sys.stderr.write(f"Cannot access {PIPE_VARIABLE}={directory}\n")
        return 1
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as other:
        if other.connect_ex(str(directory / "control")) == 0:
            sys.stdout.write("An instance of this daemon is already running\n")
            return 1
    log_dir = os.environ.get("CUDA_MPS_LOG_DIRECTORY", "/var/log/nvidia-mps")
    if "-d" in arguments and not _background(pathlib.Path(log_dir)):
        return 0
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    with _open_cards():
        Daemon(directory).serve()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
