"""Whatever anybody sends as a pod gets an answer from the webhook, and soon."""

import json

import hypothesis
import pod_reviews
import pytest
from hypothesis import strategies

from dra_driver.logic.admission import converted


@pytest.fixture(scope="module")
def shared(cluster, tmp_path_factory):
    with pod_reviews.converting_webhook(cluster, tmp_path_factory.mktemp("tls")) as connected:
        yield connected


_SCALARS = strategies.one_of(
    strategies.none(),
    strategies.booleans(),
    strategies.integers(),
    strategies.floats(allow_nan=False),
    strategies.sampled_from(
        ["", "1", "-1", "1Gi", "nvidia.com/gpu", "x" * 300, "\ud83d", "\x1b[2J"]
    ),
)
_KEYS = strategies.sampled_from(
    [
        "metadata", "annotations", "labels", "name", "generateName", "spec", "containers", "env",
        "initContainers", "resources", "limits", "requests", "claims", "resourceClaims",
        "nvidia.com/gpu", "nvidia.com/gpumem", "nvidia.com/gpucores", "nvidia.com/gpu.shared",
        "nvidia.com/mig-1g.10gb", "nvidia.com/use-gpuuuid", "nodeSelector", "affinity",
    ]
)  # fmt: skip
_ODD = strategies.recursive(
    _SCALARS,
    lambda inner: (
        strategies.lists(inner, max_size=3) | strategies.dictionaries(_KEYS, inner, max_size=4)
    ),
    max_leaves=20,
)


@hypothesis.given(strategies.dictionaries(_KEYS, _ODD, max_size=4))
@hypothesis.settings(suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture])
def test_whatever_is_sent_as_a_pod_gets_an_answer(shared, body):
    response = shared.convert(pod_reviews.review(body))
    assert response["allowed"] or response["status"]["message"]


@hypothesis.given(_ODD, _ODD)
@hypothesis.settings(suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture])
def test_whatever_a_pod_asks_for_gets_an_answer(shared, limits, rest):
    body = pod_reviews.pod()
    body["spec"]["containers"][0]["resources"] = {"limits": limits, "claims": rest}
    response = shared.convert(pod_reviews.review(body))
    assert response["allowed"] or response["status"]["message"]


@pytest.mark.parametrize("field", ["env", "resources", "volumeMounts"])
def test_what_is_nested_deeply_gets_an_answer(shared, field):
    for depth in (100, 900, 5000, 100_000):
        document = json.dumps(pod_reviews.review(pod_reviews.share()))
        deep = "[" * depth + "]" * depth
        text = document.replace('"image": "i"', f'"image": "i", "{field}": {deep}')
        answer = shared.send(text.encode(), path=pod_reviews.PATH)
        assert answer.status in (200, 400)


def test_what_is_nested_deeply_in_what_changes_gets_an_answer(shared):
    key = "nvidia.com/gpu.product"
    wanted = [{"key": key, "operator": "In", "values": ["A"]}, {"key": "a", "values": "DEEP"}]
    selected = {"nodeSelectorTerms": [{"matchExpressions": wanted}]}
    node = {"requiredDuringSchedulingIgnoredDuringExecution": selected}
    document = json.dumps(pod_reviews.review(pod_reviews.share(affinity={"nodeAffinity": node})))
    seen = set()
    for depth in (10, 400, 700, 850, 900, 930, 960, 980, 5000):
        text = document.replace('"DEEP"', "[" * depth + "]" * depth)
        answer = shared.send(text.encode(), path=pod_reviews.PATH)
        seen.add(answer.status)
        assert answer.status in (200, 400)
    assert seen == {200, 400}


@pytest.mark.parametrize("step", ["decide", "answer"])
def test_what_is_too_deep_for_a_step_of_the_work_is_refused_as_such(shared, monkeypatch, step):
    def deep(*_, **__):
        raise RecursionError

    monkeypatch.setattr(converted, step, deep)
    document = json.dumps(pod_reviews.review(pod_reviews.share())).encode()
    answer = shared.send(document, path=pod_reviews.PATH)
    assert (answer.status, answer.body) == (400, b"request.object: nested too deeply\n")


def with_containers(count, **limits):
    """A pod of so many containers that ask alike, but for what is given by their number."""
    body = pod_reviews.share()
    [container] = body["spec"]["containers"]
    body["spec"]["containers"] = [
        container
        | {"name": f"c{number}"}
        | {
            "resources": {
                "limits": container["resources"]["limits"]
                | {f"nvidia.com/{name}": str(value(number)) for name, value in limits.items()}
            }
        }
        for number in range(count)
    ]
    return body


def in_lists(**counts):
    """A pod of so many containers in each of its lists."""
    body = pod_reviews.pod()
    for name, count in counts.items():
        body["spec"][name] = with_containers(count)["spec"]["containers"]
    return body


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (in_lists(initContainers=512), "at most 512 containers of a pod are looked at"),
        (in_lists(containers=256, initContainers=257), "at most 512 containers of a pod are"),
        (with_containers(513), "at most 512 containers of a pod are looked at"),
        (with_containers(8000), "at most 512 containers of a pod are looked at"),
        (
            with_containers(33, gpumem=lambda number: 1000 + number),
            "pod: spec.containers: 33: at most 32 different asks of a pod are converted",
        ),
    ],
    ids=["before", "both", "513", "8000", "33 asks"],
)
def test_more_than_can_be_done_while_a_review_waits_is_refused(shared, body, reason):
    response = shared.convert(pod_reviews.review(body))
    assert (response["allowed"], pod_reviews.patch_of(response)) == (False, [])
    status = response["status"]
    assert status["code"] == 422
    assert reason in status["message"]


def test_a_pod_of_as_many_containers_as_are_looked_at_is_converted(shared):
    body = with_containers(512, gpumem=lambda number: 1000 + number % 32)
    response = shared.convert(pod_reviews.review(body))
    assert response["allowed"]
    assert len(json.dumps(pod_reviews.patch_of(response))) < 1_000_000
    made = pod_reviews.patched(body, pod_reviews.patch_of(response))
    assert len(made["metadata"]["annotations"]["dra-driver.dev/converted-from"]) <= 4096
