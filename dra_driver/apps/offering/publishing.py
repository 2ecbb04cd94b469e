"""Keeps the node's ResourceSlices as they have to be, whoever changes them."""

import contextlib
import dataclasses
import random
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Protocol

from dra_driver import errors, telemetry
from dra_driver.adapters.kube import informer, kube
from dra_driver.adapters.system import workers
from dra_driver.apps.node import slice_form
from dra_driver.apps.offering import slice_writer
from dra_driver.logic.offering import publishing
from dra_driver.model import backoff, slices

FIRST_BACKOFF = 0.1
LAST_BACKOFF = 30.0
"""Seconds until the next try after a failure: first, and longest after doubling."""
QUIET = 10.0
"""Seconds without a rewrite of our slices after which the next one is answered at once again."""
LOOK_AGAIN = 30.0
"""Seconds between looks when nothing is heard: of what another instance does nobody tells us."""
PAUSE = 0.05
"""Seconds between two looks, at least: claims that come in a row are published together, and what
they change is not worked out while the next is prepared."""
_ROUNDS = 100
"""How often what is left after a refusal may be refused in its turn, at one look."""


@dataclasses.dataclass(frozen=True, slots=True)
class Identity:
    """Whose slices are published."""

    driver_name: str
    node_name: str


_Versions = tuple[tuple[str, str], ...]
"""Names and resource versions of slices."""


class Wanted(Protocol):
    """What is to be published."""

    def __call__(
        self,
        published: Sequence[slices.Device],
        form: publishing.Form,
        refused: Collection[str],
    ) -> Sequence[publishing.Content] | None:
        """None while that is not known.

        `published` are the devices that are published now, `form` is how they are to be written,
        and `refused` are the marks (`refusals.mark`) of what the API server refuses.
        """


class Publisher:
    """A thread that writes slices whenever what is wanted and what is there differ.

    `may_publish` tells whether this instance is the one that publishes (of two during a rolling
    update, the newer is). `chance` spreads the pauses after failures.
    """

    def __init__(
        self,
        client: kube.Client,
        identity: Identity,
        *,
        wanted: Wanted,
        form: slice_form.SliceForm,
        may_publish: Callable[[], bool],
        on_error: Callable[[], None],
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._client = client
        self._identity = identity
        self._wanted = wanted
        self._may_publish = may_publish
        self._on_error = on_error
        self._chance = chance
        self._log = telemetry.logger("publisher")
        self._form = form
        self._published = threading.Event()
        self._withdrawn = threading.Event()
        self._relisted = threading.Event()
        self._reason = ""
        self._refusal: str | None = None
        self._left_out: Mapping[str, str] = {}
        self._owner: publishing.Owner | None = None
        self._informer: informer.Informer | None = None
        self._writer: slice_writer.SliceWriter | None = None
        self._desired: tuple[publishing.Json, ...] | None = None
        self._settled: tuple[object, ...] = ()
        self._published_then: tuple[_Versions, Sequence[slices.Device]] = ((), ())
        self._worker = workers.Worker("publisher", self._run, end_seconds=kube.REQUEST_TIMEOUT + 1)

    def start(self) -> None:
        """Begin to publish."""
        self._worker.start()

    def stop(self) -> None:
        """Stop; the slices stay."""
        self._worker.end()
        if self._informer is not None:
            self._informer.stop()

    def changed(self) -> None:
        """What is wanted may have changed."""
        self._worker.wake()

    def wait_published(self, seconds: float) -> bool:
        """Whether all that is wanted has been seen to be there within `seconds`."""
        return self._published.wait(seconds)

    @property
    def failure(self) -> str:
        """Why slices could not be published when that was tried last; empty if they could."""
        return self._reason

    @property
    def refusal(self) -> str | None:
        """As `failure`, where the API server answered and refused: that does not pass by itself."""
        return self._refusal

    @property
    def left_out(self) -> Mapping[str, str]:
        """What is not published because the API server refuses it: names, and what it says."""
        return self._left_out

    def _run(self) -> None:
        schedule = backoff.Schedule(FIRST_BACKOFF, LAST_BACKOFF)
        tries = backoff.Backoff(schedule, self._chance)
        rewrites = 0
        last_rewrite = 0.0
        while not self._worker.is_ending():
            self._worker.heed()
            rewritten = self._attempt(tries)
            if rewritten is None:
                continue
            if rewritten:
                now = time.monotonic()
                rewrites = rewrites + 1 if now - last_rewrite < QUIET else 0
                # Someone else who keeps rewriting our slices must not make both of us spin.
                if rewrites > 5:
                    self._worker.pause(schedule.pause(rewrites - 4, chance=self._chance()))
                last_rewrite = time.monotonic()
            self._worker.pause(PAUSE)
            self._worker.rest(LOOK_AGAIN)

    def _attempt(self, tries: backoff.Backoff) -> bool | None:
        """Whether the same had to be written once more; None where it failed, after a pause."""
        try:
            self._connect()
            rewritten = self._reconcile()
        except (kube.ApiError, errors.Retryable) as error:
            pause = tries.failed(error)
            self._tell_failure(str(error), pause)
            refused = isinstance(error, kube.Refused | kube.Forbidden)
            self._refusal = str(error) if refused else None
            self._form.doubt()
        except Exception:  # noqa: BLE001 - a thread that ends would leave the slices as they are
            pause = tries.failed()
            self._log.exception("publishing failed unexpectedly", retry_seconds=pause)
        else:
            tries.worked()
            return rewritten
        self._on_error()
        self._worker.pause(pause)
        return None

    def _tell_failure(self, reason: str, pause: float) -> None:
        """Once as a warning: whatever keeps failing would fill the log."""
        tell = self._log.debug if reason == self._reason else self._log.warning
        tell("ResourceSlices not published", reason=reason, retry_seconds=round(pause, 2))
        self._reason = reason

    def _connect(self) -> None:
        """Learn the API version and the node's UID, and begin to watch the slices.

        Once, and again when the API server was upgraded and no longer offers the version.
        """
        if self._withdrawn.is_set() and self._informer is not None:
            self._informer.stop()
            self._informer = None
        if self._informer is not None:
            return
        self._withdrawn.clear()
        served = kube.served_versions(self._client, kube.RESOURCE_GROUP)
        version = next((v for v in publishing.API_VERSIONS if v in served), None)
        if version is None:
            raise errors.Retryable(
                f"the API server offers {kube.RESOURCE_GROUP} in "
                f"{', '.join(served) or 'no version'}; needed is one of "
                f"{', '.join(publishing.API_VERSIONS)}. Kubernetes has them from 1.34 on; before, "
                "enable the API (--runtime-config) and the feature gate of dynamic resource "
                "allocation"
            )
        self._owner = self._read_owner()
        self._writer = slice_writer.SliceWriter(
            self._client, version, counters_dropped=self._form.counters_dropped
        )
        self._informer = informer.Informer(
            self._client,
            self._writer.resource,
            on_change=lambda *_: self._worker.wake(),
            on_error=self._watch_failed,
            on_list=self._listed_anew,
            field_selector=self._selector,
        )
        self._informer.start()
        self._log.info("publishing", api_version=version)

    def _listed_anew(self) -> None:
        """The watch was lost: the server may have been started anew, with other feature gates."""
        self._relisted.set()
        self._worker.wake()

    def _watch_failed(self, error: errors.DriverError) -> None:
        self._log.debug("watch of ResourceSlices", reason=str(error))
        if isinstance(error, kube.NotFound):
            self._withdrawn.set()
            self._worker.wake()

    def _read_owner(self) -> publishing.Owner:
        identity = self._identity
        node = self._client.get(kube.NODES, identity.node_name)
        return publishing.Owner(identity.driver_name, identity.node_name, node["metadata"]["uid"])

    @property
    def _selector(self) -> str:
        return f"spec.driver={self._identity.driver_name},spec.nodeName={self._identity.node_name}"

    def _reconcile(self) -> bool:
        """Write what has to be written; whether that was the same as before, once more."""
        if self._informer is None or self._owner is None or self._writer is None:
            return False
        writer = self._writer
        if writer.unsure:
            self._look_for_lost(writer)
        for _ in range(_ROUNDS):
            existing = self._existing(self._informer, writer)
            rewritten = self._round(writer, self._owner, existing)
            if rewritten is not None:
                self._left_out = {part.name: str(part.error) for part in writer.refused.values()}
                self._reason, self._refusal = "", None
                return rewritten
        raise errors.Retryable("the API server refuses ever more of what is left of the slices")

    def _existing(
        self, watched: informer.Informer, writer: slice_writer.SliceWriter
    ) -> list[publishing.Json]:
        """The slices that are there, v1-shaped, with all that was written so far."""
        # A create that the watch has not shown yet would be done again.
        if not (
            watched.wait_synced(kube.REQUEST_TIMEOUT)
            and watched.wait_version(writer.last_write, kube.REQUEST_TIMEOUT)
        ):
            raise errors.Retryable("the watch of ResourceSlices is behind")
        self._look_for_open_gates(writer)
        version = writer.resource.version
        return [publishing.from_version(body, version) for body in watched.objects()]

    def _look_for_open_gates(self, writer: slice_writer.SliceWriter) -> None:
        """Ask again what the server takes, where it may be another one, or after a while."""
        is_new = self._relisted.is_set()
        if not is_new and not writer.is_dated():
            return
        self._relisted.clear()
        if is_new:
            self._form.doubt()
            writer.doubt_taints()
            self._settled = ()
        try:
            if writer.takes_more():
                self._doubt(writer)
        except kube.ApiError:
            if is_new:
                self._relisted.set()
            raise

    def _doubt(self, writer: slice_writer.SliceWriter) -> None:
        writer.doubt()
        self._settled = ()

    def _round(
        self,
        writer: slice_writer.SliceWriter,
        owner: publishing.Owner,
        existing: Sequence[publishing.Json],
    ) -> bool | None:
        """As `_reconcile`; None where the server has shown that it leaves less to be published."""
        form = dataclasses.replace(
            self._form.get(owner, writer.resource.version), taints=writer.takes_taints
        )
        versions = tuple(
            (body["metadata"]["name"], body["metadata"]["resourceVersion"]) for body in existing
        )
        refused = frozenset(writer.refused)
        if not self._may_publish():
            return False
        wanted = self._wanted(self._devices(existing, versions), form, refused)
        # Another instance may have begun to publish meanwhile.
        if wanted is None or not self._may_publish():
            return False
        if refused and not any(content.devices for content in wanted):
            self._refuse_all(writer)
        settled = (wanted, versions, owner, writer)
        if settled == self._settled:
            return False
        desired = publishing.contents(wanted)
        changes = publishing.reconcile(owner, desired, existing, writer.cut)
        if changes.create:
            # Slices may be gone because their Node was made anew: with the old UID they would be
            # collected at once.
            self._owner = owner = self._read_owner()
            changes = publishing.reconcile(owner, desired, existing, writer.cut)
        if writer.learns(changes, existing) or writer.write(changes):
            return None
        self._published.set()
        if not changes:
            writer.settled(desired)
            self._settled = settled
        rewritten = bool(changes) and desired == self._desired
        self._desired = desired
        return rewritten

    def _refuse_all(self, writer: slice_writer.SliceWriter) -> None:
        """A server that takes no device at all is in the way: what is published stays."""
        error = next(iter(writer.refused.values())).error
        self._doubt(writer)
        raise error

    def _devices(
        self, existing: Sequence[publishing.Json], versions: _Versions
    ) -> Sequence[slices.Device]:
        """The published devices; read anew only where a slice has changed."""
        if versions != self._published_then[0]:
            self._published_then = versions, _devices(existing)
        return self._published_then[1]

    def _look_for_lost(self, writer: slice_writer.SliceWriter) -> None:
        """See to it that a slice whose create got no answer is known if it was made."""
        items, _ = self._client.list(writer.resource, field_selector=self._selector)
        versions = [body["metadata"]["resourceVersion"] for body in items]
        writer.last_write = max([writer.last_write, *versions], key=int)
        writer.unsure = False


def _devices(existing: Sequence[publishing.Json]) -> list[slices.Device]:
    """The published devices; what this version of the driver cannot read, it did not publish."""
    found = []
    for body in existing:
        for device in body["spec"].get("devices") or ():
            with contextlib.suppress(errors.Rejected):
                found.append(slices.parse_device(device))
    return found
