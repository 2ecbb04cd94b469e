"""MPS daemons as pods of the driver's namespace: they outlive the driver's own pod.

A pod runs the same supervisor as a process would, on the same directory, and is known by what that
says there: one that runs is kept whatever its pod looks like. For that both must number processes
alike: the pod of the driver needs `hostPID` as well.
"""

import contextlib
import pathlib
import time
from collections.abc import Iterator

from dra_driver import errors, settings, telemetry
from dra_driver.adapters.disk import files
from dra_driver.adapters.driver import driver_root
from dra_driver.adapters.kube import kube
from dra_driver.adapters.mps import mps_domain, mps_local
from dra_driver.adapters.system import patience
from dra_driver.apps.mps import mps_sweeping
from dra_driver.logic.preparing import mps_pod
from dra_driver.model import mps

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
        self,
        client: kube.Client,
        site: mps_pod.Site,
        processes: mps_local.LocalLauncher,
        directory: pathlib.Path,
    ) -> None:
        """`processes` knows daemons by their directories below `directory`, whoever started them.

        Raises:
            errors.Fatal: the site is not one for pods.
        """
        _check(site)
        self._client = client
        self._site = site
        self._processes = processes
        self._directory = directory
        self.sweeper = mps_sweeping.Sweeper(
            directory.with_name("mps-pods"), is_wanted=self._is_wanted, remove=self._removed
        )
        """Deletes the pods of daemons that have ended; who makes the launcher starts it."""
        self._log = telemetry.logger("mps-pods")
        self._mark_unmarked()

    @property
    def private_shm(self) -> bool:
        """Whether each daemon has a shared memory of its own."""
        return self._processes.private_shm

    def start(self, daemon: mps.Daemon) -> None:
        """Want the daemon; `bring_up` gives it a pod.

        One that runs is kept, whatever its pod was made from, and gets these limits.

        Raises:
            errors.Rejected: one runs that serves another device, or mounting is not allowed.
        """
        domain = _domain(daemon)
        if domain.supervisor() is None:
            # What is said to be ready there names a process that has ended: that is enough, and a
            # supervisor that the kubelet starts at this moment may be about to say it anew.
            self.sweeper.mark(daemon.id, lambda: domain.create(daemon, shm=self.private_shm))
            if domain.supervisor() is None:
                return
        self._processes.reload(daemon)

    def bring_up(self, daemon: mps.Daemon, waiting: patience.Patience) -> None:
        """Have a pod for a daemon that is wanted and does not run.

        Raises:
            errors.Rejected: a pod of somebody else has its name.
            errors.Retryable: an earlier pod does not end, or the API server does not answer, or
                refuses.
        """
        if _domain(daemon).supervisor() is not None:
            return
        with self._explained(daemon), self.sweeper.making(daemon.id):
            if self._is_wanted(daemon.id):
                self._have_pod(daemon, waiting)

    def state(self, daemon: mps.Daemon) -> mps_local.State:
        """How far this daemon is, with the limits that it is asked for with; no API is asked."""
        return self._processes.state(daemon)

    def wait_ready(self, daemon: mps.Daemon, waiting: patience.Patience) -> None:
        """Bring it up, and wait until the daemon is ready, or wanted with other limits than these.

        Raises:
            errors.Rejected: as from `bring_up`.
            errors.Retryable: it is not while there is patience, or its pod has ended.
        """
        since = waiting.left
        if self.state(daemon) == mps_local.State.ABSENT:
            self.bring_up(daemon, waiting)
        look = time.monotonic() + _LOOK_SECONDS
        while (state := self.state(daemon)) != mps_local.State.READY:
            if self._processes.is_changed(daemon):
                return
            if not waiting.left:
                raise self._not_ready(daemon, f"{state} and not ready within {since:.3g} s")
            if state == mps_local.State.ABSENT and time.monotonic() > look:
                if self._has_ended(daemon):
                    raise self._not_ready(daemon, "it has ended")
                look = time.monotonic() + _LOOK_SECONDS
            waiting.sleep(patience.pause(since - waiting.left))

    def retire(self, daemon: mps.Daemon) -> bool:
        """Have the daemon end; whether it has. What the kubelet starts again ends at once."""
        return self._processes.retire(daemon)

    def wait_ended(self, daemon: mps.Daemon, waiting: patience.Patience) -> None:
        """Wait until one that was retired has ended. Its pod may be there still.

        Raises:
            errors.Retryable: even killed it has not ended; it is to be waited for again.
        """
        self._processes.wait_ended(daemon, waiting)

    def remove(self, daemon: mps.Daemon) -> None:
        """Leave nothing of one that has ended; its pod is deleted as soon as the API answers.

        Raises:
            errors.DriverError: its directory cannot be removed.
        """
        self._processes.remove(daemon)
        self.sweeper.changed()

    def _mark_unmarked(self) -> None:
        """Daemons that are there already may have pods that an older driver made, without marks."""
        try:
            for name in files.names(self._directory):
                if mps.is_id(name):
                    self.sweeper.mark(name)
        except errors.DriverError as error:
            self._log.warning(
                "pods of MPS daemons of an earlier driver may stay when those have ended",
                reason=str(error),
            )

    def _have_pod(self, daemon: mps.Daemon, waiting: patience.Patience) -> None:
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
            self._delete(found)
            self._await_gone(daemon, found, waiting)
        raise errors.Retryable(f"pod {self._name(daemon)} changes all the time; tried again")

    def _is_wanted(self, domain: str) -> bool:
        return mps_domain.Domain(self._directory / domain).description.exists()

    def _removed(self, domain: str) -> bool:
        """Have the pod of a domain deleted; whether there is none."""
        daemon = mps.daemon(
            root=str(self._directory), daemon_id=domain, device="GPU-0", shm_bytes=0
        )
        with self._explained(daemon):
            found = self._get(daemon)
            if found is None or not mps_pod.is_ours(found, domain):
                return True
            self._delete(found)
        return False

    def _delete(self, found: kube.Json) -> None:
        """Have just this pod deleted, unless that has begun."""
        if found["metadata"].get("deletionTimestamp"):
            return
        # Not found, or another by now: gone either way.
        with contextlib.suppress(kube.NotFound, kube.Conflict):
            self._client.delete(
                kube.PODS,
                found["metadata"]["name"],
                self._site.namespace,
                uid=found["metadata"]["uid"],
                grace_period=mps_pod.GRACE_SECONDS,
            )

    def _await_gone(self, daemon: mps.Daemon, found: kube.Json, waiting: patience.Patience) -> None:
        """Wait until the kubelet has ended a pod that is being deleted."""
        uid = found["metadata"]["uid"]
        with waiting.at_most(mps_pod.GRACE_SECONDS + _GONE_SECONDS) as shorter:
            while (left := self._get(daemon)) is not None and left["metadata"]["uid"] == uid:
                if not shorter.left:
                    raise errors.Retryable(
                        f"it is being deleted, and the kubelet has not ended it yet: "
                        f"{mps_pod.described(left)}"
                    )
                shorter.sleep(_POD_POLL_SECONDS)

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
        except errors.Abandoned:
            raise
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
        return " Apply its role anew: helm upgrade, or kubectl apply -f deploy/manifests/rbac.yaml"

    def _name(self, daemon: mps.Daemon) -> str:
        return f"{self._site.namespace}/{mps_pod.name(self._site, daemon)}"


def launcher(
    config: settings.KubeletPlugin,
    client: kube.Client,
    layout: driver_root.Layout,
    processes: mps_local.LocalLauncher,
) -> PodLauncher:
    """As the settings say, with the driver that is installed there.

    Raises:
        errors.Fatal: the settings do not do for pods.
    """
    site = mps_pod.Site(
        namespace=config.pod_namespace,
        node_name=config.node_name,
        image=config.mps_image,
        driver_root=layout.root.host,
        driver_root_seen=str(layout.root.seen),
        library_dirs=layout.given,
        cpu=config.mps_cpu,
        memory=config.mps_memory,
        image_pull_policy=config.mps_image_pull_policy,
        image_pull_secrets=config.mps_image_pull_secrets,
        service_account=config.mps_service_account,
        priority_class=config.mps_priority_class,
    )
    return PodLauncher(client, site, processes, config.mps)


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
