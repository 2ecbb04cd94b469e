"""What becomes of the templates of converted pods, by their marks and the pods that there are."""

import datetime as dt

import hypothesis
import pytest
from hypothesis import strategies

from dra_driver.logic.controller import unused_templates

NOW = dt.datetime(2026, 1, 10, tzinfo=dt.UTC)
DAY = 86400.0
USED = {("ns", "a")}


def template(since=None, name="a", namespace="ns"):
    return unused_templates.Template(namespace, name, "uid", "7", since)


def step(since, *, used):
    found = unused_templates.steps(
        [template(since)], USED if used else {("other", "a")}, now=NOW, seconds=DAY
    )
    return found[0][1] if found else None


@pytest.mark.parametrize(
    ("since", "used", "expected"),
    [
        (None, True, None),
        (None, False, "mark"),
        ("2026-01-10T00:00:00Z", False, None),
        ("2026-01-09T00:00:01Z", False, None),
        ("2026-01-09T00:00:00Z", False, "remove"),
        ("2026-01-09T02:00:00+02:00", False, "remove"),
        ("2026-01-01T00:00:00Z", True, "unmark"),
        ("2027-01-01T00:00:00Z", False, "mark"),
        ("2026-01-01T00:00:00", False, "mark"),
        ("yesterday", False, "mark"),
        ("", False, "mark"),
        ("", True, "unmark"),
    ],
)
def test_a_template_is_marked_then_removed_unless_it_is_used(since, used, expected):
    assert step(since, used=used) == expected


@hypothesis.given(strategies.one_of(strategies.none(), strategies.text()), strategies.booleans())
def test_only_an_old_mark_removes_and_only_what_is_unused(since, used):
    if step(since, used=used) == "remove":
        assert not used
        assert dt.datetime.fromisoformat(since) <= NOW - dt.timedelta(days=1)


def test_a_mark_is_read_as_it_is_written():
    assert step(unused_templates.written(NOW - dt.timedelta(days=1)), used=False) == "remove"
    assert step(unused_templates.written(NOW), used=False) is None


def test_patches_are_for_the_version_that_was_read():
    marking = unused_templates.patch(template(), unused_templates.Step.MARK, NOW)
    assert marking == {
        "metadata": {
            "uid": "uid",
            "resourceVersion": "7",
            "annotations": {"dra-driver.dev/unused-since": "2026-01-10T00:00:00Z"},
        }
    }
    unmarking = unused_templates.patch(template("x"), unused_templates.Step.UNMARK, NOW)
    assert unmarking["metadata"]["annotations"] == {"dra-driver.dev/unused-since": None}


def test_one_that_is_being_deleted_is_nobody_s_business():
    metadata = {"namespace": "ns", "name": "a", "uid": "uid", "resourceVersion": "7"}
    assert unused_templates.of_template({"metadata": metadata}) == template()
    going = metadata | {"deletionTimestamp": "2026-01-01T00:00:00Z"}
    assert unused_templates.of_template({"metadata": going}) is None


def test_a_pod_names_the_templates_of_its_claims():
    claims = [
        {"name": "x", "resourceClaimTemplateName": "a"},
        {"name": "y", "resourceClaimName": "b"},
        {"name": "z", "resourceClaimTemplateName": "c"},
    ]
    assert unused_templates.named({"spec": {"resourceClaims": claims}}) == {"a", "c"}
    assert unused_templates.named({"spec": {}}) == frozenset()
