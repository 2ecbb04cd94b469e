"""Semantic versions 2.0.0: parse and compare, as version attributes of devices and CEL use them.

Sources: https://semver.org/spec/v2.0.0.html; Kubernetes 1.36
`staging/src/k8s.io/apiserver/pkg/cel/library/semverlib.go` (equality without build metadata,
what `normalize` forgives).
"""

import dataclasses
import functools
import re

from dra_driver import errors
from dra_driver.model import texts

_IDENTIFIERS = r"[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*"
_SYNTAX = re.compile(
    rf"(?P<core>[0-9]+\.[0-9]+\.[0-9]+)(?:-(?P<pre>{_IDENTIFIERS}))?(?:\+(?P<build>{_IDENTIFIERS}))?"
)
_NUMBER = re.compile(r"0|[1-9][0-9]{0,19}")
"""Unsigned, of 64 bits, in the library that Kubernetes uses (`github.com/blang/semver/v4`)."""
_LARGEST = 2**64 - 1


@functools.total_ordering
@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Semver:
    """A semantic version. Build metadata is kept but takes no part in comparison."""

    major: int
    minor: int
    patch: int
    prerelease: tuple[int | str, ...] = ()
    build: str = ""

    def __eq__(self, other: object) -> bool:
        """Whether both have the same precedence."""
        return isinstance(other, Semver) and self._precedence == other._precedence

    def __lt__(self, other: "Semver") -> bool:
        """Whether this version comes before the other."""
        return self._precedence < other._precedence

    def __hash__(self) -> int:
        """Equal versions hash alike."""
        return hash(self._precedence)

    def __str__(self) -> str:
        """The text of the specification: `1.2.3-rc.1+build`."""
        pre = "-" + ".".join(map(str, self.prerelease)) if self.prerelease else ""
        return f"{self.major}.{self.minor}.{self.patch}{pre}{'+' if self.build else ''}{self.build}"

    @property
    def _precedence(self) -> tuple[object, ...]:
        # Numbers come before texts, and a version with a pre-release before the same without.
        parts = tuple(
            (0, part, "") if isinstance(part, int) else (1, 0, part) for part in self.prerelease
        )
        return (self.major, self.minor, self.patch, not parts, parts)


def parse(text: str) -> Semver:
    """The version that `text` stands for; strict, so three numbers without leading zeros.

    Raises:
        errors.Rejected: the text is no semantic version.
    """
    match = _SYNTAX.fullmatch(text)
    core = match["core"].split(".") if match else []
    prerelease = match["pre"].split(".") if match and match["pre"] else []
    numbers = core + [part for part in prerelease if part.isdigit()]
    if match is None or not all(
        _NUMBER.fullmatch(number) and int(number) <= _LARGEST for number in numbers
    ):
        raise errors.Rejected(
            f"version {texts.quoted(text)} is not a semantic version 2.0.0: "
            "write three numbers of 64 bits without leading zeros, for example 9.0.0 or 1.2.3-rc.1"
        )
    major, minor, patch = map(int, core)
    return Semver(
        major=major,
        minor=minor,
        patch=patch,
        prerelease=tuple(int(part) if part.isdigit() else part for part in prerelease),
        build=match["build"] or "",
    )


def normalize(text: str) -> str:
    """The text without a leading `v` and leading zeros, and with the numbers that are missing.

    Only a version that is nothing but numbers is completed: `v9` becomes `9.0.0`.
    """
    core, mark, rest = text.strip().removeprefix("v"), "", ""
    if found := re.search(r"[-+]", core):
        core, mark, rest = core[: found.start()], found.group(), core[found.end() :]
    numbers = [number.lstrip("0") or "0" if number else number for number in core.split(".")]
    if not mark:
        numbers += ["0"] * (3 - len(numbers))
    return ".".join(numbers) + mark + rest
