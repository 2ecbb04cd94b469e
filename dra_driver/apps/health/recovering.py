"""Decides again and again which GPUs are to be reset, has them reset, and says why others wait."""

import dataclasses
import random
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Protocol

from dra_driver import errors, health_metrics, telemetry
from dra_driver.adapters.disk import ledgers, records
from dra_driver.adapters.nvml import nvml_reset
from dra_driver.adapters.system import workers
from dra_driver.apps.health import card_health, resetting
from dra_driver.apps.offering import inventory
from dra_driver.logic.health import recovery
from dra_driver.logic.offering import abilities
from dra_driver.logic.preparing import planning
from dra_driver.model import backoff, claims, devices

INTERVAL = 30.0
"""Seconds between two looks, and until a GPU is tried again that could not be reset, at first."""
AFTER_REFUSALS = 300.0
"""As `INTERVAL`, at last: each try closes NVML for the whole node, and what has a GPU open may do
so for ever."""
FIRST_LIST, AFTER_LIST = 4.0, 64.0
"""Seconds until all claims of the cluster are listed again for a GPU that one of them has: at
first, since a claim that was just unprepared is about to be deallocated, and longest."""
_LEAST_PAUSE = 0.5
_AMPERE = (8, 0)
"""From this compute capability on GPUs are reset one by one, whatever NVLink connects
(nvidia-smi(1), `--gpu-reset`)."""

_BOUND = "a VFIO driver has it, for a virtual machine"

OnResult = Callable[[str, health_metrics.ResetResult, str], None]
"""Told of each reset: the UUID of the GPU, what became of it, and why, for people."""


class ClaimList(Protocol):
    """Where claims are listed; `fetching.ApiClaims` is one."""

    def concerning(self, node: planning.Node, uids: Collection[str]) -> list[claims.ResourceClaim]:
        """The claims of the cluster that have devices of the node, or one of these UIDs.

        Raises:
            errors.DriverError: the list is not to be had, or not whole.
        """


@dataclasses.dataclass(frozen=True, slots=True)
class Sources:
    """Where it is learnt what is there, and who has it."""

    node: planning.Node
    gpus: inventory.Inventory
    records: records.Records
    claims: ClaimList
    books: ledgers.Ledgers
    links: nvml_reset.ResetNvml


class Recovering:
    """A thread. Without `resets` it puts in order what earlier ones have left, and nothing else."""

    def __init__(
        self,
        sources: Sources,
        resetter: resetting.Resetter,
        health: card_health.CardHealth,
        *,
        resets: bool,
        is_alone: Callable[[], bool],
        on_result: OnResult = lambda _gpu, _result, _message: None,
        clock: Callable[[], float] = time.monotonic,
        chance: Callable[[], float] = random.random,
    ) -> None:
        """`is_alone` tells that no other instance of the driver is alive on the node.

        `chance` spreads what the API server is asked for.
        """
        self._sources = sources
        self._resetter = resetter
        self._health = health
        self._resets = resets
        self._is_alone = is_alone
        self._on_result = on_result
        self._clock = clock
        self._chance = chance
        self._not_before: dict[str, float] = {}
        self._lists: dict[str, int] = {}
        self._refusals: dict[str, int] = {}
        self._tries_again = backoff.Schedule(INTERVAL, AFTER_REFUSALS)
        self._lists_again = backoff.Schedule(FIRST_LIST, AFTER_LIST)
        self._told: dict[str, str] = {}
        self._log = telemetry.logger("recovering")
        self._worker = workers.Worker("recovering", self._run)

    def start(self) -> None:
        """Begin to look."""
        self._worker.start()

    def stop(self) -> None:
        """Stop; a reset that is at work is not cut short by this, but by the end of the process."""
        self._worker.end()

    def changed(self) -> None:
        """The health of GPUs, or what claims have, may have changed."""
        self._worker.wake()

    def look(self) -> None:
        """Put in order what was cut short, and reset what is to be reset now."""
        left = self._resetter.finish()
        asking = recovery.wanted(self._health.view) if self._resets else frozenset()
        # What these were told before is told anew, or not, once they are back.
        asking -= self._sources.gpus.snapshot.bound.keys()
        for counts in (self._lists, self._refusals):
            for gpu in counts.keys() - asking:
                del counts[gpu]
        decision = self._decided(asking, left) if asking else recovery.Decision()
        waits = {**left, **decision.waits}
        at_once = {gpu for group in decision.due for gpu in group}
        for gpu in self._told.keys() - waits.keys() - at_once:
            self._say(gpu, None)
        for gpu, reason in waits.items():
            self._say(gpu, reason)
        for group in decision.due:
            self._reset(group, asking)

    def _decided(
        self, asking: frozenset[devices.GpuUuid], left: Mapping[str, str]
    ) -> recovery.Decision:
        """By what is known here first: a list of all claims costs the API server much."""
        situation = self._situation(left)
        first = recovery.decided(asking, situation)
        now = self._clock()
        ready = {
            gpu
            for group in first.due
            for gpu in group
            if gpu in asking and all(now >= self._not_before.get(one, now) for one in group)
        }
        rest: dict[str, str] = {
            gpu: self._told[gpu] for gpu in asking - ready - first.waits.keys() if gpu in self._told
        }
        if not ready:
            return recovery.Decision(waits={**first.waits, **rest})
        try:
            listed = self._sources.claims.concerning(self._sources.node, ())
        except errors.DriverError as error:
            why = f"whether a claim has it is not known for now: {error}"
            situation = dataclasses.replace(situation, hindrance=why)
        else:
            situation = _with_claims(situation, listed, self._sources.node)
        second = recovery.decided(asking & ready, situation)
        for gpu in first.waits:
            self._lists.pop(gpu, None)
        for gpu in second.waits:
            self._lists[gpu] = self._lists.get(gpu, 0) + 1
            pause = self._lists_again.pause(self._lists[gpu], chance=self._chance())
            self._not_before[gpu] = now + pause
        return recovery.Decision(second.due, {**first.waits, **rest, **second.waits})

    def _situation(self, left: Mapping[str, str]) -> recovery.Situation:
        hindrance = None
        if not self._is_alone():
            hindrance = "another instance of the driver is alive on the node, in an update"
        known = self._sources.records.contents()
        if known.damaged:
            hindrance = f"what claims {', '.join(known.damaged)} have is not known for now"
        snapshot = self._sources.gpus.snapshot
        seen, bound = [card.gpu for card in snapshot.cards], snapshot.bound
        together, unknown = self._together(seen, bound)
        cards = {}
        for gpu in seen:
            having = (
                one for one in known.records.values() if resetting.has(one, gpu.name, gpu.uuid)
            )
            cards[gpu.uuid] = recovery.Card(
                gpu.uuid,
                gpu.name,
                together.get(gpu.uuid, frozenset()),
                frozenset(one.ref.short for one in having),
                recovery.foreign(gpu.instances, self._sources.books.get(gpu.uuid).spots),
                self._health.book.resets(gpu.uuid),
                left.get(gpu.uuid)
                or unknown.get(gpu.uuid)
                or (_BOUND if gpu.uuid in bound else _why_never(gpu)),
            )
        return recovery.Situation(cards, self._clock(), hindrance)

    def _together(
        self, seen: Iterable[devices.Gpu], bound: Collection[str]
    ) -> tuple[dict[devices.GpuUuid, frozenset[devices.GpuUuid]], dict[devices.GpuUuid, str]]:
        """Which GPUs are reset with which others; and of which that is not known."""
        ends, unknown = {}, {}
        for gpu in seen:
            if gpu.uuid in bound or (gpu.compute_capability or _AMPERE) >= _AMPERE:
                continue
            try:
                ends[gpu.uuid] = self._sources.links.linked(gpu.uuid)
            except errors.DriverError as error:
                unknown[gpu.uuid] = f"which GPUs are reset with it is not known: {error}"
        return recovery.linked(ends, {gpu.pci_address: gpu.uuid for gpu in seen}), unknown

    def _reset(
        self, group: tuple[devices.GpuUuid, ...], asking: frozenset[devices.GpuUuid]
    ) -> None:
        known = {card.gpu.uuid: card.gpu for card in self._sources.gpus.snapshot.cards}
        gpus = [known[uuid] for uuid in group]
        result: health_metrics.ResetResult = "done"
        reason: str | None = None
        try:
            if not self._resetter.reset(gpus):
                self._health.changed()
                return
        except resetting.Failed as error:
            result, reason = "failed", f"a reset failed: {error}"
        except errors.DriverError as error:
            result, reason = "refused", f"not reset: {error}"
        for gpu in group:
            self._refusals[gpu] = self._refusals.get(gpu, 0) + 1 if result == "refused" else 0
            pause = self._tries_again.pause(self._refusals[gpu], chance=self._chance())
            self._not_before[gpu] = self._clock() + pause
            # What is refused again and again for one reason is no news.
            if result != "refused" or (gpu in asking and self._told.get(gpu) != reason):
                self._on_result(gpu, result, reason or "the GPU was reset, and is well again")
            if gpu in asking:
                self._say(gpu, reason)
        if result != "refused":
            self._sources.gpus.look()

    def _say(self, gpu: str, reason: str | None) -> None:
        """Once for each reason."""
        if self._told.get(gpu) == reason:
            return
        if reason is None:
            self._told.pop(gpu, None)
        else:
            self._log.warning("GPU waits for its reset", gpu=gpu, reason=reason)
            self._told[gpu] = reason
        self._health.book.note(gpu, reason or "")

    def _run(self) -> None:
        while not self._worker.is_ending():
            self._worker.heed()
            try:
                self.look()
            except Exception:  # noqa: BLE001 - a thread that ends would never reset a GPU again
                self._log.exception("deciding on resets of GPUs failed unexpectedly")
            self._worker.pause(_LEAST_PAUSE)
            due = [at - self._clock() for at in self._not_before.values() if at > self._clock()]
            self._worker.rest(min([INTERVAL, *due]))


def _why_never(gpu: devices.Gpu) -> str | None:
    return f"{abilities.VGPU}: reset it there" if abilities.is_vgpu(gpu) else None


def _with_claims(
    situation: recovery.Situation, listed: Iterable[claims.ResourceClaim], node: planning.Node
) -> recovery.Situation:
    """With those that claims are allocated to, whether they are prepared or not."""
    having: dict[str, set[str]] = {}
    for claim in listed:
        for result in claim.allocation.results if claim.allocation else ():
            if (result.device.driver, result.device.pool) == (node.driver_name, node.pool):
                card = devices.card_of(result.device.device)
                having.setdefault(card, set()).add(claim.ref.short)
    cards = {
        uuid: dataclasses.replace(card, claims=card.claims | having.get(card.name, set()))
        for uuid, card in situation.cards.items()
    }
    return dataclasses.replace(situation, cards=cards)
