"""Claims, and handlers that answer for a driver, for the tests of both ends of its sockets."""

import contextlib
import threading

from dra_driver.adapters.kubelet import dra_grpc
from dra_driver.model import claims, prepared

INFO = dra_grpc.PluginInfo("gpu.nvidia.com", "/p/dra.sock")
REF = claims.ClaimRef("team-a", "train", claims.ClaimUid("0a1b"))
OTHER = claims.ClaimRef("team-b", "infer", claims.ClaimUid("ffff"))
SHARE = "11111111-2222-3333-4444-555555555555"


def device(name, **facts):
    return prepared.PreparedDevice(
        requests=("gpu", "other"), pool="node-1", device=name, cdi_ids=(f"a/b={name}",), **facts
    )


class Handler:
    """Answers what it is told to, and remembers what it was asked."""

    def __init__(self, *devices, error=""):
        self._answer = dra_grpc.Answer(devices, error)
        self.asked = []

    def prepare(self, refs, caller):
        self.asked.append(("prepare", list(refs), caller.seconds))
        return {ref.uid: self._answer for ref in refs}

    def unprepare(self, refs, caller):
        self.asked.append(("unprepare", list(refs), caller.seconds))
        return {ref.uid: dra_grpc.Answer(error=self._answer.error) for ref in refs}


class Blocking(Handler):
    """A handler whose prepare waits until it is let go."""

    def __init__(self):
        super().__init__(device("gpu-0"))
        self.entered = threading.Semaphore(0)
        self.go = threading.Event()

    def prepare(self, refs, caller):
        self.entered.release()
        assert self.go.wait(60)
        return super().prepare(refs, caller)


@contextlib.contextmanager
def serving(server):
    server.start()
    try:
        yield server
    finally:
        server.stop(0)
