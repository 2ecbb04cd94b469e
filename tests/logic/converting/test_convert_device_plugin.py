"""What users of NVIDIA's device plugin ask for, one by one, and the claim that it becomes."""

import converting_scene as scene
import pytest
from converting_scene import (
    EIGHTY,
    IS_GPU,
    MIG,
    MIXED,
    NO_FLEET,
    SHARED,
    WHOLE,
    Ask,
    devices,
    first,
    has_just,
    of_profile,
    one,
    share,
)

GPU, REPLICA = "nvidia.com/gpu", "nvidia.com/gpu.shared"
CUT = {"1g.10gb": 9984, "3g.40gb": 40448}
BY_COUNT = scene.policy(scene.card(80, shared="count"))
BOTH_WAYS = scene.policy(scene.card(24, shared="count"), scene.card(80))
CUT_AND_SHARED = scene.policy(scene.card(80, profiles=CUT))
NO_AMOUNTS = "no amounts: it is not known how cards are shared"


def _partition(profile, count=1):
    return devices(MIG, of_profile(profile), count=count)


def _replica(count=1):
    return devices(SHARED, IS_GPU, count=count, shares="1")


PROFILES = {
    "mig-1g.10gb": "1g.10gb",
    "mig-1g.5gb": "1g.5gb",
    "mig-2g.20gb": "2g.20gb",
    "mig-3g.40gb": "3g.40gb",
    "mig-7g.141gb": "7g.141gb",
    "mig-1g.10gb.me": "1g.10gb+me",
    "mig-1g.23gb.me": "1g.23gb+me",
    "mig-1g.24gb.me.all": "1g.24gb+me.all",
    "mig-1g.24gb.gfx": "1g.24gb+gfx",
    "mig-1g.24gb-me": "1g.24gb-me",
}
WHOLE_ONES = {
    "one GPU": Ask({GPU: 1}, one(devices(WHOLE))),
    "one GPU as a text": Ask({GPU: "1"}, one(devices(WHOLE))),
    "four GPUs, each another": Ask({GPU: 4}, one(devices(WHOLE, count=4))),
    "as many as a claim has": Ask({GPU: 32}, one(devices(WHOLE, count=32))),
}
SHARES = {
    "one where cards are shared by count": Ask({REPLICA: 1}, one(_replica()), BY_COUNT),
    "two, which are of two cards": Ask({REPLICA: 2}, one(_replica(2)), BY_COUNT),
    "a tenth where cards are shared by amounts": Ask(
        {REPLICA: 1}, one(share("8Gi", "10", has_just("80Gi")))
    ),
    "a tenth of each of two": Ask({REPLICA: 2}, one(share("8Gi", "10", has_just("80Gi"), count=2))),
    "a quarter, as the policy says": Ask(
        {REPLICA: 1},
        one(share("20Gi", "25", has_just("80Gi"))),
        scene.policy(scene.card(80), replicas=4),
    ),
    "a third in whole MiB": Ask(
        {REPLICA: 1},
        one(share("27306Mi", "33", has_just("80Gi"))),
        scene.policy(scene.card(80), replicas=3),
    ),
    "more replicas than percent": Ask(
        {REPLICA: 1},
        one(share("409Mi", "1", has_just("80Gi"))),
        scene.policy(scene.card(80), replicas=200),
    ),
    "a tenth of one of two sizes": Ask(
        {REPLICA: 1},
        first(
            mib_24576=share("2457Mi", "10", has_just("24Gi")),
            mib_81920=share("8Gi", "10", has_just("80Gi")),
        ),
        MIXED,
    ),
    "one where cards are shared in both ways": Ask(
        {REPLICA: 1},
        first(share=_replica(), mib_81920=share("8Gi", "10", has_just("80Gi"))),
        BOTH_WAYS,
    ),
    "one of cards that nobody knows": Ask(
        {REPLICA: 1},
        one(devices(SHARED, IS_GPU)),
        NO_FLEET,
        warned=[f"container main: nvidia.com/gpu.shared: 1: {NO_AMOUNTS}"],
    ),
    "one where no card is shared": Ask(
        {REPLICA: 1},
        one(devices(SHARED, IS_GPU)),
        scene.policy(scene.card(80, shared="")),
        warned=[f"container main: nvidia.com/gpu.shared: 1: {NO_AMOUNTS}"],
    ),
}
SHARED_PARTITIONS = {
    "where cards are shared by count": Ask(
        {"nvidia.com/mig-1g.10gb.shared": 1},
        one(devices(SHARED, of_profile("1g.10gb"), shares="1")),
        BY_COUNT,
    ),
    "where cards are shared by amounts": Ask(
        {"nvidia.com/mig-3g.40gb.shared": 1},
        one(
            devices(SHARED, of_profile("3g.40gb"), has_just("40448Mi"), memory="4044Mi", cores="10")
        ),
        CUT_AND_SHARED,
    ),
    "with media extensions": Ask(
        {"nvidia.com/mig-1g.10gb.me.shared": 1},
        one(devices(SHARED, of_profile("1g.10gb+me"), shares="1")),
        BY_COUNT,
    ),
    "of cards that nobody knows": Ask(
        {"nvidia.com/mig-1g.10gb.shared": 1},
        one(devices(SHARED, of_profile("1g.10gb"))),
        NO_FLEET,
        warned=[f"container main: nvidia.com/mig-1g.10gb.shared: 1: {NO_AMOUNTS}"],
    ),
}


@pytest.mark.parametrize("resource", PROFILES)
def test_a_resource_of_partitions_becomes_a_partition_of_its_profile(resource):
    scene.check(Ask({f"nvidia.com/{resource}": 1}, one(_partition(PROFILES[resource]))))


@pytest.mark.parametrize("policy", [EIGHTY, NO_FLEET, BY_COUNT], ids=["shared", "none", "counted"])
def test_several_partitions_may_be_of_one_card(policy):
    scene.check(Ask({"nvidia.com/mig-1g.10gb": 3}, one(_partition("1g.10gb", 3)), policy))


@pytest.mark.parametrize("ask", WHOLE_ONES)
def test_whole_gpus_are_converted_where_that_was_said(ask):
    found = WHOLE_ONES[ask]
    for known in ((), (scene.card(80),)):
        policy = scene.policy(*known, whole_gpus=True)
        scene.check(Ask(found.limits, found.claim, policy))


@pytest.mark.parametrize("ask", WHOLE_ONES)
def test_whole_gpus_stay_with_the_class_that_serves_them(ask):
    body = scene.pod(scene.container(limits=WHOLE_ONES[ask].limits))
    made = scene.converting.convert(body, EIGHTY)
    assert (made.pod, made.templates, made.lines, made.problems) == (body, (), (), ())


def test_no_gpus_at_all_are_no_ask_of_whole_ones():
    for none in (0, "0"):
        body = scene.pod(scene.container(limits={GPU: none}))
        made = scene.converting.convert(body, scene.policy(whole_gpus=True))
        assert (made.pod, made.problems, made.is_converted) == (body, (), False)


@pytest.mark.parametrize("ask", SHARES)
def test_a_replica_becomes_a_share(ask):
    scene.check(SHARES[ask])


@pytest.mark.parametrize("ask", SHARED_PARTITIONS)
def test_a_replica_of_a_partition_becomes_a_share_of_it(ask):
    scene.check(SHARED_PARTITIONS[ask])


def test_partitions_of_several_profiles_are_requests_of_one_claim():
    limits = {"nvidia.com/mig-3g.40gb": 1, "nvidia.com/mig-1g.10gb": 2}
    requests = [
        {"name": "gpu", "exactly": _partition("1g.10gb", 2)},
        {"name": "gpu-2", "exactly": _partition("3g.40gb")},
    ]
    scene.check(Ask(limits, {"devices": {"requests": requests}}))


def test_a_gpu_and_a_partition_are_requests_of_one_claim():
    limits = {GPU: 2, "nvidia.com/mig-1g.10gb": 1}
    requests = [
        {"name": "gpu", "exactly": devices(WHOLE, count=2)},
        {"name": "gpu-2", "exactly": _partition("1g.10gb")},
    ]
    claim = {"devices": {"requests": requests, "constraints": [scene.APART]}}
    scene.check(Ask(limits, claim, scene.policy(whole_gpus=True)))


def test_a_gpu_stays_beside_a_partition_that_is_converted():
    body = scene.pod(scene.container(limits={GPU: 1, "nvidia.com/mig-1g.10gb": 1}))
    made = scene.converted(body)
    assert scene.specs(made) == {"gpu-main": one(_partition("1g.10gb"))}
    [main] = made.pod["spec"]["containers"]
    assert main["resources"] == {"limits": {GPU: 1}, "claims": [{"name": "gpu-main"}]}


def test_a_line_says_what_became_of_each_ask():
    limits = {"nvidia.com/mig-3g.40gb": 1, "nvidia.com/mig-1g.10gb": 2}
    assert scene.told(scene.converted(scene.pod(scene.container(limits=limits))).lines) == [
        "container main: nvidia.com/mig-1g.10gb: 2: claim gpu-main: 2 x mig.nvidia.com 1g.10gb",
        "container main: nvidia.com/mig-3g.40gb: 1: claim gpu-main: mig.nvidia.com 3g.40gb",
    ]
    made = scene.converted(scene.pod(scene.container(limits={REPLICA: 2})))
    assert scene.told(made.lines) == [
        (
            "container main: nvidia.com/gpu.shared: 2: claim gpu-main: "
            "2 x shared-mps.gpu.nvidia.com: "
            "memory 8Gi, cores 10 of a card of 81920Mi, on different cards"
        )
    ]


@pytest.mark.parametrize("name", ["nvidia.com/gpu.sharing", "nvidia.com/gpux", "nvidia.com/mig"])
def test_a_resource_that_nobody_knows_stays_with_a_warning(name):
    made = scene.converting.convert(scene.pod(scene.container(limits={name: 1})), EIGHTY)
    assert not made.is_converted
    scene.begins(scene.told(made.warnings), [f"container main: {name}: stays: no resource of this"])
