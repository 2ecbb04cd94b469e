"""The kinds of DRA and of what it stands on. A new kind is a row in `KINDS`; see `served_kinds`."""

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType

from dra_driver.sim.api.kinds import custom_kinds, printing

RESOURCE_GROUP = "resource.k8s.io"
DNS_SUBDOMAIN = "subdomain"
DNS_LABEL = "label"
PATH_SEGMENT = "path segment"

_COMMON_FIELDS = {"metadata.name": "metadata.name", "metadata.namespace": "metadata.namespace"}


def _fields(*names: str) -> Mapping[str, str]:
    return MappingProxyType(_COMMON_FIELDS | {name: name for name in names})


_EVENT_FIELDS = (
    "involvedObject.kind",
    "involvedObject.namespace",
    "involvedObject.name",
    "involvedObject.uid",
    "involvedObject.apiVersion",
    "involvedObject.resourceVersion",
    "involvedObject.fieldPath",
    "reason",
    "reportingComponent",
    "type",
)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Kind:
    """What is known of a kind. Compared by identity: each exists once."""

    group: str
    versions: tuple[str, ...]
    """Newest first. Objects are stored in the form of the first one."""
    plural: str
    singular: str
    kind: str
    namespaced: bool = True
    short_names: tuple[str, ...] = ()
    subresources: tuple[str, ...] = ()
    columns: tuple[printing.Column, ...] = printing.DEFAULT
    fields: Mapping[str, str] = dataclasses.field(default_factory=_fields)
    """Field selector label -> path in the stored form."""
    generation: bool = False
    """Whether `metadata.generation` counts changes of the spec."""
    returns_deleted: bool = False
    """Whether DELETE answers with the object that was removed, and not with a `Status`."""
    created_with_status: bool = False
    """Whether a create may bring a status along."""
    name_rule: str = DNS_SUBDOMAIN
    stored_as: str = ""
    """The resource whose objects these are in another form; empty for its own."""
    categories: tuple[str, ...] = ()
    custom: Mapping[str, custom_kinds.Version] | None = None
    """What a CustomResourceDefinition says of its versions; None for a kind of Kubernetes."""
    since: Mapping[str, int] = dataclasses.field(default_factory=dict)
    """Version, or field selector label -> the minor version of Kubernetes from which on it is
    there; what is not listed is in all."""

    def is_in(self, version: str, minor: int) -> bool:
        """Whether Kubernetes 1.`minor` has the kind in this version."""
        return version in self.versions and minor >= self.since.get(version, 0)

    def selectable(self, label: str, minor: int) -> str | None:
        """The path behind a field selector label of Kubernetes 1.`minor`, in the stored form."""
        return self.fields.get(label) if minor >= self.since.get(label, 0) else None

    def columns_in(self, version: str) -> tuple[printing.Column, ...]:
        """The columns of a table of objects in this version."""
        return self.columns if self.custom is None else self.custom[version].columns

    @property
    def resource(self) -> str:
        """As in messages: `resourceclaims.resource.k8s.io`, `pods`."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def storage(self) -> str:
        """Where the objects are kept."""
        return self.stored_as or self.resource

    def api_version(self, version: str) -> str:
        """As in objects: `v1`, `apps/v1`."""
        return f"{self.group}/{version}" if self.group else version

    @property
    def has_status(self) -> bool:
        """Whether the status is written through its own subresource."""
        return "status" in self.subresources


_DRA_VERSIONS = ("v1", "v1beta2", "v1beta1")

KINDS: tuple[Kind, ...] = (
    Kind(
        "", ("v1",), "namespaces", "namespace", "Namespace",
        namespaced=False, short_names=("ns",), subresources=("status",),
        columns=printing.NAMESPACE, fields=_fields("status.phase"), name_rule=DNS_LABEL,
    ),
    Kind(
        "", ("v1",), "nodes", "node", "Node",
        namespaced=False, short_names=("no",), subresources=("status",),
        columns=printing.NODE, created_with_status=True, fields=_fields("spec.unschedulable"),
    ),
    Kind(
        "", ("v1",), "pods", "pod", "Pod",
        short_names=("po",), subresources=("status", "binding", "log"),
        columns=printing.POD, generation=True, returns_deleted=True, categories=("all",),
        fields=_fields(
            "spec.nodeName", "spec.restartPolicy", "spec.schedulerName",
            "spec.serviceAccountName", "spec.hostNetwork", "status.phase", "status.podIP",
            "status.nominatedNodeName",
        ),
    ),
    Kind(
        "", ("v1",), "events", "event", "Event",
        short_names=("ev",), columns=printing.EVENT, fields=_fields(*_EVENT_FIELDS),
    ),
    Kind(
        "", ("v1",), "serviceaccounts", "serviceaccount", "ServiceAccount",
        short_names=("sa",), columns=printing.SERVICE_ACCOUNT, returns_deleted=True,
    ),
    Kind(
        "", ("v1",), "configmaps", "configmap", "ConfigMap",
        short_names=("cm",), columns=printing.CONFIG_MAP,
    ),
    Kind(
        "", ("v1",), "secrets", "secret", "Secret",
        columns=printing.SECRET, fields=_fields("type"),
    ),
    Kind(
        "events.k8s.io", ("v1",), "events", "event", "Event",
        short_names=("ev",), columns=printing.EVENT, stored_as="events",
        fields=MappingProxyType(
            _COMMON_FIELDS
            | {"reason": "reason", "type": "type", "reportingController": "reportingComponent"}
            | {
                name.replace("involvedObject", "regarding"): name
                for name in _EVENT_FIELDS
                if name.startswith("involvedObject")
            }
        ),
    ),
    Kind(
        RESOURCE_GROUP, _DRA_VERSIONS, "deviceclasses", "deviceclass", "DeviceClass",
        namespaced=False, columns=printing.DEVICE_CLASS, generation=True, returns_deleted=True,
    ),
    Kind(
        RESOURCE_GROUP, _DRA_VERSIONS[:2], "devicetaintrules", "devicetaintrule",
        "DeviceTaintRule", namespaced=False, subresources=("status",),
        columns=printing.TAINT_RULE, generation=True, returns_deleted=True,
        since=MappingProxyType({"v1": 37, "v1beta2": 36}),
    ),
    Kind(
        RESOURCE_GROUP, _DRA_VERSIONS, "resourceclaims", "resourceclaim", "ResourceClaim",
        subresources=("status",), columns=printing.CLAIM, returns_deleted=True,
    ),
    Kind(
        RESOURCE_GROUP, _DRA_VERSIONS, "resourceclaimtemplates", "resourceclaimtemplate",
        "ResourceClaimTemplate", columns=printing.TEMPLATE, returns_deleted=True,
    ),
    Kind(
        RESOURCE_GROUP, _DRA_VERSIONS, "resourceslices", "resourceslice", "ResourceSlice",
        namespaced=False, columns=printing.SLICE, generation=True, returns_deleted=True,
        fields=MappingProxyType(
            {
                "metadata.name": "metadata.name",
                "spec.nodeName": "spec.nodeName",
                "spec.driver": "spec.driver",
                "spec.pool.name": "spec.pool.name",
            }
        ),
        since=MappingProxyType({"spec.pool.name": 37}),
    ),
    Kind(
        "apps", ("v1",), "deployments", "deployment", "Deployment",
        short_names=("deploy",), subresources=("status", "scale"), columns=printing.DEPLOYMENT,
        generation=True, categories=("all",),
    ),
    Kind(
        "apps", ("v1",), "daemonsets", "daemonset", "DaemonSet",
        short_names=("ds",), subresources=("status",), columns=printing.DAEMON_SET,
        generation=True, categories=("all",),
    ),
    Kind(
        "coordination.k8s.io", ("v1",), "leases", "lease", "Lease", columns=printing.LEASE,
    ),
    Kind("discovery.k8s.io", ("v1",), "endpointslices", "endpointslice", "EndpointSlice"),
    Kind(
        "admissionregistration.k8s.io", ("v1",), "mutatingwebhookconfigurations",
        "mutatingwebhookconfiguration", "MutatingWebhookConfiguration",
        namespaced=False, generation=True, categories=("api-extensions",),
    ),
    # Kept, and not called: it is checked what those would refuse.
    Kind(
        "admissionregistration.k8s.io", ("v1",), "validatingwebhookconfigurations",
        "validatingwebhookconfiguration", "ValidatingWebhookConfiguration",
        namespaced=False, generation=True, categories=("api-extensions",),
    ),
)  # fmt: skip

_BY_RESOURCE = {(kind.group, kind.plural): kind for kind in KINDS}
_BY_NAME = {(kind.group, kind.kind): kind for kind in KINDS}


def find(group: str, plural: str) -> Kind | None:
    """The kind of that group and plural."""
    return _BY_RESOURCE.get((group, plural))


def named(group: str, kind: str) -> Kind | None:
    """The kind of that group and `kind` word, as in owner references."""
    return _BY_NAME.get((group, kind))
