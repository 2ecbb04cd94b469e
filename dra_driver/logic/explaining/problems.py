"""Errors that stop a pod on every node, with their place and what to write instead."""

import dataclasses

from dra_driver.logic.cel import selection
from dra_driver.logic.picturing import snapshots
from dra_driver.logic.scheduling import demand, misnamed


@dataclasses.dataclass(frozen=True, slots=True)
class Problem:
    """An error that stops the pod on every node; of an expression, with its place and remedies.

    `guarded` asks for an attribute before it reads it, where some devices have it; `elsewhere` are
    paths where devices have what may have been meant.
    """

    message: str
    expression: str = ""
    line: int | None = None
    column: int | None = None
    guarded: str = ""
    elsewhere: tuple[str, ...] = ()


def of(error: demand.Aborted, snapshot: snapshots.Snapshot) -> Problem:
    """What there is to say of an error of the allocator."""
    cause = error.__cause__
    if not isinstance(cause, selection.SelectorError):
        return Problem(str(error))
    place = (cause.expression, cause.line, cause.column)
    if not isinstance(cause, selection.EvaluationError) or cause.missing is None:
        return Problem(str(error), *place)
    # Of other drivers' devices nothing can be read that helps with this one.
    devices = [
        candidate
        for node in snapshot.nodes
        for candidate in snapshot.inventory.seen(node).candidates
        if candidate.id.driver == error.driver
    ]
    paths = misnamed.paths(cause.missing, misnamed.places(devices))
    guarded = cause.guarded or ""
    # What every device lacks is not to be asked for first: it would be in vain.
    read = {path for path in paths if _asks(guarded, path, cause.missing)}
    return Problem(
        str(error) if read else f"{error}. No device of driver {error.driver} has it",
        *place,
        guarded if read else "",
        tuple(path for path in paths if path not in read),
    )


def _asks(guarded: str, path: str, missing: str) -> bool:
    """Whether the guard of an expression is about a path where devices have what it reads."""
    table, dot, name = path.rpartition(".")
    return bool(dot) and name == missing and f'"{name}" in {table}' in guarded
