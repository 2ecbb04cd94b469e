"""Whose template a name is, what is done to it, and what the status says."""

import dataclasses

import pytest

from dra_driver.logic.parameters import claims, matching, standing
from dra_driver.model import parameters

DRIVER = "gpu.nvidia.com"
GPU, MIG, MIG_DEVICE, VFIO = parameters.Kind
GOOD, OTHER, BAD = {"count": 1}, {"count": 2}, {"count": 0}
FIRST, SECOND = "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"


def subject(spec=None, kind=GPU, uid="uid-1", created=FIRST, **more):
    made = claims.of(kind, GOOD if spec is None else spec, DRIVER)
    base = standing.Subject(kind, "ns", "mine", uid, created, 1, "7", made, {})
    return dataclasses.replace(base, **more)


def written(of=None, **more):
    """The template that was made of an object."""
    body = standing.template(of or subject(), "v1")
    body["metadata"] |= {"uid": "template-1", **more}
    return standing.template_of(body)


FOREIGN = standing.template_of({"metadata": {"namespace": "ns", "name": "mine", "uid": "x"}})


@pytest.mark.parametrize(
    ("spec", "template", "act"),
    [
        (GOOD, None, standing.Act.MAKE),
        (GOOD, written(), standing.Act.KEEP),
        (OTHER, written(), standing.Act.REPLACE),
        (GOOD, written(subject(uid="uid-0")), standing.Act.REPLACE),
        (GOOD, written(annotations={}), standing.Act.REPLACE),
        (GOOD, FOREIGN, standing.Act.LEAVE),
        (GOOD, written(labels={}), standing.Act.LEAVE),
        (GOOD, written(deletionTimestamp="now"), standing.Act.LEAVE),
        (BAD, None, standing.Act.KEEP),
        (BAD, written(), standing.Act.REMOVE),
        (BAD, FOREIGN, standing.Act.LEAVE),
    ],
)
def test_what_is_done_follows_from_what_is_there(spec, template, act):
    assert standing.act(subject(spec), template) is act


def test_a_name_is_that_of_who_has_the_template_then_of_who_came_first_then_of_the_first_kind():
    gpu, mig = subject(), subject({"profile": "1g.5gb"}, MIG, uid="uid-2")

    def holder(*subjects, templates=()):
        found = standing.holders(
            subjects, dict.fromkeys([("ns", "mine")], *templates) if templates else {}
        )
        return found["ns", "mine"].kind

    assert holder(mig, gpu) is GPU
    late = dataclasses.replace(gpu, created=SECOND)
    assert holder(late, mig) is MIG
    assert holder(mig, late, templates=[written(late)]) is GPU


def told(of, verdict=None, matches=None, time=SECOND):
    return standing.status(of, verdict or standing.verdict(of), matches, time=time)


def test_a_condition_keeps_its_time_as_long_as_it_is_the_same():
    first = told(subject(), time=FIRST)
    again = told(subject(status=first), matches=matching.Matches(), time=SECOND)
    times = {each["type"]: each["lastTransitionTime"] for each in again["conditions"]}
    assert times == {"Ready": FIRST, "Matching": SECOND}
    assert told(subject(status=first), time=SECOND) == first
    broken = told(subject(BAD, status=first), time=SECOND)
    assert broken["conditions"][0]["lastTransitionTime"] == SECOND


def test_a_status_that_somebody_has_spoilt_is_written_anew():
    for spoilt in (
        {"conditions": None},
        {"conditions": 5},
        {"conditions": [None, 5, {}]},
        {"conditions": []},
    ):
        status = told(subject(status=spoilt), time=SECOND)
        assert [each["lastTransitionTime"] for each in status["conditions"]] == [SECOND, SECOND]


def test_a_message_is_no_longer_than_the_definition_allows():
    verdict = standing.refused("x" * 100_000)
    [ready, _] = told(subject(), verdict)["conditions"]
    assert len(ready["message"]) <= 4096
    assert ready["reason"] == "TemplateRefused"


def test_a_template_says_in_the_version_of_the_server_what_it_asks_for():
    found = standing.template(subject(OTHER), "v1beta1")
    [request] = found["spec"]["spec"]["devices"]["requests"]
    assert (request["count"], "exactly" in request) == (2, False)
    assert found["apiVersion"] == "resource.k8s.io/v1beta1"
