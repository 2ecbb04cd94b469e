"""How many claims find no partition, by publishing order: a simulation without any cluster.

Claims for one profile each come at random (Poisson) and stay for a random time (exponential). Each
takes the first device of the node that fits, in publishing order; one that finds none is lost.
The load is what is asked for, in compute slices, of the seven that each GPU has. Measured is the
share of these slices that is lost. All policies see the same claims.

- by name: what NVIDIA's driver publishes: GPU after GPU, the devices of each sorted by name
- spread, pack, adaptive: `packing.order`; adaptive is published again after each change
- late: adaptive, but published after every tenth change only
- moving: no order, but an oracle: all partitions in use are moved, at no cost, if one more fits
  then. It knows no future, and never turns a small claim away for the sake of a large one; an
  order sometimes does, so that it can lose less
"""

import dataclasses
import functools
import heapq
import itertools
import operator
import random
import statistics

from dra_driver.adapters.console import terminal
from dra_driver.logic.offering import packing, placements
from dra_driver.model import mig
from dra_driver.sim.gpus import gpu_models

MODEL = "h100-80gb-hbm3"
SLICES = 7
GPUS = (1, 2, 8)
LOADS = (0.5, 0.8)
MIXES = (
    {"1g.10gb": 0.7, "4g.40gb": 0.3},
    {"1g.10gb": 0.5, "3g.40gb": 0.25, "4g.40gb": 0.25},
    {"1g.10gb": 0.6, "2g.20gb": 0.2, "3g.40gb": 0.2},
    {"1g.10gb": 0.6, "3g.40gb": 0.25, "7g.80gb": 0.15},
)
"""How often each profile is asked for."""
SEEDS = 5
CLAIMS = 1500
"""In each run; the first tenth, on a node that is emptier than later, is not counted."""
LATE = 10
"""Changes from one order to the next where it is published late."""
T_95 = 2.78
"""Student's t for five runs: with it the interval holds the mean 19 times of 20."""


def main():
    """Simulate, and print a table."""
    shown = terminal.Terminal()
    rows = []
    for gpus, load in itertools.product(GPUS, LOADS):
        with shown.progress(f"Simulating: {gpus} GPUs at load {load}"):
            rows += [_row(gpus, load, mix) for mix in MIXES]
    columns = ("GPUS", "LOAD", "CLAIMS, %", *(name.upper() for name in POLICIES))
    shown.table(terminal.Table(f"Slices lost, {MODEL}, ± 95 %", columns, tuple(rows)))
    with shown.progress("Counting writes"):
        written = writes(8, 0.8, MIXES[0])
    shown.say(
        f"adaptive, 8 GPUs at load 0.8, {_text(MIXES[0])}: {written:.0f} writes in 100 changes"
    )


def _row(gpus, load, mix):
    cells = []
    for policy in POLICIES.values():
        found = [lost(policy(gpus, mix), gpus, load, mix, seed) for seed in range(SEEDS)]
        width = T_95 * statistics.stdev(found) / SEEDS**0.5
        cells.append(f"{statistics.mean(found):.3f} ±{width:.3f}"[1:].replace("±0", "±"))
    return (f"{gpus}", f"{load}", _text(mix), *cells)


def _text(mix):
    return " ".join(f"{100 * share:.0f} {name.partition('.')[0]}" for name, share in mix.items())


def writes(gpus, load, mix):
    """How many orders of one profile's devices are written for 100 changes."""
    watched = Watched(gpus)
    lost(watched, gpus, load, mix, seed=0, claims=CLAIMS // 5)
    return 100 * watched.written / watched.changes


def lost(node, gpus, load, mix, seed, claims=CLAIMS):
    """The share of the compute slices asked for that is lost in one run."""
    dice, sizes = random.Random(seed), {profile.name: profile.slices for profile in profiles()}
    rate = load * SLICES * gpus / sum(sizes[name] * share for name, share in mix.items())
    now, ends, asked, refused = 0.0, [], 0, 0
    for number in range(claims):
        now += dice.expovariate(rate)
        (name,) = dice.choices(list(mix), list(mix.values()))
        stays = dice.expovariate(1)
        while ends and ends[0][0] <= now:
            node.give_back(heapq.heappop(ends)[-1])
        device = node.take(name)
        if device is not None:
            heapq.heappush(ends, (now + stays, number, device))
        if number >= claims // 10:
            asked += sizes[name]
            refused += sizes[name] * (device is None)
    return refused / asked


class Node:
    """A node whose devices are published in an order that stays."""

    def __init__(self, gpus, order):
        self.gpus = [(f"gpu-{number}", profiles()) for number in range(gpus)]
        self.taken = {key: [] for key, _ in self.gpus}
        self._table = placements.table(profiles())
        self._used = dict.fromkeys(self.taken, 0)
        self._order = {profile.name: tuple(order(self, profile.name)) for profile in profiles()}

    def order(self, name):
        return self._order[name]

    def take(self, name):
        """The first device that fits; None if there is none."""
        for gpu, spot in self.order(name):
            if self._table.admits(self._used[gpu], spot):
                self.taken[gpu].append(spot)
                self._used[gpu] += self._table.weights[spot]
                self.changed()
                return gpu, spot
        return None

    def give_back(self, device):
        gpu, spot = device
        self.taken[gpu].remove(spot)
        self._used[gpu] -= self._table.weights[spot]
        self.changed()

    def changed(self):
        pass


class Adaptive(Node):
    """A node whose devices are published again after each change."""

    def __init__(self, gpus):
        super().__init__(gpus, _adaptive)

    def order(self, name):
        return _adaptive(self, name)


class Late(Node):
    """A node whose devices are published again after every few changes."""

    def __init__(self, gpus, mix):
        super().__init__(gpus, _adaptive)
        self._mix, self._since = mix, 0

    def changed(self):
        self._since = (self._since + 1) % LATE
        if self._since == 0:
            self._order = {name: tuple(_adaptive(self, name)) for name in self._mix}


class Watched(Node):
    """As adaptive, with a count of the groups of devices that are written again."""

    def __init__(self, gpus):
        super().__init__(gpus, _adaptive)
        self._published = packing.order("adaptive", self.gpus, self.taken)
        self.changes = self.written = 0

    def order(self, name):
        return next(group.members for group in self._published if group.profile == name)

    def changed(self):
        self.changes += 1
        fitting = packing.fitting(self.gpus, self.taken)
        for number, group in enumerate(packing.order("adaptive", self.gpus, self.taken)):
            published = self._published[number]
            settled = packing.settle(published.members, group.members, fitting)
            if settled is not published.members:
                self.written += 1
                self._published[number] = group


class Moving:
    """A node of which only counts matter: partitions are moved as it takes."""

    def __init__(self, gpus, mix):
        self._names = sorted(mix)
        self._most = most_of_each(gpus, tuple(self._names))
        self._counts = (0,) * len(mix)

    def take(self, name):
        wanted = self._changed(name, 1)
        if not any(_is_within(wanted, most) for most in self._most):
            return None
        self._counts = wanted
        return name

    def give_back(self, name):
        self._counts = self._changed(name, -1)

    def _changed(self, name, by):
        return tuple(
            count + by * (name == other)
            for other, count in zip(self._names, self._counts, strict=True)
        )


@functools.cache
def profiles():
    """The profiles of the GPUs."""
    return tuple(
        mig.Profile(
            index=one.nvml_profile,
            placements=tuple(itertools.starmap(mig.Placement, one.placements)),
            **{
                field.name: getattr(one, field.name)
                for field in dataclasses.fields(mig.Profile)
                if field.name not in {"index", "placements"}
            },
        )
        for one in gpu_models.load(MODEL).gpu_instance_profiles
    )


@functools.cache
def most_of_each(gpus, names):
    """How many of each profile GPUs can have at a time: the counts that no others exceed."""
    known = tuple(profile for profile in profiles() if profile.name in names)
    ids = {profile.name: profile.id for profile in known}
    one = {
        tuple(sum(spot.profile_id == ids[name] for spot in layout) for name in names)
        for layout in placements.maximal_layouts(known)
    }
    if gpus > 1:
        fewer = most_of_each(gpus - 1, names)
        one = {tuple(map(operator.add, *pair)) for pair in itertools.product(fewer, one)}
    return [counts for counts in one if sum(_is_within(counts, other) for other in one) == 1]


def _is_within(counts, most):
    return all(count <= other for count, other in zip(counts, most, strict=True))


def _by_name(node, name):
    (profile,) = (profile for profile in profiles() if profile.name == name)
    places = sorted(profile.placements)
    return [(key, mig.Spot(profile.id, place)) for key, _ in node.gpus for place in places]


def _pack(node, name):
    return tuple(packing.members("pack", node.gpus, {}, name))


def _spread(node, name):
    return tuple(packing.members("spread", node.gpus, {}, name))


def _adaptive(node, name):
    return packing.members("adaptive", node.gpus, node.taken, name)


POLICIES = {
    "by name": lambda gpus, _: Node(gpus, _by_name),
    "spread": lambda gpus, _: Node(gpus, _spread),
    "pack": lambda gpus, _: Node(gpus, _pack),
    "adaptive": lambda gpus, _: Adaptive(gpus),
    "late": Late,
    "moving": Moving,
}

if __name__ == "__main__":
    main()
