"""How much is tried: a part of what is exhaustive by `make test`, all of it by `make test-all`.

Three markers tell the two apart (pyproject.toml). `exhaustive`: `make test` leaves it out.
`sampled(n)`: of the module's tests, or of the function's cases, `make test` runs the first and each
n-th after it. `deep`: both run it, and it goes as far as `examples` and `steps` say.
A run without a choice of markers (`pytest tests/…`) runs everything, all of it.
"""

import collections
import itertools
from collections.abc import Iterator

import hypothesis
import pytest

_NORMAL = 100
"""Examples of a property whose test says nothing else."""
_FEW = 10
STRIDE = 13
"""Of the steps before which a process is killed `make test` takes each n-th; odd, since of two
steps that follow each other tests go on in different ways."""

hypothesis.settings.register_profile(
    "all",
    parent=hypothesis.settings(),
    # How long an example takes says how busy the machine is.
    deadline=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.register_profile(
    "part", parent=hypothesis.settings.get_profile("all"), max_examples=_FEW
)


def choose(markers: str) -> None:
    """Try all, or a part, as the choice of markers (`-m`) says; before any test is collected."""
    hypothesis.settings.load_profile("part" if markers == "not exhaustive" else "all")


def _is_part() -> bool:
    return hypothesis.settings.default.max_examples == _FEW


def examples(count: int) -> int:
    """How many examples a property is tried with that is worth `count` of them."""
    return max(count * _FEW // _NORMAL, 3) if _is_part() else count


def steps(first: int = 1) -> Iterator[int]:
    """The steps before which a process is killed, until it ends before one of them."""
    return itertools.count(first, STRIDE if _is_part() else 1)


def mark(items: list[pytest.Item]) -> None:
    """Mark what `make test` leaves out of what is sampled, and properties as deep."""
    seen: collections.Counter[str] = collections.Counter()
    for item in items:
        if getattr(getattr(item, "obj", None), "is_hypothesis_test", False):
            item.add_marker("deep")
        if item.get_closest_marker("exhaustive"):
            # What is left out for itself takes nobody's place.
            continue
        for node, marker in item.iter_markers_with_node("sampled"):
            # A mark on a function is on each of its cases, one on a module on the module.
            group = node.nodeid.partition("[")[0]
            if seen[group] % marker.args[0]:
                item.add_marker("exhaustive")
            seen[group] += 1
