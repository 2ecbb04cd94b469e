"""`dra-driver convert`: reads manifests, and writes them with claims in place of what was asked.

Everything is decided before anything is written: with a problem in one file nothing comes of any.
"""

import dataclasses
import pathlib
import re
from collections.abc import Sequence

from dra_driver import errors
from dra_driver.adapters.console import documents, edits, nodes, replacing, standard_error, terminal
from dra_driver.apps.converting import convert_view, inputs
from dra_driver.apps.looking import reading
from dra_driver.logic.converting import conversion, fleet, fleet_slices, manifests
from dra_driver.model import slices

_DIRECTIVES = re.compile(r"(?:[ \t]*(?:#[^\n]*)?\n)*+%")
FINE, REFUSED, WOULD_CHANGE = 0, 1, 2
"""Exit statuses; 2 is that of `check` alone."""


@dataclasses.dataclass(frozen=True, slots=True)
class Options:
    """What is converted, and how it is told. `files`: files, folders, or `-`.

    Of `slices` and `kubeconfig` at most one is given: what the fleet is read from.
    """

    files: tuple[str, ...]
    explains: bool = False
    checks: bool = False
    writes: bool = False
    output: str = "table"
    driver: str = "gpu.nvidia.com"
    share_class: str | None = None
    whole_gpus: bool = False
    replicas: int = 10
    template_paths: tuple[tuple[str, ...], ...] = ()
    keep_parameters: bool = False
    slices: tuple[pathlib.Path, ...] = ()
    kubeconfig: pathlib.Path | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class _File:
    """A file, and its text after the conversion."""

    source: inputs.Input
    text: str

    @property
    def is_changed(self) -> bool:
        return self.text != self.source.text


def run(options: Options, screen: terminal.Terminal, *, user_agent: str) -> int:
    """Convert, and return the exit status.

    Raises:
        errors.DriverError: what is named cannot be read, or a file cannot be written.
    """
    sources, problems = inputs.read(options.files)
    given = [
        manifests.Given(source.name, body, number if len(source.documents) > 1 else None)
        for source in sources
        for number, body in enumerate(source.documents, start=1)
    ]
    converted = manifests.convert(given, _choices(options, user_agent))
    problems += map(str, converted.problems)
    files: list[_File] = []
    notes: list[str] = []
    if not problems:
        files, notes, problems = _edited(sources, converted)
    if options.explains:
        convert_view.show(converted, notes, problems, screen, as_json=options.output == "json")
    if problems:
        if not options.explains:
            _refuse(problems)
        return REFUSED
    changed = [file for file in files if file.is_changed]
    if options.writes:
        _write(changed)
    if options.checks:
        for file in changed:
            standard_error.say(f"{file.source.name}: there is something to convert")
        return WOULD_CHANGE if changed else FINE
    if not options.explains:
        _tell(converted, notes, changed, sources, screen, writes=options.writes)
        if not options.writes:
            screen.raw(_joined(files))
    return FINE


def _choices(options: Options, user_agent: str) -> manifests.Choices:
    policy = conversion.Policy(
        driver=options.driver,
        door=conversion.Door.COMMAND,
        share_class=options.share_class or f"shared-mps.{options.driver}",
        fleet=_fleet(options, user_agent),
        whole_gpus=options.whole_gpus,
        replicas=options.replicas,
    )
    return manifests.Choices(policy, options.template_paths, options.keep_parameters)


def _fleet(options: Options, user_agent: str) -> fleet.Fleet | None:
    """What is known of the cluster: of files, or of a cluster that was named; None without."""
    kind = "ResourceSlice"
    if options.slices:
        bodies = [body for body in reading.saved(options.slices) if body["kind"] == kind]
        if not bodies:
            raise errors.Rejected(
                f"{', '.join(map(str, options.slices))}: no ResourceSlice is there: "
                "`kubectl get resourceslices -o yaml` saves them"
            )
    elif options.kubeconfig is not None:
        bodies = reading.cluster(
            options.kubeconfig, (kind,), command="convert", user_agent=user_agent
        )
    else:
        return None
    with reading.unchecked(options.slices):
        published = [slices.parse(body) for body in bodies]
        own = [each for each in published if each.driver == options.driver]
        return fleet_slices.together(map(fleet_slices.of_slice, own))


def _edited(
    sources: Sequence[inputs.Input], converted: manifests.Converted
) -> tuple[list[_File], list[str], list[str]]:
    """The files with their new texts; what was done besides; what cannot be done."""
    files: list[_File] = []
    notes: list[str] = []
    problems: list[str] = []
    start = 0
    for source in sources:
        end = start + len(source.documents)
        changes = {
            number: edits.Edit(became.body, became.before)
            for number, became in enumerate(converted.documents[start:end])
            if became is not None
        }
        start = end
        try:
            made = edits.Edited(source.text)
            if changes:
                made = edits.edited(source.text, source.documents, changes)
            files.append(_File(source, made.text))
            notes += (f"{source.name}, {note}" for note in made.notes)
        except nodes.Uneditable as error:
            problems.append(
                f"{source.name}: this file cannot be edited: {error}. What is to change is told by "
                "--explain"
            )
    return files, notes, problems


def _refuse(problems: Sequence[str]) -> None:
    for problem in problems:
        standard_error.say(f"dra-driver: {problem}")
    standard_error.say("dra-driver: nothing was converted")


def _tell(
    converted: manifests.Converted,
    notes: Sequence[str],
    changed: Sequence[_File],
    sources: Sequence[inputs.Input],
    screen: terminal.Terminal,
    *,
    writes: bool,
) -> None:
    """What a person should know who does not read the table."""
    for left_out in converted.left_out:
        standard_error.say(str(left_out))
    for warning in converted.warnings:
        standard_error.say(f"warning: {warning}")
    for note in notes:
        standard_error.say(note)
    if writes:
        for file in changed:
            screen.say(f"{file.source.name}: converted")
    if not changed:
        many = f"{len(sources)} files" if len(sources) > 1 else sources[0].name
        standard_error.say(f"{many}: nothing to convert")


def _write(changed: Sequence[_File]) -> None:
    replacing.replace(
        {file.source.path: file.text.encode() for file in changed if file.source.path is not None}
    )


def _joined(files: Sequence[_File]) -> str:
    """All files as one stream. A single one is byte for byte what it would be as a file."""
    texts = [file.text for file in files]
    if len(texts) == 1:
        return texts[0]
    is_json = all(documents.is_json(text) for text in texts)
    joined = ""
    for text in texts:
        body = text.removeprefix("\ufeff")
        if not body.strip():
            continue
        if joined and not joined.endswith("\n"):
            joined += "\n"
        if joined and not is_json and not body.startswith("---"):
            # What begins with % directives needs the end of what is before it.
            joined += "...\n" if _DIRECTIVES.match(body) else "---\n"
        joined += body
    return joined
