"""Warnings as headers of an answer, cut where they are too long together.

Sources: `k8s.io/apiserver/pkg/endpoints/filters/warning.go`, `NewWarningHeader` in
`k8s.io/apimachinery/pkg/util/net/http.go`.
"""

import unicodedata
from collections.abc import Sequence

from dra_driver.sim.api.storing import codecs

_LONGEST_IN_ALL = 4096
_LONGEST_OF_TOO_MANY = 256
"""Characters of each, once all together are too long."""


def made_of(warnings: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """A header for each warning: once, and only of what a header can have."""
    shown: list[str] = []
    written, cut = 0, False
    for text in filter(_can_be_said, dict.fromkeys(warnings)):
        if cut and written >= _LONGEST_IN_ALL:
            break
        shown.append(text)
        # What was whole so far is cut with the first that is too much.
        cut = cut or written + len(text) > _LONGEST_IN_ALL
        if cut:
            shown = [whole[:_LONGEST_OF_TOO_MANY] for whole in shown]
        written = sum(map(len, shown))
    return tuple(("warning", f"299 - {codecs.dumps(text).decode()}") for text in shown)


def _can_be_said(text: str) -> bool:
    return bool(text) and not any(unicodedata.category(letter) == "Cc" for letter in text)
