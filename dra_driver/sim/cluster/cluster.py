"""The embedded cluster: API server, scheduler, controllers and nodes, started and stopped together.

Each node's kubelet runs here, its kubelet plugin as a process of its own, as on a real node. Unlike
in a real cluster all have the same token, that of the kubeconfig, and may do everything.
"""

import contextlib
import dataclasses
import datetime as dt
import os
import pathlib
import platform
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dra_driver import errors
from dra_driver.adapters.kube import kube
from dra_driver.adapters.kubelet import unix_sockets
from dra_driver.adapters.mps import mps_local
from dra_driver.logic.cel import derivation, selection
from dra_driver.logic.offering import classes
from dra_driver.logic.scheduling import emulation
from dra_driver.model import mps
from dra_driver.sim.api.kinds import resource_gates
from dra_driver.sim.api.serving import access, options, server
from dra_driver.sim.cluster import (
    claim_controller,
    converter,
    evictor,
    kubelet,
    kubelet_release,
    parameter_keeper,
    runtime,
    scheduler,
)
from dra_driver.sim.cluster.workloads import loop
from dra_driver.sim.gpus import fault, gpu_state, host_nvidia_smi

Json = dict[str, Any]

DRIVER_NAME = "gpu.nvidia.com"
READY_SECONDS = 60.0
STOP_SECONDS = 30.0
LOOK_SECONDS = 0.05
LOG_LINES = 5
"""Of a plugin's log, its last, that are shown where it failed."""

RuntimeFor = Callable[[pathlib.Path, pathlib.Path], runtime.Runtime]
"""Makes a node's runtime from its CDI directory and a working directory."""


@dataclasses.dataclass(frozen=True, slots=True)
class NodeSpec:
    """A node, with the GPUs that it simulates: `h100-80gb-hbm3:8`, or `none`.

    `flags` are more flags of its kubelet plugin.
    """

    name: str
    gpus: str
    flags: tuple[str, ...] = ()


class Node:
    """A kubelet and the plugin process beside it."""

    def __init__(
        self,
        spec: NodeSpec,
        directory: pathlib.Path,
        kubeconfig: pathlib.Path,
        runtime_for: RuntimeFor,
        release: str | None = None,
    ) -> None:
        self.spec = spec
        self._directory = directory
        self._kubeconfig = kubeconfig
        self._client = kube.Client(kubeconfig=kubeconfig, user_agent=f"kubelet/{spec.name}")
        self._process: subprocess.Popen[bytes] | None = None
        # Short: below it are the sockets of MPS daemons, whose paths are the longest.
        self._state_dir = directory / fault.STATE
        self._gpus_dir = directory / fault.GPUS
        unix_sockets.check_path(
            self._mps_dir / ("0" * 16) / "daemon" / "control_privileged",
            setting="node name, or directory for temporary files (TMPDIR)",
        )
        directory.mkdir(mode=0o700, parents=True)
        self.cdi_dir = directory / "cdi"
        self.cdi_dir.mkdir()
        self.kubelet = kubelet.Kubelet(
            self._client,
            spec.name,
            directory / "kubelet",
            runtime_for(self.cdi_dir, directory / "roots"),
            kubelet_release.of_release(release),
        )

    def start(self) -> None:
        """Make the Node object, start the kubelet, then the plugin."""
        self._client.create(kube.NODES, _node_body(self.spec.name))
        self.kubelet.start()
        self.start_plugin()

    def start_plugin(self) -> None:
        """Start the plugin's process."""
        command = [
            *(sys.executable, "-m", "dra_driver", "kubelet-plugin"),
            *("--node-name", self.spec.name, "--driver-name", DRIVER_NAME),
            *("--kubeconfig", str(self._kubeconfig), "--log-format", "json"),
            *("--kubelet-root", str(self._directory / "kubelet")),
            *("--state-dir", str(self._state_dir)),
            *("--cdi-dir", str(self.cdi_dir), "--rescan-seconds", "1"),
            *("--simulate-gpus", self.spec.gpus, "--simulation-dir", str(self._gpus_dir)),
            *self.spec.flags,
        ]
        with (self._directory / "plugin.log").open("ab") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={key: value for key, value in os.environ.items() if key in ("PATH", "HOME")},
                # Ctrl-C in a terminal goes to its foreground group: the plugin is stopped in order.
                start_new_session=True,
            )

    def time_slices(self) -> Mapping[str, str]:
        """The time slices of GPUs by UUID, where they are not the default: `Long`."""
        cards = gpu_state.open_file(self._gpus_dir).read().gpus
        return {
            card.uuid: host_nvidia_smi.NAMES[card.time_slice] for card in cards if card.time_slice
        }

    def check_alive(self) -> None:
        """Refuse to go on with a plugin that has ended.

        Raises:
            errors.Fatal: it has; the text has the end of its log.
        """
        if self._process is not None and self._process.poll() is not None:
            raise errors.Fatal(
                f"the plugin of node {self.spec.name} ended with status "
                f"{self._process.returncode}; {self.log_end()}"
            )

    def log_end(self) -> str:
        """The last lines of the plugin's log, for a message."""
        text = (self._directory / "plugin.log").read_text(encoding="utf-8", errors="replace")
        return "\n  ".join(["its log ends:", *text.splitlines()[-LOG_LINES:]])

    def stop(self) -> None:
        """End the pods, then tell the plugin, which has to unprepare them, to end."""
        try:
            self.kubelet.stop()
        finally:
            if self._process is not None:
                self._process.terminate()
            self._client.close()

    def wait_ended(self) -> None:
        """Wait until the plugin has ended; one that does not is killed.

        MPS daemons outlive plugins: those of claims that could not be unprepared are stopped here.
        """
        if self._process is not None:
            try:
                self._process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        launcher = mps_local.LocalLauncher(self._gpus_dir, private_shm=False)
        for path in sorted(self._mps_dir.iterdir()) if self._mps_dir.is_dir() else ():
            launcher.stop(_mps_daemon(self._mps_dir, path.name), STOP_SECONDS)

    @property
    def _mps_dir(self) -> pathlib.Path:
        return self._state_dir / "mps"


class Cluster:
    """A cluster in a directory."""

    def __init__(
        self,
        specs: tuple[NodeSpec, ...],
        directory: pathlib.Path,
        *,
        runtime_for: RuntimeFor,
        release: str | None = None,
        convert: bool = False,
        parameters: bool = False,
    ) -> None:
        """Nothing is started. Socket paths are short only where `directory` is.

        `release` is the Kubernetes release to behave as; None: as 1.36, its defects mended. With
        `convert` there is a webhook that turns what pods ask for into claims; with `parameters`
        the kinds of DRA's first API, and the controller that makes templates of them.

        Raises:
            errors.Rejected: the release is not known.
        """
        self._release = release
        self._behaviour = emulation.of_release(release)
        self._api = server.ApiServer(
            dataclasses.replace(
                options.of_release(release),
                credentials=access.make(),
                expression_check=_check_expression,
                pod_log=self._pod_log,
                derivation_check=_check_derivation,
            )
        )
        self._specs = specs
        self._directory = directory
        self._runtime_for = runtime_for
        self._convert = convert
        self._parameters = parameters
        self._stack = contextlib.ExitStack()
        # No node has this name: names of nodes have no dot.
        self.kubeconfig = directory / "kubeconfig.yaml"
        self.nodes: dict[str, Node] = {}
        self.converter: converter.Converter | None = None
        self.keeper: parameter_keeper.Keeper | None = None

    def start(self) -> None:
        """Start everything; nodes are not waited for."""
        self._api.start()
        self._stack.callback(self._api.stop)
        self._api.write_kubeconfig(self.kubeconfig)
        self.client = kube.Client(kubeconfig=self.kubeconfig, user_agent="dra-driver demo")
        self._stack.callback(self.client.close)
        for body in classes.device_classes(DRIVER_NAME, whole_gpus=classes.EXTENDED_RESOURCE):
            self.client.create(kube.CLASSES, body)
        self._scheduler = scheduler.Scheduler(
            self._part_client("scheduler"),
            self._behaviour,
            extended=self._api.is_on(resource_gates.EXTENDED_RESOURCE),
        )
        controller = claim_controller.ClaimController(self._part_client("claim-controller"))
        workloads = loop.Workloads(self._part_client("workloads"))
        ending = evictor.Evictor(self._part_client("evictor"), self._behaviour)
        for part in (controller, self._scheduler, workloads, ending):
            part.start()
            self._stack.callback(part.stop)
        if self._convert:
            # With a dot, as no name of a node has one.
            self.converter = converter.Converter(
                self._directory / "webhook.d", self.kubeconfig, self.client, DRIVER_NAME
            )
            self._stack.callback(self.converter.stop)
            self.converter.start()
        if self._parameters:
            self.keeper = parameter_keeper.Keeper(
                self._directory / "controller.d", self.kubeconfig, DRIVER_NAME
            )
            self._stack.callback(self.keeper.stop)
            self.keeper.start(self.client)
        for spec in self._specs:
            node = Node(
                spec,
                self._directory / spec.name,
                self.kubeconfig,
                self._runtime_for,
                self._release,
            )
            self.nodes[spec.name] = node
            # Undone last of all: by then all plugins are ending, side by side.
            self._stack.callback(node.wait_ended)
        for node in self.nodes.values():
            self._stack.callback(node.stop)
            node.start()

    def wait_ready(self, stop: threading.Event, seconds: float = READY_SECONDS) -> bool:
        """Wait until each node's devices are published; False where `stop` was set before.

        The scheduler knows them then: a pod that they suit is not refused first. If pods are
        converted, all from then on are.

        Raises:
            errors.Fatal: a plugin ended, or it took longer than `seconds`.
            errors.Retryable: the scheduler does not come to know them.
        """
        deadline = time.monotonic() + seconds
        nodes: list[Json] = []
        slices: list[Json] = []
        waiting = set(self.nodes)
        while waiting and not stop.is_set():
            for name in sorted(waiting):
                self.nodes[name].check_alive()
            # A machine that is busy with the start may answer late.
            with contextlib.suppress(kube.Unavailable):
                nodes = self.client.list(kube.NODES)[0]
                slices = self.client.list(kube.SLICES)[0]
                waiting = set(self.nodes) - _published(slices)
            if waiting and time.monotonic() > deadline:
                logs = "\n".join(
                    f"plugin of node {name}: {self.nodes[name].log_end()}"
                    for name in sorted(waiting)
                )
                raise errors.Fatal(
                    f"the ResourceSlices of node {', '.join(sorted(waiting))} are not all there "
                    f"after {seconds:.0f} s\n{logs}"
                )
            if waiting:
                stop.wait(LOOK_SECONDS)
        if stop.is_set():
            return False
        self._scheduler.wait_known(nodes, slices)
        return self.converter is None or self.converter.wait_ready(stop, deadline)

    def stop(self) -> None:
        """Stop everything, in the reverse order."""
        self._stack.close()

    def devices(self) -> Mapping[tuple[str, str, str], Json]:
        """All published devices by driver, pool and name."""
        return {
            (body["spec"]["driver"], body["spec"]["pool"]["name"], device["name"]): device
            for body in self.client.list(kube.SLICES)[0]
            for device in body["spec"].get("devices") or ()
        }

    def _pod_log(self, uid: str, container: str) -> str | None:
        """What a container has written, on whichever node its pod is."""
        for node in list(self.nodes.values()):
            if (view := node.kubelet.views(uid).get(container)) is not None:
                return "".join(f"{line}\n" for line in view.output)
        return None

    def _part_client(self, name: str) -> kube.Client:
        client = kube.Client(kubeconfig=self.kubeconfig, user_agent=name)
        self._stack.callback(client.close)
        return client


def _mps_daemon(root: pathlib.Path, name: str) -> mps.Daemon:
    """The daemon that is at this place; what it serves is not asked for."""
    return mps.daemon(root=str(root), daemon_id=name, device="GPU-0", shm_bytes=0)


def _published(slices: Sequence[Json]) -> set[str]:
    """The nodes whose pool is complete: as many slices of its newest generation as it tells."""
    pools: dict[str, list[Json]] = {}
    for body in slices:
        if body["spec"]["driver"] == DRIVER_NAME and "nodeName" in body["spec"]:
            pools.setdefault(body["spec"]["nodeName"], []).append(body["spec"]["pool"])
    newest = {node: max(pool["generation"] for pool in found) for node, found in pools.items()}
    current = {
        node: [pool for pool in found if pool["generation"] == newest[node]]
        for node, found in pools.items()
    }
    return {node for node, found in current.items() if len(found) == found[0]["resourceSliceCount"]}


def _node_body(name: str) -> Json:
    amounts = {"cpu": "64", "memory": "512Gi", "pods": str(kubelet.PODS)}
    now = dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": _labels(name)},
        "status": {
            "capacity": amounts,
            "allocatable": amounts,
            "conditions": [
                {
                    "type": "Ready",
                    "status": "True",
                    "reason": "KubeletReady",
                    "lastHeartbeatTime": now,
                    "lastTransitionTime": now,
                }
            ],
        },
    }


def _labels(name: str) -> Json:
    """Those that a kubelet gives its node. Source: `k8s.io/api/core/v1/well_known_labels.go`."""
    machine = platform.machine()
    return {
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": {"x86_64": "amd64", "aarch64": "arm64"}.get(machine, machine),
    }


def _check_expression(expression: str) -> str | None:
    """As where the gate for attributes that are lists is off, which it is by default."""
    return selection.check(expression, lists=False)


def _check_derivation(expression: str) -> str | None:
    return derivation.check(expression, lists=False)
