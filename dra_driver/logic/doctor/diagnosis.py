"""What is found out about a node: findings, and what is to be made of what was seen."""

import collections
import dataclasses
import enum
from collections.abc import Iterable, Iterator, Sequence

from dra_driver.logic.offering import hazards
from dra_driver.model import devices, mig, texts


class Level(enum.StrEnum):
    """How much it matters.

    PROBLEM: claims are not prepared, or devices not offered. NOTE: something works less well, or
    only if it is used. FINE: nothing is to be done.
    """

    PROBLEM = "problem"
    NOTE = "note"
    FINE = "fine"


@dataclasses.dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at.

    `check` names it, `looked_at` is the path, setting or request. `cause` is what is wrong there,
    and of what is fine what was found. `remedy` is what to do, a command where there is one; empty
    if nothing is to be done.
    """

    level: Level
    check: str
    looked_at: str
    cause: str
    remedy: str = ""


def problem(check: str, looked_at: str, cause: str, remedy: str) -> Finding:
    """What keeps the driver from its work."""
    return Finding(Level.PROBLEM, check, looked_at, cause, remedy)


def note(check: str, looked_at: str, cause: str, remedy: str) -> Finding:
    """What may be as it is."""
    return Finding(Level.NOTE, check, looked_at, cause, remedy)


def fine(check: str, looked_at: str, found: str) -> Finding:
    """What is as it has to be."""
    return Finding(Level.FINE, check, looked_at, found)


def of_level(findings: Iterable[Finding], level: Level) -> list[Finding]:
    """The findings of this level, in their order."""
    return [finding for finding in findings if finding.level is level]


def works(findings: Iterable[Finding]) -> bool:
    """Whether there is no problem."""
    return all(finding.level is not Level.PROBLEM for finding in findings)


def summary(findings: Iterable[Finding]) -> str:
    """How many there are of each level: `1 problem, 2 notes, 9 fine`."""
    counts = collections.Counter(finding.level for finding in findings)
    problems, notes = counts[Level.PROBLEM], counts[Level.NOTE]
    return (
        f"{problems} problem{'' if problems == 1 else 's'}, "
        f"{notes} note{'' if notes == 1 else 's'}, {counts[Level.FINE]} fine"
    )


def told(finding: Finding) -> str:
    """A finding in one line: `CDI directory /var/run/cdi: CAUSE. Remedy: REMEDY`."""
    remedy = f". Remedy: {finding.remedy}" if finding.remedy else ""
    return f"{finding.check} {finding.looked_at}: {finding.cause}{remedy}"


def hindrance(findings: Iterable[Finding]) -> str | None:
    """The first problem, in one line; None if there is none."""
    return next((told(each) for each in of_level(findings, Level.PROBLEM)), None)


def brief(findings: Sequence[Finding], *, limit: int, more: str) -> str:
    """How many findings there are, and each problem in a line, printable.

    Args:
        findings: all of them.
        limit: how many bytes of UTF-8 may be used.
        more: the last line, if not all problems fit in: where the rest is to be read.
    """
    lines = [f"{summary(findings)}.", *map(told, of_level(findings, Level.PROBLEM))]
    # Before it is cut: what is printable may be longer.
    whole = texts.printable("\n".join(lines))
    if len(whole.encode()) <= limit:
        return whole
    room = limit - len(f"\n{more}".encode())
    return whole.encode()[:room].decode(errors="ignore") + f"\n{more}"


_SILENT = "reset the GPU or reboot the node; the kernel log tells more: dmesg | grep -i xid"
_LACKING = (
    "update the NVIDIA driver; GPUs that are part of a system on a chip (Jetson) are not served: "
    "keep the plugin off such nodes by a node selector"
)


def gpus(discovery: devices.Discovery, looked_at: str) -> list[Finding]:
    """What NVML serves, and each GPU that does not answer, or not enough."""
    failed = [
        problem("GPUs", looked_at, str(failure), _LACKING if failure.missing else _SILENT)
        for failure in discovery.failures
    ]
    if not discovery.gpus:
        none = note(
            "GPUs",
            looked_at,
            "the driver serves no GPU, so none is offered",
            "lspci -d 10de: lists the cards of the node; without any, keep the driver away by a "
            "node selector",
        )
        return failed or [none]
    versions = sorted({gpu.driver_version or "unknown" for gpu in discovery.gpus})
    told = f"{_products(discovery.gpus)}; driver {', '.join(versions)}"
    return [*failed, fine("GPUs", looked_at, told)]


def partitionable(found: Iterable[devices.Gpu], modes: Iterable[mig.Mode]) -> bool:
    """Whether a card can be cut, and one of the MIG modes of the settings lets it be."""
    cut = any(mode is not mig.Mode.OFF for mode in modes)
    return cut and any(gpu.mig_capable for gpu in found)


def counters(hindrance: str | None, *, looked_at: str, needed: bool) -> Finding:
    """Whether partitions can be offered. `hindrance`: why the API server takes no counters.

    `needed`: the node has something to offer partitions of.
    """
    check = "counters of partitions"
    if hindrance is None:
        return fine(check, looked_at, "the API server takes them")
    remedy = (
        "Kubernetes 1.36, or from 1.34 on --feature-gates=DRAPartitionableDevices=true for API "
        "server, controller manager and scheduler"
    )
    cause = f"{hindrance}, so no partitions are offered"
    if needed:
        return problem(check, looked_at, cause, remedy)
    return note(check, looked_at, f"{cause}; this node has none to offer", remedy)


def shares(hindrance: str | None, *, looked_at: str) -> Finding:
    """Whether shares can be offered, where the settings have some.

    `hindrance`: why the API server takes none.
    """
    check = "shares"
    if hindrance is None:
        return fine(check, looked_at, "the API server takes them")
    return problem(
        check,
        looked_at,
        f"{hindrance}, so each device goes to one claim, whole",
        "Kubernetes 1.36, or from 1.34 on --feature-gates=DRAConsumableCapacity=true for all "
        "components; else --shares off",
    )


def scheduler(git_version: str, *, needed: bool, shares: bool, avoids: bool) -> Iterator[Finding]:
    """Known defects of the scheduler, where it is as old as the API server, with counters.

    `needed`: the node has something to offer partitions of. `shares`: many claims may consume
    devices, too. `avoids`: what is dangerous is not offered.
    """
    check, found = "kube-scheduler", hazards.of(git_version)
    fixed = "where your kube-scheduler has the correction: --scheduler-defects ignore"
    if found.counters is not None:
        cause = f"it {hazards.PANICS}"
        if avoids:
            tell = problem if needed else note
            left_out = f"{cause}; so no partitions are offered"
            remedy = f"Kubernetes {found.counters} or newer; {fixed}"
            yield tell(check, git_version, left_out, remedy)
        else:
            remedy = f"Kubernetes {found.counters} or newer; until then --scheduler-defects avoid"
            yield note(check, git_version, cause, remedy)
    if shares and found.shares_beside is not None:
        cause = f"it {hazards.TWICE}"
        least = f"Kubernetes {found.shares_beside} or newer"
        if avoids:
            left_out = f"{cause}; so no partitions of cards with shares are offered"
            yield note(check, git_version, left_out, f"{least}; {fixed}")
        else:
            remedy = f"{least}; until then shares, or partitions, of a card: not both"
            yield note(check, git_version, cause, remedy)


@dataclasses.dataclass(frozen=True, slots=True)
class Neighbour:
    """A plugin that answers at a registration socket: driver name and service socket."""

    socket: str
    name: str
    endpoint: str


def neighbours(
    found: Sequence[Neighbour], *, name: str, own_directory: str, ours: bool, looked_at: str
) -> list[Finding]:
    """Whether a plugin of another installation has the driver's name.

    Args:
        found: who answers.
        name: of the driver.
        own_directory: where service sockets of this installation are.
        ours: an instance of this installation is alive.
        looked_at: the directory of registration sockets.
    """
    check = "driver name"
    same = [each for each in found if each.name == name]
    strange = [
        each for each in same if not ours or each.endpoint.rpartition("/")[0] != own_directory
    ]
    if strange:
        return [
            problem(
                check,
                each.socket,
                f"another plugin is active as {name}, with its service at {each.endpoint}",
                _remedy(each, own_directory),
            )
            for each in strange
        ]
    told = f"{name} is served by this driver" if same else f"nobody else is {name}"
    return [fine(check, looked_at, told)]


def _remedy(strange: Neighbour, own_directory: str) -> str:
    # Before it has opened its state, an instance of this installation is not known as such.
    waiting = "if it is this driver, its log says what it waits for; else "
    return (
        f"{waiting if strange.endpoint.startswith(f'{own_directory}/') else ''}uninstall one of "
        "the two, or give this one another --driver-name; kubectl get daemonsets -A lists both"
    )


def _products(found: Iterable[devices.Gpu]) -> str:
    counts = collections.Counter(gpu.product_name for gpu in found)
    return ", ".join(f"{count} x {name}" for name, count in counts.items())
