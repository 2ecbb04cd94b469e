"""Which pods are explained of an object in a manifest."""

import pytest

from dra_driver.logic.explaining import described_pods

SPEC = {"containers": [{"name": "c"}]}
TEMPLATE = {"metadata": {"labels": {"a": "b"}}, "spec": SPEC}
JOB = {"parallelism": 3, "completions": 9, "template": TEMPLATE}


def described(kind, version="v1", **fields):
    body = {"apiVersion": version, "kind": kind, "metadata": {"name": "x", "labels": {"own": "1"}}}
    return [*described_pods.of(body | fields)]


def test_a_pod_is_itself():
    (found,) = described("Pod", spec=SPEC)
    assert found["metadata"]["labels"] == {"own": "1"}


@pytest.mark.parametrize(
    ("kind", "fields", "count"),
    [
        ("Deployment", {"spec": {"replicas": 2, "template": TEMPLATE}}, 2),
        ("Job", {"spec": JOB}, 3),
        ("DaemonSet", {"spec": {"template": TEMPLATE}}, None),
        ("CronJob", {"spec": {"jobTemplate": {"spec": JOB}}}, 3),
        ("PodTemplate", {"template": TEMPLATE}, None),
        ("Rollout", {"spec": {"replicas": 5, "template": TEMPLATE}}, 5),
        ("StatefulSet", {"spec": {"replicas": 0, "template": TEMPLATE}}, None),
        ("StatefulSet", {"spec": {"replicas": "many", "template": TEMPLATE}}, None),
    ],
)
def test_a_workload_has_one_that_stands_for_all(kind, fields, count):
    (found,) = described(kind, **fields)
    assert (found["kind"], found["metadata"]["name"], found["spec"]) == (kind, "x", SPEC)
    assert found["metadata"]["labels"] == {"a": "b"}
    assert found.get("count") == count
    assert "part" not in found


def test_each_task_of_a_volcano_job_has_one():
    tasks = [
        {"name": "leader", "replicas": 1, "template": TEMPLATE},
        {"replicas": 6, "template": TEMPLATE},
    ]
    found = described("Job", "batch.volcano.sh/v1alpha1", spec={"tasks": tasks})
    assert [(each["part"], each.get("count")) for each in found] == [
        ("leader", None),
        ("tasks[1]", 6),
    ]


def test_pods_of_a_job_set_are_those_of_its_jobs():
    jobs = [
        {"name": "a", "replicas": 2, "template": {"spec": {"parallelism": 3, "template": TEMPLATE}}}
    ]
    (found,) = described("JobSet", "jobset.x-k8s.io/v1alpha2", spec={"replicatedJobs": jobs})
    assert (found["part"], found["count"]) == ("a", 6)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"spec": None},
        {"spec": {"template": None}},
        {"spec": {"template": {"spec": "x"}}},
        {"spec": {"template": {"spec": {"y": 1}}}},
        {"spec": {"jobTemplate": []}},
    ],
)
def test_what_has_no_pod_template_has_none(fields):
    assert described("Deployment", **fields) == []
