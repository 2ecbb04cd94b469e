"""A stand-in for `nvidia-cuda-mps-control` that starts nothing: it tells a daemon commands.

Run as a file it is the program. It is started for each question, hundreds of times by the tests,
and imports next to nothing: with `socket` and `json` it would take four times as long as Python.
"""

import _socket
import os
import sys

PIPE_VARIABLE = "CUDA_MPS_PIPE_DIRECTORY"
GREETING = b"OUTBHELL\0"
"""What a daemon says first on each connection."""
PERSON = b"PERSON\n"
"""What comes before commands, which are lines, in a message to the daemon."""
ANSWER = b"ANSWER\n"
"""What comes before the text of an answer, which may be empty."""
MESSAGE_BYTES = 65536
ANSWER_SECONDS = 60
_NO_SECONDS = bytes(8)


def directory() -> str:
    """Where the daemon is, as variables have it.

    Raises:
        NotADirectoryError: nowhere.
    """
    path = os.environ.get(PIPE_VARIABLE, "/tmp/nvidia-mps")  # noqa: S108 - as the real one has it
    if not os.path.isdir(path):  # noqa: PTH112 - pathlib takes long to import
        raise NotADirectoryError(f"Cannot access {PIPE_VARIABLE}={path}\n")
    return path


def ask(path: str, commands: str) -> int:
    """Tell the daemon of a directory commands, and write its answer; the program's exit status."""
    connection = _socket.socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
    seconds = ANSWER_SECONDS.to_bytes(8, sys.byteorder)
    for option in (_socket.SO_SNDTIMEO, _socket.SO_RCVTIMEO):
        connection.setsockopt(_socket.SOL_SOCKET, option, seconds + _NO_SECONDS)
    try:
        connection.connect(f"{path}/control")
        if connection.recv(MESSAGE_BYTES) != GREETING:
            raise ConnectionError("no greeting")
        connection.send(PERSON + commands.encode())
        answer = connection.recv(MESSAGE_BYTES)
    except OSError:
        answer = b""
    finally:
        connection.close()
    if not answer.startswith(ANSWER):
        sys.stderr.write("Cannot find MPS control daemon process\n")
        return 1
    sys.stdout.write(answer.removeprefix(ANSWER).decode())
    return 0


def main() -> int:
    """The program."""
    try:
        return ask(directory(), sys.stdin.read())
    except NotADirectoryError as error:
        sys.stderr.write(str(error))
        return 1


if __name__ == "__main__":
    sys.exit(main())
