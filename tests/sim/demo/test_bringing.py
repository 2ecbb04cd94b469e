"""What is told of manifests before and after they are applied."""

import pytest
from workload_scene import job, template, workload

from dra_driver import errors
from dra_driver.sim.demo import bringing, outcome


def body(kind, api="v1", **spec):
    return {"apiVersion": api, "kind": kind, "metadata": {"name": "a"}, "spec": spec}


POD = body("Pod", containers=[{"name": "main"}])
CRON_JOB = body("CronJob", "batch/v1", jobTemplate={"spec": job()["spec"]})
RAY = body("RayCluster", "ray.io/v1", headGroupSpec={"template": template()})


@pytest.mark.parametrize(
    "made", [POD, workload("Deployment"), workload("DaemonSet"), job(), CRON_JOB, RAY]
)
def test_pods_come_of_these(made):
    bringing.check_pods([body("ConfigMap"), made])


@pytest.mark.parametrize(
    ("made", "why"),
    [
        (workload("Deployment", replicas=0), "Deployment web: spec.replicas is 0"),
        (job(parallelism=0), "Job web: spec.parallelism is 0"),
        (job(completions=0), "Job web: spec.completions is 0"),
        (job(suspend=True), "Job web: spec.suspend is true"),
        (CRON_JOB | {"spec": CRON_JOB["spec"] | {"suspend": True}},
         "CronJob a: spec.suspend is true"),
    ],
)  # fmt: skip
def test_of_these_none_comes_and_the_reason_is_told(made, why):
    with pytest.raises(errors.Rejected) as refused:
        bringing.check_pods([made])
    assert str(refused.value) == f"no pod comes of these manifests: {why}"
    bringing.check_pods([made, POD])


@pytest.mark.parametrize(
    "made",
    [
        workload("Deployment", template={"metadata": ["a"]}),
        workload("DaemonSet", template=None),
        workload("StatefulSet") | {"spec": "a"},
        {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "a"}},
    ],
)
def test_what_is_wrong_with_a_workload_is_left_to_the_server_to_say(made):
    bringing.check_pods([made])
    outcome.check_expectations([made])


def test_manifests_without_anything_that_makes_pods_are_refused_with_what_they_have():
    others = [body("ConfigMap"), body("PodTemplate"), body("Namespace"), body("ConfigMap")]
    with pytest.raises(errors.Rejected, match="have ConfigMap, Namespace, PodTemplate, and"):
        bringing.check_pods(others)


def test_what_is_without_effect_is_told_in_one_line():
    brought = [body("Service"), POD, body("ConfigMap"), body("Service"), body("Shop", "a.b/v1")]
    assert list(bringing.notes(brought)) == [
        "Stored, and without effect here: ConfigMap, Service, Shop"
    ]


def test_of_what_has_an_effect_nothing_is_told():
    kinds = ("DeviceClass", "ResourceClaim", "ResourceClaimTemplate", "ResourceSlice")
    kinds += ("DeviceTaintRule",)
    brought = [body(kind, "resource.k8s.io/v1beta1") for kind in kinds]
    brought += [POD, body("Namespace"), body("Node"), workload("Deployment"), job()]
    brought += [body("PriorityClass", "scheduling.k8s.io/v1")]
    brought += [body("CustomResourceDefinition", "apiextensions.k8s.io/v1")]
    assert list(bringing.notes(brought)) == []


def test_of_kinds_that_nothing_knows_it_is_told_which_pods_are_made():
    told = list(bringing.notes([RAY, CRON_JOB]))
    assert told == [
        (
            "RayCluster a: nothing here knows the kind RayCluster; one pod is made of each "
            "template of pods in it: spec.headGroupSpec.template"
        ),
        "CronJob a: its Job is made once, at once",
    ]


def test_an_expectation_may_stand_in_a_template_and_is_checked_there():
    wanted = template() | {"metadata": {"annotations": {outcome.EXPECT_ANNOTATION: "Sleeping"}}}
    with pytest.raises(errors.Rejected, match=r"Deployment web: annotation .*'Sleeping'"):
        outcome.check_expectations([workload("Deployment", template=wanted)])
    wanted["metadata"]["annotations"][outcome.EXPECT_ANNOTATION] = outcome.UNSCHEDULABLE
    outcome.check_expectations([workload("Deployment", template=wanted)])
