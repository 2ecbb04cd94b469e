"""Labels of nodes that GPU feature discovery makes -> selectors of devices."""

import dataclasses
from typing import Any

from dra_driver.logic.converting import conversion

Json = dict[str, Any]


@dataclasses.dataclass(frozen=True, slots=True)
class Labels:
    """What a pod wants of nodes, as selectors in CEL, and its spec without that."""

    selectors: tuple[str, ...]
    spec: Json
    lines: tuple[conversion.Line, ...] = ()
    warnings: tuple[conversion.Line, ...] = ()
    problems: tuple[conversion.Problem, ...] = ()


def read(spec: Json, driver: str) -> Labels:  # noqa: ARG001 - of devices of this driver
    """What the spec of a pod wants of its node's GPUs."""
    return Labels((), spec)
