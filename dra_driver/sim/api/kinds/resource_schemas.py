"""The shapes of the kinds of `resource.k8s.io`, for each version.

Source: Kubernetes 1.36, `staging/src/k8s.io/api/resource/{v1,v1beta2,v1beta1}/types.go`.
"""

from types import MappingProxyType

from dra_driver.sim.api.kinds import schemas
from dra_driver.sim.api.kinds.schemas import (
    ANY,
    BOOLEAN,
    INTEGER,
    QUANTITY,
    STRING,
    TIME,
    described,
    list_of,
    map_of,
    record,
)

_STRINGS = list_of(STRING)

NODE_SELECTOR = record(
    "The nodes that match any of the terms.",
    nodeSelectorTerms=list_of(
        record(
            matchExpressions=list_of(record(key=STRING, operator=STRING, values=_STRINGS)),
            matchFields=list_of(record(key=STRING, operator=STRING, values=_STRINGS)),
        )
    ),
)
_SELECTORS = list_of(
    record(
        cel=record(
            "A CEL expression over the variable `device`.",
            expression=described(STRING, "Has to be true of a device."),
        )
    ),
    "Criteria which all have to be met by a device.",
)
_OPAQUE = record(
    "Parameters for a driver, which alone understands them.",
    driver=described(STRING, "Which driver has to be passed these parameters."),
    parameters=described(ANY, "Arbitrary JSON object, usually with kind and apiVersion."),
)
_TOLERATIONS = list_of(
    record(key=STRING, operator=STRING, value=STRING, effect=STRING, tolerationSeconds=INTEGER),
    "Taints which a device may have and yet be allocated.",
)
_DEVICE_REQUEST = {
    "deviceClassName": described(STRING, "The DeviceClass; its selectors apply as well."),
    "selectors": _SELECTORS,
    "allocationMode": described(STRING, "ExactCount (default) or All."),
    "count": described(INTEGER, "How many devices, with allocation mode ExactCount. Default 1."),
    "tolerations": _TOLERATIONS,
    "capacity": record(
        "How much of each capacity is needed of a device that can be shared.",
        requests=map_of(QUANTITY),
    ),
}
_ADMIN_ACCESS = described(
    BOOLEAN, "Access for administration: the device may be in use by others at the same time."
)
_SUB_REQUEST = record(
    "One way to satisfy a request.",
    name=described(STRING, "How configs and constraints refer to it: request/name."),
    **_DEVICE_REQUEST,
)
_FIRST_AVAILABLE = list_of(_SUB_REQUEST, "Alternatives; the first that can be met is taken.")
_NAME_OF_REQUEST = described(STRING, "How pods, configs and constraints refer to the request.")
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


def _claim_spec(request: schemas.Schema) -> schemas.Schema:
    return record(
        "What is asked for. It cannot be changed.",
        devices=record(
            "How to request devices.",
            requests=list_of(request, "One entry for each distinct request."),
            constraints=list_of(
                record(
                    requests=_STRINGS,
                    matchAttribute=described(STRING, "Devices agree in this attribute."),
                    distinctAttribute=described(STRING, "Devices differ in this attribute."),
                ),
                "What has to hold of several devices together.",
            ),
            config=list_of(
                record(requests=_STRINGS, opaque=_OPAQUE), "Parameters for the devices' drivers."
            ),
        ),
    )


_DEVICE_ID = {
    "driver": described(STRING, "The driver that publishes the device."),
    "pool": described(STRING, "The pool that the device is in."),
    "device": described(STRING, "The name of the device in its pool."),
    "shareID": described(STRING, "Which share, of a device that can be allocated several times."),
}
_CONDITIONS = list_of(
    record(
        type=STRING,
        status=STRING,
        observedGeneration=INTEGER,
        lastTransitionTime=TIME,
        reason=STRING,
        message=STRING,
    )
)
_ALLOCATION = record(
    "Set when the claim has been allocated.",
    devices=record(
        results=list_of(
            record(
                request=described(STRING, "The request, or request/subrequest."),
                adminAccess=_ADMIN_ACCESS,
                tolerations=_TOLERATIONS,
                bindingConditions=_STRINGS,
                bindingFailureConditions=_STRINGS,
                consumedCapacity=map_of(QUANTITY),
                **_DEVICE_ID,
            ),
            "The allocated devices.",
        ),
        config=list_of(
            record(source=STRING, requests=_STRINGS, opaque=_OPAQUE),
            "Parameters of classes and claim, in rising precedence.",
        ),
    ),
    nodeSelector=NODE_SELECTOR,
    allocationTimestamp=TIME,
)
_CLAIM_STATUS = record(
    "What has been given, and to whom.",
    allocation=_ALLOCATION,
    reservedFor=list_of(
        record(apiGroup=STRING, resource=STRING, name=STRING, uid=STRING),
        "Who may use the claim. At most 256.",
    ),
    devices=list_of(
        record(
            conditions=_CONDITIONS,
            data=ANY,
            networkData=record(interfaceName=STRING, ips=_STRINGS, hardwareAddress=STRING),
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
    value=QUANTITY,
    requestPolicy=record(
        "How requests for a part of the amount are rounded.",
        default=QUANTITY,
        validValues=list_of(QUANTITY),
        validRange=record(min=QUANTITY, max=QUANTITY, step=QUANTITY),
    ),
)
_COUNTERS = map_of(record(value=QUANTITY))
_DEVICE_FIELDS = {
    "attributes": map_of(_ATTRIBUTE, "Properties that can be selected on."),
    "capacity": map_of(_CAPACITY, "Amounts that can be selected on, and shared."),
    "consumesCounters": list_of(
        record(counterSet=STRING, counters=_COUNTERS), "What the device takes of shared counters."
    ),
    "nodeName": STRING,
    "nodeSelector": NODE_SELECTOR,
    "allNodes": BOOLEAN,
    "taints": list_of(
        record(key=STRING, value=STRING, effect=STRING, timeAdded=TIME),
        "What claims have to tolerate to get the device.",
    ),
    "bindsToNode": BOOLEAN,
    "bindingConditions": _STRINGS,
    "bindingFailureConditions": _STRINGS,
    "allowMultipleAllocations": BOOLEAN,
    "nodeAllocatableResourceMappings": map_of(
        record(capacityKey=STRING, allocationMultiplier=QUANTITY)
    ),
}
_DEVICE_NAME = described(STRING, "A DNS label, unique in the pool.")
_DEVICE = record("A device that can be allocated.", name=_DEVICE_NAME, **_DEVICE_FIELDS)
_DEVICE_V1BETA1 = record(
    "A device that can be allocated.",
    name=_DEVICE_NAME,
    basic=record("What there is to know of it.", **_DEVICE_FIELDS),
)


def _slice_spec(device: schemas.Schema) -> schemas.Schema:
    return record(
        "What a driver publishes.",
        driver=described(STRING, "The driver. It cannot be changed."),
        pool=record(
            "The pool that the slice is a part of.",
            name=STRING,
            generation=described(INTEGER, "Only slices of the highest generation count."),
            resourceSliceCount=described(INTEGER, "How many slices the pool has."),
        ),
        nodeName=described(STRING, "The node that has the devices. It cannot be changed."),
        nodeSelector=NODE_SELECTOR,
        allNodes=BOOLEAN,
        perDeviceNodeSelection=BOOLEAN,
        devices=list_of(device, "At most 128, or 64 with taints or counters."),
        sharedCounters=list_of(record(name=STRING, counters=_COUNTERS)),
    )


_CLASS_SPEC = record(
    "What makes a device one of the class, and how it is to be set up.",
    selectors=_SELECTORS,
    config=list_of(record(opaque=_OPAQUE)),
    extendedResourceName=described(
        STRING, "The extended resource that pods can use to ask for a device of the class."
    ),
)


def _kinds(request: schemas.Schema, device: schemas.Schema) -> dict[str, schemas.Schema]:
    claim_spec = _claim_spec(request)
    template = record(
        "What the claims made from the template are like.",
        metadata=schemas.OBJECT,
        spec=claim_spec,
    )
    return {
        "ResourceClaim": record(
            "A request for devices, for one or more pods.", spec=claim_spec, status=_CLAIM_STATUS
        ),
        "ResourceClaimTemplate": record("Makes ResourceClaims for pods.", spec=template),
        "DeviceClass": record("A category of devices.", spec=_CLASS_SPEC),
        "ResourceSlice": record("Devices of a pool.", spec=_slice_spec(device)),
    }


BY_VERSION = MappingProxyType(
    {
        "v1": _kinds(_REQUEST, _DEVICE),
        "v1beta2": _kinds(_REQUEST, _DEVICE),
        "v1beta1": _kinds(_REQUEST_V1BETA1, _DEVICE_V1BETA1),
    }
)
"""Version -> kind -> schema, without apiVersion, kind and metadata."""
