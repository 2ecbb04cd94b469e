"""`dra-driver demo`: pods with GPUs on a machine that has neither a cluster nor a GPU."""

import dataclasses
import json
import pathlib
import tempfile
import threading
import time
from typing import Literal

from dra_driver import errors
from dra_driver.adapters import terminal
from dra_driver.sim import cluster, gpu_state, manifests, outcome, podman, runtime

DEFAULT_NODES = (
    cluster.NodeSpec("ampere", "a100-40gb-sxm4:8"),
    cluster.NodeSpec("hopper", "h100-80gb-hbm3:8"),
    cluster.NodeSpec("mixed", "t4:4,v100-16gb-sxm2:4"),
)
SETTLE_SECONDS = 60.0
"""How long pods may take to become what they are expected to become."""
LOOK_SECONDS = 0.1


@dataclasses.dataclass(frozen=True, slots=True)
class Options:
    """What the command line asks for. `files` empty: the quickstart."""

    files: tuple[pathlib.Path, ...] = ()
    nodes: tuple[cluster.NodeSpec, ...] = DEFAULT_NODES
    keep: bool = False
    output: Literal["table", "json"] = "table"
    runtime: Literal["pretended", "podman"] = "pretended"
    timeout: float = SETTLE_SECONDS


def parse_node(text: str) -> cluster.NodeSpec:
    """A node from `NAME=MODEL:COUNT[,MODEL:COUNT]...`.

    Raises:
        errors.Rejected: it is not of that form, or the model is unknown.
    """
    name, equals, gpus = text.partition("=")
    if not (name and equals and gpus):
        raise errors.Rejected(
            f"--node {text!r}: write NAME=MODEL:COUNT[,MODEL:COUNT]..., "
            "for example hopper=h100-80gb-hbm3:8"
        )
    gpu_state.parse_spec(gpus)
    return cluster.NodeSpec(name, gpus)


def run(options: Options, stop: threading.Event, shown: terminal.Terminal) -> int:
    """Run it; 0 only if each pod became what its manifest expects. `stop` ends it early."""
    objects = manifests.load(options.files or (_quickstart(),))
    with tempfile.TemporaryDirectory(prefix="dra-") as name:
        directory = pathlib.Path(name)
        embedded = cluster.Cluster(
            options.nodes, directory, runtime_for=_runtime_for(options.runtime)
        )
        try:
            result = _play(embedded, objects, options, stop, shown)
            _show(result, options, shown)
            if options.keep and not stop.is_set():
                shown.step(
                    f"The cluster goes on. In another terminal:\n"
                    f"  export KUBECONFIG={embedded.kubeconfig}\n"
                    f"  kubectl get pods -A\n"
                    f"Ctrl-C ends it and cleans up."
                )
                stop.wait()
            return 0 if all(pod.as_expected for pod in result.pods) else 1
        finally:
            with shown.progress("Stopping the cluster"):
                embedded.stop()


def _play(
    embedded: cluster.Cluster,
    objects: list[manifests.Json],
    options: Options,
    stop: threading.Event,
    shown: terminal.Terminal,
) -> outcome.Outcome:
    names = ", ".join(f"{node.name} ({node.gpus})" for node in options.nodes)
    with shown.progress(f"Starting a cluster with the nodes {names}"):
        embedded.start()
        embedded.wait_ready()
    shown.step(f"Nodes are ready: {len(embedded.devices())} devices published")
    manifests.apply(embedded.client, objects)
    shown.step(f"Manifests applied: {len(objects)} objects")
    with shown.progress("Waiting for pods") as progress:
        return _settle(embedded, options.timeout, stop, progress)


def _settle(
    embedded: cluster.Cluster, timeout: float, stop: threading.Event, progress: terminal.Progress
) -> outcome.Outcome:
    """Wait until each pod is what it is expected to be."""
    deadline = time.monotonic() + timeout
    while True:
        result = outcome.gather(embedded)
        ready = sum(_is_settled(pod) for pod in result.pods)
        progress.update(f"Waiting for pods: {ready} of {len(result.pods)} are as expected")
        if ready == len(result.pods) or stop.is_set() or time.monotonic() > deadline:
            return result
        for node in embedded.nodes.values():
            node.check_alive()
        stop.wait(LOOK_SECONDS)


def _is_settled(pod: outcome.Pod) -> bool:
    """As expected, and with the output of its containers where there is something to see."""
    views = pod.containers.values()
    return pod.as_expected and (
        pod.phase == outcome.UNSCHEDULABLE or all(v.output for v in views if v.mounts)
    )


def _show(result: outcome.Outcome, options: Options, shown: terminal.Terminal) -> None:
    if options.output == "json":
        shown.say(json.dumps(outcome.to_json(result), indent=1))
        return
    for table in outcome.to_tables(result):
        shown.table(table)
    unexpected = [pod for pod in result.pods if not pod.as_expected]
    for pod in unexpected:
        shown.say(
            f"{pod.namespace}/{pod.name} is {pod.phase}, expected is {pod.expected}: "
            f"{pod.reason or 'no reason is known'}"
        )
    if not unexpected:
        shown.say(f"All {len(result.pods)} pods are as expected.")


def _runtime_for(name: str) -> cluster.RuntimeFor:
    def make(cdi_dir: pathlib.Path, directory: pathlib.Path) -> runtime.Runtime:
        if name == "podman":
            return podman.PodmanRuntime(cdi_dir, directory)
        return runtime.PretendedRuntime(cdi_dir)

    return make


def _quickstart() -> pathlib.Path:
    """The quickstart of the checkout that this package runs from."""
    path = pathlib.Path(__file__).parents[2] / "demo" / "quickstart"
    if not path.is_dir():
        raise errors.Fatal(
            "the quickstart is part of the source checkout, and this is an installed package: "
            "name manifests with -f FILE"
        )
    return path
