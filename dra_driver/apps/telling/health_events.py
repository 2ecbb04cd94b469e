"""Tells of the health of GPUs by events, of the node and of the claims that have them."""

import dataclasses
import random
import threading
from collections.abc import Callable, Iterable

from dra_driver import errors, telemetry
from dra_driver.adapters.kube import kube
from dra_driver.adapters.system import workers
from dra_driver.apps.health import card_health
from dra_driver.apps.offering import inventory
from dra_driver.logic.health import conditions, news
from dra_driver.model import backoff, events, mig, prepared

COMPONENT = "dra-driver-kubelet-plugin"
FIRST_BACKOFF, LAST_BACKOFF = 0.5, 60.0
"""Seconds between tries while the API server does not answer: first, and longest after doubling."""
ASIDE = 10.0
"""Seconds between looks whether it is this instance of the driver that tells."""


@dataclasses.dataclass(frozen=True, slots=True)
class Heard:
    """What there is to tell of, as it is now."""

    gpus: inventory.Inventory
    health: Callable[[], conditions.View]
    known: Callable[[], Iterable[prepared.Record]]


class HealthEvents:
    """A thread that tells; nobody waits for it. What cannot be told now is told later if it is so.

    It keeps no queue: it looks what is wrong, and what it has told of that.
    """

    def __init__(
        self,
        client: kube.Client,
        node: str,
        heard: Heard,
        *,
        may_tell: Callable[[], bool] = lambda: True,
        clock: Callable[[], conditions.Now] = card_health.now,
    ) -> None:
        """`node` is the Node's name. Of two instances of the driver the newer `may_tell`."""
        self._client = client
        self._node = events.About("v1", "Node", node, "")
        self._heard = heard
        self._may_tell = may_tell
        self._clock = clock
        self._desk = news.Desk()
        self._guard = threading.Lock()
        self._resets: dict[str, news.Item] = {}
        self._tries = backoff.Backoff(backoff.Schedule(FIRST_BACKOFF, LAST_BACKOFF), random.random)
        self._complained: set[str] = set()
        self._log = telemetry.logger("health-events")
        self._worker = workers.Worker("health-events", self._run)

    def start(self) -> None:
        """Begin to tell."""
        self._worker.start()

    def stop(self) -> None:
        """Stop."""
        self._worker.end()

    def changed(self) -> None:
        """What is wrong, or who has it, may have changed."""
        self._worker.wake()

    def reset(self, gpu: str, message: str, *, is_done: bool) -> None:
        """A reset of the GPU with this UUID was tried: the node is told; of several, the last."""
        names = places(self._heard.gpus.snapshot)
        now = self._clock().text
        item = news.of_reset(self._node, gpu, names, message, now, is_done=is_done)
        with self._guard:
            self._resets[gpu] = item
        self._worker.wake()

    def _run(self) -> None:
        while not self._worker.is_ending():
            self._worker.heed()
            pause: float | None = LAST_BACKOFF
            try:
                pause = self.tell() if self._may_tell() else ASIDE
                self._tries.worked()
            except errors.Retryable as error:
                self._complain("away", "events of health not told; trying again", error)
                self._worker.pause(self._tries.failed(error))
                continue
            except Exception:  # noqa: BLE001 - a thread that ends would tell nothing ever again
                self._log.exception("telling of health by events failed unexpectedly")
            self._worker.rest(pause)

    def tell(self) -> float | None:
        """Tell what is due; in how many seconds there is more, None: nobody knows.

        Raises:
            errors.Retryable: the API server does not answer.
        """
        known = list(self._heard.known())
        view, claims = self._heard.health(), filter(None, map(news.of_record, known))
        with self._guard:
            resets = list(self._resets.values())
        items = [
            *resets,
            *news.of_node(view, self._node, places(self._heard.gpus.snapshot)),
            *news.of_claims(view, known),
        ]
        ready, pause = self._desk.due(items, [self._node, *claims], self._clock())
        for item in ready:
            if self._worker.is_ending():
                return None
            if (wait := self._desk.wait(self._clock().seconds)) > 0:
                return wait
            self._send(item)
        return pause

    def _send(self, item: news.Item) -> None:
        now = self._clock()
        try:
            about = self._with_uid(item.about)
            body = events.body(about, item.said(now.text), COMPONENT, item.distinct)
            self._client.create(kube.EVENTS, body, about.place)
        except kube.Conflict:
            # It was told before the last start.
            self._log.debug("event is there", reason=item.reason, message=item.message)
        except errors.Retryable:
            raise
        except kube.ApiError as error:
            # Also where its namespace is about to go: nothing follows for others.
            text = "an event of health is refused; going on without"
            self._complain(type(error).__name__, text, error)
        else:
            self._complained.clear()
        self._desk.told(item, now.seconds)
        with self._guard:
            if self._resets.get(item.gpu, item).distinct == item.distinct:
                self._resets.pop(item.gpu, None)

    def _with_uid(self, about: events.About) -> events.About:
        if about.uid:
            return about
        found = self._client.get(kube.NODES, about.name)
        return dataclasses.replace(about, uid=found["metadata"]["uid"])

    def _complain(self, what: str, text: str, error: Exception) -> None:
        """Say it, once until an event has been told."""
        if what not in self._complained:
            self._complained.add(what)
            self._log.warning(text, reason=str(error))


def places(seen: inventory.Snapshot) -> news.Places:
    """Names of what there is, and was."""
    offers = {**seen.lost, **seen.offered}
    found: dict[tuple[str, mig.Spot | None], str]
    found = {(offer.gpu.uuid, None): offer.card for offer in offers.values()}
    found |= {(card.gpu.uuid, None): card.name for card in seen.cards}
    return found | {
        (offer.gpu.uuid, offer.spot): name
        for name, offer in sorted(offers.items())
        if offer.spot is not None
    }
