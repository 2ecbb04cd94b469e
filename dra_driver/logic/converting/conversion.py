"""What becomes of a pod template: what every door shows, and what it asks for."""

import dataclasses
import enum
from typing import Any

from dra_driver.logic.converting import fleet as fleets

Json = dict[str, Any]

CONVERTED = "dra-driver.dev/converted"
"""Label of a template that a door made, with the name of the door."""


TEMPLATES = "converted-"
"""How the names begin of templates that a door makes."""
NAMESPACE = ("dra-driver.dev/convert", "enabled")
"""The label of a namespace whose pods the webhook converts."""
IGNORED = ("hami.io/webhook", "ignore")
"""The label of a pod that it leaves alone there, as HAMi's own does."""


class Door(enum.StrEnum):
    """Who asks. The webhook leaves what it may not take away from a pod, and warns of it."""

    COMMAND = "command"
    WEBHOOK = "webhook"


@dataclasses.dataclass(frozen=True, slots=True)
class Policy:
    """What is decided before any pod is seen.

    `share_class` is the class of shares. Without a `fleet` percentages cannot be resolved. With
    `whole_gpus` containers that ask for `nvidia.com/gpu` alone are converted too. `replicas` is how
    many pods share a card where manifests do not say how much of it they want (`gpu.shared`).
    """

    driver: str
    door: Door
    share_class: str
    fleet: fleets.Fleet | None = None
    whole_gpus: bool = False
    replicas: int = 10


@dataclasses.dataclass(frozen=True, slots=True)
class Template:
    """A ResourceClaimTemplate. Equal asks have equal names: the name tells the spec.

    `spec` is that of the claims (`spec.spec` of the template), as `resource.k8s.io/v1`.
    """

    name: str
    spec: Json


@dataclasses.dataclass(frozen=True, slots=True)
class Line:
    """One thing that was translated. `where` is `pod` or `container NAME`."""

    where: str
    asked: str
    becomes: str


@dataclasses.dataclass(frozen=True, slots=True)
class Problem:
    """One thing that cannot be translated: what was written where, and the rule for it."""

    where: str
    field: str
    value: str
    rule: str

    def __str__(self) -> str:
        """As in messages."""
        return f"{self.where}: {self.field}: {self.value}: {self.rule}"


@dataclasses.dataclass(frozen=True, slots=True)
class Conversion:
    """The result. With a problem nothing is converted: `pod` is as it was, without `templates`.

    `pod` has `metadata` and `spec`, as a pod or a pod template; what is not in need of change in it
    is the same as in what was given, so that what differs is what was translated.
    """

    pod: Json
    templates: tuple[Template, ...] = ()
    lines: tuple[Line, ...] = ()
    warnings: tuple[Line, ...] = ()
    problems: tuple[Problem, ...] = ()

    @property
    def is_converted(self) -> bool:
        """Whether anything in the pod is to change."""
        return bool(self.lines) and not self.problems
