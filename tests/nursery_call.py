"""Has a program of a node run by a nursery: `nursery_call.py SOCKET PROGRAM ARGUMENT...`.

It is started for each call, and imports next to nothing: see `mps_question`.
"""

import _socket
import array
import os
import sys


def call(path: str, program: str, arguments: list[str]) -> int:
    """Have a program run; its exit status, 137 if it was killed.

    What is asked for are texts, each of which ends with a zero byte: the program, how many
    arguments it has, these, and its variables.
    """
    variables = [f"{name}={value}" for name, value in os.environ.items()]
    texts = [program, str(len(arguments)), *arguments, *variables]
    asked = b"".join(text.encode() + b"\0" for text in texts)
    connection = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    connection.connect(path)
    own = array.array("i", [1, 2]).tobytes()
    connection.sendmsg([asked], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, own)])
    answer = connection.recv(1)
    return answer[0] if answer else 137


if __name__ == "__main__":
    sys.exit(call(sys.argv[1], sys.argv[2], sys.argv[3:]))
