"""Names that no device of the driver has: of attributes, of capacities, and of the driver itself.

They are legal, since any driver may publish any name. A claim that asks for one gets no device, and
a config for one is passed over.
"""

import dataclasses
from collections.abc import Collection, Iterator

from dra_driver.logic.admission import admitted
from dra_driver.logic.cel import selection
from dra_driver.logic.offering import classes
from dra_driver.logic.scheduling import misnamed
from dra_driver.model import texts

_ELSE = {"attributes": "capacity", "capacity": "attributes"}
_ONE = {"attributes": "attribute", "capacity": "capacity"}


@dataclasses.dataclass(frozen=True, slots=True)
class Vocabulary:
    """All names that devices of the driver may have, those in the driver's domain without it."""

    attributes: Collection[str]
    capacity: Collection[str]

    def of(self, table: str) -> set[str]:
        """Those in the driver's domain: `attributes` or `capacity`."""
        names = self.attributes if table == "attributes" else self.capacity
        return {name for name in names if "/" not in name}


def told(body: admitted.Admitted, driver: str, known: Vocabulary) -> Iterator[str]:
    """A sentence for each, with where it stands and what is meant; expressions are not in it."""
    for entry in body.miscased:
        yield (
            f"{entry.path}.opaque.driver: {texts.quoted(entry.driver)} is not this driver, whose "
            f"name is in lower case: the config is passed over: write {driver}"
        )
    attributes, capacity = known.of("attributes"), known.of("capacity")
    for constraint in body.constraints:
        domain, _, name = constraint.attribute.rpartition("/")
        if domain == driver and name not in attributes:
            yield f"{constraint.path}: {_unknown('attributes', name, driver, known)}"
    own = classes.names(driver)
    for asked in body.asked:
        for key in asked.capacity if asked.device_class in own else ():
            domain, _, name = key.rpartition("/")
            path = f"{asked.path}.capacity.requests"
            if domain in ("", driver) and name not in capacity:
                yield f"{path}: {_unknown('capacity', name, driver, known)}"
            elif domain == driver:
                # Before kubernetes/kubernetes#142202 the bare texts are compared.
                yield (
                    f"{path}[{key}]: {driver} publishes {name}, which Kubernetes up to 1.37 takes "
                    f"for another capacity, so that no device is found: write {name}"
                )


def in_expression(compiled: selection.Selector, driver: str, known: Vocabulary) -> Iterator[str]:
    """The same of an expression, without where it stands; each once."""
    yield from dict.fromkeys(_in_expression(compiled, driver, known))


def _in_expression(compiled: selection.Selector, driver: str, known: Vocabulary) -> Iterator[str]:
    for mention in compiled.mentions:
        if mention.domain != driver and mention.domain.lower() == driver:
            yield (
                f"device.{mention.table}[{texts.quoted(mention.domain)}]: no device has anything "
                f"there: the driver's name is in lower case: write {driver}"
            )
        elif mention.domain == driver and mention.name not in ("", *known.of(mention.table)):
            yield _unknown(mention.table, mention.name, driver, known)


def _unknown(table: str, name: str, driver: str, known: Vocabulary) -> str:
    told = f"{driver} publishes no {_ONE[table]} {texts.quoted(name, 60)}"
    if near := misnamed.nearest(name, known.of(table)):
        return f"{told}, so that no device is found: write {' or '.join(near)}"
    if near := misnamed.nearest(name, known.of(_ELSE[table])):
        return f"{told}, so that no device is found: {near[0]} is of device.{_ELSE[table]}"
    return f"{told}, so that no device is found: `kubectl get resourceslices -o yaml` has what is"
