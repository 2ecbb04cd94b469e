"""Pods of several containers: which has a claim of its own, and what else of a pod changes."""

import converting_scene as scene
import pytest
from converting_scene import MIG, container, of_profile, one, share

GPU, MEMORY, CORES = "nvidia.com/gpu", "nvidia.com/gpumem", "nvidia.com/gpucores"


def hami(mib, cores=None, count=1):
    limits = {GPU: count, MEMORY: mib}
    return limits if cores is None else {**limits, CORES: cores}


def partition(profile, count=1):
    return {f"nvidia.com/mig-{profile}": count}


def used(made):
    """The claims of each container."""
    spec = made.pod["spec"]
    return {
        body["name"]: [claim["name"] for claim in body["resources"].get("claims", ())]
        for body in [*spec.get("initContainers", ()), *spec["containers"]]
        if "resources" in body
    }


def of_init(main, *before, policy=scene.EIGHTY):
    """The claims of a pod whose containers `i0`, `i1`, … end before `main` starts."""
    body = scene.pod(
        container("main", main),
        initContainers=[container(f"i{n}", limits) for n, limits in enumerate(before)],
    )
    made = scene.converted(body, policy)
    return used(made), scene.specs(made)


def test_each_container_has_a_claim_of_its_own():
    body = scene.pod(container("a", hami(10240, 30)), container("b", hami(20480, 40, 2)))
    made = scene.converted(body)
    assert used(made) == {"a": ["gpu-a"], "b": ["gpu-b"]}
    assert scene.specs(made) == {
        "gpu-a": one(share("10Gi", "30")),
        "gpu-b": one(share("20Gi", "40", count=2)),
    }


def test_containers_that_ask_for_the_same_share_a_template_and_no_claim():
    body = scene.pod(container("a", hami(10240, 30)), container("b", hami(10240, 30)))
    made = scene.converted(body)
    assert used(made) == {"a": ["gpu-a"], "b": ["gpu-b"]}
    [template] = made.templates
    assert made.pod["spec"]["resourceClaims"] == [
        {"name": "gpu-a", "resourceClaimTemplateName": template.name},
        {"name": "gpu-b", "resourceClaimTemplateName": template.name},
    ]


def test_containers_may_ask_different_systems():
    body = scene.pod(
        container("a", hami(10240, 30)),
        container("b", {"volcano.sh/vgpu-number": 1, "volcano.sh/vgpu-memory": 8192}),
        container("c", {"tencent.com/vcuda-core": 20, "tencent.com/vcuda-memory": 4}),
        container("d", {"aliyun.com/gpu-mem": 16}),
        container("e", partition("1g.10gb")),
        container("f", {"cpu": 1}),
    )
    assert scene.specs(scene.converted(body)) == {
        "gpu-a": one(share("10Gi", "30")),
        "gpu-b": one(share("8Gi", "10")),
        "gpu-c": one(share("1Gi", "20")),
        "gpu-d": one(share("16Gi", "20")),
        "gpu-e": one(scene.devices(MIG, of_profile("1g.10gb"))),
    }


def test_containers_that_ask_for_nothing_are_the_same():
    others = [
        container("a", {"cpu": 1}),
        {"name": "b", "image": "none"},
        container("c", {"memory": "1Gi"}, resources={"claims": [{"name": "x"}]}),
    ]
    claims = [{"name": "x", "resourceClaimName": "x"}]
    body = scene.pod(*others, container("d", hami(10240, 30)), resourceClaims=claims)
    made = scene.converted(body).pod["spec"]
    assert made["containers"][:3] == others
    assert made["resourceClaims"][:1] == claims


SMALLER = {
    "the same": (hami(10240, 30), hami(10240, 30)),
    "less memory": (hami(10240, 30), hami(2048, 30)),
    "fewer cores": (hami(10240, 30), hami(10240, 10)),
    "less memory, and cores that follow it": (hami(10240), hami(2048)),
    "no cores, which follow memory": (hami(10240), hami(2048, 0)),
    "cores that follow memory, beside none": (hami(10240, 0), hami(2048)),
    "cores that follow memory, of a card that is had alone": (hami(10240, 100), hami(2048)),
    "fewer cards": (hami(10240, 30, 4), hami(10240, 30, 2)),
    "one partition of two": (partition("1g.10gb", 2), partition("1g.10gb")),
    "partitions of one of two profiles": (
        partition("1g.10gb") | partition("3g.40gb"),
        partition("3g.40gb"),
    ),
}
LARGER = {
    "more memory": (hami(10240, 30), hami(20480, 30)),
    "more cores": (hami(10240, 30), hami(10240, 40)),
    "more cards": (hami(10240, 30), hami(10240, 30, 2)),
    "less memory and more cores": (hami(10240, 30), hami(2048, 31)),
    "cores that follow memory, beside cores": (hami(10240, 30), hami(2048)),
    "an amount beside a part": (
        {GPU: 1, "nvidia.com/gpumem-percentage": 50},
        {GPU: 1, MEMORY: 1},
    ),
    "all memory beside an amount": (hami(10240, 30), {GPU: 1, CORES: 30}),
    "all memory beside a part": (
        {GPU: 1, "nvidia.com/gpumem-percentage": 50, CORES: 30},
        {GPU: 1, CORES: 30},
    ),
    "a larger part": (
        {GPU: 1, "nvidia.com/gpumem-percentage": 25, CORES: 30},
        {GPU: 1, "nvidia.com/gpumem-percentage": 50, CORES: 30},
    ),
    "a whole card beside a share": (hami(10240, 30), {GPU: 1, CORES: 0}),
    "another profile": (partition("3g.40gb"), partition("1g.10gb")),
    "two profiles beside one": (
        partition("1g.10gb"),
        partition("1g.10gb") | partition("3g.40gb"),
    ),
    "a partition beside a share": (hami(81920), partition("1g.10gb")),
}


@pytest.mark.parametrize("case", SMALLER)
def test_an_init_container_uses_what_its_pod_gets_anyway(case):
    main, before = SMALLER[case]
    claims, specs = of_init(main, before)
    assert claims == {"i0": ["gpu-main"], "main": ["gpu-main"]}
    assert list(specs) == ["gpu-main"]
    alone = scene.converted(scene.pod(container("main", main)))
    assert specs == scene.specs(alone)


@pytest.mark.parametrize("case", LARGER)
def test_an_init_container_that_needs_other_devices_has_a_claim(case):
    main, before = LARGER[case]
    claims, specs = of_init(main, before)
    assert claims == {"i0": ["gpu-i0"], "main": ["gpu-main"]}
    assert list(specs) == ["gpu-i0", "gpu-main"]


def test_of_several_init_containers_each_uses_what_its_pod_gets_anyway():
    claims, [_] = of_init(hami(20480, 40), hami(2048, 10), hami(4096, 20))
    assert claims == {"i0": ["gpu-main"], "i1": ["gpu-main"], "main": ["gpu-main"]}


def test_cores_do_not_matter_of_partitions():
    body = scene.pod(
        container("main", hami(8192, 10)),
        initContainers=[container("before", hami(4096, 90))],
        metadata={"annotations": {"nvidia.com/vgpu-mode": "mig"}},
    )
    assert used(scene.converted(body)) == {"before": ["gpu-main"], "main": ["gpu-main"]}


def test_an_init_container_that_needs_a_whole_card_has_a_claim():
    policy = scene.policy(scene.card(80), whole_gpus=True)
    claims, _ = of_init({"nvidia.com/gpu.shared": 1}, {GPU: 1}, policy=policy)
    assert claims == {"i0": ["gpu-i0"], "main": ["gpu-main"]}


def test_an_init_container_that_needs_other_cards_has_a_claim():
    """Volcano's list is for what asks Volcano; without one a claim may be of another card."""
    volcano = {"volcano.sh/vgpu-number": 1, "volcano.sh/vgpu-memory": 2048}
    annotations = {"volcano.sh/vgpu-use-gpuuuid": "GPU-a"}
    body = scene.pod(
        container("main", hami(2048)),
        initContainers=[container("before", volcano)],
        metadata={"annotations": annotations},
    )
    assert used(scene.converted(body)) == {"before": ["gpu-before"], "main": ["gpu-main"]}
    del body["metadata"]
    assert used(scene.converted(body)) == {"before": ["gpu-main"], "main": ["gpu-main"]}


def test_cards_of_one_numa_node_are_enough_for_who_needs_just_cards():
    volcano = {"volcano.sh/vgpu-number": 2, "volcano.sh/vgpu-memory": 2048}
    metadata = {"annotations": {"nvidia.com/numa-bind": "true"}}
    one_way = scene.pod(
        container("main", hami(2048, count=2)),
        initContainers=[container("before", volcano)],
        metadata=metadata,
    )
    assert used(scene.converted(one_way)) == {"before": ["gpu-main"], "main": ["gpu-main"]}
    other_way = scene.pod(
        container("main", volcano),
        initContainers=[container("before", hami(2048, count=2))],
        metadata=metadata,
    )
    assert used(scene.converted(other_way)) == {"before": ["gpu-before"], "main": ["gpu-main"]}


def test_init_containers_take_turns_with_what_the_largest_of_them_needs():
    claims, specs = of_init({"cpu": 1}, hami(1024, 5), hami(4096, 20), hami(2048, 20))
    assert claims == {"i0": ["gpu-i1"], "i1": ["gpu-i1"], "i2": ["gpu-i1"], "main": []}
    assert specs == {"gpu-i1": one(share("4Gi", "20"))}


def test_init_containers_of_which_none_is_enough_for_the_others_have_claims():
    claims, specs = of_init({"cpu": 1}, hami(1024, 50), hami(4096, 20), hami(1024, 20))
    assert claims == {"i0": ["gpu-i0"], "i1": ["gpu-i1"], "i2": ["gpu-i0"], "main": []}
    assert specs == {"gpu-i0": one(share("1Gi", "50")), "gpu-i1": one(share("4Gi", "20"))}


def test_an_init_container_uses_the_claim_of_the_container_that_has_enough():
    body = scene.pod(
        container("small", hami(1024, 5)),
        container("large", hami(8192, 50)),
        initContainers=[container("before", hami(4096, 20))],
    )
    made = scene.converted(body)
    assert used(made) == {"before": ["gpu-large"], "small": ["gpu-small"], "large": ["gpu-large"]}


def test_a_sidecar_shares_with_nobody_who_runs_beside_it():
    sidecar = container("sidecar", hami(10240, 30), restartPolicy="Always")
    before, after = container("before", hami(2048, 30)), container("after", hami(2048, 30))
    made = scene.converted(
        scene.pod(container("main", {"cpu": 1}), initContainers=[before, sidecar, after])
    )
    assert used(made) == {
        "before": ["gpu-sidecar"],
        "sidecar": ["gpu-sidecar"],
        "after": ["gpu-after"],
        "main": [],
    }
    made = scene.converted(scene.pod(container("main", hami(10240, 30)), initContainers=[sidecar]))
    assert used(made) == {"sidecar": ["gpu-sidecar"], "main": ["gpu-main"]}


def test_a_line_says_whose_claim_an_init_container_uses():
    body = scene.pod(
        container("main", hami(8192, 50)), initContainers=[container("before", hami(4096, 20))]
    )
    said = "nvidia.com/gpu: 1, nvidia.com/gpumem: 4096, nvidia.com/gpucores: 20"
    told = "claim gpu-main of container main: they take turns"
    assert f"container before: {said}: {told}" in scene.told(scene.converted(body).lines)
