"""The shapes of the kinds of `resource.k8s.io`, for each version.

A field that says nothing of when it is written is a pointer, a list or a map with `omitempty`.
Source: Kubernetes 1.36, `staging/src/k8s.io/api/resource/{v1,v1beta2,v1beta1}/types.go`; what is
marked `since(37, ...)`: 1.37.
"""

from types import MappingProxyType

from dra_driver.sim.api.kinds import core_schemas, schemas
from dra_driver.sim.api.kinds.schemas import (
    ANY,
    BOOLEAN,
    INTEGER,
    QUANTITY,
    STRING,
    TIME,
    always,
    before,
    described,
    if_not_zero,
    list_of,
    map_of,
    or_null,
    record,
    since,
)

_STRINGS = list_of(STRING)
_TEXT = always(STRING)
_OPTIONAL_TEXT = if_not_zero(STRING)

_NODE_REQUIREMENTS = list_of(record(key=_TEXT, operator=_TEXT, values=_STRINGS))
NODE_SELECTOR = record(
    "The nodes that match any of the terms.",
    nodeSelectorTerms=or_null(
        list_of(record(matchExpressions=_NODE_REQUIREMENTS, matchFields=_NODE_REQUIREMENTS))
    ),
)
_SELECTORS = list_of(
    record(
        cel=record(
            "A CEL expression over the variable `device`.",
            expression=described(_TEXT, "Has to be true of a device."),
        )
    ),
    "Criteria which all have to be met by a device.",
)
_OPAQUE = record(
    "Parameters for a driver, which alone understands them.",
    driver=described(_TEXT, "Which driver has to be passed these parameters."),
    parameters=described(always(ANY), "Arbitrary JSON object, usually with kind and apiVersion."),
)
_TOLERATIONS = list_of(
    record(
        key=_OPTIONAL_TEXT,
        operator=_OPTIONAL_TEXT,
        value=_OPTIONAL_TEXT,
        effect=_OPTIONAL_TEXT,
        tolerationSeconds=INTEGER,
    ),
    "Taints which a device may have and yet be allocated.",
)
_DEVICE_REQUEST = {
    "deviceClassName": described(_TEXT, "The DeviceClass; its selectors apply as well."),
    "selectors": _SELECTORS,
    "allocationMode": described(_OPTIONAL_TEXT, "ExactCount (default) or All."),
    "count": described(
        if_not_zero(INTEGER), "How many devices, with allocation mode ExactCount. Default 1."
    ),
    "tolerations": _TOLERATIONS,
    "capacity": record(
        "How much of each capacity is needed of a device that can be shared.",
        requests=map_of(QUANTITY),
    ),
    "derivedAttributes": since(
        37,
        list_of(
            record(
                name=described(_TEXT, "Qualified; it stands before an attribute of that name."),
                expression=described(_TEXT, "Evaluated for each device that is selected."),
            ),
            "Attributes for constraints, computed from those of a device. At most 32.",
        ),
    ),
}
_ADMIN_ACCESS = described(
    BOOLEAN, "Access for administration: the device may be in use by others at the same time."
)
_SUB_REQUEST = record(
    "One way to satisfy a request.",
    name=described(_TEXT, "How configs and constraints refer to it: request/name."),
    **_DEVICE_REQUEST,
)
_FIRST_AVAILABLE = list_of(_SUB_REQUEST, "Alternatives; the first that can be met is taken.")
_NAME_OF_REQUEST = described(_TEXT, "How pods, configs and constraints refer to the request.")
_REQUEST = record(
    "A request for devices: exactly one of `exactly` and `firstAvailable`.",
    name=_NAME_OF_REQUEST,
    exactly=record(
        "One or more devices of one kind.", adminAccess=_ADMIN_ACCESS, **_DEVICE_REQUEST
    ),
    firstAvailable=_FIRST_AVAILABLE,
)
_REQUEST_V1BETA1 = record(
    "A request for devices.",
    name=_NAME_OF_REQUEST,
    adminAccess=_ADMIN_ACCESS,
    firstAvailable=_FIRST_AVAILABLE,
    **_DEVICE_REQUEST,
)


_CONSTRAINT = record(
    requests=_STRINGS,
    matchAttribute=described(STRING, "Devices agree in this attribute."),
    distinctAttribute=described(STRING, "Devices differ in this attribute."),
)


def _claim_spec(request: schemas.Schema) -> schemas.Schema:
    return record(
        "What is asked for. It cannot be changed.",
        devices=always(
            record(
                "How to request devices.",
                requests=or_null(list_of(request, "One entry for each distinct request.")),
                constraints=list_of(_CONSTRAINT, "What has to hold of several devices together."),
                config=list_of(
                    record(requests=_STRINGS, opaque=_OPAQUE),
                    "Parameters for the devices' drivers.",
                ),
            )
        ),
    )


_DEVICE_ID = {
    "driver": described(_TEXT, "The driver that publishes the device."),
    "pool": described(_TEXT, "The pool that the device is in."),
    "device": described(_TEXT, "The name of the device in its pool."),
    "shareID": described(STRING, "Which share, of a device that can be allocated several times."),
}
_CONDITIONS = list_of(
    record(
        type=_TEXT,
        status=_TEXT,
        observedGeneration=if_not_zero(INTEGER),
        lastTransitionTime=TIME,
        reason=_TEXT,
        message=_TEXT,
    )
)
_RESULT = record(
    request=described(_TEXT, "The request, or request/subrequest."),
    adminAccess=_ADMIN_ACCESS,
    tolerations=_TOLERATIONS,
    bindingConditions=_STRINGS,
    bindingFailureConditions=_STRINGS,
    consumedCapacity=map_of(QUANTITY),
    skipNodeOperations=since(37, _STRINGS),
    compatibilityGroups=since(37, map_of(_STRINGS)),
    **_DEVICE_ID,
)
ALLOCATION = record(
    "Set when the claim has been allocated.",
    devices=always(
        record(
            results=list_of(_RESULT, "The allocated devices."),
            config=list_of(
                record(source=_TEXT, requests=_STRINGS, opaque=_OPAQUE),
                "Parameters of classes and claim, in rising precedence.",
            ),
        )
    ),
    nodeSelector=NODE_SELECTOR,
    allocationTimestamp=TIME,
)
_CLAIM_STATUS = record(
    "What has been given, and to whom.",
    allocation=ALLOCATION,
    reservedFor=list_of(
        record(apiGroup=_OPTIONAL_TEXT, resource=_TEXT, name=_TEXT, uid=_TEXT),
        "Who may use the claim. At most 256.",
    ),
    devices=list_of(
        record(
            conditions=or_null(_CONDITIONS),
            data=ANY,
            networkData=record(
                interfaceName=_OPTIONAL_TEXT, ips=_STRINGS, hardwareAddress=_OPTIONAL_TEXT
            ),
            **_DEVICE_ID,
        ),
        "What drivers report of the allocated devices.",
    ),
)

_ATTRIBUTE = record(
    "Exactly one of the fields.",
    int=INTEGER,
    bool=BOOLEAN,
    string=STRING,
    version=described(STRING, "A semantic version (2.0.0)."),
    ints=list_of(INTEGER),
    bools=list_of(BOOLEAN),
    strings=_STRINGS,
    versions=_STRINGS,
)
_CAPACITY = record(
    "An amount.",
    value=always(QUANTITY),
    requestPolicy=record(
        "How requests for a part of the amount are rounded.",
        default=or_null(QUANTITY),
        validValues=list_of(QUANTITY),
        validRange=record(min=QUANTITY, max=QUANTITY, step=QUANTITY),
    ),
)
_COUNTERS = map_of(record(value=always(QUANTITY)))
_TAINT = {"key": _TEXT, "value": _OPTIONAL_TEXT, "effect": _TEXT, "timeAdded": TIME}
_NODE_ALLOCATABLE = record(
    "What of a resource of the node goes with the device.",
    mapping=record(
        "The device is such a resource.",
        capacityKey=STRING,
        capacityMultiplier=QUANTITY,
        deviceMultiplier=QUANTITY,
    ),
    overhead=record("What the device needs besides.", perPod=QUANTITY, perContainer=QUANTITY),
)
_DEVICE_FIELDS = {
    "attributes": map_of(_ATTRIBUTE, "Properties that can be selected on."),
    "capacity": map_of(_CAPACITY, "Amounts that can be selected on, and shared."),
    "consumesCounters": list_of(
        record(counterSet=_TEXT, counters=_COUNTERS, compatibilityGroups=since(37, _STRINGS)),
        "What the device takes of shared counters.",
    ),
    "nodeName": STRING,
    "nodeSelector": NODE_SELECTOR,
    "allNodes": BOOLEAN,
    "taints": list_of(record(**_TAINT), "What claims have to tolerate to get the device."),
    "bindsToNode": BOOLEAN,
    "bindingConditions": _STRINGS,
    "bindingFailureConditions": _STRINGS,
    "allowMultipleAllocations": BOOLEAN,
    "nodeAllocatableResourceMappings": before(
        37, map_of(record(capacityKey=STRING, allocationMultiplier=QUANTITY))
    ),
    "nodeAllocatableResources": since(37, map_of(_NODE_ALLOCATABLE)),
}
_DEVICE_NAME = described(_TEXT, "A DNS label, unique in the pool.")
_DEVICE = record("A device that can be allocated.", name=_DEVICE_NAME, **_DEVICE_FIELDS)
_DEVICE_V1BETA1 = record(
    "A device that can be allocated.",
    name=_DEVICE_NAME,
    basic=record("What there is to know of it.", **_DEVICE_FIELDS),
)


def _slice_spec(device: schemas.Schema) -> schemas.Schema:
    return record(
        "What a driver publishes.",
        driver=described(_TEXT, "The driver. It cannot be changed."),
        pool=always(
            record(
                "The pool that the slice is a part of.",
                name=_TEXT,
                generation=described(
                    always(INTEGER), "Only slices of the highest generation count."
                ),
                resourceSliceCount=described(always(INTEGER), "How many slices the pool has."),
            )
        ),
        nodeName=described(STRING, "The node that has the devices. It cannot be changed."),
        nodeSelector=NODE_SELECTOR,
        allNodes=BOOLEAN,
        perDeviceNodeSelection=BOOLEAN,
        devices=list_of(device, "At most 128, or 64 with taints or counters."),
        sharedCounters=list_of(record(name=_TEXT, counters=_COUNTERS)),
        partitionTypeAttribute=since(
            37, described(STRING, "The attribute that names the kind of a partition.")
        ),
        skipNodeOperations=since(
            37, described(_STRINGS, "Calls of the driver's plugin that are not needed.")
        ),
    )


_CLASS_SPEC = record(
    "What makes a device one of the class, and how it is to be set up.",
    selectors=_SELECTORS,
    config=list_of(record(opaque=_OPAQUE)),
    extendedResourceName=described(
        STRING, "The extended resource that pods can use to ask for a device of the class."
    ),
)


CLAIM_SPEC = _claim_spec(_REQUEST)
"""As it is stored."""


def _template_spec(claim_spec: schemas.Schema) -> schemas.Schema:
    return record(
        "What the claims made from the template are like.",
        metadata=always(core_schemas.METADATA),
        spec=always(claim_spec),
    )


TEMPLATE_SPEC = _template_spec(CLAIM_SPEC)
"""As it is stored."""


_TAINT_RULE = record(
    "A taint of all devices that are selected.",
    deviceSelector=record(
        "All that is given has to be met; what is empty selects all devices.",
        driver=STRING,
        pool=STRING,
        device=STRING,
    ),
    taint=always(record("The taint.", **_TAINT)),
)


def _kinds(claim_spec: schemas.Schema, device: schemas.Schema) -> dict[str, schemas.Schema]:
    template = _template_spec(claim_spec)
    return {
        "ResourceClaim": record(
            "A request for devices, for one or more pods.",
            spec=always(claim_spec),
            status=always(_CLAIM_STATUS),
        ),
        "ResourceClaimTemplate": record("Makes ResourceClaims for pods.", spec=always(template)),
        "DeviceClass": record("A category of devices.", spec=always(_CLASS_SPEC)),
        "ResourceSlice": record("Devices of a pool.", spec=always(_slice_spec(device))),
        "DeviceTaintRule": record(
            "Taints devices, whatever their drivers say.",
            spec=always(_TAINT_RULE),
            status=always(record("What is being done.", conditions=_CONDITIONS)),
        ),
    }


BY_VERSION = MappingProxyType(
    {
        "v1": _kinds(CLAIM_SPEC, _DEVICE),
        "v1beta2": _kinds(CLAIM_SPEC, _DEVICE),
        "v1beta1": _kinds(_claim_spec(_REQUEST_V1BETA1), _DEVICE_V1BETA1),
    }
)
"""Version -> kind -> schema, without apiVersion, kind and metadata."""
