"""`dra-driver demo`: pods with GPUs on a machine that has neither a cluster nor a GPU."""

import dataclasses
import json
import pathlib
import re
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from typing import Literal

from dra_driver import errors
from dra_driver.adapters.console import terminal
from dra_driver.adapters.kube import kube
from dra_driver.sim.cluster import cluster, converter, manifests, podman, runtime
from dra_driver.sim.demo import bringing, observing, outcome
from dra_driver.sim.gpus import gpu_state

DEFAULT_NODES = (
    cluster.NodeSpec("ampere", "a100-40gb-sxm4:8"),
    cluster.NodeSpec("hopper", "h100-80gb-hbm3:8"),
    cluster.NodeSpec("mixed", "t4:4,v100-16gb-sxm2:4"),
)
SETTLE_SECONDS = 60.0
"""How long the pods of a step may take to become what they are expected to become."""
STEADY_SECONDS = 5.0
"""Without any change after which nothing more is expected of pods that cannot be scheduled."""
OUTPUT_SECONDS = 5.0
"""How long containers that run may take to write something."""
LOOK_SECONDS = 0.1


INTERRUPTED = 130
"""Exit status after an early Ctrl-C: that of a process that SIGINT ends."""

_NODE_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_GOES_ON = """\
The cluster goes on. In another terminal:
  export KUBECONFIG={kubeconfig}
  kubectl get pods -A
Ctrl-C ends it and cleans up."""


@dataclasses.dataclass(frozen=True, slots=True)
class Options:
    """What the command line asks for. `files` empty: the quickstart."""

    files: tuple[pathlib.Path, ...] = ()
    nodes: tuple[cluster.NodeSpec, ...] = DEFAULT_NODES
    keep: bool = False
    output: Literal["table", "json"] = "table"
    runtime: Literal["pretended", "podman"] = "pretended"
    timeout: float = SETTLE_SECONDS
    plugin_flags: tuple[str, ...] = ()
    """More flags for the kubelet plugins of all nodes."""
    convert: bool = False
    """Whether pods that ask as older systems had it get claims, by the webhook."""
    emulate: str | None = None
    """A Kubernetes release whose scheduler's defects are reproduced."""


def parse_node(text: str) -> cluster.NodeSpec:
    """A node from `NAME=MODEL:COUNT[,MODEL:COUNT]...`.

    Raises:
        errors.Rejected: it is not of that form, or the model is unknown.
    """
    name, equals, gpus = text.partition("=")
    if not (name and equals and gpus):
        raise errors.Rejected(
            f"--node {text!r}: write NAME=MODEL:COUNT[,MODEL:COUNT]..., "
            "for example hopper=h100-80gb-hbm3:8, or NAME=none"
        )
    if not _NODE_NAME.fullmatch(name):
        raise errors.Rejected(
            f"--node {text!r}: {name!r} is no name of a node: at most 63 lower-case letters, "
            "digits and inner hyphens are allowed"
        )
    gpu_state.parse_spec(gpus)
    return cluster.NodeSpec(name, gpus)


def run(options: Options, stop: threading.Event, shown: terminal.Terminal) -> int:
    """Run it; 0 only if each pod became what its manifest expects. `stop` ends it early.

    Raises:
        errors.DriverError: the options or a manifest are wrong, or the cluster does not start.
    """
    objects = manifests.load(options.files or (_quickstart(),))
    outcome.check_expectations(objects)
    steps = manifests.steps(objects)
    names = [node.name for node in options.nodes]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise errors.Rejected(f"--node: {', '.join(twice)} is there twice; give each its own name")
    if not options.keep:
        bringing.check_pods(objects)
    with tempfile.TemporaryDirectory(prefix="dra-") as name:
        embedded = cluster.Cluster(
            tuple(dataclasses.replace(n, flags=options.plugin_flags) for n in options.nodes),
            pathlib.Path(name),
            runtime_for=_runtime_for(options.runtime),
            release=options.emulate,
            convert=options.convert,
            parameters=bringing.has_parameters(objects),
        )
        try:
            result = _play(embedded, steps, options, stop, shown)
            if result is None:
                return INTERRUPTED
            _show(result, options, shown)
            if options.keep and not stop.is_set():
                shown.step(_GOES_ON.format(kubeconfig=embedded.kubeconfig))
                stop.wait()
            return 0 if result.as_expected else 1
        finally:
            with shown.progress("Stopping the cluster"):
                embedded.stop()


def _play(
    embedded: cluster.Cluster,
    steps: Sequence[Sequence[manifests.Json]],
    options: Options,
    stop: threading.Event,
    shown: terminal.Terminal,
) -> outcome.Outcome | None:
    """What became of the pods; None where `stop` was set before there were any."""
    names = ", ".join(f"{node.name} ({node.gpus})" for node in options.nodes)
    with shown.progress(f"Starting a cluster with the nodes {names}"):
        embedded.start()
        if not embedded.wait_ready(stop):
            return None
    observer = observing.Observer(embedded)
    result = _look(observer, stop, SETTLE_SECONDS)
    count = sum(len(devices) for devices in result.nodes.values())
    shown.step(f"Nodes are ready: {count} devices published")
    for number, objects in enumerate(steps, start=1):
        _apply(embedded, objects)
        which = f", step {number} of {len(steps)}" if len(steps) > 1 else ""
        shown.step(f"Manifests applied{which}: {len(objects)} objects")
        observer.expect(objects)
        for note in bringing.notes(objects):
            shown.step(note)
        enough = _have_run if number < len(steps) else None
        with shown.progress(f"Waiting for pods, {options.timeout:g} s at most") as progress:
            result = _settle(observer, options, stop, progress, enough)
        if stop.is_set() or (enough and not enough(result)):
            break
    return result


def _apply(embedded: cluster.Cluster, objects: Sequence[manifests.Json]) -> None:
    if embedded.converter is None:
        manifests.apply(embedded.client, objects)
        return
    # Those that are there already; others come with the objects.
    embedded.converter.enable(bringing.namespaces(objects))
    manifests.apply(embedded.client, converter.labelled(objects))


def _settle(
    observer: observing.Observer,
    options: Options,
    stop: threading.Event,
    progress: terminal.Progress,
    enough: Callable[[outcome.Outcome], bool] | None,
) -> outcome.Outcome:
    """Wait until each pod is what it is expected to be, it is `enough`, or there is no hope."""
    start = time.monotonic()
    last, last_change = None, start
    while True:
        result = _look(observer, stop, options.timeout)
        now = time.monotonic()
        if result != last:
            last, last_change = result, now
        if stop.is_set() or now - start > options.timeout:
            return result
        if _is_settled(result, now - last_change, options.runtime):
            return result
        if enough and enough(result):
            return result
        progress.update(_progress(result))
        observer.check_alive()
        stop.wait(LOOK_SECONDS)


def _look(observer: observing.Observer, stop: threading.Event, seconds: float) -> outcome.Outcome:
    """How it is now. A machine that is busy with what it runs may answer late: it is asked again.

    Raises:
        kube.Unavailable: there is no answer for so many seconds, or since `stop` was set.
    """
    deadline = time.monotonic() + seconds
    while True:
        try:
            return observer.look()
        except kube.Unavailable:
            if stop.is_set() or time.monotonic() > deadline:
                raise
            stop.wait(LOOK_SECONDS)


def _have_run(result: outcome.Outcome) -> bool:
    """Whether the pods are ready for the next step."""
    if result.busy or result.failed:
        return False
    return all(pod.as_expected or pod.has_run for pod in result.pods)


def _is_settled(result: outcome.Outcome, steady: float, runtime_name: str) -> bool:
    """Whether nothing more is to be waited for; `steady` are the seconds without any change."""
    if result.busy:
        # What cannot be made will not be made by waiting.
        return steady > STEADY_SECONDS and all(item.reason for item in result.busy)
    left = [pod for pod in result.pods if not pod.as_expected]
    if left:
        # What has come to run, or has failed, will not wait any more.
        if all(pod.phase in (outcome.FAILED, *outcome.RUNS) for pod in left):
            return True
        # Real containers may end by themselves whatever their command, and make room for others.
        more_room = runtime_name != "pretended" or any(
            pod.ends and pod.phase == outcome.RUNNING for pod in result.pods
        )
        hopeless = all(pod.phase != "Pending" for pod in left) and not more_room
        return hopeless and steady > STEADY_SECONDS
    views = [view for pod in result.pods for view in pod.containers.values()]
    # Twice the same: a line may be followed by others.
    patience = LOOK_SECONDS if all(v.output for v in views if v.mounts) else OUTPUT_SECONDS
    return steady > patience


def _progress(result: outcome.Outcome) -> str:
    waiting = [pod for pod in result.pods if not pod.as_expected]
    text = f"Waiting for pods: {len(result.pods) - len(waiting)} of {len(result.pods)} as expected"
    if waiting:
        text += f"; {outcome.full_name(waiting[0])} is {waiting[0].phase}"
    return text


def _show(result: outcome.Outcome, options: Options, shown: terminal.Terminal) -> None:
    if options.output == "json":
        shown.document(json.dumps(outcome.to_json(result), indent=1))
        return
    for block in outcome.to_blocks(result):
        shown.block(block)
        shown.say("")
    for table in outcome.to_tables(result):
        shown.table(table)
    unexpected = [pod for pod in result.pods if not pod.as_expected]
    for pod in unexpected:
        shown.say(f"{outcome.full_name(pod)} is {pod.became}, expected is {pod.expected}.")
    for item in result.busy:
        why = item.reason or "it is still at it"
        shown.say(f"{item.full_name} has not made its pods: {why}.")
    for item in result.failed:
        shown.say(f"{item.full_name} has failed: {item.reason}.")
    if not (result.pods or result.failed):
        told = [f"{item.full_name}: {item.reason}" for item in result.workloads if item.reason]
        shown.say("; ".join(["No pod came of the manifests", *told]))
    good = len(result.pods) - len(unexpected)
    shown.say(f"{good} of {len(result.pods)} pods are as expected.")


def _runtime_for(name: str) -> cluster.RuntimeFor:
    def make(cdi_dir: pathlib.Path, directory: pathlib.Path) -> runtime.Runtime:
        if name == "podman":
            return podman.PodmanRuntime(cdi_dir, directory)
        return runtime.PretendedRuntime(cdi_dir)

    return make


def _quickstart() -> pathlib.Path:
    """The quickstart of the checkout that this package runs from."""
    path = pathlib.Path(__file__).parents[3] / "demo" / "quickstart"
    if not path.is_dir():
        raise errors.Fatal(
            "the quickstart is part of the source checkout, and this is an installed package: "
            "name manifests with -f FILE"
        )
    return path
