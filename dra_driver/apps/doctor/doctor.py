"""`dra-driver doctor`: what this node lacks for the kubelet plugin with the same settings.

It looks and asks, and changes nothing: what it has to try it tries in a directory of its own, or as
a dry run.
"""

import contextlib
import dataclasses
import pathlib
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from typing import Literal

from dra_driver import errors, settings
from dra_driver.adapters.console import standard_error, terminal
from dra_driver.apps.doctor import doctor_cluster, doctor_driver, doctor_node, doctor_view
from dra_driver.apps.node import host
from dra_driver.logic.doctor import diagnosis

MESSAGE_BYTES = 4096
"""What a container's termination message may have (Kubernetes' documentation of
`terminationMessagePath`); the kubelet cuts off the rest."""
_MORE = "... The rest is in the log of this container."

_PARTS = ("the node", "the NVIDIA driver", "the API server")

Hardware = Callable[[settings.KubeletPlugin], host.Hardware]


@dataclasses.dataclass(frozen=True, slots=True)
class Options:
    """How it is told.

    `seconds` is how long it may look. The problems go to the file `message`, too, if there is one.
    With `exit_zero` the exit status is 0 whatever is found.
    """

    output: Literal["table", "json"] = "table"
    seconds: float = 60.0
    message: pathlib.Path | None = None
    exit_zero: bool = False


def run(
    load: Callable[[], settings.KubeletPlugin],
    hardware: Hardware,
    screen: terminal.Terminal,
    options: Options,
    *,
    user_agent: str,
) -> int:
    """Print what was found; the exit status is 0, or 1 if there is a problem.

    `load` gives the settings, or raises errors.Fatal, which is a problem like any other.
    """
    node = driver = "(unknown)"
    try:
        config = load()
    except errors.DriverError as error:
        findings = [_wrong("settings", "flags, variables, settings file", error)]
    else:
        node, driver = config.node_name, config.driver_name
        findings = examine(config, hardware, seconds=options.seconds, user_agent=user_agent)
    show = doctor_view.show_json if options.output == "json" else doctor_view.show
    show(findings, screen, node=node, driver=driver)
    if options.message is not None:
        _write(options.message, findings, screen)
    return 0 if options.exit_zero or diagnosis.works(findings) else 1


def examine(
    config: settings.KubeletPlugin,
    hardware: Hardware,
    *,
    seconds: float = 60.0,
    user_agent: str,
) -> list[diagnosis.Finding]:
    """Everything that was looked at, in that order: the node, its driver, the cluster.

    What takes longer than `seconds`, as NVML may with a sick card, is left out, which is a problem.
    """
    found: list[list[diagnosis.Finding]] = []
    # A thread that is not waited for at the end: NVML cannot be interrupted.
    looking = threading.Thread(
        target=_look, args=(config, hardware, user_agent, found), name="doctor", daemon=True
    )
    looking.start()
    looking.join(seconds)
    # Asked first: what ends after it is among the parts.
    late = looking.is_alive()
    parts = list(found)
    findings = [finding for part in parts for finding in part]
    if len(parts) < len(_PARTS) and late:
        findings.append(
            diagnosis.problem(
                "time",
                _PARTS[len(parts)],
                f"not looked at within {seconds:g} s",
                "dmesg | grep -i -e nvrm -e xid tells of cards that do not answer; --timeout "
                "gives more time",
            )
        )
    return findings


def _look(
    config: settings.KubeletPlugin,
    hardware: Hardware,
    user_agent: str,
    found: list[list[diagnosis.Finding]],
) -> None:
    """Add the findings of one part after the other; a part that fails is the last."""
    try:
        for part in _parts(config, hardware, user_agent):
            found.append(part)  # noqa: PERF402 - somebody else looks at what is there so far
    except errors.DriverError as error:
        found.append([_wrong(_PARTS[len(found)], "settings", error)])
    except Exception as error:  # noqa: BLE001 - what was found before is to be told
        standard_error.trace(error)
        cause = f"looking failed unexpectedly: {type(error).__name__}: {error}"
        remedy = "report it, with the trace that is in the log"
        found.append([diagnosis.problem("doctor", _PARTS[len(found)], cause, remedy)])


def _parts(
    config: settings.KubeletPlugin, hardware: Hardware, user_agent: str
) -> Iterator[list[diagnosis.Finding]]:
    yield doctor_node.findings(config)
    with _simulation(config) as there:
        driver = doctor_driver.look(there, hardware(there))
    yield [_told_of(finding, there, config) for finding in driver.findings]
    yield doctor_cluster.findings(config, partitions=driver.partitionable, user_agent=user_agent)


@contextlib.contextmanager
def _simulation(config: settings.KubeletPlugin) -> Iterator[settings.KubeletPlugin]:
    """The settings to look at hardware with.

    Simulated GPUs are those of a copy, which is removed: a plugin may run with them, and to look at
    them changes them: programs are written anew, faults are counted off, and other settings make
    other cards.
    """
    if config.simulate_gpus is None:
        yield config
        return
    try:
        directory = tempfile.TemporaryDirectory(prefix="dra-driver-doctor-")
    except OSError as error:
        raise errors.Fatal(
            f"simulated GPUs need a directory: {error}; set TMPDIR to one that takes files"
        ) from error
    with directory as place:
        copy = pathlib.Path(place)
        try:
            for name in _states(config.simulation):
                shutil.copyfile(config.simulation / name, copy / name)
        except OSError as error:
            raise errors.Fatal(
                f"directory of simulated GPUs {config.simulation}: {error.strerror}; run as root, "
                "or give another --simulation-dir"
            ) from error
        yield config.model_copy(update={"simulation_dir": copy})


def _states(directory: pathlib.Path) -> list[str]:
    """The files of a simulation that are no programs: what cards there are, and their faults."""
    try:
        return [path.name for path in directory.iterdir() if path.suffix == ".json"]
    except FileNotFoundError:
        return []


def _told_of(
    finding: diagnosis.Finding, there: settings.KubeletPlugin, config: settings.KubeletPlugin
) -> diagnosis.Finding:
    """The finding with the directory that was asked about in place of its copy.

    Programs are in the copy alone until a plugin has run there.
    """
    copy, asked = str(there.simulation), str(config.simulation)
    texts = (finding.looked_at, finding.cause, finding.remedy)
    looked_at, cause, remedy = (text.replace(copy, asked) for text in texts)
    is_made = all(pathlib.Path(path).exists() for path in _paths(finding, copy, asked))
    if not is_made:
        cause = f"{cause} (not there yet: a kubelet plugin with these settings makes it)"
    return dataclasses.replace(finding, looked_at=looked_at, cause=cause, remedy=remedy)


def _paths(finding: diagnosis.Finding, copy: str, asked: str) -> list[str]:
    """Where the finding says that something is, of what is fine; in the copy it is there."""
    said = (finding.looked_at, finding.cause) if finding.level is diagnosis.Level.FINE else ()
    paths = [part for text in said for part in text.split() if part.startswith(copy)]
    return [path.replace(copy, asked) for path in paths]


def _wrong(check: str, looked_at: str, error: errors.DriverError) -> diagnosis.Finding:
    remedy = "correct it; dra-driver kubelet-plugin --help describes the settings"
    return diagnosis.problem(check, looked_at, str(error), remedy)


def _write(
    path: pathlib.Path, findings: list[diagnosis.Finding], screen: terminal.Terminal
) -> None:
    text = diagnosis.brief(findings, limit=MESSAGE_BYTES, more=_MORE)
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        screen.step(f"the termination message cannot be written to {path}: {error.strerror}")
