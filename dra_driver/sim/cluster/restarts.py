"""Whether and when a container that has ended is started again.

Source: Kubernetes 1.36, `pkg/kubelet/kuberuntime` (ShouldContainerBeRestarted, doBackOff).
"""

import dataclasses
from typing import Any

Json = dict[str, Any]

FIRST_SECONDS = 10.0
LAST_SECONDS = 300.0
"""Between the second start of a container and its third, and longest after doubling."""


def is_due(policy: str, status: int) -> bool:
    """Whether a pod with that `restartPolicy` wants a container again that ended with `status`."""
    return policy == "Always" or (policy == "OnFailure" and status != 0)


@dataclasses.dataclass(slots=True)
class Life:
    """What a container has gone through. `at` is when it starts again; None while it runs."""

    restarts: int = 0
    at: float | None = None
    last: Json | None = None
    """How it ended the last time, as its status has it."""

    def ended(self, terminated: Json, now: float) -> None:
        """It has ended and is to be started again: the first time at once."""
        self.last = terminated
        self.at = now + self.pause

    def started(self) -> None:
        """It runs once more."""
        self.restarts += 1
        self.at = None

    @property
    def pause(self) -> float:
        """Seconds until the next start."""
        if self.restarts == 0:
            return 0.0
        doubled = FIRST_SECONDS * 2.0 ** min(self.restarts - 1, 16)
        return float(min(doubled, LAST_SECONDS))

    def waiting(self, name: str) -> Json:
        """The state of the container until then."""
        text = f"back-off {self.pause:.0f}s restarting failed container={name}"
        return {"waiting": {"reason": "CrashLoopBackOff", "message": text}}
