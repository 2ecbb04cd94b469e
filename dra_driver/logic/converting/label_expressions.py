"""Expressions of CEL that conversions write."""

from collections.abc import Sequence

from dra_driver.logic.cel import quoting


def known(name: str, table: str) -> str:
    """Whether a device tells of an attribute or a capacity."""
    return f"{quoting.literal(name)} in {table}"


def one_of(value: str, wanted: Sequence[str | int]) -> str:
    """Whether a value is one of those wanted, of which there is at least one."""
    literals = [
        str(one) if isinstance(one, int) else quoting.literal(one) for one in dict.fromkeys(wanted)
    ]
    one = f"{value} == {literals[0]}"
    return one if len(literals) == 1 else f"{value} in [{', '.join(literals)}]"


def any_of(parts: Sequence[str]) -> str:
    """Whether any of them holds."""
    return parts[0] if len(parts) == 1 else f"({' || '.join(parts)})"


def all_of(parts: Sequence[str]) -> str:
    """Whether all of them hold."""
    if len(parts) == 1:
        return parts[0]
    return " && ".join(f"({part})" if " || " in part or " ? " in part else part for part in parts)


def both(first: str, second: str) -> str:
    """Whether both hold, in this order: the first asks whether there is what the second reads."""
    return second if first == "true" else f"{first} && {second}"
