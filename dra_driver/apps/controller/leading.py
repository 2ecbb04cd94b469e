"""A Lease that one candidate has at a time, taken and renewed through the API.

Not the `kubernetes` package's election: it cannot be stopped, keeps the Lease when it ends, and
needs a client of its own kind.
"""

import datetime as dt
import time

from dra_driver import errors, telemetry
from dra_driver.adapters.kube import kube
from dra_driver.logic.controller import leases

LEASES = kube.Resource("coordination.k8s.io", "v1", "leases")


class Candidate:
    """One that wants to lead. Not for several threads."""

    def __init__(
        self, client: kube.Client, *, namespace: str, name: str, identity: str, seconds: int
    ) -> None:
        """`seconds`: how long the lease holds without being renewed."""
        self._client = client
        self._namespace, self._name = namespace, name
        self._identity = identity
        self._seconds = seconds
        self._sighting: leases.Sighting | None = None
        self._renewed: float | None = None
        self._asked: float | None = None
        self._log = telemetry.logger("election")

    @property
    def leads(self) -> bool:
        """Whether the lease is this candidate's for now: it was renewed, and has not run out."""
        return self._renewed is not None and time.monotonic() - self._renewed < self._seconds

    @property
    def asked(self) -> float | None:
        """Seconds after which the API server wants to be asked again; None if it does not say."""
        return self._asked

    def try_to_lead(self) -> bool:
        """Take the lease, or renew it; whether this candidate leads then.

        While the API server does not answer, who leads goes on until the lease runs out.
        """
        led = self.leads
        begun = time.monotonic()
        self._asked = None
        try:
            if self._write():
                self._renewed = begun
            else:
                self._renewed = None
        except errors.DriverError as error:
            self._asked = getattr(error, "retry_after", None)
            self._log.warning("the lease is not renewed", reason=str(error), leading=self.leads)
        if self.leads is not led:
            self._log.info("leading" if self.leads else "not leading", identity=self._identity)
        return self.leads

    def release(self) -> None:
        """Let the next one begin at once; nothing happens if somebody else leads."""
        if not self.leads:
            return
        self._renewed = None
        try:
            body = self._client.get(LEASES, self._name, self._namespace)
            if body["spec"].get("holderIdentity") == self._identity:
                changed = body | {"spec": leases.released(body["spec"], time=_now())}
                self._client.replace(LEASES, changed, self._namespace)
        except kube.ApiError as error:
            self._log.warning("the lease is not released; it runs out", reason=str(error))

    def _write(self) -> bool:
        try:
            body = self._client.get(LEASES, self._name, self._namespace)
        except kube.NotFound:
            body = None
        spec = (body or {}).get("spec") or {}
        now = time.monotonic()
        self._sighting = leases.seen(spec, self._sighting, now)
        if not leases.is_free(self._sighting, self._identity, now):
            return False
        wanted = leases.held(spec, self._identity, seconds=self._seconds, time=_now())
        try:
            if body is None:
                self._create(self._new(wanted))
            else:
                self._client.replace(LEASES, body | {"spec": wanted}, self._namespace)
        except kube.Conflict:
            # Another one was faster.
            return False
        return True

    def _create(self, lease: kube.Json) -> None:
        try:
            self._client.create(LEASES, lease, self._namespace)
        except kube.NotFound as error:
            raise errors.Retryable(
                f"{error}: make it: kubectl create namespace {self._namespace}; or name another "
                "one with --namespace"
            ) from error

    def _new(self, spec: kube.Json) -> kube.Json:
        return {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": self._name, "namespace": self._namespace},
            "spec": spec,
        }


def _now() -> str:
    return dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
