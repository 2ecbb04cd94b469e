"""Texts as literals of CEL."""

from dra_driver.logic.cel import formatting


def literal(text: str) -> str:
    """The text in quotes, single ones where nothing in it has to be escaped."""
    if text.isprintable() and not {"'", "\\"} & {*text}:
        return f"'{text}'"
    return formatting.quote(text)


def attribute(driver: str, name: str) -> str:
    """How an attribute of the driver's own domain is read; it may be missing."""
    return f"{attributes(driver)}.{name}"


def attributes(driver: str) -> str:
    """The attributes of the driver's own domain."""
    return f"device.attributes[{literal(driver)}]"


def capacities(driver: str) -> str:
    """The capacities of the driver's own domain."""
    return f"device.capacity[{literal(driver)}]"
