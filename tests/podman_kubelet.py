"""What a kubelet does for pods of one container, with podman: with the mounts and rights they ask.

The image is a root made of this machine's programs, which cannot be written to.
"""

import pathlib
import subprocess
import sys
from typing import Any

import pod_kubelet

from dra_driver.adapters.kube import kube

_ENGINE = ("podman", "--runtime", "/usr/sbin/runc", "--cgroup-manager", "cgroupfs")
_LIMITS = ("--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1024:1024")
_SECONDS = 120
_SOURCES = pathlib.Path(__file__).parents[1]
_KNOWN = {
    "pod": {
        "automountServiceAccountToken",
        "containers",
        "dnsPolicy",
        "enableServiceLinks",
        "hostPID",
        "nodeName",
        "preemptionPolicy",
        "priority",
        "priorityClassName",
        "restartPolicy",
        "schedulerName",
        "serviceAccountName",
        "terminationGracePeriodSeconds",
        "tolerations",
        "volumes",
    },
    "security": {"privileged", "readOnlyRootFilesystem", "runAsUser"},
}
"""Fields that are done here, or say nothing of what the container sees."""


class Kubelet(pod_kubelet.Kubelet):
    """See `pod_kubelet.Kubelet`; each container has a file system and processes as podman has it.

    `root` is a directory for the image; there must be nothing in it.
    """

    def __init__(self, client: kube.Client, node: str, namespace: str, root: pathlib.Path) -> None:
        self._root = root
        for name in ("dev", "etc", "proc", "run", "sys", "tmp", "usr"):
            (root / name).mkdir(parents=True)
        for name in ("bin", "lib", "lib64", "sbin"):
            (root / name).symlink_to(f"usr/{name}")
        super().__init__(client, node, namespace)

    def close(self) -> None:
        super().close()
        for pod in self.pods():
            _podman("rm", "--force", "--ignore", "--time", "0", _name(pod))

    def probe(self) -> int:
        """The exit status of the readiness probe of the only pod's container."""
        pod = self.pod()
        [container] = pod["spec"]["containers"]
        return self.run_in(pod, *container["readinessProbe"]["exec"]["command"])

    def run_in(self, pod: kube.Json, *command: str) -> int:
        """The exit status of a command in the container of a pod."""
        return _podman("exec", _name(pod), *command)

    def _command(self, pod: kube.Json, container: kube.Json) -> list[str]:
        spec, security = pod["spec"], container["securityContext"]
        unknown = (_asked(spec) - _KNOWN["pod"]) | (_asked(security) - _KNOWN["security"])
        assert not unknown, unknown
        volumes = {one["name"]: one for one in spec["volumes"]}
        image = ("/usr", "/etc", sys.base_prefix, sys.prefix, str(_SOURCES))
        return [
            *(*_ENGINE, "run", "--rm", "--network", "none", "--name", _name(pod), *_LIMITS),
            *(("--pid", "host") if spec.get("hostPID") else ()),
            *(("--privileged",) if security.get("privileged") else ()),
            *(("--read-only", "--read-only-tmpfs=false") if _is_read_only(security) else ()),
            *("--user", f"{security['runAsUser']}"),
            *(
                part
                for one in container["env"]
                for part in ("--env", f"{one['name']}={one['value']}")
            ),
            *("--env", f"PATH={sys.prefix}/bin:/usr/bin:/bin"),
            *(part for path in image for part in ("--volume", f"{path}:{path}:ro")),
            *(
                part
                for mount in container["volumeMounts"]
                for part in _mounted(volumes[mount["name"]], mount)
            ),
            *("--rootfs", str(self._root), *container["command"]),
        ]


def _asked(body: kube.Json) -> set[str]:
    return {name for name, value in body.items() if value not in (None, [], {})}


def _is_read_only(security: kube.Json) -> Any:
    return security.get("readOnlyRootFilesystem")


def _mounted(volume: kube.Json, mount: kube.Json) -> tuple[str, str]:
    target = mount["mountPath"]
    if "emptyDir" in volume:
        return "--mount", f"type=tmpfs,destination={target},tmpfs-size=16m"
    propagation = {None: "rprivate", "HostToContainer": "rslave", "Bidirectional": "rshared"}
    options = ["ro" if mount.get("readOnly") else "rw", propagation[mount.get("mountPropagation")]]
    return "--volume", f"{volume['hostPath']['path']}:{target}:{','.join(options)}"


def _name(pod: kube.Json) -> str:
    return f"dra-{pod['metadata']['name']}-{pod['metadata']['uid'][:8]}"


def _podman(*arguments: str) -> int:
    return subprocess.run(
        [*_ENGINE, *arguments], capture_output=True, timeout=_SECONDS, check=False
    ).returncode
