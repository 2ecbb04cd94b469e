"""Pods of the chart on a node of the embedded cluster, each container a process of this machine.

The kubelet is that of the embedded cluster. What a process is told besides is only what a container
has of its own: ports, and a way to the API server.
"""

import http.client
import json
import os
import pathlib
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from typing import Any

import api_cluster
import chart
import yaml

from dra_driver.adapters.kube import kube
from dra_driver.sim.cluster import kubelet, runtime

Json = dict[str, Any]

OWN_PORTS = {
    "controller": {"DRA_DRIVER_STATUS_ADDRESS": "127.0.0.1:0"},
    "webhook": {
        "DRA_DRIVER_ADDRESS": "127.0.0.1:0",
        "DRA_DRIVER_STATUS_ADDRESS": "127.0.0.1:0",
    },
}
"""Variables by which a container gets ports that nobody else on this machine has."""
END_SECONDS = 60.0


class Process:
    """A container that runs."""

    def __init__(
        self,
        asked: runtime.Container,
        environment: Mapping[str, str],
        log: pathlib.Path,
        on_end: Callable[[], None],
    ) -> None:
        assert asked.command[0] == "dra-driver"
        self.environment = environment
        self._log = log
        with log.open("wb") as stream:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "dra_driver", *asked.command[1:]],
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=stream,
            )
        self._waiter = threading.Thread(target=self._wait, args=(on_end,), daemon=True)
        self._waiter.start()

    def arguments(self) -> list[str]:
        """What the process was started with, as the kernel tells it."""
        raw = pathlib.Path(f"/proc/{self._process.pid}/cmdline").read_bytes()
        words = raw.decode().split("\0")[:-1]
        return words[words.index("dra_driver") + 1 :]

    def logged(self, event: str) -> Json:
        """The first line of the log with this event, once it is there."""

        def found() -> Json | None:
            assert self._process.poll() is None, self._log.read_text()
            # What comes after the last end of a line is one that is being written.
            lines = self._log.read_text().split("\n")[:-1]
            return next((line for line in map(json.loads, lines) if line["event"] == event), None)

        line = api_cluster.wait_for(found, f"{event!r} in {self._log}")
        assert line is not None
        return line

    def ask(self, path: str) -> int:
        """The status of an answer at the port for probes."""
        port = self.logged("started")["status"]
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        try:
            connection.request("GET", path)
            return connection.getresponse().status
        finally:
            connection.close()

    def execute(self, command: list[str]) -> int:
        """The exit status of another command in the container."""
        assert command[0] == "dra-driver"
        line = [sys.executable, "-m", "dra_driver", *command[1:]]
        finished = subprocess.run(
            line, env=dict(self.environment), capture_output=True, timeout=60, check=False
        )
        return finished.returncode

    def view(self) -> runtime.View:
        return runtime.View({}, (), (), ())

    def status(self) -> int | None:
        return self._process.poll()

    def stop(self) -> None:
        self._process.terminate()
        self._waiter.join(END_SECONDS)
        assert self._process.poll() == 0, self._log.read_text()

    def _wait(self, on_end: Callable[[], None]) -> None:
        self._process.wait()
        on_end()


class Processes:
    """A container runtime; no image is looked at."""

    def __init__(self, directory: pathlib.Path, kubeconfig: pathlib.Path) -> None:
        self._directory = directory
        self._kubeconfig = kubeconfig
        self.started: dict[str, Process] = {}
        """By the UID of the pod."""

    def start(self, asked: runtime.Container, on_end: Callable[[], None]) -> Process:
        environment = {
            "HOME": str(self._directory),
            "PATH": os.environ["PATH"],
            "KUBECONFIG": str(self._kubeconfig),
            **asked.env,
            **OWN_PORTS.get(asked.name, {}),
        }
        log = self._directory / f"{asked.pod_uid}.log"
        self.started[asked.pod_uid] = Process(asked, environment, log, on_end)
        return self.started[asked.pod_uid]

    def close(self) -> None:
        """Nothing is left by a process that has ended."""


class Node:
    """An API server, and a node with a kubelet."""

    def __init__(self, root: pathlib.Path) -> None:
        """`root`: the kubelet's root directory, at a short path; a socket's may have 107 bytes."""
        self.cluster = api_cluster.Cluster()
        self.client = self.cluster.client
        self.client.create(kube.NAMESPACES, {"metadata": {"name": chart.NAMESPACE}})
        logs = root / "logs"
        (root / "plugins_registry").mkdir(parents=True)
        logs.mkdir()
        self._processes = Processes(logs, self.cluster.kubeconfig)
        self._kubelet_client = kube.Client(kubeconfig=self.cluster.kubeconfig, user_agent="kubelet")
        self._kubelet = kubelet.Kubelet(
            self._kubelet_client, api_cluster.NODE, root, self._processes
        )
        self._kubelet.start()

    def run(self, template: Json, name: str) -> Process:
        """A pod of a DaemonSet or a Deployment, once its container runs."""
        metadata = template["metadata"] | {"name": name, "namespace": chart.NAMESPACE}
        # As it would come from a file: nothing is shared with the template.
        body = yaml.safe_load(yaml.safe_dump({"metadata": metadata, "spec": template["spec"]}))
        body["spec"]["nodeName"] = api_cluster.NODE
        uid = self.client.create(kube.PODS, body, chart.NAMESPACE)["metadata"]["uid"]
        api_cluster.wait_for(lambda: self.phase(name) == "Running", f"pod {name} runs")
        return self._processes.started[uid]

    def phase(self, name: str) -> str:
        pod = self.client.get(kube.PODS, name, chart.NAMESPACE)
        return str((pod.get("status") or {}).get("phase"))

    def delete(self, name: str) -> None:
        """End a pod, as a drain does."""
        self.client.delete(kube.PODS, name, chart.NAMESPACE)

    def close(self) -> None:
        self._kubelet.stop()
        self._kubelet_client.close()
        self.cluster.close()
