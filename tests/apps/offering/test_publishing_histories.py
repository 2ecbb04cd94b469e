"""Whatever happens to a node: in the end its slices are what a fresh node would publish.

Cards and the driver come and go, and fall ill, feature gates are opened and closed, settings
change, others delete slices, claims are allocated, prepared, and go. What is written goes to an API
server's own rules. At every moment what claims have is listed; what nobody has prepared and nobody
offers any more is so until others delete its slice.
"""

import copy
import dataclasses
import datetime as dt
import itertools
import types

import effort
import mig_cards
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from dra_driver.adapters.kube import kube_errors
from dra_driver.apps.offering import inventory, offers, slice_writer, withdrawing
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
CLOCK = types.SimpleNamespace(now=0.0)


@pytest.fixture(autouse=True)
def _clock(monkeypatch):
    clock = types.SimpleNamespace(monotonic=lambda: CLOCK.now)
    monkeypatch.setattr(withdrawing, "time", clock)


class Server:
    """An API server's rules for slices, without HTTP. Stands for a `kube.Client`, too."""

    def __init__(self):
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


class History(RuleBasedStateMachine):
    @initialize()
    def start(self):
        self.server, self.world = Server(), World()
        self.late, self.left_out = set(), set()
        """What was given out while it was left out; and what schedulers may not know to be."""
        self.node = Node(self.server, self.world)
        self.node.publish()

    @rule(cards=st.sets(st.sampled_from(["gpu-0", "gpu-1"])))
    def cards_are_absent(self, cards):
        """All of them: as if the driver did not answer."""
        self.world.absent = cards

    @rule(device=st.sampled_from(DEVICES), prepared=st.booleans())
    def a_claim_comes(self, device, prepared):
        listed = self.node.server.names()
        if device in listed & self.world.there() and self.world.is_free(device):
            self.world.allocated.add(device)
            if prepared:
                self.world.held.add(device)

    @precondition(lambda self: self.world.allocated - self.world.held)
    @rule(data=st.data())
    def a_claim_is_prepared(self, data):
        waiting = self.world.allocated - self.world.held
        device = data.draw(st.sampled_from(sorted(waiting)))
        # What was taken back before it was prepared, as counters are, is not there any more.
        if device in self.world.there() & self.node.server.names():
            self.world.held.add(device)

    @precondition(lambda self: self.world.allocated)
    @rule(data=st.data())
    def a_claim_goes(self, data):
        device = data.draw(st.sampled_from(sorted(self.world.allocated)))
        for devices_ in (self.world.allocated, self.world.held, self.late):
            devices_.discard(device)

    @precondition(lambda self: self.left_out - self.world.allocated)
    @rule(data=st.data())
    def a_scheduler_that_is_behind_gives_out_what_was_left_out(self, data):
        device = data.draw(st.sampled_from(sorted(self.left_out)))
        if self.world.is_free(device):
            self.world.allocated.add(device)
            self.late.add(device)

    @rule()
    def a_while_passes(self):
        """After it no scheduler is behind any more, and who has what is asked again."""
        CLOCK.now += withdrawing.ASK_AGAIN
        self.late.clear()
        self.left_out.clear()

    @rule(
        sick=st.dictionaries(
            st.sampled_from(DEVICES),
            st.sets(st.sampled_from(range(len(TROUBLES))), min_size=1),
            max_size=3,
        )
    )
    def devices_are_sick(self, sick):
        self.world.sick = sick

    @precondition(lambda self: self.world.allocated)
    @rule(trouble=st.sampled_from(sorted(WITHDRAWS)), takes=st.booleans())
    def all_that_claims_have_is_withdrawn(self, trouble, takes):
        """At an API server that takes taints, or none."""
        self.world.sick |= {name: {trouble} for name in self.world.allocated}
        gates = self.server.gates - {"DRADeviceTaints"}
        self.the_api_server_comes_back_with_these_gates(gates | set(GATES[2:] if takes else ()))

    @rule(gates=st.sets(st.sampled_from(GATES)))
    def the_api_server_comes_back_with_these_gates(self, gates):
        self.server.open(gates)
        # The watch was lost.
        self.node.writer.doubt()
        self.node.ask_counters()

    @rule(data=st.data())
    def others_delete_slices(self, data):
        for body in self.server.slices():
            if data.draw(st.booleans()):
                self.server.delete(None, body["metadata"]["name"])

    @rule(
        mode=st.sampled_from([mig.Mode.DYNAMIC, mig.Mode.OFF]),
        division=st.sampled_from([None, shares.Shares(8)]),
        order=st.sampled_from(["adaptive", "pack", "spread"]),
    )
    def it_is_started_with_other_settings(self, mode, division, order):
        self.world.mode, self.world.division, self.world.order = mode, division, order
        self.node.restart()

    @invariant()
    def what_is_wanted_is_published_without_a_refusal(self):
        if not hasattr(self, "node"):
            return
        before = self.server.names()
        self.node.publish()
        listed, _ = offered(self.server)
        assert self.wanted(before) <= listed.keys()
        left_out = {
            name for name in before - listed.keys() if self.world.is_absent(name) or
            self.world.troubles(name) & WITHDRAWS
        }  # fmt: skip
        self.left_out = (self.left_out | left_out) - listed.keys()
        if "DRADeviceTaints" in self.server.gates:
            self.taints_are_told(listed)
        else:
            self.nobody_gets_what_is_withdrawn(listed)

    def wanted(self, before):
        """What claims have: all that is offered, and all that is known of what is not."""
        world = self.world
        known = before | self.node.seen.keys()
        there = world.there() | {name for name in known if world.is_absent(name)}
        wanted = (world.allocated & there) - self.late
        if self.node.layout is publishing.Layout.PLAIN:
            # Nobody may be offered what only counters keep apart.
            wanted = {name for name in wanted if "-mig-" not in name or world.is_absent(name)}
        # Of an absent card that it has never seen a node knows from its slices alone.
        return wanted | {name for name in world.held if not world.is_absent(name) or name in known}

    def taints_are_told(self, listed):
        for name in listed:
            told = {taint["key"] for taint in listed[name].get("taints", ())}
            wrong = {TROUBLES[number][0] for number in self.world.troubles(name)}
            assert {f"{mig_cards.DRIVER}/{key}" for key in wrong} <= told
            if self.world.is_absent(name):
                assert f"{mig_cards.DRIVER}/{health.Key.GPU_LOST}" in told

    def nobody_gets_what_is_withdrawn(self, listed):
        assert not any(one.get("taints") for one in listed.values())
        for name in listed:
            if self.world.troubles(name) & WITHDRAWS or self.world.is_absent(name):
                assert name in self.node.had

    def teardown(self):
        """All is well again: the node is as one that has never seen anything else."""
        if not hasattr(self, "node"):
            return
        self.world.absent = set()
        there = self.world.there()
        # A device that the settings do not make any more is kept as long as it is held.
        self.world.allocated &= there
        self.world.held &= there
        self.world.sick = {}
        self.the_api_server_comes_back_with_these_gates({*GATES})
        self.node.publish()
        fresh = Server()
        Node(fresh, self.world).publish()
        assert offered(self.server) == offered(fresh)
        assert not self.node.writer.cut
        assert not self.node.writer.refused


def test_every_history_ends_with_what_a_fresh_node_publishes():
    run_state_machine_as_test(
        History,
        settings=settings(max_examples=effort.examples(60), stateful_step_count=12, deadline=None),
    )


EVENTS = {
    "its device is withdrawn": lambda history, device: history.devices_are_sick({device: {0}}),
    "no taints are taken": lambda history, _: history.the_api_server_comes_back_with_these_gates(
        {*GATES[:2]}
    ),
    "the plugin is restarted": lambda history, _: history.node.restart(),
    "its card is gone": lambda history, _: history.cards_are_absent({"gpu-0"}),
}


@pytest.mark.parametrize("device", ["gpu-0", PARTITION], ids=["whole", "partition"])
@pytest.mark.parametrize("prepared", [True, False], ids=["prepared", "allocated"])
def test_in_whatever_order_it_happens_what_a_claim_has_is_listed(device, prepared):
    for order in itertools.permutations(EVENTS):
        history = History()
        history.start()
        history.a_claim_comes(device, prepared)
        for name in order:
            EVENTS[name](history, device)
            history.what_is_wanted_is_published_without_a_refusal()
            assert device in history.server.names(), (order, name)
