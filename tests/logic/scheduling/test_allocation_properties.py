"""allocate against a brute-force search over small inputs: same answer, same first solution."""

import collections
import itertools
from fractions import Fraction

import effort
from dra_objects import NODE, alternative, claim, distinct, match, share_ids, slice_of
from hypothesis import given, settings
from hypothesis import strategies as st

from dra_driver.logic.scheduling import allocation, demand, emulation, pools, usage
from dra_driver.model import claims, quantities, request_policies, slices

DRIVER = "gpu.example.com"
A = f'device.attributes["{DRIVER}"]'
SELECTORS = {
    "true": lambda _: True,
    f'{A}.model == "a"': lambda device: device.attributes["model"] == "a",
    f'"numa" in {A} && {A}.numa == 0': lambda device: device.attributes.get("numa") == 0,
    "false": lambda _: False,
}


POLICIES = [
    {},
    {"default": "1"},
    {"default": "1", "validRange": {"min": "1", "step": "2"}},
    {"default": "2", "validValues": ["2", "4"]},
]
"""Of a capacity of 4."""


@st.composite
def devices(draw, name):
    attributes = {"model": draw(st.sampled_from("ab"))}
    if draw(st.booleans()):
        attributes["numa"] = draw(st.integers(0, 1))
    extra = {}
    if draw(st.integers(0, 4)) == 0:
        extra["taints"] = [{"key": "ill", "effect": "NoSchedule"}]
    if draw(st.booleans()):
        amount = str(draw(st.integers(1, 3)))
        extra["consumesCounters"] = [{"counterSet": "s", "counters": {"c": {"value": amount}}}]
    policies = {}
    if draw(st.booleans()):
        extra["allowMultipleAllocations"] = True
        policy = draw(st.sampled_from(POLICIES))
        policies = {"m": request_policies.parse(policy)} if policy else {}
    return slices.Device(name, attributes, {"m": quantities.parse("4")}, extra, policies)


@st.composite
def requests(draw, name):
    choices = [
        alternative(
            f"alt-{index}",
            draw(st.sampled_from(sorted(SELECTORS))),
            count=draw(st.integers(1, 2)),
            admin_access=draw(st.integers(0, 5)) == 0,
            extra=draw(st.sampled_from([{}, {"tolerations": [{"operator": "Exists"}]}]))
            | draw(st.sampled_from([{}, *({"capacity": {"requests": {"m": n}}} for n in "1235")])),
        )
        for index in range(draw(st.integers(1, 2)))
    ]
    return claims.Request(name, tuple(choices), prioritized=len(choices) > 1)


@st.composite
def whole_claims(draw, name):
    asked = [draw(requests(f"r{n}")) for n in range(draw(st.integers(1, 2)))]
    bounds = st.builds(
        lambda kind, attribute, named: kind(f"{DRIVER}/{attribute}", *named),
        st.sampled_from([match, distinct]),
        st.sampled_from(["model", "numa"]),
        st.sampled_from([(), ("r0",), ("r0/alt-0",)]),
    )
    return claim(*asked, name=name, constraints=draw(st.lists(bounds, max_size=2)))


@st.composite
def scenes(draw):
    offered = [draw(devices(f"d{n}")) for n in range(draw(st.integers(0, 5)))]
    counters = {"sharedCounters": [{"name": "s", "counters": {"c": {"value": "4"}}}]}
    published = slice_of(*offered, extra=counters)
    pending = [draw(whole_claims(f"c{n}")) for n in range(draw(st.integers(1, 2)))]
    if not offered:
        return published, pending, set(), []
    names = st.sampled_from([d.name for d in offered])
    whole = draw(st.sets(names, max_size=2))
    shares = st.tuples(names, st.integers(1, 3)).filter(lambda share: share[0] not in whole)
    return published, pending, whole, draw(st.lists(shares, max_size=2))


def consumption(device):
    return sum(
        Fraction(e["counters"]["c"]["value"]) for e in device.extra.get("consumesCounters", ())
    )


def share_of(spec, device):
    """What a request takes of the capacity, worked out again for each policy."""
    wanted = spec.extra.get("capacity", {}).get("requests", {}).get("m")
    policy = device.policies.get("m")
    if policy is None or wanted is None:
        return int(wanted or (4 if policy is None else policy.default.value))
    if policy.values:
        return {"1": 2, "2": 2, "3": 4}.get(wanted, int(wanted))
    return {"2": 3}.get(wanted, int(wanted)) if policy.within else int(wanted)


def serves(spec, device):
    if share_of(spec, device) > 4:
        return False
    tolerated = "taints" not in device.extra or "tolerations" in spec.extra
    return tolerated and all(SELECTORS[text](device) for text in spec.selectors)


def options_of(request, offered):
    """All ways to serve one request alone, in the order of preference."""
    for spec in request.alternatives:
        able = [device for device in offered if serves(spec, device)]
        for combination in itertools.combinations(able, spec.count):
            yield [(request.result_name(spec), spec, device) for device in combination]


def constraint_holds(constraint, chosen):
    named = constraint.requests
    values = [
        device.attributes.get(constraint.attribute.partition("/")[2])
        for name, _, device in chosen
        if not named or name in named or name.partition("/")[0] in named
    ]
    if None in values:
        return False
    return len(set(values)) == len(values) if constraint.distinct else len(set(values)) <= 1


def is_valid(pending, per_claim, published, whole, shares):
    taken, shared = set(whole), dict.fromkeys((name for name, _ in shares), 0)
    for name, amount in shares:
        shared[name] += amount
    used = [device for device in published.devices if device.name in taken | set(shared)]
    left = Fraction(4) - sum(map(consumption, used))
    for item, chosen in zip(pending, per_claim, strict=True):
        within = set()
        for _, spec, device in chosen:
            can_share = device.extra.get("allowMultipleAllocations")
            if device.name in within and spec.admin_access and not can_share:
                return False
            within.add(device.name)
            if spec.admin_access:
                continue
            if device.name in taken or (not can_share and device.name in shared):
                return False
            if can_share:
                first = device.name not in shared
                shared[device.name] = shared.get(device.name, 0) + share_of(spec, device)
                if shared[device.name] > 4:
                    return False
            else:
                first = True
                taken.add(device.name)
            left -= consumption(device) if first else 0
            # What in-use devices have overdrawn does not matter to one that consumes nothing.
            if first and consumption(device) and left < 0:
                return False
        if not all(constraint_holds(constraint, chosen) for constraint in item.constraints):
            return False
    return True


def brute_force(published, pending, whole, shares):
    ways = [
        [list(options_of(request, published.devices)) for request in item.requests]
        for item in pending
    ]
    for everything in itertools.product(*itertools.chain.from_iterable(ways)):
        rest, per_claim = list(everything), []
        for item in pending:
            here, rest = rest[: len(item.requests)], rest[len(item.requests) :]
            per_claim.append(list(itertools.chain.from_iterable(here)))
        if is_valid(pending, per_claim, published, whole, shares):
            return [[(name, device.name) for name, _, device in chosen] for chosen in per_claim]
    return None


def result_of(name, share=None):
    """What another claim has: a device or, with an amount, a share of it."""
    device = slices.DeviceId(DRIVER, "node-a", name)
    if share is None:
        return claims.Allocation((claims.Result("r", device),))
    consumed = {"m": quantities.parse(str(share))}
    result = claims.Result("r", device, share_id="other", consumed_capacity=consumed)
    return claims.Allocation((result,))


@settings(max_examples=effort.examples(600), deadline=None)
@given(scenes())
def test_the_first_solution_is_found_whenever_there_is_one(scene):
    published, pending, whole, shares = scene
    inventory = pools.Inventory.of([published])
    plan = demand.plan(pending, {"gpu": claims.DeviceClass("gpu")})
    others = usage.InUse.of([result_of(name) for name in sorted(whole)]).changed(
        added=[result_of(name, amount) for name, amount in shares]
    )
    outcome = allocation.allocate(
        plan, node=NODE, inventory=inventory, in_use=others, share_ids=share_ids()
    )
    found = outcome.allocations and [
        [(result.request, result.device.device) for result in item.results]
        for item in outcome.allocations
    ]
    assert found == brute_force(published, pending, whole, shares)
    if found is None:
        assert allocation.diagnose(plan, node=NODE, inventory=inventory, in_use=others)


@settings(max_examples=effort.examples(50), deadline=None)
@given(st.lists(st.integers(1, 12), min_size=1, max_size=6), st.integers(1, 40))
def test_claims_one_after_another_never_share_a_device(counts, devices_published):
    offered = [slices.Device(f"gpu-{n}", {}, {}) for n in range(devices_published)]
    inventory = pools.Inventory.of([slice_of(*offered)])
    used, seen = usage.InUse(), set()
    order = []
    for number, count in enumerate(counts):
        pending = claim(claims.Request("r", (alternative("r", count=count),)), name=f"c{number}")
        plan = demand.plan([pending], {"gpu": claims.DeviceClass("gpu")})
        outcome = allocation.allocate(
            plan, node=NODE, inventory=inventory, in_use=used, share_ids=share_ids()
        )
        assert (outcome.allocations is None) == (len(seen) + count > devices_published)
        given_now = {r.device for item in outcome.allocations or () for r in item.results}
        assert not seen & given_now
        seen |= given_now
        used = used.changed(added=outcome.allocations or ())
        order += [r.device.device for item in outcome.allocations or () for r in item.results]
    assert order == [f"gpu-{n}" for n in range(len(order))]


@st.composite
def histories(draw):
    """Devices, and what happens: a claim comes, or with None the oldest one goes."""
    offered = [draw(devices(f"d{n}")) for n in range(draw(st.integers(1, 5)))]
    events = [draw(st.one_of(st.none(), requests(f"r{n}"), requests(f"r{n}"))) for n in range(12)]
    behaviour = draw(st.sampled_from([emulation.FIXED, emulation.of_release("1.36.2")]))
    return offered, events, behaviour


@settings(max_examples=effort.examples(300), deadline=None)
@given(histories())
def test_nothing_is_ever_given_out_twice(history):
    offered, events, behaviour = history
    counters = {"sharedCounters": [{"name": "s", "counters": {"c": {"value": "4"}}}]}
    inventory = pools.Inventory.of([slice_of(*offered, extra=counters)])
    by_name, ids = {device.name: device for device in offered}, share_ids()
    used, living = usage.InUse(), []
    for request in events:
        if request is None:
            gone = [living.pop(0)] if living else []
            used = used.changed(removed=gone)
            continue
        plan = demand.plan([claim(request)], {"gpu": claims.DeviceClass("gpu")})
        outcome = allocation.allocate(
            plan, node=NODE, inventory=inventory, in_use=used, share_ids=ids, behaviour=behaviour
        )
        living += outcome.allocations or ()
        used = used.changed(added=outcome.allocations or ())
        check_books([r for item in living for r in item.results if not r.admin_access], by_name)


def check_books(results, by_name):
    """No device is had twice, no capacity and no counter is overdrawn."""
    names = [result.device.device for result in results]
    for name, times in collections.Counter(names).items():
        shares = [r for r in results if r.device.device == name]
        if not by_name[name].extra.get("allowMultipleAllocations"):
            assert times == 1
            assert shares[0].share_id is None
        else:
            assert len({r.share_id for r in shares}) == times
            assert sum(r.consumed_capacity["m"].amount for r in shares) <= 4
    assert sum(consumption(by_name[name]) for name in set(names)) <= 4
