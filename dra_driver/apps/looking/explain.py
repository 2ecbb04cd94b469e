"""`dra-driver explain`: reads a cluster, or saved files, and tells what becomes of claims and why.

It only lists; nothing is written.
"""

import dataclasses
import pathlib
from typing import Any

from dra_driver.adapters.console import terminal
from dra_driver.apps.looking import explain_view, reading
from dra_driver.logic.explaining import explaining, targets
from dra_driver.logic.picturing import snapshots
from dra_driver.logic.scheduling import emulation

Json = dict[str, Any]

FINE, NOT_FINE = 0, 2
"""Exit statuses; an error is 1, and misuse 2 without an answer."""


@dataclasses.dataclass(frozen=True, slots=True)
class Options:
    """What is asked for. Without `saved` files the cluster of `kubeconfig` is read.

    `target` is pod/NAME or claim/NAME; None where `manifest` has what is to be explained.
    """

    target: str | None
    manifest: pathlib.Path | None
    saved: tuple[pathlib.Path, ...]
    kubeconfig: pathlib.Path | None
    namespace: str = "default"
    output: str = "table"
    emulate: str | None = None
    """The Kubernetes release whose scheduler decides; None: that of the cluster, or of none."""


def run(options: Options, screen: terminal.Terminal, *, user_agent: str) -> int:
    """Explain, print, and return the exit status.

    Raises:
        errors.DriverError: the objects cannot be read, or what is asked for does not exist.
    """
    if options.target is not None:
        targets.split(options.target)  # What is no name of anything needs no cluster.
    files = (*options.saved, *((options.manifest,) if options.manifest else ()))
    with reading.unchecked(files):
        explained = _explained(options, user_agent)
    explain_view.show(explained, screen, as_json=options.output == "json")
    fine = all(each.verdict in (explaining.ALLOCATED, explaining.FITS) for each in explained)
    return FINE if fine else NOT_FINE


def _explained(options: Options, user_agent: str) -> list[explaining.Explanation]:
    if options.emulate is not None:
        emulation.of_release(options.emulate)  # What is no release needs no cluster.
    stored = reading.saved(options.saved) if options.saved else _cluster(options, user_agent)
    given = list(reading.objects(options.manifest, options.namespace)) if options.manifest else []
    snapshot = _released(snapshots.of([*stored, *given]), options, user_agent)
    chosen: tuple[targets.Target, ...]
    if options.target is not None:
        chosen = (targets.named(snapshot, options.target, options.namespace),)
    else:
        chosen = targets.in_manifest(snapshot, given)
    return [explaining.explain(target, snapshot) for target in chosen]


def _released(
    snapshot: snapshots.Snapshot, options: Options, user_agent: str
) -> snapshots.Snapshot:
    """With the defects of the release that was named, or else of the cluster's."""
    release, why = options.emulate, "--emulate"
    if release is None and not options.saved:
        server = reading.server_version(options.kubeconfig, user_agent=user_agent)
        release, why = emulation.release_of(server), f"the server is {server}"
    if release is None:
        return snapshot
    note = f"decided as by kube-scheduler {release}, with its known defects ({why})"
    behaviour = emulation.of_release(release)
    return dataclasses.replace(snapshot, behaviour=behaviour, notes=(*snapshot.notes, note))


def _cluster(options: Options, user_agent: str) -> list[Json]:
    return reading.cluster(
        options.kubeconfig, reading.KINDS, command="explain", user_agent=user_agent
    )
