"""Tolerations that do not do what they look like: of the taints of devices, by which the driver
tells how they are.
"""

from collections.abc import Iterator

from dra_driver.logic.admission import admitted
from dra_driver.logic.scheduling import misnamed
from dra_driver.model import health, taints, texts

_DEFAULTS = {"operator": "Equal", "key": "", "value": ""}
_VALUED = frozenset(
    {
        health.Key.XID,
        health.Key.RECOVERY,
        health.Key.MEMORY,
        health.Key.THERMAL,
        health.Key.FABRIC,
    }
)
"""Keys of taints that always have a value."""


def told(asked: admitted.Asked, driver: str) -> Iterator[str]:
    """A sentence for each toleration of a request for the driver's devices, with its place."""
    stays = [one.body for one in asked.tolerations if one.body.get("effect") == taints.NO_EXECUTE]
    for one in asked.tolerations:
        if not one.body.get("effect") and not any(_covers(other, one.body) for other in stays):
            yield (
                f"{one.path}: without an effect it lets pods start on a device with a taint, "
                "and a taint NoExecute ends them again: add one with `effect: NoExecute`"
            )
        domain, _, name = str(one.body.get("key") or "").rpartition("/")
        if domain == driver:
            yield from (f"{one.path}.key: {text}" for text in _of_key(name, one.body, driver))


def _of_key(name: str, body: admitted.Json, driver: str) -> Iterator[str]:
    if name not in set(health.Key):
        if near := misnamed.nearest(name, list(health.Key)):
            meant = " or ".join(f"{driver}/{each}" for each in near)
            told = texts.quoted(f"{driver}/{name}", 80)
            yield f"{driver} gives its devices no taint {told}: write {meant}"
    elif name in _VALUED and body.get("operator") != "Exists" and not body.get("value"):
        yield (
            f"taints {driver}/{name} have a value, and this tolerates those without one: add "
            "`operator: Exists`, or the value"
        )


def _covers(other: admitted.Json, one: admitted.Json) -> bool:
    """Whether `other` tolerates every key and value that `one` does."""
    if other.get("operator") == "Exists":
        return not other.get("key") or other.get("key") == one.get("key")
    names = ("key", "operator", "value")
    shown = [[body.get(name) or _DEFAULTS.get(name) for name in names] for body in (other, one)]
    return shown[0] == shown[1]
