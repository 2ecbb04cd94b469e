"""MPS daemons as pods of the driver's namespace: they outlive the driver's own pod.

A pod runs the same supervisor as a process would, on the same directory, and is known by what that
says there: one that runs is kept whatever its pod looks like. For that both must number processes
alike: the pod of the driver needs `hostPID` as well.
"""

import contextlib
import math
import pathlib
import time
from collections.abc import Iterator

from dra_driver import errors, settings, telemetry
from dra_driver.adapters import driver_root, kube, mps_domain, mps_local
from dra_driver.logic import mps_pod
from dra_driver.model import mps

_READY_POLL_SECONDS = 0.01
_POD_POLL_SECONDS = 0.2
_LOOK_SECONDS = 1.0
"""Seconds between looks at a pod whose daemon is waited for."""
_GONE_SECONDS = 20.0
"""How long the kubelet may take to end a pod, besides the pod's own time for that."""
_TRIES = 3


class PodLauncher:
    """Starts and stops daemons. All methods are idempotent; those of one daemon must not overlap.

    Daemons that run as processes are known and stopped too: they are left from another setting.
    """

    def __init__(
        self, client: kube.Client, site: mps_pod.Site, processes: mps_local.LocalLauncher
    ) -> None:
        """`processes` knows daemons by their directories, whoever has started them.

        Raises:
            errors.Fatal: the site is not one for pods.
        """
        _check(site)
        self._client = client
        self._site = site
        self._processes = processes
        self._log = telemetry.logger("mps-pods")

    @property
    def private_shm(self) -> bool:
        """Whether each daemon has a shared memory of its own."""
        return self._processes.private_shm

    def start(self, daemon: mps.Daemon) -> None:
        """Have the daemon run in a pod; it need not be ready, or have begun, when this returns.

        One that runs is kept, whatever its pod was made from, and gets these limits.

        Raises:
            errors.Rejected: one runs that serves another device, a pod of somebody else has its
                name, or mounting is not allowed.
            errors.Retryable: an earlier pod does not end, or the API server does not answer, or
                refuses.
        """
        domain = _domain(daemon)
        if domain.supervisor() is None:
            # What is said to be ready there names a process that has ended: that is enough, and a
            # supervisor that the kubelet starts at this moment may be about to say it anew.
            domain.create(daemon, shm=self.private_shm)
            if domain.supervisor() is None:
                with self._explained(daemon):
                    self._have_pod(daemon)
                return
        self._processes.reload(daemon)

    def state(self, daemon: mps.Daemon) -> mps_local.State:
        """How far this daemon is, with the limits that it is asked for with; no API is asked."""
        return self._processes.state(daemon)

    def wait_ready(self, daemon: mps.Daemon, seconds: float) -> None:
        """Wait until the daemon is ready.

        Raises:
            errors.Retryable: it is not in that time, or its pod has ended.
        """
        deadline = time.monotonic() + seconds
        look = time.monotonic() + _LOOK_SECONDS
        while (state := self.state(daemon)) != mps_local.State.READY:
            now = time.monotonic()
            if now > deadline:
                raise self._not_ready(daemon, f"{state} and not ready within {seconds} s")
            if state == mps_local.State.ABSENT and now > look:
                if self._has_ended(daemon):
                    raise self._not_ready(daemon, "it has ended")
                look = time.monotonic() + _LOOK_SECONDS
            time.sleep(_READY_POLL_SECONDS)

    def stop(self, daemon: mps.Daemon, seconds: float) -> None:
        """End the daemon and its pod, and remove what they left; absent is fine.

        Clients that still run lose their context. `seconds` is how long it may take to end by
        itself; then it is killed.

        Raises:
            errors.Retryable: the pod does not end, or the API server does not answer, or refuses;
                it is to be stopped again.
        """
        # First: what the kubelet starts again from now on ends at once.
        _domain(daemon).retire()
        with self._explained(daemon):
            found = self._get(daemon)
            if found is not None and mps_pod.is_ours(found, daemon.id):
                self._delete(daemon, found, seconds)
        self._processes.stop(daemon, seconds)

    def _have_pod(self, daemon: mps.Daemon) -> None:
        """Have a pod that starts the daemon, and none that stands in its way."""
        node = self._client.get(kube.NODES, self._site.node_name)
        wanted = mps_pod.body(
            self._site, daemon, node_uid=node["metadata"]["uid"], private_shm=self.private_shm
        )
        for _ in range(_TRIES):
            found = self._get(daemon)
            if found is None:
                with contextlib.suppress(kube.Conflict):
                    _domain(daemon).clear_problem()
                    self._client.create(kube.PODS, wanted, self._site.namespace)
                    self._log.info("MPS daemon gets a pod", pod=self._name(daemon))
                    return
                continue
            fate = mps_pod.fate(found, wanted)
            if fate is mps_pod.Fate.KEEP:
                return
            if fate is mps_pod.Fate.STRANGER:
                raise errors.Rejected(
                    f"MPS daemon {daemon.id}: pod {self._name(daemon)} is there and was not made "
                    f"by this driver (label {mps_pod.MANAGED_BY}). Delete it"
                )
            self._log.info(
                "pod of an MPS daemon is replaced",
                pod=self._name(daemon),
                reason=fate.value,
                state=mps_pod.described(found),
            )
            self._delete(daemon, found, mps_pod.GRACE_SECONDS)
        raise errors.Retryable(f"pod {self._name(daemon)} changes all the time; tried again")

    def _delete(self, daemon: mps.Daemon, found: kube.Json, seconds: float) -> None:
        """Delete just this pod, unless that has begun, and wait until it is gone."""
        uid = found["metadata"]["uid"]
        # With 0 the server would forget the pod before the kubelet has ended it.
        grace = max(math.ceil(seconds), 1)
        if not found["metadata"].get("deletionTimestamp"):
            # Not found, or another by now: gone either way.
            with contextlib.suppress(kube.NotFound, kube.Conflict):
                self._client.delete(
                    kube.PODS,
                    found["metadata"]["name"],
                    self._site.namespace,
                    uid=uid,
                    grace_period=grace,
                )
        deadline = time.monotonic() + grace + _GONE_SECONDS
        while (left := self._get(daemon)) is not None and left["metadata"]["uid"] == uid:
            if time.monotonic() > deadline:
                raise errors.Retryable(
                    f"it is being deleted, and the kubelet has not ended it within "
                    f"{grace + _GONE_SECONDS} s: {mps_pod.described(left)}"
                )
            time.sleep(_POD_POLL_SECONDS)

    def _get(self, daemon: mps.Daemon) -> kube.Json | None:
        try:
            return self._client.get(
                kube.PODS, mps_pod.name(self._site, daemon), self._site.namespace
            )
        except kube.NotFound:
            return None

    def _has_ended(self, daemon: mps.Daemon) -> bool:
        try:
            found = self._get(daemon)
        except errors.DriverError:
            # The daemon needs no API server to become ready.
            return False
        return found is None or mps_pod.is_over(found)

    def _not_ready(self, daemon: mps.Daemon, what: str) -> errors.Retryable:
        try:
            found = self._get(daemon)
            state = "none" if found is None else mps_pod.described(found)
        except errors.DriverError as error:
            state = f"not known: {error}"
            found = None
        hint = ""
        if found is not None and mps_pod.has_no_room(found):
            hint = (
                f". The node has no room for it: it requests cpu {self._site.cpu} and memory "
                f"{self._site.memory} (--mps-cpu, --mps-memory), and evicts nobody. It is tried "
                "again; delete or move other pods of the node"
            )
        elif (pathlib.Path(daemon.directory) / "supervisor.json").exists():
            hint = ". If it runs: does the pod of this driver have hostPID, too?"
        problem = _domain(daemon).problem()
        return errors.Retryable(
            f"MPS daemon {daemon.id} on {daemon.device}: {what}"
            f"{f': {problem}' if problem else ''}; pod {self._name(daemon)}: {state}{hint}"
        )

    @contextlib.contextmanager
    def _explained(self, daemon: mps.Daemon) -> Iterator[None]:
        """Whatever the API server does not do now, it may do once it is back, or the role is right.

        Raises:
            errors.Retryable: an error of the block, with the pod's name before it.
        """
        try:
            yield
        except (kube.ApiError, errors.Retryable) as error:
            hint = self._remedy(error) if isinstance(error, kube.Forbidden) else ""
            raise errors.Retryable(
                f"MPS daemon {daemon.id}: pod {self._name(daemon)}: {error}{hint}"
            ) from error

    def _remedy(self, error: kube.Forbidden) -> str:
        # The words of Kubernetes 1.36, `plugin/pkg/admission/serviceaccount`.
        account = self._site.service_account
        if account and "looking up service account" in str(error):
            return (
                f" Make the service account {account} (deploy/manifests/mps.yaml), or name another "
                "one with --mps-service-account"
            )
        # The words of `plugin/pkg/admission/priority`.
        if self._site.priority_class and "no PriorityClass with name" in str(error):
            return (
                f" Make the priority class {self._site.priority_class} "
                "(deploy/manifests/mps.yaml), or name another one with --mps-priority-class"
            )
        return " Apply its role anew (deploy/rbac.yaml)"

    def _name(self, daemon: mps.Daemon) -> str:
        return f"{self._site.namespace}/{mps_pod.name(self._site, daemon)}"


def launcher(
    config: settings.KubeletPlugin,
    client: kube.Client,
    root: driver_root.Root,
    processes: mps_local.LocalLauncher,
) -> PodLauncher:
    """As the settings say, with the driver under `root`.

    Raises:
        errors.Fatal: the settings do not do for pods.
    """
    site = mps_pod.Site(
        namespace=config.pod_namespace,
        node_name=config.node_name,
        image=config.mps_image,
        driver_root=root.host,
        driver_root_seen=str(root.seen),
        cpu=config.mps_cpu,
        memory=config.mps_memory,
        image_pull_policy=config.mps_image_pull_policy,
        image_pull_secrets=config.mps_image_pull_secrets,
        service_account=config.mps_service_account,
        priority_class=config.mps_priority_class,
    )
    return PodLauncher(client, site, processes)


def _check(site: mps_pod.Site) -> None:
    if not site.namespace:
        raise errors.Fatal(
            "pod namespace is not set, and with --mps-launcher pod it is needed: give "
            "--pod-namespace, or POD_NAMESPACE from the downward API"
        )
    if not site.image:
        raise errors.Fatal(
            "MPS image is not set, and with --mps-launcher pod it is needed: give --mps-image, as "
            "a rule the image of the driver itself"
        )
    if site.driver_root_seen == "/":
        raise errors.Fatal(
            "driver root '/' cannot be mounted at '/' of a pod, as --mps-launcher pod would have "
            "to: give --driver-root-seen, where the driver's own pod has the driver root mounted"
        )


def _domain(daemon: mps.Daemon) -> mps_domain.Domain:
    return mps_domain.Domain(pathlib.Path(daemon.directory))
