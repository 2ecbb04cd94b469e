"""The fields of webhook configurations.

Source: `k8s.io/api/admissionregistration/v1`.
"""

from types import MappingProxyType

from dra_driver.sim.api.kinds.schemas import (
    INTEGER,
    OBJECT,
    STRING,
    list_of,
    map_of,
    open_record,
    record,
)

_TEXTS = list_of(STRING)
_SELECTOR = record(
    "Which labels an object has to have.",
    matchLabels=map_of(STRING),
    matchExpressions=list_of(record("A condition.", key=STRING, operator=STRING, values=_TEXTS)),
)
_SERVICE = record(
    "A Service in the cluster.", namespace=STRING, name=STRING, path=STRING, port=INTEGER
)
_MUTATING_WEBHOOK = record(
    "A webhook, and what it is asked of.",
    name=STRING,
    clientConfig=record("Where it is.", url=STRING, service=_SERVICE, caBundle=STRING),
    rules=list_of(
        record(
            "Operations on resources.",
            operations=_TEXTS,
            apiGroups=_TEXTS,
            apiVersions=_TEXTS,
            resources=_TEXTS,
            scope=STRING,
        )
    ),
    failurePolicy=STRING,
    matchPolicy=STRING,
    namespaceSelector=_SELECTOR,
    objectSelector=_SELECTOR,
    sideEffects=STRING,
    timeoutSeconds=INTEGER,
    admissionReviewVersions=_TEXTS,
    reinvocationPolicy=STRING,
    matchConditions=list_of(OBJECT),
)
ADMISSION = MappingProxyType(
    {
        "MutatingWebhookConfiguration": record(
            "Webhooks that are asked of objects that are created, and may change them.",
            webhooks=list_of(_MUTATING_WEBHOOK),
        ),
        "ValidatingWebhookConfiguration": record(
            "Which requests are asked of which webhook; it is kept, but none is called.",
            webhooks=list_of(open_record(name=STRING, clientConfig=OBJECT)),
        ),
    }
)
