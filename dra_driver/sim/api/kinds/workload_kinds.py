"""The kinds of which pods come through a controller, and what pods and kinds are made by."""

from dra_driver.sim.api.kinds import kinds, workload_printing

DEFINITIONS = "customresourcedefinitions.apiextensions.k8s.io"
PRIORITY_CLASSES = "priorityclasses.scheduling.k8s.io"

KINDS: tuple[kinds.Kind, ...] = (
    kinds.Kind(
        "", ("v1",), "replicationcontrollers", "replicationcontroller", "ReplicationController",
        short_names=("rc",), subresources=("status", "scale"), columns=workload_printing.REPLICAS,
        generation=True, categories=("all",),
    ),
    kinds.Kind(
        "apps", ("v1",), "replicasets", "replicaset", "ReplicaSet",
        short_names=("rs",), subresources=("status", "scale"), columns=workload_printing.REPLICAS,
        generation=True, categories=("all",),
    ),
    kinds.Kind(
        "apps", ("v1",), "statefulsets", "statefulset", "StatefulSet",
        short_names=("sts",), subresources=("status", "scale"),
        columns=workload_printing.STATEFUL_SET, generation=True, categories=("all",),
    ),
    kinds.Kind(
        "batch", ("v1",), "jobs", "job", "Job",
        subresources=("status",), columns=workload_printing.JOB,
        generation=True, categories=("all",),
    ),
    kinds.Kind(
        "batch", ("v1",), "cronjobs", "cronjob", "CronJob",
        short_names=("cj",), subresources=("status",), columns=workload_printing.CRON_JOB,
        generation=True, categories=("all",),
    ),
    kinds.Kind(
        "scheduling.k8s.io", ("v1",), "priorityclasses", "priorityclass", "PriorityClass",
        namespaced=False, short_names=("pc",), columns=workload_printing.PRIORITY_CLASS,
        generation=True,
    ),
    kinds.Kind(
        "apiextensions.k8s.io", ("v1",), "customresourcedefinitions", "customresourcedefinition",
        "CustomResourceDefinition", namespaced=False, short_names=("crd", "crds"),
        subresources=("status",), columns=workload_printing.DEFINITION, generation=True,
        categories=("api-extensions",),
    ),
)  # fmt: skip
