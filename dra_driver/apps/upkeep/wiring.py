"""What puts a node in order, at the start and from then on, as its settings have it."""

import functools
from collections.abc import Callable, Mapping

from dra_driver.adapters.nvml import nvml_mig
from dra_driver.adapters.system import patience, processes
from dra_driver.apps.effects import wiring as effects_wiring
from dra_driver.apps.node import base
from dra_driver.apps.offering import wiring as offering_wiring
from dra_driver.apps.preparing import attempts, fetching, preparing, turns
from dra_driver.apps.upkeep import (
    card_upkeep,
    describing,
    device_users,
    mending,
    orphans,
    reconciling,
    recovering,
    refreshing,
    restoring,
    upkeep,
    vfio_users,
)
from dra_driver.model import claims

UNPREPARE_SECONDS = 45.0
"""Seconds that it may take to unprepare a claim that the kubelet forgot."""


class Keeping:
    """Recovers once, and looks after claims, instances, daemons and settings from then on."""

    def __init__(
        self,
        on: base.Base,
        offering: offering_wiring.Offering,
        effects: effects_wiring.Effects,
        source: fetching.ApiClaims,
        preparer: preparing.Preparer,
        calls: turns.Turns,
        *,
        on_change: Callable[[], None],
    ) -> None:
        """Nothing is started yet. `calls` are those of the kubelet."""
        config, books = on.config, on.books
        node, store = attempts.node(on), attempts.store(on)
        self._books = books
        self._preparer = preparer
        self._calls = calls
        gpus = offering.gpus
        mender = mending.Mender(node, store, gpus.current)
        self._recovery = recovering.Recovery(
            store, effects.listed, mender, functools.partial(source.concerning, node)
        )
        self._cards = card_upkeep.CardUpkeep(
            lambda: [card.gpu for card in gpus.snapshot.served],
            store.records,
            store.locks,
            effects.sharer.cards,
        )
        users = device_users.DeviceUsers(
            nvml_mig.MigNvml(on.hardware.nvml),
            gpus,
            processes.Processes(config.proc_root).describe,
            vfio_users.VfioUsers(on.hardware.pci, config.proc_root).of,
        )
        self._orphans = orphans.Orphans(
            gpus,
            store,
            books,
            effects.listed,
            mender,
            users,
            on_change=on_change,
        )
        self.reconciler = reconciling.Reconciler(
            node,
            store.records,
            source,
            self._unprepare,
            reconciling.Several(self._orphans, offering.names),
            users,
            boot_id=store.boot_id,
        )
        leaving = preparer.leaving
        self._restorer = restoring.Restorer(node, store, gpus, effects, leaving=leaving)
        self._refresher = refreshing.Refresher(store, gpus, effects.metadata, leaving=leaving)
        describer = describing.Describer(store, gpus, effects.sharer, config.mps, leaving=leaving)
        self._upkeep = upkeep.Upkeep(
            often=[
                mender.mend,
                self._restorer.look,
                self._refresher.look,
                describer.look,
                offering.clear_dead,
            ],
            seldom=[mender.clear_leftovers, self._orphans.settle, self._orphans.sweep],
        )

    def recover(self) -> None:
        """Put in order what the last run, or the last boot, left; before the first call."""
        self._recovery.run()
        self._books.drop_earlier_boots()
        self._restorer.look()
        self._refresher.look_told()
        self._orphans.sweep()
        self._orphans.settle()
        self._cards.look()

    def look_at_cards(self) -> Mapping[str, str]:
        """See `card_upkeep.CardUpkeep.look`."""
        return self._cards.look()

    def start(self) -> None:
        """Begin to look after things."""
        self.reconciler.start()
        self._upkeep.start()

    def stop(self) -> None:
        """Stop."""
        self._upkeep.stop()
        self.reconciler.stop()

    def _unprepare(self, ref: claims.ClaimRef, only_if: Callable[[], bool]) -> None:
        waiting = patience.Patience(UNPREPARE_SECONDS)
        with self._calls.arrive(ref.uid, turns.Kind.SWEEP, waiting) as turn:
            self._preparer.unprepare(ref, turn, only_if)
