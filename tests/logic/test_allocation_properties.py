"""allocate against a brute-force search over small inputs: same answer, same first solution."""

import itertools
from fractions import Fraction

from dra_objects import NODE, alternative, claim, distinct, in_use, match, share_ids, slice_of
from hypothesis import given, settings
from hypothesis import strategies as st

from dra_driver.logic import allocation, demand, pools, usage
from dra_driver.model import claims, slices

DRIVER = "gpu.example.com"
A = f'device.attributes["{DRIVER}"]'
SELECTORS = {
    "true": lambda _: True,
    f'{A}.model == "a"': lambda device: device.attributes["model"] == "a",
    f'"numa" in {A} && {A}.numa == 0': lambda device: device.attributes.get("numa") == 0,
    "false": lambda _: False,
}


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
    return slices.Device(name, attributes, {}, extra)


@st.composite
def requests(draw, name):
    choices = [
        alternative(
            f"alt-{index}",
            draw(st.sampled_from(sorted(SELECTORS))),
            count=draw(st.integers(1, 2)),
            admin_access=draw(st.integers(0, 5)) == 0,
            extra={"tolerations": [{"operator": "Exists"}]} if draw(st.booleans()) else {},
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
    in_use = draw(st.sets(st.sampled_from([d.name for d in offered]), max_size=2) if offered
                  else st.just(set()))  # fmt: skip
    return published, pending, in_use


def consumption(device):
    return sum(
        Fraction(e["counters"]["c"]["value"]) for e in device.extra.get("consumesCounters", ())
    )


def serves(spec, device):
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


def is_valid(pending, per_claim, published, in_use):
    taken, left = set(in_use), Fraction(4)
    left -= sum(consumption(device) for device in published.devices if device.name in in_use)
    for item, chosen in zip(pending, per_claim, strict=True):
        within = set()
        for _, spec, device in chosen:
            if device.name in (within if spec.admin_access else taken):
                return False
            within.add(device.name)
            if not spec.admin_access:
                taken.add(device.name)
                left -= consumption(device)
                # What in-use devices have overdrawn does not matter to one that consumes nothing.
                if consumption(device) and left < 0:
                    return False
        if not all(constraint_holds(constraint, chosen) for constraint in item.constraints):
            return False
    return True


def brute_force(published, pending, in_use):
    ways = [
        [list(options_of(request, published.devices)) for request in item.requests]
        for item in pending
    ]
    for everything in itertools.product(*itertools.chain.from_iterable(ways)):
        rest, per_claim = list(everything), []
        for item in pending:
            here, rest = rest[: len(item.requests)], rest[len(item.requests) :]
            per_claim.append(list(itertools.chain.from_iterable(here)))
        if is_valid(pending, per_claim, published, in_use):
            return [[(name, device.name) for name, _, device in chosen] for chosen in per_claim]
    return None


@settings(max_examples=400, deadline=None)
@given(scenes())
def test_the_first_solution_is_found_whenever_there_is_one(scene):
    published, pending, taken = scene
    inventory = pools.Inventory.of([published])
    plan = demand.plan(pending, {"gpu": claims.DeviceClass("gpu")})
    others = in_use(*(slices.DeviceId(DRIVER, "node-a", name) for name in sorted(taken)))
    outcome = allocation.allocate(
        plan, node=NODE, inventory=inventory, in_use=others, share_ids=share_ids()
    )
    found = outcome.allocations and [
        [(result.request, result.device.device) for result in item.results]
        for item in outcome.allocations
    ]
    assert found == brute_force(published, pending, taken)
    if found is None:
        assert allocation.diagnose(plan, node=NODE, inventory=inventory, in_use=others)


@settings(max_examples=50, deadline=None)
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
