"""PriorityClasses, and which priority pods get by them, over HTTP."""

import api_objects
import pytest
from api_objects import PODS

CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"


def priority_class(name="urgent", value=1000, **fields):
    return {"metadata": {"name": name}, "value": value} | fields


def pod(**spec):
    body = api_objects.pod()
    body["spec"] |= spec
    return body


def test_each_cluster_has_the_classes_of_the_system(api):
    assert {body["metadata"]["name"]: body["value"] for body in api.get(CLASSES)["items"]} == {
        "system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000,
    }  # fmt: skip


def test_a_pod_has_the_priority_of_its_class(api):
    api.create(CLASSES, priority_class(preemptionPolicy="Never"))
    spec = api.create(PODS, pod(priorityClassName="urgent"))["spec"]
    assert (spec["priority"], spec["preemptionPolicy"]) == (1000, "Never")


def test_a_pod_without_a_class_has_that_of_the_default_or_none(api):
    made = api.create(PODS, pod(), dryRun="All")
    assert (made["spec"]["priority"], "priorityClassName" in made["spec"]) == (0, False)
    api.create(CLASSES, priority_class("usual", 5, globalDefault=True))
    made = api.create(PODS, pod())
    assert (made["spec"]["priority"], made["spec"]["priorityClassName"]) == (5, "usual")


def test_a_class_that_is_not_there_is_refused(api):
    answer = api.send("POST", PODS, pod(priorityClassName="absent"))
    assert answer.status == 403
    assert answer.body["message"] == (
        'pods "train" is forbidden: no PriorityClass with name absent was found'
    )


def test_a_priority_of_ones_own_is_refused(api):
    api.create(CLASSES, priority_class())
    answer = api.send("POST", PODS, pod(priorityClassName="urgent", priority=7))
    assert answer.status == 403
    assert "the integer value of priority (7) must not be provided" in answer.body["message"]
    answer = api.send("POST", PODS, pod(priorityClassName="urgent", preemptionPolicy="Never"))
    assert answer.status == 403
    assert "controller computed PreemptLowerPriority" in answer.body["message"]


def test_there_is_one_default(api):
    api.create(CLASSES, priority_class("usual", globalDefault=True))
    answer = api.send("POST", CLASSES, priority_class("other", globalDefault=True))
    assert answer.status == 403
    assert "PriorityClass usual is already marked as default" in answer.body["message"]
    api.patch(f"{CLASSES}/usual", {"description": "still the default"})


@pytest.mark.parametrize(
    ("body", "cause"),
    [
        (
            priority_class(value=1_000_000_001),
            "value: Forbidden: maximum allowed value of a user defined priority is 1000000000",
        ),
        (
            priority_class("system-mine"),
            (
                "metadata.name: Forbidden: priority class names with 'system-' prefix are reserved "
                "for system use only. error: system-mine is not a known system priority class"
            ),
        ),
        (
            priority_class(preemptionPolicy="Often"),
            (
                'preemptionPolicy: Unsupported value: "Often": '
                'supported values: "Never", "PreemptLowerPriority"'
            ),
        ),
    ],
)
def test_a_class_that_may_not_be_is_refused(api, body, cause):
    assert api.send("POST", CLASSES, body).causes == [cause]


def test_the_value_of_a_class_stays(api):
    api.create(CLASSES, priority_class())
    answer = api.send("PUT", f"{CLASSES}/urgent", priority_class(value=5))
    assert answer.causes == ["value: Forbidden: may not be changed in an update."]
