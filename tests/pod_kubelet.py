"""What a kubelet does for pods that one container each runs in: for real, as processes."""

import contextlib
import pathlib
import subprocess
import sys
import threading

import polling

from dra_driver.adapters.kube import kube

_PROGRAM = "dra-driver"


class Kubelet:
    """Runs the pods of one node in a namespace, until it is closed.

    Host paths are mounted nowhere, so a pod has to mount them at the same paths; one that does not
    exist keeps the container from starting, as it would on a node. Empty directories are left out.
    The containers of `broken` pods are not started.
    """

    def __init__(self, client: kube.Client, node: str, namespace: str) -> None:
        self._client, self._node, self._namespace = client, node, namespace
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self.started: list[str] = []
        self.broken = False
        self.patient = False
        self._failing: dict[str, tuple[str, str]] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._stop.set()
        self._thread.join(60)
        for process in self._processes.values():
            process.kill()
            process.wait()

    def pods(self) -> list[kube.Json]:
        items, _ = self._client.list(kube.PODS, self._namespace)
        return items

    def pod(self) -> kube.Json:
        """The only pod there is."""
        [item] = self.pods()
        return item

    def fail(self, reason: str = "Evicted", message: str = "low on memory") -> None:
        """The only pod fails, as one that is evicted, or for another reason."""
        pod = self.pod()
        self._failing[pod["metadata"]["uid"]] = reason, message
        polling.until(lambda: self.pod()["status"]["phase"] == "Failed", what="a failed pod")

    def restarts(self) -> int:
        """How often a container was started."""
        return len(self.started)

    def _run(self) -> None:
        while not self._stop.wait(0.02):
            for pod in self.pods():
                if pod["spec"].get("nodeName") == self._node:
                    # It, or a directory that it mounts, may be gone since it was read.
                    with contextlib.suppress(kube.Conflict, kube.NotFound, FileNotFoundError):
                        self._sync(pod)

    def _sync(self, pod: kube.Json) -> None:
        uid, name = pod["metadata"]["uid"], pod["metadata"]["name"]
        process = self._processes.get(uid)
        if pod["metadata"].get("deletionTimestamp"):
            if self.patient:
                return
            self._end(uid, pod["spec"]["terminationGracePeriodSeconds"])
            self._client.delete(kube.PODS, name, self._namespace, uid=uid, grace_period=0)
        elif uid in self._failing:
            self._end(uid, 0)
            reason, message = self._failing[uid]
            self._tell(pod, phase="Failed", reason=reason, message=message)
        elif pod["status"]["phase"] in ("Pending", "Running") and (
            process is None or process.poll() is not None
        ):
            self._begin(pod)

    def _begin(self, pod: kube.Json) -> None:
        [container] = pod["spec"]["containers"]
        paths = {
            one["name"]: one["hostPath"]["path"]
            for one in pod["spec"]["volumes"]
            if "hostPath" in one
        }
        missing = [path for path in paths.values() if not pathlib.Path(path).is_dir()]
        if missing or self.broken:
            waiting = {"reason": "CreateContainerError", "message": f"no {missing}"}
            self._tell(pod, phase="Pending", containerStatuses=[{"state": {"waiting": waiting}}])
            return
        uid = pod["metadata"]["uid"]
        # Before it is: what runs may be seen to before this goes on.
        self.started.append(uid)
        with pathlib.Path(paths["daemon"], "log", "container.log").open("ab") as log:
            self._processes[uid] = subprocess.Popen(
                self._command(pod, container),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._tell(pod, phase="Running", containerStatuses=[{"state": {"running": {}}}])

    def _command(self, pod: kube.Json, container: kube.Json) -> list[str]:
        """What runs the container until it ends, or is told to by SIGTERM."""
        volumes = {one["name"]: one for one in pod["spec"]["volumes"]}
        for mount in container["volumeMounts"]:
            volume = volumes[mount["name"]]
            assert "emptyDir" in volume or volume["hostPath"]["path"] == mount["mountPath"]
        program, *arguments = container["command"]
        assert program == _PROGRAM
        return [sys.executable, "-m", "dra_driver", *arguments]

    def _end(self, uid: str, seconds: float) -> None:
        process = self._processes.pop(uid, None)
        if process is None:
            return
        process.terminate()
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _tell(self, pod: kube.Json, **status: object) -> None:
        if {**pod["status"], **status} != pod["status"]:
            body = pod | {"status": pod["status"] | status}
            self._client.replace_status(kube.PODS, body, self._namespace)
