"""Whatever happens to a node: in the end its slices are what a fresh node would publish.

Cards and the driver come and go, and fall ill, feature gates are opened and closed, settings
change, others delete slices, claims are allocated, prepared, and go. What is written goes to an API
server's own rules, which at times takes no writes, or does not tell of claims. At every moment what
claims have is listed; what nobody has prepared and nobody offers any more is so until others delete
its slice.
"""

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
from slice_histories import (
    DEVICES,
    GATES,
    PARTITION,
    TROUBLES,
    WITHDRAWS,
    Node,
    Server,
    World,
    offered,
)

from dra_driver.apps.offering import withdrawing
from dra_driver.logic.offering import publishing
from dra_driver.model import health, mig, shares

CLOCK = types.SimpleNamespace(now=0.0)


@pytest.fixture(autouse=True)
def _clock(monkeypatch):
    clock = types.SimpleNamespace(monotonic=lambda: CLOCK.now)
    monkeypatch.setattr(withdrawing, "time", clock)


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
        self.left_out.clear()
        if self.server.writes and self.server.lists:
            self.late.clear()

    @rule(writes=st.booleans(), lists=st.booleans())
    def the_api_server_takes_writes_and_lists_claims_or_not(self, writes, lists):
        if (writes and not self.server.writes) or (lists and not self.server.lists):
            CLOCK.now += withdrawing.LEAST_OFTEN
        self.server.writes, self.server.lists = writes, lists

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
        if not self.server.writes:
            return
        listed, _ = offered(self.server)
        assert self.wanted(before) <= listed.keys()
        left_out = {name for name in before - listed.keys() if self.is_doubtful(name)}
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
        if not self.server.lists:
            # What is not well stays as it is listed, or is not.
            wanted = {name for name in wanted if name in before or not self.is_doubtful(name)}
        # Of an absent card that it has never seen a node knows from its slices alone.
        return wanted | {name for name in world.held if not world.is_absent(name) or name in known}

    def taints_are_told(self, listed):
        for name in listed:
            told = {taint["key"] for taint in listed[name].get("taints", ())}
            wrong = {TROUBLES[number][0] for number in self.world.troubles(name)}
            assert {f"{mig_cards.DRIVER}/{key}" for key in wrong} <= told
            if self.world.is_absent(name):
                assert f"{mig_cards.DRIVER}/{health.Key.GPU_LOST}" in told

    def is_doubtful(self, name):
        return self.world.is_absent(name) or bool(self.world.troubles(name) & WITHDRAWS)

    def nobody_gets_what_is_withdrawn(self, listed):
        assert not any(one.get("taints") for one in listed.values())
        if self.server.lists:
            assert {name for name in listed if self.is_doubtful(name)} <= self.node.had

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
        self.the_api_server_takes_writes_and_lists_claims_or_not(writes=True, lists=True)
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
