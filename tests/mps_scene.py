"""A place for MPS daemons: their directories, and a driver root with a simulated program."""

import concurrent.futures
import errno
import os
import pathlib
import shutil
import signal
import socket
import tempfile
import threading

import polling

from dra_driver.adapters.driver import driver_root as roots
from dra_driver.adapters.mps import mps_control, mps_domain, mps_local
from dra_driver.adapters.system import patience, pids
from dra_driver.model import mps
from dra_driver.sim.gpus import cuda_program, mps_program

GIB = 1024**3
GPU = "GPU-5b6e3f0a-0000-4000-8000-000000000001"
LIMITS = mps.Limits(thread_percentage=30, memory_bytes=4 * GIB)


class Scene:
    """The path is short: a socket's may have 107 bytes."""

    def __init__(self, driver_root: pathlib.Path | None = None) -> None:
        """`driver_root`: where the real program is."""
        self.root = pathlib.Path(tempfile.mkdtemp(prefix="mps-", dir="/tmp"))
        self.root.chmod(0o755)
        self.driver_root = driver_root or self.root / "driver"
        if driver_root is None:
            mps_program.install(self.driver_root)
        self.program = mps_control.find(self.layout).path
        self.daemons: list[mps.Daemon] = []

    def close(self) -> None:
        for daemon in self.daemons:
            self.launcher().stop(daemon, 10)
        shutil.rmtree(self.root)

    def daemon(self, number: int = 1, limits: mps.Limits = LIMITS, **fields) -> mps.Daemon:
        daemon = mps.daemon(
            root=str(self.root / "mps"),
            daemon_id=f"{number:016x}",
            limits=limits,
            **{"device": GPU, "shm_bytes": 16 * mps.MIB} | fields,
        )
        self.daemons.append(daemon)
        return daemon

    @property
    def layout(self):
        """Where the program is."""
        return roots.Layout(roots.Root(str(self.driver_root), self.driver_root))

    def launcher(self, **options) -> mps_local.LocalLauncher:
        return mps_local.LocalLauncher(self.driver_root, **{"private_shm": False} | options)

    def control(self, daemon: mps.Daemon) -> mps_control.Control:
        return mps_control.Control(
            self.program, pathlib.Path(daemon.control_dir), pathlib.Path(daemon.log_dir)
        )

    def started(self, daemon: mps.Daemon) -> mps.Daemon:
        """The daemon, ready."""
        launcher = self.launcher()
        launcher.start(daemon)
        launcher.wait_ready(daemon, patience.Patience(60))
        return daemon


def domain(daemon: mps.Daemon) -> mps_domain.Domain:
    return mps_domain.Domain(pathlib.Path(daemon.directory))


def connect(daemon: mps.Daemon, **environment: str) -> cuda_program.Client:
    """A CUDA program in a container that has the daemon's pipe directory."""
    return cuda_program.connect({"CUDA_MPS_PIPE_DIRECTORY": daemon.pipe_dir, **environment})


def caps(daemon: mps.Daemon, **environment: str) -> tuple[float, int | None]:
    """What such a program may take; it has ended when this returns."""
    client = connect(daemon, **environment)
    client.close()
    assert client.server is not None, "it ran without MPS"
    return client.caps.percentage, client.caps.memory


def supervisor(daemon: mps.Daemon) -> pids.Process:
    found = domain(daemon).supervisor()
    assert found is not None
    return found


def process(daemon: mps.Daemon) -> pids.Process:
    """The control daemon that is ready."""
    ready = domain(daemon).ready()
    assert ready is not None
    return pids.Process(ready.pid, ready.start_time)


def kill(victim: pids.Process) -> None:
    assert pids.send(victim, signal.SIGKILL)
    assert pids.wait(victim, 60)


def ready_after(daemon: mps.Daemon, old: pids.Process) -> pids.Process:
    """The control daemon that is ready in place of an old one."""

    def found():
        ready = domain(daemon).ready()
        return ready is not None and ready.pid != old.pid and process(daemon)

    return polling.until(found, what="another daemon")


def has_clients_wait(daemon: mps.Daemon) -> bool:
    """Whether a CUDA program that starts now waits."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as tried:
        tried.settimeout(0)
        return tried.connect_ex(f"{daemon.pipe_dir}/control") == errno.EAGAIN


def processes_of(daemon: mps.Daemon) -> list[int]:
    """Whatever runs for the daemon: all that have its directory among their variables or flags."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdecimal() or int(entry.name) == os.getpid():
            continue
        try:
            told = (entry / "environ").read_bytes() + (entry / "cmdline").read_bytes()
        except OSError:
            continue
        if daemon.directory.encode() in told and pids.find(int(entry.name)) is not None:
            found.append(int(entry.name))
    return found


def runs_nothing(daemon: mps.Daemon) -> bool:
    """True once nothing runs for it; servers of a daemon that is killed end a moment after it."""
    polling.until(lambda: processes_of(daemon) == [], what="the end of all processes")
    return True


def in_background(action) -> threading.Thread:
    thread = threading.Thread(target=action, daemon=True)
    thread.start()
    return thread


def waiting_client(daemon: mps.Daemon):
    """Begin to start a CUDA program; what this returns waits until it has started, for its caps."""
    pool = concurrent.futures.ThreadPoolExecutor(1)
    future = pool.submit(caps, daemon)
    pool.shutdown(wait=False)
    return lambda: future.result(60)


def replace(program: pathlib.Path, text: str) -> None:
    """Put another program in its place: one that is being started cannot be written to."""
    other = program.with_name("other")
    other.write_text(text, encoding="utf-8")
    other.chmod(0o755)
    other.replace(program)
