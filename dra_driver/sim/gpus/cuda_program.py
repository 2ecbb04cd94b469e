"""A CUDA program, as far as a simulated MPS daemon goes: `connect` is its `cuInit`."""

import json
import select
import socket
from collections.abc import Mapping, Sequence

from dra_driver.sim.gpus import mps_program


class Client:
    """A program that has called `cuInit`. Without a daemon it runs all the same, without caps."""

    def __init__(
        self, caps: mps_program.Caps, server: int | None, connection: socket.socket | None
    ) -> None:
        """`server` is the pid of its server; None: it runs without MPS."""
        self.caps = caps
        self.server = server
        self._connection = connection

    def is_usable(self) -> bool:
        """Whether its context still works; it does not when its server is gone."""
        if self._connection is None:
            return True
        readable, _, _ = select.select([self._connection], [], [], 0)
        return not readable

    def wait_unusable(self, seconds: float) -> bool:
        """Wait for the end of its server; False if that still runs after this time."""
        assert self._connection is not None  # noqa: S101 - else there is no server
        return bool(select.select([self._connection], [], [], seconds)[0])

    def close(self) -> None:
        """End."""
        if self._connection is not None:
            self._connection.close()


def connect(environment: Mapping[str, str], cards: Sequence[str] = ()) -> Client:
    """What a CUDA program with these variables gets.

    `cards` are the UUIDs of the GPUs whose device nodes it has, in PCI order; none are given where
    there is but one, or a MIG instance.
    """
    directory = environment.get(mps_program.PIPE_VARIABLE, "/tmp/nvidia-mps")  # noqa: S108 - as CUDA has it
    connection = mps_program.open_socket()
    try:
        connection.connect(f"{directory}/control")
        own = {k: v for k, v in environment.items() if k.startswith("CUDA_MPS_")}
        mps_program.say(connection, {"client": own, "devices": _visible(environment, cards)})
        answer = json.loads(connection.recv(mps_program.MESSAGE_BYTES))
    except (OSError, ValueError):
        connection.close()
        return Client(mps_program.Caps(), None, None)
    caps = mps_program.Caps(answer["percentage"], answer["memory"], answer["others"])
    return Client(caps, answer["server"], connection)


def _visible(environment: Mapping[str, str], cards: Sequence[str]) -> list[str]:
    """The cards that CUDA shows, in its order: it goes by the variable up to what is no card."""
    named = environment.get("CUDA_VISIBLE_DEVICES")
    if named is None or not cards:
        return list(cards)
    numbers = {str(number): card for number, card in enumerate(cards)}
    found = []
    for name in named.split(","):
        card = numbers.get(name, name)
        if card not in cards or card in found:
            break
        found.append(card)
    return found
