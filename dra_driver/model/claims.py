"""ResourceClaims, DeviceClasses and allocations, as `resource.k8s.io/v1` has them on the wire.

Source: Kubernetes 1.36, `staging/src/k8s.io/api/resource/v1/types.go`.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, NewType

from dra_driver import errors
from dra_driver.model import quantities, slices, texts

Json = dict[str, Any]
ClaimUid = NewType("ClaimUid", str)

POD_CLAIM_NAME = "resource.kubernetes.io/pod-claim-name"
"""The annotation of a claim that was made from a template: what its pod calls it."""

EXACT_COUNT = "ExactCount"
ALL = "All"
_EXTRA = ("capacity", "tolerations", "derivedAttributes")
FROM_CLASS = "FromClass"
FROM_CLAIM = "FromClaim"


@dataclasses.dataclass(frozen=True, slots=True)
class ClaimRef:
    """Which claim: the kubelet names no more than this. The UID is the identity."""

    namespace: str
    name: str
    uid: ClaimUid

    def __str__(self) -> str:
        """As in messages: namespace/name (uid)."""
        return f"{self.namespace}/{self.name} ({self.uid})"

    @property
    def short(self) -> str:
        """For people who know their claims: namespace/name; one that was rebuilt may have none."""
        return f"{self.namespace}/{self.name}" if self.name else f"UID {self.uid}"


@dataclasses.dataclass(frozen=True, slots=True)
class OpaqueConfig:
    """Parameters for one driver. `requests` empty means all requests."""

    driver: str
    parameters: Json
    requests: tuple[str, ...] = ()
    source: str = FROM_CLAIM


@dataclasses.dataclass(frozen=True, slots=True)
class DeviceClass:
    """A class: CEL expressions that all must hold, and configs that go to the driver."""

    name: str
    selectors: tuple[str, ...] = ()
    configs: tuple[OpaqueConfig, ...] = ()
    extended_resource: str | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class DeviceRequest:
    """What one request, or one alternative of a `firstAvailable` list, asks for.

    `count` is None with allocation mode All. `extra` holds the wire fields that have no attribute
    here (capacity, tolerations, derivedAttributes).
    """

    name: str
    device_class: str
    selectors: tuple[str, ...] = ()
    mode: str = EXACT_COUNT
    count: int | None = 1
    admin_access: bool = False
    extra: Json = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, slots=True)
class Request:
    """A request of a claim: its alternatives in order of preference.

    A plain (`exactly`) request is its own single alternative; then `prioritized` is False.
    """

    name: str
    alternatives: tuple[DeviceRequest, ...]
    prioritized: bool = False

    def result_name(self, alternative: DeviceRequest) -> str:
        """What an allocation result calls the request: `req`, or `req/alternative`."""
        return f"{self.name}/{alternative.name}" if self.prioritized else self.name


@dataclasses.dataclass(frozen=True, slots=True)
class Constraint:
    """Devices of `requests` (empty: all) agree or differ in a fully qualified attribute."""

    attribute: str
    distinct: bool
    requests: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Result:
    """One allocated device, or with a `share_id` a share of one.

    `consumed_capacity` is how much of each capacity of the device the share takes.
    """

    request: str
    device: slices.DeviceId
    admin_access: bool = False
    share_id: str | None = None
    extra: Json = dataclasses.field(default_factory=dict)
    consumed_capacity: Mapping[str, quantities.Quantity] = dataclasses.field(default_factory=dict)

    @property
    def base_request(self) -> str:
        """The request without its `firstAvailable` alternative: what containers refer to."""
        return self.request.partition("/")[0]


@dataclasses.dataclass(frozen=True, slots=True)
class Allocation:
    """What the scheduler decided."""

    results: tuple[Result, ...]
    configs: tuple[OpaqueConfig, ...] = ()
    node_selector: Json | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class ResourceClaim:
    """A claim: what is asked for and, once allocated, what was given."""

    ref: ClaimRef
    requests: tuple[Request, ...] = ()
    constraints: tuple[Constraint, ...] = ()
    configs: tuple[OpaqueConfig, ...] = ()
    allocation: Allocation | None = None
    reserved_for: tuple[str, ...] = ()
    """UIDs of the pods that use the claim."""
    deleting: bool = False
    pod_claim_name: str | None = None
    """What its pod calls it, if it was made from a template; as somebody wrote it."""
    served: Json | None = dataclasses.field(default=None, compare=False, repr=False)
    """The object itself, for whoever writes to it; None where nobody is to."""


def parse(body: Json) -> ResourceClaim:
    """The claim in a `resource.k8s.io/v1` (or v1beta2, the same shape) object."""
    metadata, status = body["metadata"], body.get("status") or {}
    devices = (body.get("spec") or {}).get("devices") or {}
    allocation = status.get("allocation")
    configs = _parse_configs(devices.get("config"), FROM_CLAIM)
    return ResourceClaim(
        ref=ClaimRef(metadata["namespace"], metadata["name"], ClaimUid(metadata["uid"])),
        requests=tuple(_parse_request(request) for request in devices.get("requests") or ()),
        constraints=tuple(_parse_constraint(item) for item in devices.get("constraints") or ()),
        configs=configs,
        allocation=_named(parse_allocation(allocation), configs)
        if allocation is not None
        else None,
        reserved_for=tuple(item["uid"] for item in status.get("reservedFor") or ()),
        deleting="deletionTimestamp" in metadata,
        pod_claim_name=(metadata.get("annotations") or {}).get(POD_CLAIM_NAME),
    )


def parse_outcome(body: Json) -> ResourceClaim:
    """Identity, configs and allocation of a claim, whose shape is the same in all API versions."""
    devices = (body.get("spec") or {}).get("devices") or {}
    return parse(body | {"spec": {"devices": {"config": devices.get("config")}}})


def _named(allocation: Allocation, asked: tuple[OpaqueConfig, ...]) -> Allocation:
    """The allocation, whose configs name the requests that they name in the claim.

    From 1.37 on the scheduler leaves the names out where they are those of all requests
    (kubernetes/kubernetes#139731). A config that names a request is refused for a device of another
    type, and one without names is passed over there: the claim says which is meant.
    """
    left, configs = list(asked), []
    for config in allocation.configs:
        meant = next((one for one in left if _is_meant(config, one, allocation.results)), None)
        if meant is None:
            configs.append(config)
        else:
            # Allocations keep the order of the claim: what comes later is another one.
            left.remove(meant)
            requests = config.requests or meant.requests
            configs.append(dataclasses.replace(config, requests=requests))
    return dataclasses.replace(allocation, configs=tuple(configs))


def _is_meant(config: OpaqueConfig, asked: OpaqueConfig, results: tuple[Result, ...]) -> bool:
    """Whether a config of an allocation may be this one of the claim, with its names or without."""
    if (config.source, config.driver, config.parameters) != (
        FROM_CLAIM,
        asked.driver,
        asked.parameters,
    ):
        return False
    if config.requests or not asked.requests:
        return set(config.requests) == set(asked.requests)
    return all({result.request, result.base_request} & set(asked.requests) for result in results)


def parse_class(body: Json) -> DeviceClass:
    """The class in a `resource.k8s.io/v1` object."""
    spec = body.get("spec") or {}
    return DeviceClass(
        name=body["metadata"]["name"],
        selectors=_parse_selectors(spec),
        configs=_parse_configs(spec.get("config"), FROM_CLASS),
        extended_resource=spec.get("extendedResourceName"),
    )


def parse_allocation(body: Json) -> Allocation:
    """`status.allocation` of a claim."""
    devices = body.get("devices") or {}
    return Allocation(
        results=tuple(_parse_result(result) for result in devices.get("results") or ()),
        configs=_parse_configs(devices.get("config"), FROM_CLAIM),
        node_selector=body.get("nodeSelector"),
    )


def format_allocation(allocation: Allocation) -> Json:
    """The wire form of `status.allocation`."""
    devices: Json = {"results": [_format_result(result) for result in allocation.results]}
    if allocation.configs:
        devices["config"] = [_format_config(config) for config in allocation.configs]
    body: Json = {"devices": devices}
    if allocation.node_selector is not None:
        body["nodeSelector"] = allocation.node_selector
    return body


def _parse_request(body: Json) -> Request:
    name = body["name"]
    if body.get("firstAvailable"):
        alternatives = tuple(
            _parse_alternative(alternative["name"], alternative)
            for alternative in body["firstAvailable"]
        )
        return Request(name, alternatives, prioritized=True)
    if not body.get("exactly"):
        raise errors.Rejected(
            f"request {texts.quoted(name)}: neither `exactly` nor `firstAvailable` is known here; "
            "a newer kind of request needs a newer driver"
        )
    return Request(name, (_parse_alternative(name, body["exactly"]),))


def _parse_alternative(name: str, body: Json) -> DeviceRequest:
    mode = body.get("allocationMode") or EXACT_COUNT
    return DeviceRequest(
        name=name,
        device_class=body["deviceClassName"],
        selectors=_parse_selectors(body),
        mode=mode,
        count=body.get("count", 1) if mode == EXACT_COUNT else None,
        admin_access=bool(body.get("adminAccess")),
        extra={key: body[key] for key in _EXTRA if body.get(key)},
    )


def _parse_selectors(body: Json) -> tuple[str, ...]:
    return tuple(item["cel"]["expression"] for item in body.get("selectors") or ())


def _parse_constraint(body: Json) -> Constraint:
    requests = tuple(body.get("requests") or ())
    if "matchAttribute" in body:
        return Constraint(body["matchAttribute"], distinct=False, requests=requests)
    if "distinctAttribute" in body:
        return Constraint(body["distinctAttribute"], distinct=True, requests=requests)
    raise errors.Rejected(
        f"constraint {texts.quoted(body, 500)}: allowed is exactly one of matchAttribute, "
        "distinctAttribute"
    )


def _parse_configs(entries: list[Json] | None, source: str) -> tuple[OpaqueConfig, ...]:
    return tuple(
        OpaqueConfig(
            driver=entry["opaque"]["driver"],
            parameters=entry["opaque"]["parameters"],
            requests=tuple(entry.get("requests") or ()),
            source=entry.get("source", source),
        )
        for entry in entries or ()
        if entry.get("opaque")
    )


def _format_config(config: OpaqueConfig) -> Json:
    body: Json = {
        "source": config.source,
        "opaque": {"driver": config.driver, "parameters": config.parameters},
    }
    if config.requests:
        body["requests"] = list(config.requests)
    return body


def _parse_result(body: Json) -> Result:
    known = {"request", "driver", "pool", "device", "adminAccess", "shareID", "consumedCapacity"}
    return Result(
        request=body["request"],
        device=slices.DeviceId(body["driver"], body["pool"], body["device"]),
        admin_access=bool(body.get("adminAccess")),
        share_id=body.get("shareID"),
        extra={key: value for key, value in body.items() if key not in known},
        consumed_capacity={
            name: quantities.parse(str(amount))
            for name, amount in (body.get("consumedCapacity") or {}).items()
        },
    )


def _format_result(result: Result) -> Json:
    body: Json = {
        "request": result.request,
        "driver": result.device.driver,
        "pool": result.device.pool,
        "device": result.device.device,
    }
    if result.admin_access:
        body["adminAccess"] = True
    if result.share_id is not None:
        body["shareID"] = result.share_id
    if result.consumed_capacity:
        body["consumedCapacity"] = {
            name: str(amount) for name, amount in sorted(result.consumed_capacity.items())
        }
    return body | result.extra
