"""What is answered to reviews of pods: bounded, whatever was found."""

import json

import pod_reviews
import pytest

from dra_driver.logic.admission import converted
from dra_driver.logic.converting import conversion

POLICY = conversion.Policy("gpu.nvidia.com", conversion.Door.WEBHOOK, "shared-mps.gpu.nvidia.com")
ASKED = converted.Asked("uid", "p", "default")


def read(body):
    return converted.read(pod_reviews.review(body))


def test_some_warnings_are_told_each_in_part_and_the_others_counted():
    decision = converted.Decision(ASKED, warnings=tuple("w" * 5000 for _ in range(12)))
    response = converted.answer(decision)["response"]
    assert response["allowed"]
    *told, left = response["warnings"]
    assert len(told) == 10
    assert all(len(text.encode()) <= 512 for text in told)
    assert left == "2 more warnings are left out"


def test_a_refusal_has_no_patch_and_no_templates():
    decision = converted.decide(read(pod_reviews.share()), POLICY)
    assert decision.patch
    assert decision.templates
    problem = conversion.Problem("pod", "f", "v", "r")
    for refused in (decision.failed("why"), decision.refused(problem)):
        assert not refused.allowed
        assert (refused.patch, refused.templates) == ((), ())
        assert "patch" not in converted.answer(refused)["response"]


@pytest.mark.parametrize(
    ("asked", "metadata", "name"),
    [
        ("p", {"name": "q"}, "p"),
        ("", {"name": "q", "generateName": "job-"}, "q"),
        (None, {"generateName": "job-"}, "job-"),
        (None, {"name": 7}, ""),
        ("n" * 300, {}, "n" * 253),
    ],
    ids=["asked", "own", "generated", "none", "long"],
)
def test_a_pod_is_told_of_by_what_names_it_best(asked, metadata, name):
    body = pod_reviews.share("0") | {"metadata": metadata}
    decision = converted.decide(converted.read(pod_reviews.review(body, name=asked)), POLICY)
    status = converted.answer(decision)["response"]["status"]
    assert status["details"]["name"] == name


def test_the_reason_of_a_failure_is_told_in_part():
    message = converted.message(converted.Decision(ASKED, failure="x" * 100_000))
    assert message.startswith("the pod cannot be converted now: xxx")
    assert len(message.encode()) <= 4096


def test_only_what_depends_on_the_cards_fails_without_them():
    share = read(pod_reviews.share())
    assert converted.decide(share, POLICY, no_fleet="why").allowed
    for limits in (
        {"nvidia.com/gpu": "1", "nvidia.com/gpumem-percentage": "50"},
        {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "8000"},
    ):
        asked = read(pod_reviews.pod(limits))
        assert converted.wants_fleet(asked, POLICY)
        refused = converted.decide(asked, POLICY, no_fleet="why")
        assert refused.failure == "the sizes of the cluster's GPUs are not known: why"
    assert not converted.wants_fleet(read(pod_reviews.pod({"cpu": "1"})), POLICY)


def test_what_a_pod_asked_for_is_noted_in_no_more_than_there_is_room_for():
    body = pod_reviews.share()
    [container] = body["spec"]["containers"]
    body["spec"]["containers"] = [container | {"name": f"c{n}-{'x' * 50}"} for n in range(100)]
    decision = converted.decide(read(body), POLICY)
    made = pod_reviews.patched(body, list(decision.patch))
    note = made["metadata"]["annotations"][converted.CONVERTED_FROM]
    assert len(note.encode()) <= 2100
    assert json.loads(note)[-1] == "…"


@pytest.mark.parametrize(
    "text",
    ["{", "[" * 4000, "7", '{"a": 1}', "null", '["a", 7]', json.dumps(["x" * 5000]), ["a"]],
    ids=["half", "deep", "number", "map", "null", "mixed", "long", "list"],
)
def test_anybody_may_write_the_annotation(text):
    body = pod_reviews.share()
    body["metadata"]["annotations"] = {converted.CONVERTED_FROM: text}
    assert converted.converted_from(body) == ()
    decision = converted.decide(read(body), POLICY)
    made = pod_reviews.patched(body, list(decision.patch))
    [told] = converted.converted_from(made)
    assert told.startswith("container c: nvidia.com/gpu: 1")


def test_what_was_asked_for_before_another_webhook_added_a_container_is_not_forgotten():
    body = pod_reviews.share()
    made = pod_reviews.patched(body, list(converted.decide(read(body), POLICY).patch))
    [other] = pod_reviews.share("9000")["spec"]["containers"]
    made["spec"]["containers"].append(other | {"name": "added"})
    decision = converted.decide(read(made), POLICY)
    again = pod_reviews.patched(made, list(decision.patch))
    first, second = converted.converted_from(again)
    assert first.startswith("container c: ")
    assert second.startswith("container added: ")
    assert [each["name"] for each in again["spec"]["resourceClaims"]] == ["gpu-c", "gpu-added"]
    assert len(decision.templates) == 1
    assert converted.decide(read(again), POLICY).patch == ()
