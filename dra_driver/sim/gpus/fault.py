"""Which simulated GPU `dra-driver fault` means: of a node of a demo that runs, or of this node."""

import pathlib

from dra_driver import errors
from dra_driver.adapters.disk import card_names
from dra_driver.sim.gpus import gpu_state, injecting

GPUS, STATE, NAMES = "gpus", "state", "names"
"""Directories of a node of the embedded cluster, and of names in a state directory."""


def of_cluster(kubeconfig: pathlib.Path, node: str, gpu: str) -> injecting.Card:
    """The card of a node of the embedded cluster whose kubeconfig this is.

    Raises:
        errors.Rejected: there is no such cluster, node or GPU.
    """
    directory = kubeconfig.parent
    there = sorted(path.parent.parent.name for path in directory.glob(f"*/{GPUS}/{gpu_state.FILE}"))
    if not there:
        raise errors.Rejected(
            f"{kubeconfig} is of no embedded cluster that runs: start one with dra-driver demo "
            "--keep, and have KUBECONFIG, or --kubeconfig, name its kubeconfig"
        )
    if node not in there:
        raise errors.Rejected(f"node {node!r}: the embedded cluster has {', '.join(there)}")
    return of_node(directory / node / GPUS, directory / node / STATE, gpu)


def of_node(simulation: pathlib.Path, state: pathlib.Path, gpu: str) -> injecting.Card:
    """The card with a device name among the simulated GPUs in a directory.

    Names are those that the plugin with this state directory gave; else by minor number.

    Raises:
        errors.Rejected: there is none.
    """
    cards = gpu_state.open_file(simulation).read().gpus
    named = card_names.CardNames(state / NAMES).contents().records
    names = {
        named[card.uuid].device if card.uuid in named else f"gpu-{card.minor}": card.uuid
        for card in cards
    }
    if gpu not in names:
        known = ", ".join(sorted(names)) or "no GPU"
        raise errors.Rejected(f"GPU {gpu!r}: the node has {known}; write the name of a whole GPU")
    return injecting.Card(simulation, names[gpu])
