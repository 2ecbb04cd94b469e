"""What an MPS control daemon waits for, seen from its parent, and how that is ended.

The daemon of driver 580 speaks first on each connection that it accepts, and then waits for the
other end in the thread that sees to everything, without a timeout: a client that says nothing keeps
all others waiting, and whoever asks the daemon anything. Shut down from outside, that connection is
over for the daemon, and it goes on within milliseconds; all other clients are as they were.

A parent may have what its child has open (`pidfd_getfd`) where it may trace it: as the same user,
also with Yama's `ptrace_scope` 1, and with CAP_SYS_PTRACE in containers with a seccomp profile.
"""

import contextlib
import ctypes
import dataclasses
import errno
import os
import pathlib
import platform
import socket
import struct
from collections.abc import Iterator

from dra_driver.adapters.system import pids

_RECEIVING = {"x86_64": {0, 45, 47}, "aarch64": {63, 207, 212}}
"""Numbers of read, recvfrom and recvmsg."""
_PIDFD_GETFD = 438
_PEER = struct.Struct("3i")
_GONE = {errno.EBADF, errno.ENOTCONN, errno.ENOTSOCK, errno.ESRCH}

_libc = ctypes.CDLL(None, use_errno=True)


@dataclasses.dataclass(frozen=True, slots=True)
class Connection:
    """One that a daemon has accepted; what it is at the other end of, as the kernel knows it.

    `pid` is 0 for a process that this one cannot see.
    """

    descriptor: int
    inode: int
    pid: int
    uid: int

    def __str__(self) -> str:
        """As it is told to people."""
        return f"process {self.pid} of user {self.uid}"


def waited_on(daemon: int, path: pathlib.Path) -> tuple[Connection, ...]:
    """The connections to its socket at `path` that a child of this process waits on now.

    Never one with a child of its own or of this process, however far down.

    Raises:
        OSError: that cannot be seen here.
    """
    found = []
    try:
        received = _received_from(daemon)
    except ProcessLookupError:
        return ()
    for descriptor in received:
        with _shared(daemon, descriptor) as shared:
            one = None if shared is None else _accepted(descriptor, shared, path)
        if one is not None and not pids.descends(one.pid, os.getpid()):
            found.append(one)
    return tuple(found)


def cut(daemon: int, connection: Connection) -> bool:
    """End a connection for both ends; False if it is over.

    Raises:
        OSError: that is not possible here.
    """
    with _shared(daemon, connection.descriptor) as shared:
        if shared is None or os.fstat(shared.fileno()).st_ino != connection.inode:
            return False
        try:
            shared.shutdown(socket.SHUT_RDWR)
        except OSError as error:
            if error.errno not in _GONE:
                raise
            return False
    return True


def _received_from(daemon: int) -> set[int]:
    """The descriptors that threads of a process are blocked in a read of (proc(5), `syscall`)."""
    numbers = _RECEIVING.get(platform.machine())
    if numbers is None:
        raise OSError(errno.ENOSYS, f"calls are not known on {platform.machine()}")
    found = set()
    for thread in pathlib.Path(f"/proc/{daemon}/task").iterdir():
        try:
            call, *arguments = (thread / "syscall").read_text(encoding="ascii").split()
        except (FileNotFoundError, ProcessLookupError):
            if thread.exists() and not (thread / "syscall").exists():
                raise
            continue
        # One that runs is told as "running", one that waits in no call as -1.
        if call.isdecimal() and int(call) in numbers and arguments:
            found.add(int(arguments[0], 16))
    return found


@contextlib.contextmanager
def _shared(daemon: int, descriptor: int) -> Iterator[socket.socket | None]:
    """The same socket in this process; None where it is none, or has been closed."""
    process = os.pidfd_open(daemon)
    try:
        number = _libc.syscall(_PIDFD_GETFD, process, descriptor, 0)
        problem = ctypes.get_errno()
    finally:
        os.close(process)
    if number < 0 and problem not in _GONE:
        raise OSError(problem, f"pidfd_getfd: {os.strerror(problem)}")
    if number < 0:
        yield None
        return
    try:
        shared = socket.socket(fileno=number)
    except OSError:
        os.close(number)
        yield None
        return
    with shared:
        yield shared


def _accepted(descriptor: int, shared: socket.socket, path: pathlib.Path) -> Connection | None:
    """What is known of a connection; None if it is not one that was accepted at `path`."""
    if (shared.family, shared.type) != (socket.AF_UNIX, socket.SOCK_SEQPACKET):
        return None
    if shared.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
        return None
    # An accepted socket has the name of the one that it was accepted from (unix(7)).
    if shared.getsockname() != str(path):
        return None
    told = shared.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
    pid, uid, _ = _PEER.unpack(told)
    return Connection(descriptor, os.fstat(shared.fileno()).st_ino, pid, uid)
