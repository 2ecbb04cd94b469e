"""Writes ResourceSlices, and knows what the API server makes of them: what it drops, and refuses.

The scheduler uses a pool only while all its slices are there under one generation. So before
several writes that belong together the server is asked what it would make of each, with writes that
it does not carry out: of a pool one of whose slices is refused nothing is changed.
"""

import contextlib
import dataclasses
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Literal

from dra_driver import telemetry
from dra_driver.adapters.kube import kube
from dra_driver.logic.offering import publishing, refusals

ASK_AGAIN = 300.0
"""Seconds until a server that drops or refuses something is asked again: it may take it by now."""
PASSING = 10.0
"""Seconds for which a refusal that names no device may pass: a webhook that is starting, roles that
the server has not read yet."""
_COUNTERS = re.compile(r"\b(sharedCounters|consumesCounters)\b")
_TAINTS = "devices[].taints"
_SAMPLES = 8
_NO_DRY_RUN = "does not support dry run"
"""Said of a webhook that does more than to answer (apiserver, `NewDryRunUnsupportedErr`)."""


@dataclasses.dataclass(frozen=True, slots=True)
class Part:
    """A device or counter set that the server refuses, and what it says."""

    name: str
    error: kube.ApiError


class SliceWriter:
    """Slices, and one API server. For one thread."""

    def __init__(
        self, client: kube.Client, version: str, *, counters_dropped: Callable[[], None]
    ) -> None:
        """`version` is that of the API in which slices are written.

        `counters_dropped` is called when the server shows that it takes no counters.
        """
        self.resource = dataclasses.replace(kube.SLICES, version=version)
        self.last_write = "0"
        """The resource version that the last write led to."""
        self.unsure = False
        """Whether a slice may have been made of which no answer came."""
        self._client = client
        self._version = version
        self._counters_dropped = counters_dropped
        self._log = telemetry.logger("publisher")
        self._is_fresh = True
        self._asks = True
        self._known: set[str] = set()
        self._cut: dict[str, publishing.Json] = {}
        self._refused: dict[str, Part] = {}
        self._refused_since: dict[str, float] = {}
        self._takes_taints = True
        self._doubts_taints = True
        self._samples: dict[frozenset[str], publishing.Json] = {}
        self._asked = 0.0
        self._told: set[frozenset[str]] = set()

    @property
    def cut(self) -> Mapping[str, publishing.Json]:
        """What the server leaves of contents; see `publishing.reconcile`."""
        return self._cut

    @property
    def refused(self) -> Mapping[str, Part]:
        """What the server refuses, by `refusals.mark`."""
        return self._refused

    @property
    def takes_taints(self) -> bool:
        """Whether the server takes taints of devices, as far as it has shown."""
        return self._takes_taints

    def doubt(self) -> None:
        """It may be another server by now, or one with other feature gates."""
        self._is_fresh = True
        self._known, self._cut, self._refused, self._samples = set(), {}, {}, {}
        self._takes_taints = self._doubts_taints = True

    def doubt_taints(self) -> None:
        """A server with the gate off keeps the taints that there are, and nobody heeds them."""
        self._doubts_taints = True

    def is_dated(self) -> bool:
        """Whether something is dropped or refused, and that was found long ago."""
        return bool(self._samples) and time.monotonic() - self._asked > ASK_AGAIN

    def takes_more(self) -> bool:
        """Whether the server takes by now what it dropped or refused; asked with one slice of each.

        Raises:
            kube.ApiError: it does not answer.
        """
        self._asked = time.monotonic()
        return any(self._takes(sample) for sample in self._samples.values())

    def _takes(self, sample: publishing.Json) -> bool:
        try:
            wire = publishing.to_version(sample, self._version)
            answer = self._client.create(self.resource, wire, dry_run=True)
        except (kube.Refused, kube.Forbidden):
            return False
        got = publishing.from_version(answer, self._version)["spec"]
        return not publishing.dropped(sample["spec"], got)

    def _sample(self, key: frozenset[str], body: publishing.Json) -> None:
        """Keep what tells later whether the server has changed its mind."""
        self._asked = time.monotonic()
        if len(self._samples) < _SAMPLES:
            self._samples.setdefault(key, publishing.as_new(body))

    def settled(self, desired: Sequence[publishing.Json]) -> None:
        """These contents are published, as far as they can be; all others may be forgotten."""
        self._is_fresh = False
        self._known = {publishing.fingerprint(content) for content in desired}
        self._cut = {key: left for key, left in self._cut.items() if key in self._known}
        if not self._refused:
            self._refused_since.clear()

    def learns(self, changes: publishing.Changes, existing: Sequence[publishing.Json]) -> bool:
        """Ask what the server would make of changes, where that matters before they are made.

        That is where readers would be left without a whole pool, or where it is not known yet what
        the server drops. Whether it drops or refuses something: the changes come to less then.

        Raises:
            kube.ApiError: the server does not answer, or refuses what cannot be left out.
        """
        if not (self._asks and existing):
            return False
        learned = self._doubts_taints and self._learns_of_taints(existing)
        if not (changes.tears or self._is_fresh):
            return learned
        for body, verb in _writes(changes):
            if publishing.fingerprint(body["spec"]) not in self._known:
                learned |= self._ask(body, verb)
        self._is_fresh = False
        return learned

    def _learns_of_taints(self, existing: Sequence[publishing.Json]) -> bool:
        """Whether the server turns out to take none of the taints that there are, if any."""
        tainted = next((body for body in existing if _taints(body)), None)
        if tainted is None or not self._takes_taints:
            return False
        sample = publishing.as_new(_tainted_alone(tainted))
        with contextlib.suppress(kube.Refused, kube.Forbidden):
            answer = self._client.create(
                self.resource, publishing.to_version(sample, self._version), dry_run=True
            )
            got = publishing.from_version(answer, self._version)["spec"]
            if _TAINTS in publishing.dropped(sample["spec"], got):
                self._drops_taints(sample)
        self._doubts_taints = False
        return not self._takes_taints

    def _drops_taints(self, sample: publishing.Json) -> None:
        self._takes_taints = False
        self._asked = time.monotonic()
        self._samples[frozenset({_TAINTS})] = sample

    def write(self, changes: publishing.Changes) -> bool:
        """Carry the changes out. Whether the server has shown that there is less to be written.

        It has refused something, or drops taints: what was to be told by one is to be left out.

        Raises:
            kube.ApiError: a write failed, or what was refused cannot be left out. Those before it
                were carried out.
        """
        took_taints = self._takes_taints
        for body in changes.delete:
            self._delete(body)
        for body, verb in _writes(changes):
            answer = self._send(body, verb)
            if answer is None:
                return True
            self.last_write = answer["metadata"]["resourceVersion"]
            self._taken(body, answer)
        if changes:
            self._log.info(
                "ResourceSlices written",
                deleted=len(changes.delete),
                updated=len(changes.update),
                created=len(changes.create),
            )
        return took_taints and not self._takes_taints

    def _delete(self, body: publishing.Json) -> None:
        metadata = body["metadata"]
        with contextlib.suppress(kube.NotFound):
            self._client.delete(
                self.resource,
                metadata["name"],
                uid=metadata["uid"],
                resource_version=metadata["resourceVersion"],
            )

    def _ask(self, body: publishing.Json, verb: "_Verb") -> bool:
        """Whether the server drops or refuses something of it."""
        try:
            answer = self._send(body, verb, dry_run=True)
        except kube.Refused as error:
            if _NO_DRY_RUN not in error.message:
                raise
            self._asks = False
            return False
        return answer is None or self._taken(body, answer)

    def _send(
        self, body: publishing.Json, verb: "_Verb", *, dry_run: bool = False
    ) -> publishing.Json | None:
        """What the server makes of a slice; None if it refuses what can be left out."""
        wire = publishing.to_version(body, self._version)
        send = self._client.replace if verb == "update" else self._client.create
        try:
            return send(self.resource, wire, dry_run=dry_run)
        except kube.Unavailable:
            self.unsure = self.unsure or (verb == "create" and not dry_run)
            raise
        except (kube.Refused, kube.Forbidden) as error:
            if not self._can_do_without(body, error):
                raise
            return None

    def _taken(self, sent: publishing.Json, answer: publishing.Json) -> bool:
        """Note what the server made of a slice; whether it left something out."""
        got = publishing.from_version(answer, self._version)["spec"]
        key = publishing.fingerprint(sent["spec"])
        self._known.add(key)
        self._refused_since.pop(key, None)
        missing = publishing.dropped(sent["spec"], got)
        if not missing:
            return False
        self._cut[key] = publishing.without_times(got)
        self._sample(frozenset(missing), sent)
        if any(_COUNTERS.search(field) for field in missing):
            # Partitions without counters would be given out on top of each other.
            self._counters_dropped()
        if _TAINTS in missing:
            self._drops_taints(publishing.as_new(_tainted_alone(sent)))
        # Slices with other devices lack the same fields in another order.
        if frozenset(missing) not in self._told:
            self._told.add(frozenset(missing))
            self._log.warning(
                "the API server dropped fields of ResourceSlices; going on without them. "
                "Is the feature gate off?",
                fields=missing,
            )
        return True

    def _can_do_without(self, body: publishing.Json, error: kube.Refused | kube.Forbidden) -> bool:
        """Note what is refused of a slice; whether that is more than before, and no passing thing.

        A field that is wrong stays wrong. Webhooks, policies and roles may be about to change.
        """
        if _NO_DRY_RUN in error.message:
            return False
        key, now = publishing.fingerprint(body["spec"]), time.monotonic()
        since = self._refused_since.setdefault(key, now)
        if not refusals.names_a_part(error.fields) and now - since < PASSING:
            return False
        blamed = refusals.blamed(body["spec"], error.fields)
        more = {mark: name for mark, name in blamed.items() if mark not in self._refused}
        self._refused = self._refused | {mark: Part(name, error) for mark, name in more.items()}
        if more:
            self._sample(frozenset(more), body)
        if more and frozenset(more) not in self._told:
            self._told.add(frozenset(more))
            self._log.error(
                "the API server refuses what is in ResourceSlices; going on without it",
                refused=sorted(more.values()),
                reason=str(error),
            )
        return bool(more)


def _taints(body: publishing.Json) -> list[publishing.Json]:
    """The devices of a slice that have taints."""
    return [device for device in body["spec"].get("devices") or () if device.get("taints")]


def _tainted_alone(body: publishing.Json) -> publishing.Json:
    """A slice of which the server drops nothing but a taint, if anything."""
    device = _taints(body)[0]
    spec = {key: value for key, value in body["spec"].items() if key != "sharedCounters"}
    spec["devices"] = [{"name": device["name"], "taints": device["taints"]}]
    return body | {"spec": spec}


_Verb = Literal["update", "create"]


def _writes(changes: publishing.Changes) -> Iterator[tuple[publishing.Json, _Verb]]:
    for body in changes.update:
        yield body, "update"
    for body in changes.create:
        yield body, "create"
