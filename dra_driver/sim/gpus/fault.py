"""Which simulated GPU `dra-driver fault` means: of a node of a demo that runs, or of this node."""

import pathlib
from collections.abc import Callable

from dra_driver import errors, settings
from dra_driver.adapters.disk import card_names
from dra_driver.sim.gpus import gpu_state, injecting

GPUS, STATE, NAMES = "gpus", "state", "names"
"""Directories of a node of the embedded cluster, and of names in a state directory."""


def card(
    target: str,
    kubeconfig: Callable[[], pathlib.Path | None],
    config: Callable[[], settings.KubeletPlugin],
) -> injecting.Card:
    """The card that `NODE/gpu-0` is in a demo that runs, or `gpu-0` in the pod of a plugin.

    `kubeconfig` finds that of the demo, `config` the settings of that plugin.

    Raises:
        errors.Rejected: there is none.
        errors.Fatal: no demo is named, the settings are wrong, or the GPUs are real ones.
    """
    node, slash, gpu = target.rpartition("/")
    if not slash:
        return _of_plugin(target, config)
    path = kubeconfig()
    if path is None:
        raise errors.Fatal(
            "no embedded cluster is named: have KUBECONFIG, or --kubeconfig, name the "
            "kubeconfig that dra-driver demo --keep prints"
        )
    return of_cluster(path, node, gpu)


def _of_plugin(gpu: str, config: Callable[[], settings.KubeletPlugin]) -> injecting.Card:
    try:
        own = config()
    except errors.Fatal as error:
        raise errors.Fatal(f"{error}; of a node of a demo write NODE/{gpu}") from error
    # A command beside the plugin in its pod does not have the plugin's flags: what tells simulated
    # GPUs from real ones is where they are kept.
    if not (own.simulation / gpu_state.FILE).exists():
        raise errors.Fatal(
            f"{gpu}: there are no simulated GPUs in {own.simulation}, and real ones are left "
            "alone: give the settings of the plugin that simulates some (--driver-name, "
            "--kubelet-root, --state-dir, --simulation-dir), or write NODE/GPU of a demo"
        )
    return of_node(own.simulation, own.state, gpu)


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
    return injecting.Card(simulation, names[gpu], gpu)
