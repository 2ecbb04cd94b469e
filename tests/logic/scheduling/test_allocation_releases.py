"""What changed in the allocator from one release to the next, besides mended defects."""

import pytest
from dra_objects import (
    DRIVER,
    GPU_CLASS,
    allocate,
    alternative,
    claim,
    device,
    exactly,
    first_available,
    shareable,
    slice_of,
)

from dra_driver.logic.scheduling import demand, emulation
from dra_driver.model import claims

RELEASES = (None, "1.36.2", "1.37", "1.38")


def by_release(*values):
    """Pairs of each release and what is expected of it."""
    return list(zip(RELEASES, values, strict=True))


def config(value, *requests, source=claims.FROM_CLAIM):
    return claims.OpaqueConfig(DRIVER, {"value": value}, requests, source)


def configs(pending, release, classes=(GPU_CLASS,)):
    """The configs of the allocation as released."""
    published = slice_of(*[device(name) for name in "abcd"])
    behaviour = emulation.of_release(release)
    [given] = allocate([pending], published, behaviour=behaviour, classes=classes).allocations
    return given.configs


class TestTheConfigsOfAnAllocation:
    @pytest.mark.parametrize(("release", "times"), by_release(1, 2, 1, 1))
    def test_one_of_the_claim_is_repeated_in_1_36_2_for_each_request_that_it_names(
        self, release, times
    ):
        pending = claim(*map(exactly, "abc"), configs=[config(1, "a", "b")])
        assert configs(pending, release) == (config(1, "a", "b"),) * times

    @pytest.mark.parametrize(
        ("release", "expected"),
        by_release(("a", "b"), ("a", "b"), (), ()),
    )
    def test_one_for_all_requests_has_no_names_from_1_37_on(self, release, expected):
        pending = claim(*map(exactly, "ab"), configs=[config(1, "a", "b")])
        first, *_ = configs(pending, release)
        assert first == config(1, *expected)

    @pytest.mark.parametrize(
        ("release", "expected"), [("1.36.2", ("a", "b")), ("1.37", ()), ("1.38", ())]
    )
    def test_nor_has_one_of_a_class_that_all_requests_use(self, release, expected):
        of_class = config(1, source=claims.FROM_CLASS)
        classes = [claims.DeviceClass("gpu", GPU_CLASS.selectors, (of_class,))]
        found = configs(claim(*map(exactly, "ab")), release, classes)
        assert found == (config(1, *expected, source=claims.FROM_CLASS),)

    def test_one_for_the_chosen_alternative_is_for_all_of_a_claim_with_one_request(self):
        request = first_available("gpu", alternative("many", count=9), alternative("one"))
        wanted = [config(1, "gpu/many"), config(2, "gpu/one")]
        assert configs(claim(request, configs=wanted), "1.37") == (config(2),)

    def test_one_for_two_alternatives_of_one_request_is_not_for_two_requests(self):
        # As many names as requests, of which it concerns one: kubernetes/kubernetes#139814.
        request = first_available("gpu", alternative("many", count=9), alternative("one"))
        named = config(1, "gpu/many", "gpu/one")
        assert configs(claim(request, exactly("b"), configs=[named]), "1.37") == (named,)


class TestTheNameOfACapacity:
    """With the driver's domain it is the same name to 1.38, and another one before."""

    @pytest.mark.parametrize(("release", "found"), by_release(1, 0, 0, 1))
    @pytest.mark.parametrize(
        "names", [("memory", f"{DRIVER}/memory"), (f"{DRIVER}/memory", "memory")]
    )
    def test_written_otherwise_than_published(self, release, found, names):
        published, asked = names
        assert self.count(release, published, asked) == found

    @pytest.mark.parametrize("release", RELEASES)
    @pytest.mark.parametrize("name", ["memory", f"{DRIVER}/memory"])
    def test_written_as_published(self, release, name):
        assert self.count(release, name, name) == 1

    @staticmethod
    def count(release, published, asked):
        offered = slice_of(shareable("a", capacity={published: "8Gi"}))
        wanted = exactly(extra={"capacity": {"requests": {asked: "1Gi"}}})
        outcome = allocate([claim(wanted)], offered, behaviour=emulation.of_release(release))
        return len(outcome.allocations or ())


@pytest.mark.parametrize(
    ("release", "asked", "taken"),
    [
        (None, "250m", "1"),
        ("1.37", "250m", "1"),
        ("1.38", "250m", "300m"),
        ("1.38", "200m", "200m"),
        ("1.38", None, "200m"),
        ("1.38", "1100m", None),
    ],
)
def test_parts_of_one_are_steps_in_1_38_and_rounded_up_to_one_before(release, asked, taken):
    limits = {"min": "200m", "max": "1", "step": "100m"}
    policy = {"cores": {"default": "200m", "validRange": limits}}
    published = slice_of(shareable("a", capacity={"cores": "2"}, policy=policy))
    extra = {"capacity": {"requests": {"cores": asked}}} if asked else None
    pending = [claim(exactly(extra=extra))]
    outcome = allocate(pending, published, behaviour=emulation.of_release(release))
    found = outcome.allocations and str(
        outcome.allocations[0].results[0].consumed_capacity["cores"]
    )
    assert found == taken


def test_a_plan_without_a_release_is_that_without_defects():
    [item] = demand.plan([claim(exactly())], {"gpu": GPU_CLASS})
    assert item.wants[0].behaviour is emulation.FIXED


COUNTERS = {"sharedCounters": [{"name": "s", "counters": {"c": {"value": "4"}}}]}


def consuming(amount):
    counters = {"c": {"value": f"{amount}"}}
    return {"consumesCounters": [{"counterSet": "s", "counters": counters}]}


class TestDefectsThatNoReleaseHasAnyMore:
    """Mended in the branch of 1.36 before 1.36.2 (kubernetes/kubernetes#139040, #138885)."""

    @pytest.mark.parametrize("release", RELEASES)
    def test_a_partition_is_given_once_beside_a_device_that_is_shared(self, release):
        published = slice_of(
            device("first", extra=consuming(1)), device("second", extra=consuming(1)),
            shareable("share", extra=consuming(1)), extra=COUNTERS,
        )  # fmt: skip
        behaviour = emulation.of_release(release)
        part = exactly("gpu", "!device.allowMultipleAllocations")
        asked = [claim(part, name=name) for name in ("a", "b", "c")]
        options = {"in_use": {"first"}, "behaviour": behaviour}
        assert allocate(asked[:2], published, **options).allocations is None
        outcome = allocate(asked[:1], published, **options)
        assert [result.device.device for result in outcome.allocations[0].results] == ["second"]

    @pytest.mark.parametrize("release", RELEASES)
    def test_all_of_devices_with_counters_is_answered(self, release):
        behaviour = emulation.of_release(release)
        pending = claim(exactly(all_devices=True))
        for amount, fits in ((2, True), (3, False)):
            devices = [device(name, extra=consuming(amount)) for name in "ab"]
            published = slice_of(*devices, extra=COUNTERS)
            outcome = allocate([pending], published, behaviour=behaviour)
            assert (outcome.allocations is not None) == fits


def test_a_device_of_a_group_of_partitions_is_refused_by_name():
    grouped = consuming(1)
    grouped["consumesCounters"][0]["compatibilityGroups"] = ["mig"]
    published = slice_of(device("a", extra=grouped), extra=COUNTERS)
    outcome = allocate([claim(exactly())], published)
    [(hurdle, _)] = outcome.shortfalls[0].fallen
    assert f"{hurdle}" == (
        "not usable here (the embedded scheduler does not know compatibilityGroups)"
    )
