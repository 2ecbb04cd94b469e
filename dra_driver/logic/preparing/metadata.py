"""Device metadata (KEP-5304): what containers read of their devices, where, and by which CDI names.

A file for each request of a claim has all its devices. Paths, names and fields are those of the Go
helper: Kubernetes 1.37, `staging/src/k8s.io/dynamic-resource-allocation/kubeletplugin` and
`…/api/metadata/v1beta1/types.go`.
"""

import dataclasses
import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from dra_driver import errors
from dra_driver.logic.offering import attributes, shares
from dra_driver.logic.preparing import cdi, device_status, reports
from dra_driver.model import claims, device_metadata, devices, prepared, quantities, slices, texts

Json = dict[str, Any]

VERSIONS = ("metadata.resource.k8s.io/v1beta1", "metadata.resource.k8s.io/v1alpha1")
"""The object is written once for each; readers take the first that they know."""
KIND = "DeviceMetadata"
FOLDER = "dra-device-metadata"
FILE = "metadata.json"
CONTAINER_DIR = "/var/run/kubernetes.io/dra-device-attributes"
MOUNT_OPTIONS = ("ro", "bind")
MOST_ATTRIBUTES = 32
"""Attributes of a device; readers may refuse a file with more."""
LONGEST_NAME = 255
"""Bytes of the name of a file or directory (`NAME_MAX`)."""

MPS = "mps"
"""The attribute that tells whether a device is used through an MPS daemon."""
_FIRST = (
    attributes.PCI_BUS_ID,
    "type",
    "uuid",
    "parentUUID",
    "gpuUUID",
    "profile",
    "placement",
    "gpuInstanceId",
    "computeInstanceId",
    shares.MEMORY,
    shares.CORES,
    shares.SHARES,
    shares.ENFORCEMENT,
    MPS,
    "activeThreadPercentage",
    "deviceMemoryLimit",
    "productName",
    "driverVersion",
    attributes.PCIE_ROOT,
    attributes.NUMA_NODE,
    "numaNode",
)
"""What stays where there are too many attributes, in this order; then the others by name."""
_NEVER = frozenset({"mdevUUID"})
"""KubeVirt takes whatever has it for a mediated device (its pkg/dra)."""

_LABEL = r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"
_IS_LABEL = re.compile(_LABEL, re.ASCII)
_IS_SUBDOMAIN = re.compile(rf"{_LABEL}(\.{_LABEL})*", re.ASCII)
_LONGEST_SUBDOMAIN = 253


@dataclasses.dataclass(frozen=True, slots=True)
class Document:
    """What one file says: the base name of its request, and all of it as text."""

    request: str
    text: str


@dataclasses.dataclass(frozen=True, slots=True)
class Owner:
    """Whose a file is, of which devices it tells, by name, and what a record would tell of it."""

    uid: str
    devices: tuple[str, ...]
    described: device_metadata.Described
    pod_claim_name: str | None


def wanted(
    claim: claims.ResourceClaim, results: Iterable[claims.Result]
) -> device_metadata.Content:
    """What is to be described of a claim that has these results of this driver."""
    requests = {one.base_request: device_metadata.Described(name=one.request) for one in results}
    return device_metadata.Content(requests=requests, pod_claim_name=claim.pod_claim_name)


def check(ref: claims.ClaimRef, content: device_metadata.Content) -> None:
    """Refuse names that are not fit to be parts of paths.

    Raises:
        errors.Rejected: one of them is not.
    """
    for noun, name, is_fit in (
        ("namespace", ref.namespace, _is_label),
        ("name", ref.name, _is_subdomain),
        ("annotation " + claims.POD_CLAIM_NAME, content.pod_claim_name, _is_label),
        *(("request", base, _is_label) for base in content.requests),
        *(
            ("request", part, _is_label)
            for described in content.requests.values()
            for part in described.name.split("/")
        ),
    ):
        if name is not None and not is_fit(name):
            raise errors.Rejected(
                f"claim {ref}, {noun} {texts.quoted(name)}: it would be part of a path; allowed "
                "are names as DNS has them: lower-case letters, digits and '-', 63 in a label. "
                "Make the claim anew, or switch the setting deviceMetadata off"
            )


def is_too_long(ref: claims.ClaimRef) -> bool:
    """Whether there can be no directory for the claim."""
    return len(folder(ref.namespace, ref.name)) > LONGEST_NAME


def folder(namespace: str, name: str) -> str:
    """The directory of a claim: two of one name have the same, one after the other."""
    return f"{namespace}_{name}"


def cdi_kind(driver_name: str) -> str:
    """The CDI kind of the mounts."""
    return f"{driver_name}/metadata"


def cdi_id(driver_name: str, uid: str, request: str) -> str:
    """The fully qualified CDI name of the mount of a request's file."""
    return f"{cdi_kind(driver_name)}={uid}_{request}"


def cdi_file(driver_name: str, uid: str, request: str) -> str:
    """The CDI spec of a request's file."""
    return f"{driver_name}_metadata_{uid}_{request}.json"


def cdi_uid(driver_name: str, name: str) -> str | None:
    """The claim that such a spec is of; None for a file that is not ours."""
    prefix = f"{driver_name}_metadata_"
    if not (name.startswith(prefix) and name.endswith(".json")):
        return None
    uid, separator, request = name.removeprefix(prefix).removesuffix(".json").partition("_")
    return uid if separator and uid and request else None


def container_path(
    driver_name: str, name: str, content: device_metadata.Content, request: str
) -> str:
    """Where containers find the file: by what their pod calls the claim."""
    if content.pod_claim_name is None:
        place = f"resourceclaims/{name}"
    else:
        place = f"resourceclaimtemplates/{content.pod_claim_name}"
    return f"{CONTAINER_DIR}/{place}/{request}/{driver_name}-metadata.json"


def cdi_spec(driver_name: str, uid: str, request: str, *, host: str, inside: str) -> str:
    """The text of a request's CDI spec: one mount, of the file `host` at the path `inside`."""
    mount = {"hostPath": host, "containerPath": inside, "options": list(MOUNT_OPTIONS)}
    device = {"name": f"{uid}_{request}", "containerEdits": {"mounts": [mount]}}
    spec = {"cdiVersion": cdi.CDI_VERSION, "kind": cdi_kind(driver_name), "devices": [device]}
    return json.dumps(spec) + "\n"


def answered(driver_name: str, record: prepared.Record) -> tuple[prepared.PreparedDevice, ...]:
    """What the kubelet is told of a claim that is prepared.

    The first device of a request brings its file: a container that has a request has all of its
    devices, and would be given a mount for each of them else.
    """
    content = device_metadata.of(record)
    left = set(content.requests) if content is not None else set()
    found = []
    for device in record.devices:
        first = [request for request in device.requests if request in left]
        left.difference_update(first)
        ids = (cdi_id(driver_name, record.uid, request) for request in first)
        found.append(device.model_copy(update={"cdi_ids": (*device.cdi_ids, *ids)}))
    return tuple(found)


def said(
    driver_name: str,
    record: prepared.Record,
    offers: Mapping[str, devices.Offer],
    told: reports.Told,
) -> tuple[prepared.Record, tuple[Document, ...]]:
    """What is to be said of a claim's devices now, and the record with the generations of that.

    `offers` are those of its devices, by name. `told` is what the effects tell of them. Equal facts
    give equal bytes, and the same generation.
    """
    content = device_metadata.of(record)
    if content is None:
        return record, ()
    described, documents = {}, []
    for request, before in content.requests.items():
        listed = [
            {
                "driver": driver_name,
                "pool": one.pool,
                "name": one.device,
                "attributes": attributes_of(record, one, offers[one.device], told),
            }
            for one in record.devices
            if request in one.requests
        ]
        digest = _digest(listed)
        is_same = digest == before.digest and before.generation
        generation = before.generation if is_same else before.generation + 1
        now = before.model_copy(update={"generation": generation, "digest": digest})
        described[request] = now
        documents.append(Document(request, _text(record.ref, content.pod_claim_name, now, listed)))
    kept = content.model_copy(update={"requests": described})
    return device_metadata.into(record, kept), tuple(documents)


def attributes_of(
    record: prepared.Record,
    device: prepared.PreparedDevice,
    offer: devices.Offer,
    told: reports.Told,
) -> Json:
    """What is said of a device: what is published of it, and what the claim has of it.

    Amounts are numbers: of memory bytes.
    """
    key = cdi.device_key(device.device, device.share_id)
    facts: dict[str, slices.AttributeValue | device_status.Value | None] = {
        **_published(offer).attributes,
        **_of_sharing(record, device, key),
        **told.get(key, {}),
    }
    fit = {
        name: value
        for name, value in ((name, _scalar(value)) for name, value in facts.items())
        if value is not None and name not in _NEVER and _fits(value)
    }
    names = [name for name in _FIRST if name in fit]
    names += sorted(fit.keys() - {*names})
    return {name: slices.format_value(fit[name]) for name in names[:MOST_ATTRIBUTES]}


def owner(text: str) -> Owner | None:
    """Whose a file is, by its first object; None where that does not tell."""
    try:
        body, _ = json.JSONDecoder().raw_decode(text)
        [request] = body["requests"]
        return Owner(
            uid=str(body["metadata"]["uid"]),
            devices=tuple(str(one["name"]) for one in request["devices"]),
            described=device_metadata.Described(
                name=str(request["name"]),
                generation=int(body["metadata"]["generation"]),
                digest=_digest(request["devices"]),
            ),
            pod_claim_name=body.get("podClaimName"),
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def _published(offer: devices.Offer) -> slices.Device:
    if offer.vfio is not None:
        return attributes.vfio(offer)
    return attributes.device(offer.gpu) if offer.spot is None else attributes.partition(offer)


def _of_sharing(
    record: prepared.Record, device: prepared.PreparedDevice, key: str
) -> Mapping[str, device_status.Value | None]:
    """What a share has of its device, and whether MPS holds it to that."""
    if device.kind == "vfio":
        return {}
    use = next((one for one in record.sharing.mps if key in one.keys), None)
    facts: dict[str, device_status.Value | None] = {**reports.held(device), MPS: use is not None}
    if device.share_id is not None:
        is_held = use is not None and None not in (use.percent, use.memory_bytes)
        facts[shares.ENFORCEMENT] = "MPS" if is_held else "None"
    return facts


def _scalar(value: slices.AttributeValue | device_status.Value | None) -> slices.Scalar | None:
    """As an attribute; None where it cannot be one."""
    match value:
        case quantities.Quantity():
            return value.value
        case tuple() | device_status.Unseen():
            return None
        case _:
            return value


def _fits(value: slices.Scalar) -> bool:
    text = value.text if isinstance(value, slices.Version) else value
    return not isinstance(text, str) or len(text.encode()) <= attributes.MAX_VALUE_LENGTH


def _text(
    ref: claims.ClaimRef,
    pod_claim_name: str | None,
    described: device_metadata.Described,
    listed: list[Json],
) -> str:
    body: Json = {
        "metadata": {
            "name": ref.name,
            "namespace": ref.namespace,
            "uid": ref.uid,
            "generation": described.generation,
        },
        **({} if pod_claim_name is None else {"podClaimName": pod_claim_name}),
        "requests": [{"name": described.name, "devices": listed}],
    }
    objects = ({"apiVersion": version, "kind": KIND, **body} for version in VERSIONS)
    return "".join(json.dumps(one) + "\n" for one in objects)


def _digest(listed: list[Json]) -> str:
    return hashlib.sha256(json.dumps(listed, sort_keys=True).encode()).hexdigest()[:16]


def _is_label(name: str) -> bool:
    return _IS_LABEL.fullmatch(name) is not None


def _is_subdomain(name: str) -> bool:
    return len(name) <= _LONGEST_SUBDOMAIN and _IS_SUBDOMAIN.fullmatch(name) is not None
