"""Ends the containers of a demo once other pods wait for them, and not after a time.

A pod that is expected to wait has to find those of an earlier step running, however slow the
machine is.
"""

import pytest

from dra_driver.sim.cluster import runtime
from dra_driver.sim.demo import observing, outcome


def end_once_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let containers that sleep end when all pods that are expected to wait have waited.

    What has started after that goes on until there are more such pods, of another step.
    """
    running: list[runtime._Pretended] = []
    served: set[tuple[str, str]] = set()
    look = observing.Observer.look

    class Sleeping(runtime._Pretended):
        def __init__(self, seen, seconds, on_end):
            super().__init__(seen, None, on_end)
            if seconds is not None:
                running.append(self)

    def looked(observer):
        result = look(observer)
        waiting = [pod for pod in result.pods if pod.expected == outcome.WAITED]
        names = {(pod.namespace, pod.name) for pod in waiting}
        if names - served and all(pod.was_unschedulable for pod in waiting):
            served.update(names)
            # Others may be starting at this moment: those that were there are taken out.
            for container in [running.pop(0) for _ in range(len(running))]:
                container._end()
        return result

    monkeypatch.setattr(runtime, "_Pretended", Sleeping)
    monkeypatch.setattr(observing.Observer, "look", looked)
