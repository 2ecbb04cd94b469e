"""Outcomes of an expression, found again for every device that looks the same to it.

An expression is a pure function of what it reads. Two devices that answer the same questions the
same way get the same outcome, so a thousand equal GPUs cost one evaluation, whatever differs in
attributes that the expression does not look at.
"""

import dataclasses
from collections.abc import Mapping
from typing import Generic, TypeVar

from dra_driver.logic.cel import device

Outcome = TypeVar("Outcome")


@dataclasses.dataclass(slots=True)
class Entry(Generic[Outcome]):
    """A question with what follows from each answer or, at the end, an outcome."""

    question: device.Question | None = None
    branches: dict[device.Answer, "Entry[Outcome]"] = dataclasses.field(default_factory=dict)
    outcomes: tuple[Outcome, ...] = ()


class Memo(Generic[Outcome]):
    """Outcomes of one expression, found again by asking a device what was asked before.

    Evaluation is deterministic: with the same answers so far it asks the same question next. So the
    questions form a tree, and a look-up costs as many questions as the expression reads values.
    """

    def __init__(self, limit: int = 16_384) -> None:
        """At most `limit` outcomes are kept; beyond that the memo starts afresh."""
        self._limit = limit
        self._count = 0
        self._root: Entry[Outcome] = Entry()

    def __len__(self) -> int:
        """How many outcomes are known."""
        return self._count

    def find(self, facts: device.Facts) -> tuple[Outcome, ...]:
        """The one known outcome for a device; nothing if there is none yet."""
        entry: Entry[Outcome] | None = self._root
        while entry is not None and entry.question is not None:
            entry = entry.branches.get(facts.answer(entry.question))
        return entry.outcomes if entry is not None else ()

    def learn(self, answers: Mapping[device.Question, device.Answer], outcome: Outcome) -> None:
        """Keep the outcome of an evaluation that got these answers, in the order it asked."""
        if self._count >= self._limit:
            self._root, self._count = Entry(), 0
        entry = self._root
        for question, answer in answers.items():
            entry.question = question
            entry = entry.branches.setdefault(answer, Entry())
        entry.outcomes = (outcome,)
        self._count += 1
