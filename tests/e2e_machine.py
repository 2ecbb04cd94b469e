"""A cluster for end-to-end cases on this machine: real components of ours, simulated kubelets.

API server, scheduler, controllers and kubelets are those of the embedded cluster. Nothing of the
driver is started by itself: the pods of its DaemonSet are, as processes, with the arguments and
variables that their containers have, and the paths of this machine in place of the host's.
"""

import contextlib
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import reserved_port

from dra_driver.adapters.kube import kube
from dra_driver.sim.api.serving import access, options, server
from dra_driver.sim.cluster import claim_controller, kubelet, runtime, scheduler
from dra_driver.sim.cluster.workloads import loop
from dra_driver.sim.gpus import gpu_state

Json = dict[str, Any]

LABEL = "e2e.dra-driver/gpus"
WITH_GPUS, WITHOUT = ("gpu-node-1", "gpu-node-2"), "plain-node"
STOP_SECONDS = 60.0


class Machine:
    """Two nodes that may have GPUs, and one that may not."""

    def __init__(self, **api: Any) -> None:
        # At a short path: that of a socket may have 107 bytes.
        self._directory = tempfile.TemporaryDirectory(prefix="dra-e2e-", dir="/tmp")
        self.root = pathlib.Path(self._directory.name)
        self.kubeconfig = self.root / "kubeconfig"
        self.nodes: dict[str, Node] = {}
        self._port = reserved_port.Reserved()
        self._options = options.Options(
            port=self._port.number,
            credentials=access.make(),
            pod_log=self._log,
            resource_versions=("v1", "v1beta2", "v1beta1"),
            **api,
        )
        self._start_api({})
        self._api.write_kubeconfig(self.kubeconfig)
        self._clients = [
            kube.Client(kubeconfig=self.kubeconfig, user_agent=name)
            for name in ("scheduler", "claim-controller", "workloads")
        ]
        self._parts: list[Any] = [
            claim_controller.ClaimController(self._clients[1]),
            scheduler.Scheduler(self._clients[0]),
            loop.Workloads(self._clients[2]),
        ]
        for part in self._parts:
            part.start()
        for name in (*WITH_GPUS, WITHOUT):
            labels = {LABEL: "true"} if name in WITH_GPUS else {}
            self.nodes[name] = Node(self, name, labels)

    def kill(self, node: str) -> None:
        """Kill the plugin's process on a node."""
        [process] = [one for one in self.nodes[node].processes if one.status() is None]
        process.kill()

    def leftovers(self) -> list[str]:
        """What there is of prepared claims on the hosts with GPUs."""
        return [f"{name}: {what}" for name in WITH_GPUS for what in self.nodes[name].leftovers()]

    @contextlib.contextmanager
    def api_away(self) -> Iterator[None]:
        """Inside the block nobody reaches the API server; then it is there with all it had."""
        stored = self._api.store.contents()
        self._api.stop()
        try:
            yield
        finally:
            self._start_api(stored)

    def close(self) -> None:
        """End everything."""
        for node in self.nodes.values():
            node.close()
        while self._parts:
            self._parts.pop().stop()
        for client in self._clients:
            client.close()
        self._api.stop()
        self._port.close()
        self._directory.cleanup()

    def _start_api(self, stored: Mapping[str, Sequence[Json]]) -> None:
        self._api = server.ApiServer(self._options)
        self._api.registry.restore(stored)
        self._api.start()

    def _log(self, uid: str, container: str) -> str | None:
        for node in list(self.nodes.values()):
            if (view := node.kubelet.views(uid).get(container)) is not None:
                return "".join(f"{line}\n" for line in view.output)
        return None


class Node:
    """A kubelet, and what there is on its host."""

    def __init__(self, machine: Machine, name: str, labels: Mapping[str, str]) -> None:
        self.name = name
        self.root = machine.root / name
        self.cdi = self.root / "cdi"
        self.state = self.root / "state"
        self.cdi.mkdir(parents=True)
        self.kubeconfig = machine.kubeconfig
        self._client = kube.Client(kubeconfig=self.kubeconfig, user_agent=f"kubelet/{name}")
        amounts = {"cpu": "64", "memory": "512Gi", "pods": str(kubelet.PODS)}
        all_labels = {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", **labels}
        self._client.create(
            kube.NODES,
            {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {"name": name, "labels": all_labels},
                "status": {
                    "capacity": amounts,
                    "allocatable": amounts,
                    "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
                },
            },
        )
        self.processes: list[Process] = []
        self.restarting = False
        self.start()

    def start(self) -> None:
        """Start a kubelet, which has no memory of an earlier one."""
        self.kubelet = kubelet.Kubelet(
            self._client, self.name, self.root / "kubelet", _Runtime(self)
        )
        self.kubelet.start()

    def restart_kubelet(self) -> None:
        """As `systemctl restart kubelet`; containers go on, the plugin among them."""
        self.restarting = True
        try:
            self.kubelet.stop()
        finally:
            self.restarting = False
        self.start()

    def close(self) -> None:
        self.kubelet.stop()
        self._client.close()

    def leftovers(self) -> list[str]:
        """What there is of prepared claims: files, MIG instances, modes, MPS daemons."""
        files = [
            f"{folder.name}/{path.name}"
            for folder in (self.cdi, self.state / "claims", self.state / "mps")
            if folder.is_dir()
            for path in folder.iterdir()
        ]
        cards = gpu_state.open_file(self.root / "gpus").read().gpus
        instances = [f"{one.uuid} {gi}" for one in cards for gi in one.gpu_instances]
        set_ = [
            f"{one.uuid}: time slice {one.time_slice}, compute mode {one.compute_mode}"
            for one in cards
            if one.time_slice or one.compute_mode
        ]
        return sorted(files) + instances + set_


class _Runtime:
    """Runs the driver; of other containers it only pretends to."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._others = runtime.PretendedRuntime(node.cdi)

    def start(self, container: runtime.Container, on_end: Callable[[], None]) -> runtime.Running:
        if container.command[:2] != ("dra-driver", "kubelet-plugin"):
            return self._others.start(container, on_end)
        for process in self._node.processes:
            if process.pod_uid == container.pod_uid and process.status() is None:
                process.on_end = on_end
                return process
        made = Process(self._node, container, on_end)
        self._node.processes.append(made)
        return made

    def close(self) -> None:
        """Nothing is left."""


class Process:
    """A container of the driver's plugin."""

    def __init__(
        self, node: Node, container: runtime.Container, on_end: Callable[[], None]
    ) -> None:
        host = {
            "kubeconfig": node.kubeconfig,
            "kubelet-root": node.root / "kubelet",
            "state-dir": node.state,
            "cdi-dir": node.cdi,
            "simulation-dir": node.root / "gpus",
            "metrics-address": "127.0.0.1:0",
            "mps-launcher": "process",
            "rescan-seconds": 1,
        }
        self._log = node.root / f"plugin-{container.pod_uid}.log"
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "dra_driver", *container.command[1:]),
                    # Of two flags the last one counts.
                    *(f"--{name}={value}" for name, value in host.items()),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={key: os.environ[key] for key in ("PATH", "PYTHONPATH") if key in os.environ}
                | dict(container.env),
                start_new_session=True,
            )
        self._node = node
        self.pod_uid = container.pod_uid
        self.on_end = on_end
        threading.Thread(target=self._wait, daemon=True).start()

    def _wait(self) -> None:
        self.process.wait()
        self.on_end()

    def view(self) -> runtime.View:
        lines = self._log.read_text(encoding="utf-8", errors="replace").splitlines()
        return runtime.View({}, (), (), tuple(lines))

    def status(self) -> int | None:
        status = self.process.poll()
        return status if status is None or status >= 0 else 128 - status

    def kill(self) -> None:
        """As the kernel does where memory is short."""
        self.process.send_signal(signal.SIGKILL)

    def stop(self) -> None:
        """As a pod is stopped: it is told to end, and killed after its grace."""
        if self._node.restarting:
            return
        self.process.terminate()
        try:
            self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
