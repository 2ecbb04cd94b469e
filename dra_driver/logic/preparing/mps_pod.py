"""An MPS daemon as a Pod object: what it is made of, and what of one that is there matters.

Sources: Kubernetes 1.36, `staging/src/k8s.io/api/core/v1/types.go`; kubectl's drain,
`staging/src/k8s.io/kubectl/pkg/drain/filters.go`; the cluster autoscaler's `utils/pod/pod.go`.
"""

import dataclasses
import enum
import hashlib
import json
from collections.abc import Mapping
from typing import Any

from dra_driver.model import mps

Json = dict[str, Any]

MANAGED_BY = "app.kubernetes.io/managed-by"
MANAGER = "dra-driver-kubelet-plugin"
DOMAIN = "dra-driver/mps-domain"
SPEC_HASH = "dra-driver/spec-hash"
DEVICE = "dra-driver/device"
GRACE_SECONDS = 10
_CHECK_SECONDS = 10
_TMP_SIZE = "16Mi"


@dataclasses.dataclass(frozen=True, slots=True)
class Site:
    """Where the pods of one node's daemons are, and what they run.

    `driver_root` is the NVIDIA driver's on the host, `driver_root_seen` where it is in a container;
    `library_dirs` below it come before the usual ones.
    `cpu` and `memory` are quantities, which are requested and no limits. Secrets to pull the image
    with, and the service account, are of the namespace; no account is the namespace's default, and
    no priority class the cluster's. `image_pull_policy` is Always, IfNotPresent or Never.
    """

    namespace: str
    node_name: str
    image: str
    driver_root: str
    driver_root_seen: str
    cpu: str
    memory: str
    image_pull_policy: str = "IfNotPresent"
    image_pull_secrets: tuple[str, ...] = ()
    service_account: str = ""
    library_dirs: tuple[str, ...] = ()
    priority_class: str = ""


class Fate(enum.Enum):
    """What is to be done about a pod that is there while its daemon does not run."""

    KEEP = "it starts"
    """As it is wanted, and starting or being started again by the kubelet."""
    WAIT = "it is on its way out"
    REPLACE = "it has ended, or is not as it would be made now"
    STRANGER = "it is somebody else's"


def name(site: Site, daemon: mps.Daemon) -> str:
    """The pod's name: nodes, and drivers side by side on one, have daemons of the same id."""
    place = hashlib.sha256(f"{site.node_name}\0{daemon.directory}".encode()).hexdigest()
    return f"mps-{daemon.id}-{place[:8]}"


def body(site: Site, daemon: mps.Daemon, *, node_uid: str, private_shm: bool) -> Json:
    """The Pod object. Limits are not part of it: they can change while it runs."""
    spec = _spec(site, daemon, private_shm=private_shm)
    owner: Json = {
        "apiVersion": "v1",
        "kind": "Node",
        "name": site.node_name,
        "uid": node_uid,
        # With a controller `kubectl drain` needs no --force.
        "controller": True,
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name(site, daemon),
            "namespace": site.namespace,
            "labels": {
                "app.kubernetes.io/name": "dra-driver",
                "app.kubernetes.io/component": "mps-daemon",
                MANAGED_BY: MANAGER,
                DOMAIN: daemon.id,
            },
            "annotations": {
                DEVICE: daemon.device,
                SPEC_HASH: _hash({"owner": owner, "spec": spec}),
                # It belongs to its node: no reason to keep the node, or to look for another.
                "cluster-autoscaler.kubernetes.io/daemonset-pod": "true",
            },
            "ownerReferences": [owner],
        },
        "spec": spec,
    }


def fate(found: Json, wanted: Json) -> Fate:
    """What is to be done about the pod of that name."""
    there, ours = found["metadata"], wanted["metadata"]
    if not is_ours(found, ours["labels"][DOMAIN]):
        return Fate.STRANGER
    if there.get("deletionTimestamp"):
        return Fate.WAIT
    ended = _phase(found) in {"Failed", "Succeeded"}
    same = (there.get("annotations") or {}).get(SPEC_HASH) == ours["annotations"][SPEC_HASH]
    return Fate.REPLACE if ended or not same else Fate.KEEP


def is_ours(found: Json, domain: str) -> bool:
    """Whether this driver has made it for this domain."""
    labels: Mapping[str, str] = found["metadata"].get("labels") or {}
    return labels.get(MANAGED_BY) == MANAGER and labels.get(DOMAIN) == domain


def is_over(found: Json) -> bool:
    """Whether nothing will run in it any more."""
    return bool(found["metadata"].get("deletionTimestamp")) or _phase(found) in {
        "Failed",
        "Succeeded",
    }


def has_no_room(found: Json) -> bool:
    """Whether the kubelet has refused it since the node is full.

    It is bound to its node without the scheduler, so the kubelet alone sees whether it fits
    (`pkg/kubelet/lifecycle/predicate.go`: OutOfcpu, OutOfmemory, OutOfpods and so on).
    """
    reason = str((found.get("status") or {}).get("reason") or "")
    return _phase(found) == "Failed" and reason.startswith("OutOf")


def described(found: Json) -> str:
    """How far it is, and what is in its way, for a message."""
    status = found.get("status") or {}
    parts = [status.get("phase") or "Pending", status.get("reason"), status.get("message")]
    for container in status.get("containerStatuses") or ():
        for state in (container.get("state") or {}).values():
            parts += [(state or {}).get("reason"), (state or {}).get("message")]
    if found["metadata"].get("deletionTimestamp"):
        parts.append("being deleted")
    return ", ".join(part for part in parts if part)


def _spec(site: Site, daemon: mps.Daemon, *, private_shm: bool) -> Json:
    volumes = [
        _host_path("daemon", daemon.directory),
        _host_path("driver", site.driver_root),
        {"name": "tmp", "emptyDir": {"medium": "Memory", "sizeLimit": _TMP_SIZE}},
    ]
    if private_shm:
        volumes.append(_host_path("shm", daemon.shm_dir))
    account: Json = {"serviceAccountName": site.service_account} if site.service_account else {}
    priority: Json = {"priorityClassName": site.priority_class} if site.priority_class else {}
    secrets: Json = {"imagePullSecrets": [{"name": name} for name in site.image_pull_secrets]}
    return {
        **account,
        **(secrets if site.image_pull_secrets else {}),
        **priority,
        "nodeName": site.node_name,
        "tolerations": [{"operator": "Exists"}],
        "restartPolicy": "Always",
        "terminationGracePeriodSeconds": GRACE_SECONDS,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        # What the driver knows the supervisor by, and the daemon its clients, are numbers of
        # processes of the node.
        "hostPID": True,
        "containers": [_container(site, daemon, private_shm=private_shm)],
        "volumes": volumes,
    }


def _container(site: Site, daemon: mps.Daemon, *, private_shm: bool) -> Json:
    file = f"{daemon.directory}/daemon.json"
    mounts: list[Json] = [
        # Its shared memory is mounted below, and may be again.
        {"name": "daemon", "mountPath": daemon.directory, "mountPropagation": "HostToContainer"},
        {
            "name": "driver",
            "mountPath": site.driver_root_seen,
            "mountPropagation": "HostToContainer",
            "readOnly": True,
        },
        {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108 - of the container
    ]
    if private_shm:
        mounts.append({"name": "shm", "mountPath": "/dev/shm"})  # noqa: S108 - of the container
    command = ["dra-driver", "mps-daemon", "--file", file]
    given = ["--library-dirs", ",".join(site.library_dirs)] if site.library_dirs else []
    return {
        "name": "mps-daemon",
        "image": site.image,
        "imagePullPolicy": site.image_pull_policy,
        "command": [*command, "--driver-root", site.driver_root_seen, *given],
        # What a supervisor says that cannot even begin is part of the pod's status then.
        "terminationMessagePolicy": "FallbackToLogsOnError",
        # NVIDIA's runtime, where it is the default one, would add all GPUs.
        "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}],
        # No limits: a daemon that is killed for its memory takes its clients along.
        "resources": {"requests": {"cpu": site.cpu, "memory": site.memory}},
        # The device nodes are allocated to the claims' pods, not to this one: only a privileged
        # container may open them all the same. Such a one has all capabilities and no seccomp
        # profile, whatever else is written here.
        "securityContext": {"privileged": True, "runAsUser": 0, "readOnlyRootFilesystem": True},
        # No liveness probe: the supervisor sees to the daemon, and a daemon that is not ready for a
        # while, since its limits change, has clients that a restart would end.
        "readinessProbe": {
            "exec": {"command": [*command, "--check"]},
            "periodSeconds": _CHECK_SECONDS,
            "timeoutSeconds": _CHECK_SECONDS,
            "failureThreshold": 1,
        },
        "volumeMounts": mounts,
    }


def _host_path(volume: str, path: str) -> Json:
    return {"name": volume, "hostPath": {"path": path, "type": "Directory"}}


def _phase(found: Json) -> str:
    return str((found.get("status") or {}).get("phase") or "")


def _hash(document: Json) -> str:
    text = json.dumps(document, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]
