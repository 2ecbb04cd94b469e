"""The shapes of kinds that are kept as they come: known are the fields that matter here."""

from types import MappingProxyType

from dra_driver.sim.api.kinds.schemas import (
    BOOLEAN,
    INTEGER,
    MICRO_TIME,
    OBJECT,
    QUANTITY,
    STRING,
    TIME,
    described,
    if_not_zero,
    list_of,
    map_of,
    open_record,
    record,
)

_STRINGS = list_of(STRING)
_TEXTS = map_of(STRING)
_OPTIONAL_TEXT = if_not_zero(STRING)

METADATA = record(
    "Standard object's metadata.",
    name=described(_OPTIONAL_TEXT, "Unique within a namespace."),
    generateName=described(_OPTIONAL_TEXT, "A prefix; the server makes a unique name of it."),
    namespace=_OPTIONAL_TEXT,
    selfLink=_OPTIONAL_TEXT,
    uid=_OPTIONAL_TEXT,
    resourceVersion=_OPTIONAL_TEXT,
    generation=if_not_zero(INTEGER),
    creationTimestamp=TIME,
    deletionTimestamp=TIME,
    deletionGracePeriodSeconds=INTEGER,
    labels=_TEXTS,
    annotations=_TEXTS,
    ownerReferences=list_of(
        record(
            apiVersion=STRING,
            kind=STRING,
            name=STRING,
            uid=STRING,
            controller=BOOLEAN,
            blockOwnerDeletion=BOOLEAN,
        )
    ),
    finalizers=_STRINGS,
    managedFields=list_of(OBJECT),
)

_RESOURCES = record(
    "Amounts, and the claims of the pod that the container uses.",
    requests=map_of(QUANTITY),
    limits=map_of(QUANTITY),
    claims=list_of(
        record(
            name=described(STRING, "An entry of the pod's resourceClaims."),
            request=described(STRING, "One request of the claim; all if empty."),
        )
    ),
)
_CONTAINER = open_record(
    "A container.",
    name=STRING,
    image=STRING,
    command=_STRINGS,
    args=_STRINGS,
    env=list_of(
        open_record(
            name=STRING,
            value=STRING,
            valueFrom=open_record(fieldRef=record(apiVersion=STRING, fieldPath=STRING)),
        )
    ),
    resources=_RESOURCES,
)
_TERM = list_of(record(key=STRING, operator=STRING, values=_STRINGS))
_NODE_TERMS = record(nodeSelectorTerms=list_of(record(matchExpressions=_TERM, matchFields=_TERM)))
POD_SPEC = open_record(
    "What is to run.",
    containers=list_of(_CONTAINER),
    initContainers=list_of(_CONTAINER),
    nodeName=described(STRING, "The node that the pod is on; set through pods/binding."),
    nodeSelector=_TEXTS,
    affinity=open_record(
        nodeAffinity=open_record(requiredDuringSchedulingIgnoredDuringExecution=_NODE_TERMS)
    ),
    tolerations=list_of(
        record(key=STRING, operator=STRING, value=STRING, effect=STRING, tolerationSeconds=INTEGER)
    ),
    restartPolicy=STRING,
    terminationGracePeriodSeconds=INTEGER,
    schedulerName=STRING,
    serviceAccountName=STRING,
    priority=INTEGER,
    priorityClassName=STRING,
    preemptionPolicy=STRING,
    hostname=STRING,
    subdomain=STRING,
    resourceClaims=list_of(
        record(
            "Exactly one of resourceClaimName and resourceClaimTemplateName.",
            name=described(STRING, "How containers refer to the claim."),
            resourceClaimName=STRING,
            resourceClaimTemplateName=STRING,
        ),
        "The claims that have to be allocated before the pod can start.",
    ),
    overhead=map_of(QUANTITY),
)
_POD = record(
    "A group of containers on one node.",
    spec=POD_SPEC,
    status=open_record(
        "What has become of it.",
        phase=STRING,
        reason=STRING,
        message=STRING,
        podIP=STRING,
        conditions=list_of(OBJECT),
        containerStatuses=list_of(OBJECT),
        resourceClaimStatuses=list_of(record(name=STRING, resourceClaimName=STRING)),
        extendedResourceClaimStatus=record(
            "The claim that the scheduler made for extended resources.",
            resourceClaimName=STRING,
            requestMappings=list_of(
                record(containerName=STRING, resourceName=STRING, requestName=STRING)
            ),
        ),
    ),
)
_NODE = record(
    "A machine.",
    spec=open_record(
        unschedulable=BOOLEAN,
        taints=list_of(record(key=STRING, value=STRING, effect=STRING, timeAdded=TIME)),
    ),
    status=open_record(
        capacity=map_of(QUANTITY),
        allocatable=map_of(QUANTITY),
        conditions=list_of(OBJECT),
        addresses=list_of(record(type=STRING, address=STRING)),
        nodeInfo=OBJECT,
    ),
)
_REFERENCE = record(
    kind=STRING,
    namespace=STRING,
    name=STRING,
    uid=STRING,
    apiVersion=STRING,
    resourceVersion=STRING,
    fieldPath=STRING,
)
_SERIES = record(count=INTEGER, lastObservedTime=MICRO_TIME)
_SOURCE = record(component=STRING, host=STRING)
_EVENT = record(
    "Something that happened to an object.",
    involvedObject=_REFERENCE,
    reason=STRING,
    message=STRING,
    source=_SOURCE,
    firstTimestamp=TIME,
    lastTimestamp=TIME,
    count=INTEGER,
    type=STRING,
    eventTime=MICRO_TIME,
    series=_SERIES,
    action=STRING,
    related=_REFERENCE,
    reportingComponent=STRING,
    reportingInstance=STRING,
)
_EVENTS_EVENT = record(
    "Something that happened to an object.",
    eventTime=MICRO_TIME,
    series=_SERIES,
    reportingController=STRING,
    reportingInstance=STRING,
    action=STRING,
    reason=STRING,
    regarding=_REFERENCE,
    related=_REFERENCE,
    note=STRING,
    type=STRING,
    deprecatedSource=_SOURCE,
    deprecatedFirstTimestamp=TIME,
    deprecatedLastTimestamp=TIME,
    deprecatedCount=INTEGER,
)

CORE = MappingProxyType(
    {
        "Namespace": record(
            "A scope for names.",
            spec=record(finalizers=_STRINGS),
            status=record(phase=STRING, conditions=list_of(OBJECT)),
        ),
        "Node": _NODE,
        "Pod": _POD,
        "Event": _EVENT,
        "ServiceAccount": open_record("An identity for processes in pods."),
        "ConfigMap": record("Configuration.", data=_TEXTS, binaryData=_TEXTS, immutable=BOOLEAN),
        "Secret": record(
            "Secret data.",
            data=_TEXTS,
            stringData=_TEXTS,
            type=STRING,
            immutable=BOOLEAN,
        ),
    }
)
EVENTS = MappingProxyType({"Event": _EVENTS_EVENT})
COORDINATION = MappingProxyType(
    {
        "Lease": record(
            "A lock that has to be renewed.",
            spec=open_record(
                holderIdentity=STRING,
                leaseDurationSeconds=INTEGER,
                acquireTime=MICRO_TIME,
                renewTime=MICRO_TIME,
                leaseTransitions=INTEGER,
            ),
        )
    }
)
DISCOVERY = MappingProxyType(
    {
        "EndpointSlice": record(
            "Addresses behind a Service; it is kept, and nothing makes any.",
            addressType=STRING,
            endpoints=list_of(OBJECT),
            ports=list_of(open_record(name=STRING, port=INTEGER, protocol=STRING)),
        )
    }
)
