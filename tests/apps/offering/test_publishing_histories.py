"""Whatever happens to a node: in the end its slices are what a fresh node would publish.

Cards and the driver come and go, and fall ill, feature gates are opened and closed, settings
change, others delete slices, claims are allocated, prepared, and go. What is written goes to an API
server's own rules. At every moment what claims have is listed; `others_delete_slices` names the
exception.
"""

import copy
import dataclasses
import datetime as dt
import itertools

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
from dra_driver.apps.offering import slice_writer, withdrawing
from dra_driver.logic.offering import catalog, offering, publishing
from dra_driver.model import mig, shares, slices
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
TAINTS = tuple(
    {"key": f"{mig_cards.DRIVER}/{key}", "value": value, "effect": effect, "timeAdded": time}
    for key, value, effect, time in (
        ("xid", "79", "NoSchedule", "2026-07-01T00:00:00Z"),
        ("xid", "79", "NoSchedule", "2026-07-02T00:00:00Z"),
        ("recovery", "reset", "NoExecute", "2026-07-01T00:00:00Z"),
        ("thermal", "slowdown", "None", "2026-07-01T00:00:00Z"),
    )
)


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
        self.had = set()
        self.withdrawing = withdrawing.Withdrawing(self.ask)
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

    def known(self):
        """The devices that are known without a look at the slices."""
        form = publishing.Form(self.layout)
        return {*offering.listing(self.world.cards(), form).devices, *self.world.lost()}

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
        world, takes = self.world, self.writer.takes_taints
        published = [
            slices.parse_device(one) for body in existing for one in body["spec"].get("devices", ())
        ]
        listed = offering.listing(
            world.cards(), publishing.Form(self.layout, taints=takes), frozenset()
        )
        hidden = frozenset() if takes else self.withdrawing.hidden(world.sick, world.held)
        self.had |= world.held
        taints = world.sick if takes else {}
        state = offering.State(world.lost(), world.held, published, taints, hidden)
        return offering.offer(listed, state, offering.Policy(mig_cards.DRIVER, world.order))


@dataclasses.dataclass
class World:
    """What is true of a node."""

    absent: set = dataclasses.field(default_factory=set)
    allocated: set = dataclasses.field(default_factory=set)
    """What claims have; they are `held` once they are prepared."""
    held: set = dataclasses.field(default_factory=set)
    sick: dict = dataclasses.field(default_factory=dict)
    mode: mig.Mode = mig.Mode.DYNAMIC
    division: shares.Shares | None = None
    order: str = "adaptive"

    def all_cards(self):
        return [catalog.divided(catalog.card(gpu, self.mode), self.division) for gpu in GPUS]

    def cards(self):
        return [card for card in self.all_cards() if card.name not in self.absent]

    def lost(self):
        return {
            name: offer
            for card in self.all_cards()
            if card.name in self.absent
            for name, offer in card.offers.items()
        }

    def is_allocated(self, card):
        return any(name == card or name.startswith(f"{card}-") for name in self.allocated)

    def is_free(self, device):
        return not any(self.is_allocated(one) for one in (device, device.partition("-mig")[0]))


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
        self.node = Node(self.server, self.world)
        self.node.publish()

    @rule(cards=st.sets(st.sampled_from(["gpu-0", "gpu-1"])))
    def cards_are_absent(self, cards):
        """All of them: as if the driver did not answer."""
        self.world.absent = cards

    @rule(device=st.sampled_from(DEVICES), prepared=st.booleans())
    def a_claim_comes(self, device, prepared):
        listed = self.node.server.names()
        there = {name for card in self.world.cards() for name in card.offers}
        if device in listed & there and self.world.is_free(device):
            self.world.allocated.add(device)
            if prepared:
                self.world.held.add(device)

    @precondition(lambda self: self.world.allocated - self.world.held)
    @rule(data=st.data())
    def a_claim_is_prepared(self, data):
        waiting = self.world.allocated - self.world.held
        there = {name for card in self.world.cards() for name in card.offers}
        device = data.draw(st.sampled_from(sorted(waiting)))
        # What was taken back before it was prepared, as counters are, is not there any more.
        if device in there & self.node.server.names():
            self.world.held.add(device)

    @precondition(lambda self: self.world.allocated)
    @rule(data=st.data())
    def a_claim_goes(self, data):
        device = data.draw(st.sampled_from(sorted(self.world.allocated)))
        self.world.allocated.remove(device)
        self.world.held.discard(device)

    @rule(
        sick=st.dictionaries(
            st.sampled_from(DEVICES),
            st.sets(st.sampled_from(range(len(TAINTS))), min_size=1),
            max_size=3,
        )
    )
    def devices_are_sick(self, sick):
        self.world.sick = {
            # One key and effect comes once.
            name: tuple({TAINTS[n]["key"]: TAINTS[n] for n in sorted(numbers)}.values())
            for name, numbers in sick.items()
        }

    @precondition(lambda self: self.world.allocated)
    @rule(taint=st.sampled_from(TAINTS[:3]), takes=st.booleans())
    def all_that_claims_have_is_withdrawn(self, taint, takes):
        """At an API server that takes taints, or none."""
        self.world.sick |= dict.fromkeys(self.world.allocated, (taint,))
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
        """All but those that alone tell of what a claim has and nobody is offered any more.

        A partition that settings or the API server rule out by now is known from its slice only:
        with that it goes, though a claim has it.
        """
        alone = self.world.held - self.node.known()
        for body in self.server.slices():
            names = {one["name"] for one in body["spec"].get("devices", ())}
            if names.isdisjoint(alone) and data.draw(st.booleans()):
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
        self.node.publish()
        devices, _ = offered(self.server)
        there = {name for card in self.world.cards() for name in card.offers}
        wanted = self.world.allocated & there
        if self.node.layout is publishing.Layout.PLAIN:
            # Nobody may be offered what only counters keep apart.
            wanted = {name for name in wanted if "-mig-" not in name}
        assert wanted <= devices.keys()
        assert self.world.held <= devices.keys()
        if "DRADeviceTaints" in self.server.gates:
            self.taints_are_told(devices)
        else:
            self.nobody_gets_what_is_withdrawn(devices)

    def taints_are_told(self, devices):
        for name, taints in self.world.sick.items():
            if name in devices:
                told = {taint["key"] for taint in devices[name]["taints"]}
                assert {taint["key"] for taint in taints} <= told

    def nobody_gets_what_is_withdrawn(self, devices):
        assert not any(one.get("taints") for one in devices.values())
        for name, taints in self.world.sick.items():
            if any(taint["effect"] != "None" for taint in taints):
                assert name not in devices or name in self.node.had

    def teardown(self):
        """All is well again: the node is as one that has never seen anything else."""
        if not hasattr(self, "node"):
            return
        self.world.absent = set()
        there = {name for card in self.world.cards() for name in card.offers}
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
    # What is not prepared is not known of a card that is gone.
    possible = [name for name in EVENTS if prepared or name != "its card is gone"]
    for order in itertools.permutations(possible):
        history = History()
        history.start()
        history.a_claim_comes(device, prepared)
        for name in order:
            EVENTS[name](history, device)
            history.what_is_wanted_is_published_without_a_refusal()
            assert device in history.server.names(), (order, name)
