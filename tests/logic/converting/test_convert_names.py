"""Names of what a conversion makes: equal asks have equal templates, and no name is too long."""

import hashlib
import json
import re

import converting_scene as scene
import pytest
from converting_scene import container, has_just, one, share

GPU, MEMORY, CORES = "nvidia.com/gpu", "nvidia.com/gpumem", "nvidia.com/gpucores"
HAMI = {GPU: 1, MEMORY: 10240, CORES: 30}
LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", re.ASCII)


def template(limits, policy=scene.EIGHTY, **fields):
    """The name of the only template of a pod whose only container asks for that."""
    [made] = scene.converted(scene.pod(container(limits=limits), **fields), policy).templates
    return made.name


def claims(*names, taken=()):
    """The names of the claims that a pod with these containers gets, by container."""
    there = [{"name": name, "resourceClaimName": "x"} for name in taken]
    body = scene.pod(*(container(name, HAMI) for name in names), resourceClaims=there)
    spec = scene.converted(body).pod["spec"]
    assert spec["resourceClaims"][: len(there)] == there
    added = [claim["name"] for claim in spec["resourceClaims"][len(there) :]]
    used = {
        body["name"]: [claim["name"] for claim in body["resources"]["claims"]]
        for body in spec["containers"]
    }
    assert [[name] for name in added] == list(used.values())
    assert len({*added, *taken}) == len(added) + len(taken)
    assert all(map(LABEL.fullmatch, added))
    return added


# Templates


def test_the_name_of_a_template_is_made_of_what_its_claims_ask_for():
    spec = one(share("10Gi", "30"))
    text = json.dumps(spec, sort_keys=True, separators=(",", ":"))
    assert template(HAMI) == f"converted-{hashlib.sha256(text.encode()).hexdigest()[:12]}"


EQUAL = {
    "numbers as texts": ({GPU: "1", MEMORY: "10240", CORES: "30"}, scene.EIGHTY),
    "resources in another order": ({CORES: 30, MEMORY: 10240, GPU: 1}, scene.EIGHTY),
    "a count that is not there": ({MEMORY: 10240, CORES: 30}, scene.EIGHTY),
    "another system": (
        {
            "volcano.sh/vgpu-number": 1,
            "volcano.sh/vgpu-memory": 10240,
            "volcano.sh/vgpu-cores": 30,
        },
        scene.EIGHTY,
    ),
    "other cards": (HAMI, scene.MIXED),
    "no cards known": (HAMI, scene.NO_FLEET),
    "a priority beside": ({**HAMI, "nvidia.com/priority": 0}, scene.EIGHTY),
    "the webhook": (HAMI, scene.policy(scene.card(80), command=False)),
}


@pytest.mark.parametrize("case", EQUAL)
def test_equal_asks_have_equal_names(case):
    assert template(*EQUAL[case]) == template(HAMI)


OTHER = {
    "more memory": ({GPU: 1, MEMORY: 10241, CORES: 30}, scene.EIGHTY),
    "more cores": ({GPU: 1, MEMORY: 10240, CORES: 31}, scene.EIGHTY),
    "more cards": ({GPU: 2, MEMORY: 10240, CORES: 30}, scene.EIGHTY),
    "another class": (HAMI, scene.policy(share_class="other.example.com")),
    "a whole card": ({GPU: 1, CORES: 0}, scene.EIGHTY),
}


@pytest.mark.parametrize("case", OTHER)
def test_other_asks_have_other_names(case):
    assert template(*OTHER[case]) != template(HAMI)


def test_labels_are_in_the_name():
    label = {"nvidia.com/gpu.family": "hopper"}
    assert template(HAMI, nodeSelector=label) != template(HAMI)
    assert template(HAMI, nodeSelector={"disk": "ssd"}) == template(HAMI)


def test_the_name_of_the_pod_is_not_in_the_name():
    pods = [
        scene.pod(container(limits=HAMI), metadata={"name": "a" * 253}),
        {"metadata": {"generateName": "a-"}, "spec": {"containers": [container("b", HAMI)]}},
        {"spec": {"containers": [container("c" * 63, HAMI)]}},
    ]
    made = [scene.converted(body) for body in pods]
    assert {t.name for one in made for t in one.templates} == {template(HAMI)}


def test_alternatives_of_other_cards_have_other_names():
    half = {GPU: 1, "nvidia.com/gpumem-percentage": 50}
    assert template(half, scene.MIXED) != template(half)
    made = scene.converted(scene.pod(container(limits=half)))
    assert scene.specs(made) == {"gpu-main": one(share("40Gi", "50", has_just("80Gi")))}


# Claims of a pod


def test_a_claim_is_named_after_its_container():
    assert claims("a", "web-1", "0") == ["gpu-a", "gpu-web-1", "gpu-0"]


def test_the_longest_name_that_has_room_is_whole():
    assert claims("a" * 59) == [f"gpu-{'a' * 59}"]


@pytest.mark.parametrize("length", [60, 61, 62, 63])
def test_a_longer_name_is_cut_and_told_apart(length):
    first, second = "a" * (length - 1) + "b", "a" * (length - 1) + "c"
    made = claims(first, second)
    assert all(name.startswith("gpu-aaaaaaaaaa") for name in made)


def test_a_name_that_is_cut_at_a_dash_is_a_name():
    [made] = claims("a" * 10 + "-" * 52 + "b")
    assert made.startswith("gpu-aaaaaaaaaa-")


def test_a_name_that_is_taken_is_told_apart():
    [made] = claims("a", taken=["gpu-a"])
    assert re.fullmatch(r"gpu-a-[0-9a-f]{8}", made)


def test_names_that_are_taken_again_and_again_are_told_apart():
    taken = ["gpu-a"]
    for _ in range(3):
        taken += claims("a", taken=taken)
    assert len({*taken}) == 4


def test_a_long_name_that_is_taken_is_told_apart():
    [first] = claims("a" * 63)
    claims("a" * 63, taken=[first])


def test_names_are_the_same_each_time():
    assert claims("a" * 63, "b") == claims("a" * 63, "b")
    assert claims("a", taken=["gpu-a"]) == claims("a", taken=["gpu-a"])


def test_containers_whose_names_meet_have_claims_of_their_own():
    [hashed] = claims("a", taken=["gpu-a"])
    other = hashed.removeprefix("gpu-")
    assert len({*claims("a", other, taken=["gpu-a"])}) == 2
    assert len({*claims(other, "a", taken=["gpu-a"])}) == 2


def test_requests_are_numbered():
    limits = {f"nvidia.com/mig-{n}g.10gb": 1 for n in range(1, 6)}
    made = scene.converted(scene.pod(container(limits=limits)))
    [claim] = scene.specs(made).values()
    names = [request["name"] for request in claim["devices"]["requests"]]
    assert names == ["gpu", "gpu-2", "gpu-3", "gpu-4", "gpu-5"]
