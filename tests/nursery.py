"""Starts the programs of a node in milliseconds, by forking a process that has loaded them.

A Python program of the driver takes half a second to load, and tests of sharing start hundreds of
them: supervisors of MPS daemons, and the stand-in for `nvidia-smi`. What runs is the same code, in
a process of its own, which writes where its caller writes and ends with the same status.

`nursery_call.py` is the caller's side.
"""

import os
import pathlib
import signal
import socket
import subprocess
import sys

CALLER = pathlib.Path(__file__).with_name("nursery_call.py")
_MESSAGE_BYTES = 65536
_PR_SET_PDEATHSIG = 1


class Nursery:
    """The process that forks; the directory is short, as a socket's path must be."""

    def __init__(self, directory: pathlib.Path) -> None:
        self.socket = directory / "nursery"
        self._process = subprocess.Popen(
            [sys.executable, __file__, str(self.socket)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == b"ready\n"

    def command(self, program: str) -> list[str]:
        """What runs a program, `supervisor` or `nvidia-smi`, before its arguments."""
        return [sys.executable, "-I", "-S", str(CALLER), str(self.socket), program]

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


def serve(path: str) -> None:
    """Fork for each caller, until killed."""
    import ctypes

    from dra_driver import cli
    from dra_driver.apps.mps import mps_daemon  # noqa: F401 - loaded for those to come
    from dra_driver.sim.gpus import host_nvidia_smi

    def supervise(arguments: list[str]) -> int:
        cli.main(["mps-daemon", *arguments])
        return 0

    programs = {
        "supervisor": supervise,
        "nvidia-smi": lambda arguments: host_nvidia_smi.main(arguments[0], arguments[1:]),
    }
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    # Tests that are killed leave no nursery.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen(16)
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        while True:
            connection, _ = listener.accept()
            if os.fork() == 0:
                listener.close()
                os._exit(_run(connection, programs))
            connection.close()


def _run(connection, programs) -> int:
    text, descriptors, _flags, _address = socket.recv_fds(connection, _MESSAGE_BYTES, 2)
    program, count, *texts = text.decode().removesuffix("\0").split("\0")
    arguments, variables = texts[: int(count)], texts[int(count) :]
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setsid()
    for target, descriptor in enumerate(descriptors, start=1):
        os.dup2(descriptor, target)
        os.close(descriptor)
    os.environ.clear()
    os.environ.update(variable.split("=", 1) for variable in variables)
    status = 1
    try:
        status = programs[program](arguments)
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        connection.send(bytes([status]))
    return status


if __name__ == "__main__":
    serve(sys.argv[1])
