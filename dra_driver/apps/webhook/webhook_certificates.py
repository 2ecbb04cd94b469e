"""Where the webhook's certificate comes from, and that it is replaced before it runs out."""

import base64
import binascii
import contextlib
import dataclasses
import datetime as dt
import pathlib
import random
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from dra_driver import errors, telemetry
from dra_driver.adapters.kube import kube
from dra_driver.adapters.serving import certificates, tls
from dra_driver.adapters.system import workers
from dra_driver.model import backoff
from dra_driver.settings import webhook as webhook_settings

Json = dict[str, Any]

SECRETS = kube.Resource("", "v1", "secrets")
CONFIGURATIONS = kube.Resource(
    "admissionregistration.k8s.io", "v1", "validatingwebhookconfigurations", namespaced=False
)
MUTATING = kube.Resource(
    "admissionregistration.k8s.io", "v1", "mutatingwebhookconfigurations", namespaced=False
)
FIRST_BACKOFF = 1.0
"""Seconds until the next try after a failure; doubled each time, up to the usual interval."""
_MUTATING_FLAG = "--mutating-configuration"
_TRIES = 5


def now() -> dt.datetime:
    """The time, with its zone."""
    return dt.datetime.now(dt.UTC)


class Source(Protocol):
    """Has a certificate, or makes one."""

    def get(self) -> tuple[bytes, bytes]:
        """The chain and the key, PEM, as they have to be now.

        Raises:
            errors.DriverError: there is none at the moment.
        """


class Directory:
    """Files that others keep current: cert-manager by way of a mounted Secret, or an admin."""

    def __init__(self, path: pathlib.Path) -> None:
        self._path = path

    def get(self) -> tuple[bytes, bytes]:
        """What the files hold."""
        try:
            return (
                (self._path / certificates.CERTIFICATE).read_bytes(),
                (self._path / certificates.KEY).read_bytes(),
            )
        except OSError as error:
            raise errors.Retryable(
                f"certificate: {error}: --certificate-dir has to hold {certificates.CERTIFICATE} "
                f"and {certificates.KEY}"
            ) from error


@dataclasses.dataclass(frozen=True, slots=True)
class _Told:
    """A configuration that has to know the authority."""

    resource: kube.Resource
    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


class SelfManaged:
    """A certificate of our own in a Secret, which all replicas share.

    Who writes the Secret first wins: a write names the version that was read, and one that comes
    too late reads again. The webhook configurations are read before the Secret and written on the
    same terms, so nothing older than what they have is ever put into them.
    """

    def __init__(
        self,
        config: webhook_settings.Webhook,
        client: kube.Client,
        clock: Callable[[], dt.datetime] = now,
    ) -> None:
        self._config = config
        self._client = client
        self._clock = clock
        self._log = telemetry.logger("certificates")
        service = f"{config.service}.{config.namespace}.svc"
        self._names = (service, f"{service}.cluster.local")
        self._told = [_Told(CONFIGURATIONS, "ValidatingWebhookConfiguration", config.configuration)]
        if config.convert:
            name = config.mutating_configuration
            self._told.append(_Told(MUTATING, "MutatingWebhookConfiguration", name))

    def get(self) -> tuple[bytes, bytes]:
        """What the Secret holds, once it is good and the configuration knows its authority."""
        for _ in range(_TRIES):
            with contextlib.suppress(kube.Conflict):
                # Another replica was faster where there is a conflict.
                return self._agree()
        told = " or ".join(map(str, self._told))
        raise errors.Retryable(
            f"certificate: Secret {self._secret_name} or {told} was changed by others "
            f"{_TRIES} times while it was renewed; it is tried again"
        )

    @property
    def _secret_name(self) -> str:
        return f"{self._config.namespace}/{self._config.secret}"

    def _agree(self) -> tuple[bytes, bytes]:
        configurations = [(told, self._configuration(told)) for told in self._told]
        secret = self._secret()
        kept = _decoded(secret or {})
        renewed = certificates.renew(kept, self._names, self._clock())
        if renewed.done:
            self._store(secret, renewed.kept)
            self._log.info("certificate renewed", secret=self._secret_name, done=list(renewed.done))
        for told, configuration in configurations:
            if configuration is not None:
                self._tell(told, configuration, renewed.kept[certificates.AUTHORITIES])
        return renewed.kept[certificates.CERTIFICATE], renewed.kept[certificates.KEY]

    def _configuration(self, told: _Told) -> Json | None:
        try:
            return self._client.get(told.resource, told.name)
        except kube.NotFound:
            flag = "--configuration" if told.resource is CONFIGURATIONS else _MUTATING_FLAG
            self._log.warning(
                f"the API server is not told of the webhook: there is no {told}; create it, or "
                f"name another with {flag}"
            )
            return None

    def _secret(self) -> Json | None:
        with contextlib.suppress(kube.NotFound):
            return self._client.get(SECRETS, self._config.secret, self._config.namespace)
        return None

    def _store(self, secret: Json | None, kept: certificates.Pem) -> None:
        data = {name: base64.b64encode(pem).decode() for name, pem in kept.items()}
        namespace = self._config.namespace
        if secret is not None:
            body = secret | {"data": (secret.get("data") or {}) | data}
            self._client.replace(SECRETS, body, namespace)
            return
        body = {
            "apiVersion": "v1",
            "kind": "Secret",
            "type": "Opaque",
            "metadata": {"name": self._config.secret, "namespace": namespace},
            "data": data,
        }
        try:
            self._client.create(SECRETS, body, namespace)
        except kube.NotFound as error:
            raise errors.Retryable(
                f"certificate: {error}: make it: kubectl create namespace {namespace}; or name "
                "another one with --namespace"
            ) from error

    def _tell(self, told: _Told, configuration: Json, authorities: bytes) -> None:
        """Have every webhook of the configuration trust the authorities."""
        bundle = base64.b64encode(authorities).decode()
        webhooks = configuration.get("webhooks") or []
        wanted = [
            hook | {"clientConfig": (hook.get("clientConfig") or {}) | {"caBundle": bundle}}
            for hook in webhooks
        ]
        if wanted != webhooks:
            self._client.replace(told.resource, configuration | {"webhooks": wanted})
            self._log.info("authority told to the API server", to=str(told))


def _decoded(secret: Mapping[str, Any]) -> certificates.Pem:
    """What the Secret has of ours; nothing where it is not base64."""
    names = (
        certificates.AUTHORITIES,
        certificates.AUTHORITY_KEYS,
        certificates.CERTIFICATE,
        certificates.KEY,
    )
    found = secret.get("data") or {}
    try:
        return {name: base64.b64decode(found.get(name) or "", validate=True) for name in names}
    except (binascii.Error, TypeError, ValueError):
        return {}


class Keeper:
    """Looks at the source again and again, in a thread, and has what is new served."""

    def __init__(
        self,
        source: Source,
        certificate: tls.Certificate,
        metrics: telemetry.WebhookMetrics,
        seconds: float,
        *,
        chance: Callable[[], float] = random.random,
    ) -> None:
        """It looks every `seconds`. `chance` spreads the pauses after failures."""
        self._source = source
        self._chance = chance
        self._certificate = certificate
        self._metrics = metrics
        self._seconds = seconds
        self._log = telemetry.logger("certificates")
        self._served: tuple[bytes, bytes] | None = None
        self._worker = workers.Worker("certificates", self._run, end_seconds=kube.REQUEST_TIMEOUT)

    def start(self) -> None:
        """Begin to look."""
        self._worker.start()

    def stop(self) -> None:
        """Look no more."""
        self._worker.end()

    def look(self) -> None:
        """Serve what the source has, if it is not served yet.

        Raises:
            errors.DriverError: it has none that can be served; what was served before still is.
        """
        found = self._source.get()
        if found == self._served:
            return
        self._certificate.use(*found)
        self._served = found
        until = certificates.not_after(found[0])
        self._metrics.certificate_until(until.timestamp())
        self._log.info("certificate served", until=until.isoformat())

    def _run(self) -> None:
        first = min(FIRST_BACKOFF, self._seconds)
        tries = backoff.Backoff(backoff.Schedule(first, self._seconds), self._chance)
        while not self._worker.is_ending():
            pause = self._seconds
            try:
                self.look()
                tries.worked()
            except Exception as error:  # noqa: BLE001 - without this thread no certificate lasts
                expected = isinstance(error, errors.DriverError)
                reason = str(error) if expected else f"{type(error).__name__}: {error}"
                pause = tries.failed(error)
                self._log.error("certificate could not be renewed", reason=reason, again_in=pause)
            self._worker.pause(pause)
