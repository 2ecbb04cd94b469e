"""Selectors of devices in CEL, each true or false of any device: what is absent is asked first."""

from collections.abc import Sequence

from dra_driver.logic.cel import quoting
from dra_driver.model import quantities


def is_gpu(driver: str) -> str:
    """A whole GPU."""
    return f"{quoting.attribute(driver, 'type')} == 'gpu'"


def is_undivided(driver: str) -> str:
    """One of which a claim that says nothing more gets all: no numbered shares."""
    return f"!('shares' in {quoting.capacities(driver)})"


def of_profile(driver: str, profile: str) -> str:
    """A partition of this profile."""
    place = quoting.attribute(driver, "profile")
    return _known(driver, "profile", f"{place} == {quoting.literal(profile)}")


def memory(driver: str, relation: str, amount: int) -> str:
    """Memory of so many bytes; `relation` is `==` or `>=`."""
    asked = f"quantity('{quantities.of_bytes(amount)}')"
    place = quoting.capacities(driver)
    return f"'memory' in {place} && {place}.memory.compareTo({asked}) {relation} 0"


def one_of(driver: str, attribute: str, values: Sequence[str]) -> str:
    """An attribute that is one of these texts."""
    return _known(driver, attribute, _in(driver, attribute, values))


def none_of(driver: str, attribute: str, values: Sequence[str]) -> str:
    """An attribute that is known, and none of these texts."""
    return _known(driver, attribute, f"!({_in(driver, attribute, values)})")


def contains(driver: str, attribute: str, values: Sequence[str]) -> str:
    """An attribute in which one of these texts is found, whatever the case of its letters."""
    return _known(driver, attribute, f"({_contained(driver, attribute, values)})")


def contains_none(driver: str, attribute: str, values: Sequence[str]) -> str:
    """An attribute that is known, and in which none of these texts is found."""
    return _known(driver, attribute, f"!({_contained(driver, attribute, values)})")


def _contained(driver: str, attribute: str, values: Sequence[str]) -> str:
    place = f"{quoting.attribute(driver, attribute)}.lowerAscii()"
    return " || ".join(f"{place}.contains({quoting.literal(value.lower())})" for value in values)


def _in(driver: str, attribute: str, values: Sequence[str]) -> str:
    listed = ", ".join(map(quoting.literal, values))
    return f"{quoting.attribute(driver, attribute)} in [{listed}]"


def _known(driver: str, attribute: str, expression: str) -> str:
    return f"'{attribute}' in {quoting.attributes(driver)} && {expression}"
