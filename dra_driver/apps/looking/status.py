"""`dra-driver status`: reads a cluster, or saved files, and shows who has which part of which GPU.

It only lists slices, claims and pods; nothing is written.
"""

import dataclasses
import pathlib

from dra_driver import errors
from dra_driver.adapters.console import terminal
from dra_driver.apps.looking import reading, status_view
from dra_driver.logic.picturing import occupancy, snapshots

_KINDS = ("ResourceSlice", "ResourceClaim", "Pod")


@dataclasses.dataclass(frozen=True, slots=True)
class Options:
    """What is asked for. Without `saved` files and folders the cluster of `kubeconfig` is read.

    `node` is the only node to show; None for all.
    """

    kubeconfig: pathlib.Path | None = None
    saved: tuple[pathlib.Path, ...] = ()
    node: str | None = None
    output: str = "table"


def run(options: Options, screen: terminal.Terminal, *, user_agent: str) -> int:
    """Print, and return the exit status 0.

    Raises:
        errors.DriverError: the objects cannot be read, or the node does not exist.
    """
    if options.saved and options.kubeconfig is not None:
        raise errors.Rejected("--kubeconfig and --from exclude each other: leave one out")
    with reading.unchecked(options.saved):
        seen = occupancy.of(snapshots.of(_stored(options, user_agent)), options.node)
    status_view.show(seen, screen, as_json=options.output == "json")
    return 0


def _stored(options: Options, user_agent: str) -> list[reading.Json]:
    if options.saved:
        return [body for body in reading.saved(options.saved) if body["kind"] in _KINDS]
    return reading.cluster(options.kubeconfig, _KINDS, command="status", user_agent=user_agent)
