"""What holds of every conversion, whatever is asked for, and of whatever is no pod."""

import copy
import json
import random
import re

import api_objects
import converting_asks
import converting_scene as scene
import effort
import hypothesis
import pytest
from hypothesis import strategies as st

from dra_driver.logic.cel import selection
from dra_driver.logic.converting import converting
from dra_driver.sim.api.kinds import resource_gates

LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", re.ASCII)
SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?", re.ASCII)
CASES = converting_asks.cases()


@pytest.fixture(scope="module")
def api():
    """An API server that checks selectors as Kubernetes' does."""
    gates = resource_gates.known(36)
    with api_objects.Api(enabled_gates=gates, expression_check=selection.check) as found:
        yield found


def accepted(api, path, kind, body):
    version = "v1" if kind == "Pod" else "resource.k8s.io/v1"
    sent = {"apiVersion": version, "kind": kind, **body}
    answer = api.send("POST", path, sent, dryRun="All", fieldValidation="Strict")
    assert answer.status == 201, (answer.causes, answer.body)


def used(made):
    """The spec of the claim of each container that has one of a template of ours."""
    specs = scene.specs(made)
    containers = [*made.pod["spec"].get("initContainers", ()), *made.pod["spec"]["containers"]]
    return {
        body["name"]: [specs[claim["name"]] for claim in body["resources"].get("claims", ())]
        for body in containers
    }


@hypothesis.settings(max_examples=effort.examples(300))
@hypothesis.given(case=CASES)
def test_what_is_made_is_accepted_by_the_api_server(api, case):
    made = converting.convert(case.pod, case.policy)
    for template in made.templates:
        body = {"metadata": {"name": template.name}, "spec": {"spec": template.spec}}
        accepted(api, api_objects.TEMPLATES, "ResourceClaimTemplate", body)
    accepted(api, api_objects.PODS, "Pod", made.pod)


@hypothesis.settings(max_examples=effort.examples(400))
@hypothesis.given(case=CASES)
def test_each_container_gets_no_less_than_it_asked_for(case):
    made = converting.convert(case.pod, case.policy)
    assert made.problems == ()
    claims = used(made)
    for name, worth in case.worth.items():
        if not worth:
            assert claims[name] == []
        else:
            [claim] = claims[name]
            assert converting_asks.is_enough(claim, worth), (name, worth, claim)


@hypothesis.settings(max_examples=effort.examples(200))
@hypothesis.given(case=CASES)
def test_those_that_run_at_one_time_do_not_share_a_claim(case):
    made = converting.convert(case.pod, case.policy)
    spec = made.pod["spec"]
    lasting = [*spec["containers"]]
    lasting += [one for one in spec.get("initContainers", ()) if "restartPolicy" in one]
    names = [claim["name"] for body in lasting for claim in body["resources"].get("claims", ())]
    assert len(names) == len(set(names))


@hypothesis.settings(max_examples=effort.examples(200))
@hypothesis.given(case=CASES)
def test_converting_again_changes_nothing(case):
    made = converting.convert(case.pod, case.policy)
    again = converting.convert(made.pod, case.policy)
    assert not again.is_converted
    assert (again.pod, again.templates, again.problems) == (made.pod, (), ())


@hypothesis.settings(max_examples=effort.examples(200))
@hypothesis.given(case=CASES)
def test_what_was_given_is_as_it_was_and_nothing_is_left_of_what_was_asked(case):
    before = copy.deepcopy(case.pod)
    made = converting.convert(case.pod, case.policy)
    assert case.pod == before
    asked = {name for body in bodies(before) for name in body["resources"]["limits"]}
    for body in bodies(made.pod):
        left = {*body["resources"].get("limits", ()), *body["resources"].get("requests", ())}
        assert left & asked <= {"cpu"}
        assert "limits" not in body["resources"] or body["resources"]["limits"]


def bodies(pod):
    return [*pod["spec"].get("initContainers", ()), *pod["spec"]["containers"]]


@hypothesis.settings(max_examples=effort.examples(200))
@hypothesis.given(case=CASES)
def test_names_are_names_and_tell_what_is_asked_for(case):
    made = converting.convert(case.pod, case.policy)
    names = [claim["name"] for claim in made.pod["spec"].get("resourceClaims", ())]
    assert all(map(LABEL.fullmatch, names))
    assert len(names) == len(set(names))
    assert all(SUBDOMAIN.fullmatch(template.name) for template in made.templates)
    specs = [json.dumps(template.spec, sort_keys=True) for template in made.templates]
    assert len({template.name for template in made.templates}) == len(set(specs)) == len(specs)


@hypothesis.settings(max_examples=effort.examples(150))
@hypothesis.given(case=CASES, seed=st.integers(0, 2**16))
def test_the_order_in_which_things_are_written_does_not_matter(case, seed):
    made = converting.convert(case.pod, case.policy)
    other = converting.convert(shuffled(case.pod, random.Random(seed)), case.policy)
    assert other.templates == made.templates
    assert other.pod == made.pod


def shuffled(value, order):
    """The same with the names of objects in another order."""
    if isinstance(value, list):
        return [shuffled(each, order) for each in value]
    if not isinstance(value, dict):
        return value
    names = list(value)
    order.shuffle(names)
    return {name: shuffled(value[name], order) for name in names}


# What is no pod

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from([2**63, -(2**63), 10**100, 1e400, "", "1", "nvidia.com/gpu", "gpu-fraction"])
)
_KEYS = (
    "metadata spec annotations labels containers initContainers resources limits requests claims "
    "env name nodeSelector affinity schedulerName nvidia.com/gpu nvidia.com/gpumem "
    "volcano.sh/vgpu-number gpu-fraction"
)
NAMES = st.text(max_size=5) | st.sampled_from(_KEYS.split())
ANYTHING = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=5),
    max_leaves=30,
)


def holds(body, policy):
    """What holds of whatever was decoded from JSON."""
    before = copy.deepcopy(body)
    made = converting.convert(body, policy)
    assert repr(body) == repr(before)
    if made.problems:
        assert made.pod is body
        assert (made.templates, made.is_converted) == ((), False)
    elif not made.is_converted:
        assert made.pod is body or made.pod == body
        assert made.templates == ()
    for text in [*map(str, made.problems), *scene.told(made.warnings), *scene.told(made.lines)]:
        assert len(text) < 5000


@hypothesis.settings(max_examples=effort.examples(400))
@hypothesis.given(body=ANYTHING, policy=st.sampled_from(converting_asks.POLICIES))
def test_whatever_it_is_there_is_an_answer(body, policy):
    holds(body, policy)


def places(value, path=()):
    """The places of all values in this, but for itself."""
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, inner in items:
        yield (*path, key)
        if isinstance(inner, dict | list):
            yield from places(inner, (*path, key))


def put(value, path, new):
    """The same with another value at a place."""
    if not path:
        return new
    changed = dict(value) if isinstance(value, dict) else list(value)
    changed[path[0]] = put(value[path[0]], path[1:], new)
    return changed


@hypothesis.settings(max_examples=effort.examples(600))
@hypothesis.given(data=st.data())
def test_a_pod_in_which_something_is_wrong_gets_an_answer(data):
    case = data.draw(CASES)
    body = case.pod
    for _ in range(data.draw(st.integers(1, 3))):
        body = put(body, data.draw(st.sampled_from([*places(body)] or [()])), data.draw(ANYTHING))
        if not isinstance(body, dict) or not body:
            break
    holds(body, case.policy)


REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
TERM = {"matchExpressions": [{"key": "nvidia.com/gpu.family", "operator": "In", "values": ["ada"]}]}
RICH = {
    "metadata": {
        "annotations": {"nvidia.com/use-gputype": "A100", "gpu-fraction": "0.5", "gpu-memory": "1"},
        "labels": {"aliyun.com/gpu-count": "1"},
    },
    "spec": {
        "schedulerName": "volcano",
        "runtimeClassName": "nvidia",
        "hostIPC": True,
        "nodeSelector": {"nvidia.com/gpu.product": "Tesla-T4"},
        "affinity": {
            "nodeAffinity": {
                REQUIRED: {"nodeSelectorTerms": [TERM]},
                PREFERRED: [{"weight": 1, "preference": TERM}],
            }
        },
        "resourceClaims": [{"name": "a", "resourceClaimName": "b"}],
        "initContainers": [
            {
                "name": "i",
                "restartPolicy": "Always",
                "resources": {"limits": {"volcano.sh/vgpu-number": 1}},
            }
        ],
        "containers": [
            {
                "name": "c",
                "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}],
                "resources": {
                    "limits": {
                        "nvidia.com/gpu": 1,
                        "nvidia.com/gpumem": 1,
                        "nvidia.com/priority": 1,
                    },
                    "requests": {"nvidia.com/gpu": 1},
                    "claims": [{"name": "a"}],
                },
            },
            {"name": "d", "resources": {"limits": {"aliyun.com/gpu-mem": 1}}},
            {"name": "e", "resources": {"limits": {"nvidia.com/mig-1g.10gb": 1}}},
        ],
    },
}
PLAIN = put(RICH, ("metadata", "annotations"), {"nvidia.com/use-gputype": "A100"})


def deep(kind):
    value = 1
    for _ in range(20_000):
        value = [value] if kind is list else {"a": value}
    return value


@pytest.mark.parametrize("kind", [list, dict])
@pytest.mark.parametrize("path", [(), *places(RICH)], ids=lambda path: "/".join(map(str, path)))
def test_something_very_deep_gets_an_answer_in_every_place(path, kind):
    found = deep(kind)
    for body in (RICH, PLAIN):
        if any(part == "gpu-fraction" for part in path) and body is PLAIN:
            continue
        try:
            broken = put(body, path, found)
        except KeyError:
            continue
        for command in (True, False):
            policy = scene.policy(scene.card(80), command=command, whole_gpus=True)
            made = converting.convert(broken, policy)
            if made.problems:
                assert made.pod is broken


@pytest.mark.parametrize("path", [*places(PLAIN)], ids=lambda path: "/".join(map(str, path)))
def test_a_wrong_type_gets_an_answer_in_every_place(path):
    for wrong in (
        None,
        True,
        0,
        -1,
        1.5,
        float("nan"),
        "",
        "x",
        [],
        [None],
        {},
        {"a": None},
        1 << 20_000,
    ):
        for command in (True, False):
            policy = scene.policy(scene.card(80), command=command, whole_gpus=True)
            broken = put(PLAIN, path, wrong)
            made = converting.convert(broken, policy)
            if made.problems:
                assert made.pod is broken
