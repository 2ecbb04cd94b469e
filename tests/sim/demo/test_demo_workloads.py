"""`dra-driver demo` with what people bring: workloads, kinds of their own, older versions."""

import collections
import json
import re

import pytest
from demo_manifests import TEMPLATE, pod, workload

from dra_driver import errors

pytestmark = pytest.mark.sampled(4)

WORKLOADS = "".join(
    [
        TEMPLATE,
        workload("Deployment", "web", claims=("gpu",), more={"replicas": 2}),
        workload("StatefulSet", "db", more={"replicas": 2}),
        workload("DaemonSet", "agent"),
        workload("Job", "train", ("nvidia-smi",), more={"completions": 3, "parallelism": 2},
                 restartPolicy="Never"),
        workload("CronJob", "nightly", ("true",), restartPolicy="OnFailure"),
    ]
)  # fmt: skip
SERVICES = """
---
{apiVersion: v1, kind: Service, metadata: {name: web}}
---
{apiVersion: v1, kind: Service, metadata: {name: db}}
---
apiVersion: ray.io/v1
kind: RayCluster
metadata: {name: ray}
spec: {headGroupSpec: {template: {spec: {containers: [{name: main, image: none}]}}}}
"""


def test_a_manifest_of_which_no_pod_comes_is_refused_before_anything_starts(play, capsys):
    with pytest.raises(errors.Rejected, match="they have ResourceClaimTemplate, and neither a Pod"):
        play(TEMPLATE)
    assert capsys.readouterr().err == ""


def test_workloads_get_their_pods_and_what_is_without_effect_is_said_once(play):
    status, out, err = play(WORKLOADS + SERVICES, output="json")
    assert status == 0
    assert err.splitlines().count("Stored, and without effect here: Service") == 1
    assert "CronJob nightly: its Job is made once, at once" in err.splitlines()
    assert (
        "RayCluster ray: nothing here knows the kind RayCluster; one pod is made of each template "
        "of pods in it: spec.headGroupSpec.template"
    ) in err.splitlines()
    pods = json.loads(out)["pods"]
    ends = collections.Counter(
        (re.split("[-0-9]", each["name"])[0], each["phase"]) for each in pods
    )
    assert ends == {
        ("web", "Running"): 2,
        ("db", "Running"): 2,
        ("agent", "Running"): 1,
        ("ray", "Running"): 1,
        ("train", "Succeeded"): 3,
        ("nightly", "Succeeded"): 1,
    }
    devices = {
        device["uuid"]
        for each in pods
        if each["name"].startswith("web-")
        for claim in each["claims"]
        for device in claim["devices"]
    }
    assert len(devices) == 2
    workloads = json.loads(out)["workloads"]
    assert all(each["atRest"] for each in workloads)
    assert {each["kind"] for each in workloads} == {
        *("Deployment", "ReplicaSet", "StatefulSet", "DaemonSet", "Job", "CronJob", "RayCluster"),
    }


def test_a_workload_that_cannot_make_its_pods_is_told_with_the_reason(play):
    status, out, _ = play(workload("Deployment", "web", priorityClassName="absent"))
    assert status == 1
    lines = out.splitlines()
    assert re.fullmatch(
        r"ReplicaSet default/web-\w+ has not made its pods: Error creating: pods .* "
        r"no PriorityClass with name absent was found\.",
        lines[0],
    )
    assert lines[1].startswith("No pod came of the manifests; ReplicaSet default/web-")
    assert lines[2:] == ["0 of 0 pods are as expected."]


def test_a_job_that_gives_up_is_told_although_its_pods_are_gone(play):
    failing = workload(
        "Job", "train", ("false",), more={"backoffLimit": 1}, restartPolicy="OnFailure"
    )
    status, out, _ = play(TEMPLATE + failing + pod("a"))
    assert status == 1
    assert out.splitlines()[-2:] == [
        "Job default/train has failed: Job has reached the specified backoff limit.",
        "1 of 1 pods are as expected.",
    ]


def test_a_daemon_set_that_no_node_suits_is_told(play):
    status, out, _ = play(workload("DaemonSet", "agent", nodeSelector={"gpu": "yes"}))
    assert status == 1
    assert out.splitlines()[0] == (
        "No pod came of the manifests; DaemonSet default/agent: no node takes its pods: look at "
        "nodeSelector, affinity and tolerations"
    )


def test_manifests_of_older_versions_run_where_a_release_serves_them(play):
    old = TEMPLATE.replace("/v1", "/v1beta1").replace(
        "exactly: {deviceClassName", "deviceClassName"
    )
    old = old.replace("gpu.nvidia.com}}]", "gpu.nvidia.com}]")
    status, out, _ = play(old + pod("a"), emulate="1.34")
    assert (status, out.splitlines()[-1]) == (0, "1 of 1 pods are as expected.")
    with pytest.raises(
        errors.Fatal, match=r'in version "resource\.k8s\.io/v1beta1": .*--emulate 1\.34'
    ):
        play(old + pod("a"))
