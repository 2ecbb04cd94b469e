"""Which type fits which, with variables that come to stand for types as an expression is checked.

Source: cel-go 0.26 `checker/types.go`.
"""

from collections.abc import Sequence

from dra_driver.logic.cel import kinds

LARGEST = 1000
"""Types of which one may be made. A map of maps to maps doubles with each character or two."""
_ANY_CONTENT = frozenset({"list", "map", "optional"})
"""Types of one name that fit each other if what is in them does."""


class TooLargeError(Exception):
    """A type is made of more than `LARGEST` others."""


class Substitutions:
    """What type variables stand for so far. A check that fails leaves nothing behind."""

    def __init__(self) -> None:
        self._known: dict[str, kinds.Type] = {}
        self._count = 0

    def variable(self) -> kinds.Type:
        """A new variable, which may come to stand for any type."""
        self._count += 1
        return kinds.Type(str(self._count))

    def instance(self, *signature: kinds.Type) -> list[kinds.Type]:
        """The types of a signature, with new variables for its parameters."""
        fresh: dict[str, kinds.Type] = {}
        for kind in signature:
            for name in _parameters(kind):
                if name not in fresh:
                    fresh[name] = self.variable()
        return [kind.replaced(fresh) for kind in signature]

    def fits(self, actual: kinds.Type, expected: kinds.Type) -> bool:
        """Whether a value of one type may stand where another is expected."""
        return self.all_fit([actual], [expected])

    def all_fit(self, actual: Sequence[kinds.Type], expected: Sequence[kinds.Type]) -> bool:
        """Whether values of these types may stand where others are expected, one for one."""
        before = dict(self._known)
        if self._all_assignable(actual, expected):
            return True
        self._known = before
        return False

    def joined(self, first: kinds.Type, second: kinds.Type) -> kinds.Type:
        """The type of a list that has items of both: the more general one, or `dyn`."""
        if not self.fits(first, second):
            return kinds.DYN
        return _more_general(first, second)

    def resolved(self, kind: kinds.Type, *, open_is_dyn: bool = False) -> kinds.Type:
        """The type with what its variables stand for.

        Raises:
            TooLargeError: it is made of too many.
        """
        if kind.name in self._known:
            return self.resolved(self._known[kind.name], open_is_dyn=open_is_dyn)
        if kind.is_variable:
            return kinds.DYN if open_is_dyn else kind
        inside = (self.resolved(item, open_is_dyn=open_is_dyn) for item in kind.arguments)
        return bounded(kinds.Type(kind.name, tuple(inside)))

    def _all_assignable(self, actual: Sequence[kinds.Type], expected: Sequence[kinds.Type]) -> bool:
        return len(actual) == len(expected) and all(map(self._assignable, actual, expected))

    def _assignable(self, actual: kinds.Type, expected: kinds.Type) -> bool:
        if expected.is_variable:
            valid = self._stands_for(expected, actual)
            if valid or expected.name in self._known:
                return valid
        if actual.is_variable:
            return self._stands_for(actual, expected)
        if not kinds.DYNAMIC.isdisjoint({actual, expected}):
            return True
        if kinds.NULL in {actual, expected}:
            other = expected if actual == kinds.NULL else actual
            return other == kinds.NULL or other.is_nullable
        if actual.name in _ANY_CONTENT and actual.name == expected.name:
            return self._all_assignable(actual.arguments, expected.arguments)
        return actual == expected or actual.name == expected.name == "type"

    def _stands_for(self, variable: kinds.Type, kind: kinds.Type) -> bool:
        """Whether the variable may stand for the type; from now on it does."""
        if variable == kind:
            return True
        known = self._known.get(variable.name)
        if known is None:
            if self._occurs(variable, kind):
                return False
            self._known[variable.name] = kind
            return True
        if known == kind:
            return True
        if not self._assignable(kind, known):
            return False
        general = _more_general(kind, known)
        if not self._occurs(variable, general):
            self._known[variable.name] = general
        return True

    def _occurs(self, variable: kinds.Type, within: kinds.Type) -> bool:
        if variable == within:
            return True
        if within.is_variable:
            known = self._known.get(within.name)
            return known is not None and self._occurs(variable, known)
        return any(self._occurs(variable, argument) for argument in within.arguments)


def bounded(kind: kinds.Type) -> kinds.Type:
    """The type.

    Raises:
        TooLargeError: it is made of more than `LARGEST` others.
    """
    if kind.size > LARGEST:
        raise TooLargeError
    return kind


def _parameters(kind: kinds.Type) -> set[str]:
    if len(kind.name) == 1 and kind.name.isalpha():
        return {kind.name}
    return {name for argument in kind.arguments for name in _parameters(argument)}


def _more_general(first: kinds.Type, second: kinds.Type) -> kinds.Type:
    return first if _is_as_general(first, second) else second


def _is_as_general(first: kinds.Type, second: kinds.Type) -> bool:
    if first in kinds.DYNAMIC or first.is_variable:
        return True
    if second in kinds.DYNAMIC or second.is_variable or first.name != second.name:
        return False
    if first.name not in _ANY_CONTENT:
        return first.name == "type" or first == second
    return all(map(_is_as_general, first.arguments, second.arguments))
