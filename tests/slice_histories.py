"""A node's slices, written to an API server's own rules, and all that may become of the node."""

import copy
import dataclasses
import datetime as dt
import types

import mig_cards

from dra_driver import errors
from dra_driver.adapters.kube import kube_errors
from dra_driver.apps.offering import inventory, offers, slice_writer
from dra_driver.logic.health import conditions
from dra_driver.logic.offering import catalog, publishing
from dra_driver.logic.preparing import planning
from dra_driver.model import devices, health, mig, prepared, shares, slices, taints
from dra_driver.sim.api.kinds import kinds, problems, resource_gates, rules
from dra_driver.sim.api.storing import registry, store

KIND = next(kind for kind in kinds.KINDS if kind.resource == "resourceslices.resource.k8s.io")
GATES = ("DRAPartitionableDevices", "DRAConsumableCapacity", "DRADeviceTaints")
GPUS = tuple(
    # Fewer profiles make less to compare.
    dataclasses.replace(gpu, profiles=gpu.profiles[0:1] + gpu.profiles[2:3])
    for gpu in mig_cards.node("h100-80gb-hbm3:1,t4:1")
)
PARTITION = "gpu-0-mig-3g40gb-9-4"
DEVICES = ("gpu-0", "gpu-1", PARTITION, "gpu-0-mig-1g10gb-19-0")
OWNER = publishing.Owner(mig_cards.DRIVER, "node-1", "uid-1")
MOST_ROUNDS = 10
OFFERS = {
    name: one for gpu in GPUS for name, one in catalog.card(gpu, mig.Mode.DYNAMIC).offers.items()
}
TROUBLES = (
    (health.Key.XID, "79", taints.NO_SCHEDULE, "2026-07-01T00:00:00Z"),
    (health.Key.XID, "79", taints.NO_SCHEDULE, "2026-07-02T00:00:00Z"),
    (health.Key.RECOVERY, "reset", taints.NO_EXECUTE, "2026-07-01T00:00:00Z"),
    (health.Key.THERMAL, "slowdown", taints.NONE, "2026-07-01T00:00:00Z"),
)
"""What may be wrong with a device: key, value and effect of its taint, and since when."""
WITHDRAWS = frozenset({0, 1, 2})
"""Those of them that keep claims away."""


class Server:
    """An API server's rules for slices, without HTTP. Stands for a `kube.Client`, too."""

    def __init__(self):
        self.writes, self.lists = True, True
        """Whether it takes writes, and lists claims."""
        self.store = store.Store(history=10)
        node = {"name": OWNER.node_name, "uid": OWNER.node_uid}
        self.store.put("nodes", {"apiVersion": "v1", "kind": "Node", "metadata": node})
        self.open({*GATES})

    def open(self, gates):
        """Serve anew what is stored, with these gates open."""
        self.gates = frozenset(gates)
        closed = resource_gates.disabled(36, off=set(GATES) - self.gates, on=())
        now = dt.datetime(2026, 7, 1, tzinfo=dt.UTC)
        found = registry.Settings(rules.ALL, 36, closed, clock=lambda: now)
        self._registry = registry.Registry(self.store, found)

    def slices(self):
        return self.store.items(KIND.storage)

    def names(self):
        specs = [body["spec"] for body in self.slices()]
        return {one["name"] for spec in specs for one in spec.get("devices", ())}

    def create(self, _resource, body, *, dry_run=False):
        sent = copy.deepcopy(body)
        return self._answer(lambda: self._registry.create(KIND, "", sent, dry_run=dry_run))

    def replace(self, _resource, body, *, dry_run=False):
        sent = copy.deepcopy(body)
        key = ("", body["metadata"]["name"])
        return self._answer(
            lambda: self._registry.update(KIND, key, lambda _: sent, dry_run=dry_run)
        )

    def delete(self, _resource, name, **_preconditions):
        self.store.remove(KIND.storage, ("", name))

    @staticmethod
    def _answer(call):
        try:
            return call()
        except problems.ApiError as error:
            problem = error.problem
            raise kube_errors.refusal("write", problem.code, problem.status()) from error


class Node:
    """What publishes the slices of a node, as its parts do together."""

    def __init__(self, server, world):
        self.server, self.world = server, world
        self.restart()

    def restart(self):
        self.had, self.seen = set(), {}
        self.offers = offers.Offers(
            self,
            self,
            driver_name=mig_cards.DRIVER,
            policy=self.world.order,
            seconds=0,
            later=lambda: None,
            health=self.world.view,
            allocated=self.ask,
        )
        self.writer = slice_writer.SliceWriter(
            self.server, "v1", counters_dropped=self.drop_counters
        )
        self.layout = publishing.Layout.PLAIN
        self.ask_counters()

    def ask(self):
        """What claims have; it may be left alone for a while after they had it."""
        if not self.server.lists:
            raise errors.Retryable("no list of claims")
        self.had |= self.world.allocated
        return self.world.allocated

    def ask_counters(self):
        """As `counter_support` does whenever the server may be another one."""
        takes = "DRAPartitionableDevices" in self.server.gates
        self.layout = publishing.Layout.SPLIT if takes else publishing.Layout.PLAIN

    def drop_counters(self):
        self.layout = publishing.Layout.PLAIN

    # What offers are asked of: the inventory, and the records of claims.

    def wait_first(self, _seconds):
        return True

    @property
    def snapshot(self):
        cards = tuple(self.world.cards())
        for card in cards:
            self.seen |= card.offers
        there = {card.name for card in cards}
        lost = {name: one for name, one in self.seen.items() if one.card not in there}
        return inventory.Snapshot(cards, lost)

    def contents(self):
        return types.SimpleNamespace(records=self.world.records(), damaged=())

    def publish(self):
        """Until nothing is left to write; whatever is refused on the way fails the test."""
        for _ in range(MOST_ROUNDS):
            existing = self.server.slices()
            desired = publishing.contents(self.wanted(existing))
            if not self.server.writes:
                return
            changes = publishing.reconcile(OWNER, desired, existing, self.writer.cut)
            if self.writer.learns(changes, existing):
                continue
            if not changes:
                self.writer.settled(desired)
                return
            self.writer.write(changes)
            assert not self.writer.refused
        raise AssertionError("there is always something to write")

    def wanted(self, existing):
        published = [
            slices.parse_device(one) for body in existing for one in body["spec"].get("devices", ())
        ]
        self.had |= self.world.held
        return self.offers.wanted(
            published, publishing.Form(self.layout, taints=self.writer.takes_taints)
        )


@dataclasses.dataclass
class World:
    """What is true of a node."""

    absent: set = dataclasses.field(default_factory=set)
    allocated: set = dataclasses.field(default_factory=set)
    """What claims have; they are `held` once they are prepared."""
    held: set = dataclasses.field(default_factory=set)
    sick: dict = dataclasses.field(default_factory=dict)
    """Numbers of `TROUBLES` by device. What a whole card has, all of its devices have."""
    mode: mig.Mode = mig.Mode.DYNAMIC
    division: shares.Shares | None = None
    order: str = "adaptive"

    def all_cards(self):
        return [catalog.divided(catalog.card(gpu, self.mode), self.division) for gpu in GPUS]

    def cards(self):
        return [card for card in self.all_cards() if card.name not in self.absent]

    def there(self):
        return {name for card in self.cards() for name in card.offers}

    def is_absent(self, device):
        return devices.card_of(device) in self.absent

    def is_allocated(self, card):
        return any(name == card or name.startswith(f"{card}-") for name in self.allocated)

    def is_free(self, device):
        return not any(self.is_allocated(one) for one in (device, device.partition("-mig")[0]))

    def troubles(self, device):
        """What is wrong with a device, or with its card."""
        return {n for name in {device, devices.card_of(device)} for n in self.sick.get(name, ())}

    def view(self):
        return conditions.View(
            tuple(
                health.Condition(
                    health.Finding(
                        OFFERS[name].gpu.uuid, key, value, effect, "", spot=OFFERS[name].spot
                    ),
                    since,
                )
                for name, numbers in self.sick.items()
                for key, value, effect, since in (TROUBLES[number] for number in sorted(numbers))
            )
        )

    def records(self):
        return {name: _record(name) for name in sorted(self.held)}


def _record(name):
    device = prepared.PreparedDevice(
        requests=("gpu",), pool="node-1", device=name, cdi_ids=(), kind=planning.kind(name)
    )
    one = OFFERS[name]
    return prepared.Record(
        uid=f"of-{name}",
        namespace="default",
        name=f"of-{name}",
        boot_id="boot",
        phase=prepared.Phase.COMPLETED,
        devices=(device,),
        partitions=(planning.partition(device, one),) if one.spot else (),
        gpus={one.card: one.gpu.uuid},
    )


def offered(server):
    """What the slices offer, whatever their order and the times of taints."""
    bodies = server.slices()
    pools = {tuple(sorted(body["spec"]["pool"].items())) for body in bodies}
    assert len(pools) == 1
    assert dict(*pools)["resourceSliceCount"] == len(bodies)
    devices = [one for body in bodies for one in body["spec"].get("devices", ())]
    sets = [one for body in bodies for one in body["spec"].get("sharedCounters", ())]
    by_name = {one["name"]: slices.without_times(one) for one in devices}
    assert len(by_name) == len(devices)
    counters = {one["name"]: one for one in sets}
    references = {
        entry["counterSet"] for one in devices for entry in one.get("consumesCounters", ())
    }
    # A reference to a set that is not there makes the whole pool invalid.
    assert references <= counters.keys()
    return by_name, counters
