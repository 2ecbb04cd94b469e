"""Manifests as people bring them to the demo, and a node that is there for them."""

import json

from dra_driver.sim.cluster import cluster, manifests
from dra_driver.sim.demo import outcome

NODES = (cluster.NodeSpec("small", "t4:2"),)

TEMPLATE = """
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: gpu}
spec: {spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu.nvidia.com}}]}}}
"""
POD = """
---
apiVersion: v1
kind: Pod
metadata: {name: NAME, annotations: ANNOTATIONS}
spec:
  restartPolicy: Never
  containers: [{name: main, image: none, command: COMMAND, resources: {claims: [{name: gpu}]}}]
  resourceClaims: [{name: gpu, resourceClaimTemplateName: gpu}]
"""


def pod(name, expect=None, *, step=None, sleep="infinity"):
    wanted = {outcome.EXPECT_ANNOTATION: expect, manifests.STEP_ANNOTATION: step}
    annotations = json.dumps({key: value for key, value in wanted.items() if value})
    command = json.dumps(["sleep", sleep])
    return POD.replace("NAME", name).replace("ANNOTATIONS", annotations).replace("COMMAND", command)


def workload(kind, name, command=("sleep", "infinity"), claims=(), more=None, **spec):
    """A manifest of something with a template of pods, with more fields beside the template."""
    resources = {"claims": [{"name": each} for each in claims]}
    container = {"name": "main", "image": "none", "command": list(command), "resources": resources}
    body = {
        "containers": [container],
        "resourceClaims": [
            {"name": each, "resourceClaimTemplateName": each} for each in claims
        ],
    } | spec  # fmt: skip
    template = {"metadata": {"labels": {"app": name}}, "spec": body}
    api = "batch/v1" if kind.endswith("Job") else "apps/v1"
    selector = {} if kind.endswith("Job") else {"selector": {"matchLabels": {"app": name}}}
    spec = {"template": template} | selector | (more or {})
    if kind == "CronJob":
        spec = {"schedule": "0 3 * * *", "jobTemplate": {"spec": spec}}
    made = {"apiVersion": api, "kind": kind, "metadata": {"name": name}, "spec": spec}
    return f"\n---\n{json.dumps(made)}"
