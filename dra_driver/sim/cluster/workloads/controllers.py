"""Which controller there is for which kind, and what it looks at."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from dra_driver.adapters.kube import kube
from dra_driver.sim.cluster.workloads import (
    cron_jobs,
    daemon_sets,
    deployments,
    jobs,
    plans,
    replica_sets,
    stateful_sets,
    templates,
)

Json = dict[str, Any]

REPLICA_SETS = kube.Resource("apps", "v1", "replicasets")
JOBS = kube.Resource("batch", "v1", "jobs")
DEFINITIONS = kube.Resource(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", namespaced=False
)


@dataclasses.dataclass(frozen=True, slots=True)
class Controller:
    """Makes `children` for the objects of `resource` by plans."""

    name: str
    """As events name it."""
    resource: kube.Resource
    children: kube.Resource
    plan: Callable[[plans.Family], plans.Plan]


BY_KIND: Mapping[tuple[str, str], Controller] = {
    ("apps/v1", "Deployment"): Controller(
        "deployment-controller",
        kube.Resource("apps", "v1", "deployments"),
        REPLICA_SETS,
        deployments.plan,
    ),
    ("apps/v1", "ReplicaSet"): Controller(
        "replicaset-controller", REPLICA_SETS, kube.PODS, replica_sets.plan
    ),
    ("v1", "ReplicationController"): Controller(
        "replication-controller",
        kube.Resource("", "v1", "replicationcontrollers"),
        kube.PODS,
        replica_sets.plan,
    ),
    ("apps/v1", "StatefulSet"): Controller(
        "statefulset-controller",
        kube.Resource("apps", "v1", "statefulsets"),
        kube.PODS,
        stateful_sets.plan,
    ),
    ("apps/v1", "DaemonSet"): Controller(
        "daemonset-controller",
        kube.Resource("apps", "v1", "daemonsets"),
        kube.PODS,
        daemon_sets.plan,
    ),
    ("batch/v1", "Job"): Controller("job-controller", JOBS, kube.PODS, jobs.plan),
    ("batch/v1", "CronJob"): Controller(
        "cronjob-controller", kube.Resource("batch", "v1", "cronjobs"), JOBS, cron_jobs.plan
    ),
}
"""By `apiVersion` and `kind`, the kinds that are built in."""


def of_definition(definition: Json) -> Mapping[tuple[str, str], Controller]:
    """For the kind that a CustomResourceDefinition makes known, in each of its versions.

    Objects without a namespace get none: their pods would have no place.
    """
    spec = definition["spec"]
    served = [item["name"] for item in spec["versions"] if item.get("served")]
    if not served or spec["scope"] != "Namespaced":
        return {}
    resource = kube.Resource(spec["group"], served[0], spec["names"]["plural"])
    found = Controller("template-controller", resource, kube.PODS, templates.plan)
    return {(f"{spec['group']}/{name}", spec["names"]["kind"]): found for name in served}
