"""The shapes of workloads, of priority classes and of definitions of kinds."""

import dataclasses
from types import MappingProxyType

from dra_driver.sim.api.kinds import core_schemas, schemas

_INT, _TEXT, _FLAG = schemas.INTEGER, schemas.STRING, schemas.BOOLEAN
_TEMPLATE = schemas.record(
    "The pods that are made.", metadata=core_schemas.METADATA, spec=core_schemas.POD_SPEC
)
_SELECTOR = schemas.record(
    "Which pods it looks after.",
    matchLabels=schemas.map_of(_TEXT),
    matchExpressions=schemas.list_of(
        schemas.record(key=_TEXT, operator=_TEXT, values=schemas.list_of(_TEXT))
    ),
)
_JOB_SPEC = schemas.open_record(
    "What is to be run to its end.",
    parallelism=schemas.described(_INT, "Pods at a time."),
    completions=schemas.described(_INT, "Pods that have to succeed."),
    backoffLimit=schemas.described(_INT, "Failures after which the Job has failed."),
    activeDeadlineSeconds=_INT,
    completionMode=_TEXT,
    manualSelector=_FLAG,
    suspend=_FLAG,
    ttlSecondsAfterFinished=_INT,
    selector=_SELECTOR,
    template=_TEMPLATE,
)


_ROLLING = {"maxSurge": schemas.ANY, "maxUnavailable": schemas.ANY}
"""Each a number, or a percentage."""


def _strategy(**fields: schemas.Schema) -> schemas.Schema:
    return schemas.open_record(
        "How pods are exchanged.", type=_TEXT, rollingUpdate=schemas.open_record(**fields)
    )


def _workload(text: str, **fields: schemas.Schema) -> schemas.Schema:
    spec = schemas.open_record("What is wanted.", template=_TEMPLATE, **fields)
    status = schemas.open_record(
        "What there is.", observedGeneration=_INT, conditions=schemas.list_of(schemas.OBJECT)
    )
    return schemas.record(text, spec=spec, status=status)


def _replicated(text: str, **fields: schemas.Schema) -> schemas.Schema:
    return _workload(text, replicas=_INT, selector=_SELECTOR, **fields)


CORE = MappingProxyType(
    {
        "ReplicationController": _workload(
            "So many pods, made and made again.", replicas=_INT, selector=schemas.map_of(_TEXT)
        )
    }
)
APPS = MappingProxyType(
    {
        "Deployment": _replicated(
            "Pods that are exchanged a few at a time.",
            strategy=_strategy(**_ROLLING),
            paused=_FLAG,
            revisionHistoryLimit=_INT,
            progressDeadlineSeconds=_INT,
        ),
        "ReplicaSet": _replicated("So many pods, made and made again."),
        "StatefulSet": _replicated(
            "Pods with names that stay.",
            updateStrategy=_strategy(partition=_INT),
            podManagementPolicy=_TEXT,
            serviceName=_TEXT,
            ordinals=schemas.open_record(start=_INT),
            revisionHistoryLimit=_INT,
        ),
        "DaemonSet": _workload(
            "A pod on each node.",
            selector=_SELECTOR,
            updateStrategy=_strategy(**_ROLLING),
            revisionHistoryLimit=_INT,
        ),
    }
)
BATCH = MappingProxyType(
    {
        "Job": dataclasses.replace(
            _workload("Pods that run to their end."),
            fields=MappingProxyType({"spec": _JOB_SPEC, "status": schemas.OBJECT}),
        ),
        "CronJob": schemas.record(
            "Jobs at times.",
            spec=schemas.open_record(
                schedule=_TEXT,
                suspend=_FLAG,
                concurrencyPolicy=_TEXT,
                timeZone=_TEXT,
                successfulJobsHistoryLimit=_INT,
                failedJobsHistoryLimit=_INT,
                jobTemplate=schemas.record(metadata=core_schemas.METADATA, spec=_JOB_SPEC),
            ),
            status=schemas.OBJECT,
        ),
    }
)
SCHEDULING = MappingProxyType(
    {
        "PriorityClass": schemas.record(
            "How important pods are.",
            value=schemas.always(_INT),
            globalDefault=_FLAG,
            description=_TEXT,
            preemptionPolicy=_TEXT,
        )
    }
)
DEFINITIONS = MappingProxyType(
    {
        "CustomResourceDefinition": schemas.record(
            "A kind that is served besides.",
            spec=schemas.open_record(
                group=_TEXT,
                scope=_TEXT,
                names=schemas.open_record(
                    plural=_TEXT,
                    singular=_TEXT,
                    kind=_TEXT,
                    listKind=_TEXT,
                    shortNames=schemas.list_of(_TEXT),
                    categories=schemas.list_of(_TEXT),
                ),
                versions=schemas.list_of(
                    schemas.open_record(
                        name=_TEXT,
                        served=schemas.always(_FLAG),
                        storage=schemas.always(_FLAG),
                        subresources=schemas.OBJECT,
                    )
                ),
            ),
            status=schemas.OBJECT,
        )
    }
)
ANYTHING = schemas.open_record("An object that is kept as it comes.", status=schemas.OBJECT)
