"""The kubelet's view of claims: which are prepared on the node, and for which pods.

Unlike the kubelet's it is not kept on disk, and a claim that is being unprepared is not given to
another pod, which has to wait; the kubelet gives it, and the pod fails once before it gets it.
Source: Kubernetes 1.36, `pkg/kubelet/cm/dra/manager.go`.
"""

import dataclasses
import threading
from collections.abc import Collection, Iterable, Mapping

from dra_driver import errors
from dra_driver.adapters.kube import kube
from dra_driver.adapters.kubelet import dra_grpc
from dra_driver.model import claims, prepared
from dra_driver.sim.cluster import kubelet_release, plugins

Json = dict[str, object]


EXTENDED = ""
"""No claim of a pod's own has this name."""


@dataclasses.dataclass(frozen=True, slots=True)
class PodClaims:
    """The claims of one pod, by the name that the pod has for them.

    The name of a claim is None while it is not made yet, and empty where the pod needs none. What
    the scheduler made for extended resources is called `EXTENDED`.
    """

    namespace: str
    pod_uid: str
    names: Mapping[str, str | None]


@dataclasses.dataclass(frozen=True, slots=True)
class PreparedClaim:
    """What the drivers answered for a claim: pairs of driver and device."""

    ref: claims.ClaimRef
    devices: tuple[tuple[str, prepared.PreparedDevice], ...]

    def of(self, request: str | None) -> list[tuple[str, prepared.PreparedDevice]]:
        """What a container has that uses the claim, or one request of it."""
        return [
            (driver, device)
            for driver, device in self.devices
            if not request or not device.requests or request in device.requests
        ]

    def cdi_ids(self, request: str | None) -> list[str]:
        """The CDI names for such a container."""
        return [cdi_id for _, device in self.of(request) for cdi_id in device.cdi_ids]


@dataclasses.dataclass(slots=True)
class _Entry:
    ref: claims.ClaimRef
    drivers: tuple[str, ...]
    pods: set[str]
    claim: PreparedClaim | None = None
    answered: list[tuple[str, prepared.PreparedDevice]] = dataclasses.field(default_factory=list)
    """Of all attempts to prepare it, also those that failed for another claim or driver."""
    leaving: bool = False
    """Whether it is being unprepared, or was tried to be."""


class ClaimCache:
    """Prepares a claim once for all pods that use it, and unprepares it after the last of them."""

    def __init__(
        self,
        client: kube.Client,
        drivers: plugins.Plugins,
        behaviour: kubelet_release.Behaviour = kubelet_release.FIXED,
    ) -> None:
        self._client = client
        self._behaviour = behaviour
        self._drivers = drivers
        self._lock = threading.Lock()
        self._entries: dict[str, _Entry] = {}

    def prepare(self, pod: PodClaims) -> dict[str, PreparedClaim]:
        """The pod's claims, prepared, by the pod's name for them.

        Raises:
            errors.DriverError: a claim is not ready for the pod, or a driver refuses it.
        """
        found = {
            name: self._fetch(pod, name, claim) for name, claim in pod.names.items() if claim != ""
        }
        with self._lock:
            for claim in found.values():
                self._enter(claim, pod.pod_uid)
            entries = {claim.ref.uid: self._entries[claim.ref.uid] for claim in found.values()}
            pending = [entry for entry in entries.values() if entry.claim is None]
        devices: dict[str, list[tuple[str, prepared.PreparedDevice]]] = {}
        for driver, refs in _by_driver(pending):
            answers = self._drivers.prepare(driver, refs)
            _check(answers, refs, "NodePrepareResources")
            for uid, answer in answers.items():
                new = [(driver, device) for device in answer.devices]
                devices.setdefault(uid, []).extend(new)
                with self._lock:
                    entries[uid].answered.extend(new)
        with self._lock:
            for entry in pending:
                # Another pod may have had it prepared meanwhile; the answers are the same.
                if entry.claim is None:
                    once = devices.get(entry.ref.uid, ())
                    own = entry.answered if self._behaviour.devices_pile_up else once
                    entry.claim = PreparedClaim(entry.ref, tuple(own))
            done = {uid: entry.claim for uid, entry in entries.items() if entry.claim}
        return {name: done[claim.ref.uid] for name, claim in found.items()}

    def unprepare(self, pod_uid: str, named: Collection[tuple[str, str]] = ()) -> None:
        """The pod has ended; claims that no other pod on the node uses are unprepared.

        `named` are claims of the pod's, by namespace and name: as released they go with it if they
        have one pod, whichever that is.

        Raises:
            errors.DriverError: a driver refuses; call again.
        """
        by_name = named if self._behaviour.unprepares_by_name else ()
        with self._lock:
            last = [
                entry
                for entry in self._entries.values()
                if entry.pods == {pod_uid}
                or (len(entry.pods) == 1 and (entry.ref.namespace, entry.ref.name) in by_name)
            ]
            for entry in last:
                entry.leaving = True
            # Before the calls: of pods that end at the same time one has to be the last.
            for entry in self._entries.values():
                if not entry.leaving:
                    entry.pods.discard(pod_uid)
        for driver, refs in _by_driver(last):
            _check(self._drivers.unprepare(driver, refs), refs, "NodeUnprepareResources")
        with self._lock:
            for entry in last:
                del self._entries[entry.ref.uid]

    def _fetch(self, pod: PodClaims, name: str, claim_name: str | None) -> claims.ResourceClaim:
        if claim_name is None:
            raise errors.Retryable(f"the claim of template claim {name!r} is not made yet")
        claim = claims.parse(self._client.get(kube.CLAIMS, claim_name, pod.namespace))
        if claim.allocation is None:
            raise errors.Retryable(f"claim {claim.ref} is not allocated")
        if pod.pod_uid not in claim.reserved_for:
            raise errors.Retryable(f"claim {claim.ref} is not reserved for the pod")
        return claim

    def _enter(self, claim: claims.ResourceClaim, pod_uid: str) -> None:
        results = claim.allocation.results if claim.allocation else ()
        same_name = [
            entry
            for entry in self._entries.values()
            if (entry.ref.namespace, entry.ref.name) == (claim.ref.namespace, claim.ref.name)
        ]
        if any(entry.ref.uid != claim.ref.uid for entry in same_name):
            raise errors.Retryable(f"old ResourceClaim with same name as {claim.ref} still in use")
        drivers = tuple(sorted({result.device.driver for result in results}))
        entry = self._entries.setdefault(claim.ref.uid, _Entry(claim.ref, drivers, set()))
        if entry.leaving:
            raise errors.Retryable(f"claim {claim.ref} is being unprepared for another pod")
        entry.pods.add(pod_uid)


def _by_driver(entries: Iterable[_Entry]) -> list[tuple[str, list[claims.ClaimRef]]]:
    """One call for each driver, with all claims that it has devices of."""
    calls: dict[str, list[claims.ClaimRef]] = {}
    for entry in entries:
        for driver in entry.drivers:
            calls.setdefault(driver, []).append(entry.ref)
    return sorted(calls.items())


def _check(
    answers: Mapping[claims.ClaimUid, dra_grpc.Answer],
    refs: Iterable[claims.ClaimRef],
    method: str,
) -> None:
    for ref in refs:
        if answers[ref.uid].error:
            raise errors.Retryable(f"{method} failed for claim {ref}: {answers[ref.uid].error}")
