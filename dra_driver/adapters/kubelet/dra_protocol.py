"""The protobuf messages of plugin registration and of the DRA plugin service.

Source: Kubernetes 1.37, `staging/src/k8s.io/kubelet/pkg/apis/pluginregistration/v1/api.proto` and
`.../dra/{v1,v1beta1}/api.proto`, `.../dra-health/{v1,v1alpha1}/api.proto`; of the service that
probes ask, grpc/grpc `src/proto/grpc/health/v1/health.proto`. The messages are few and frozen, so
they are built here from a table at import; no generated code has to match the protobuf runtime.
"""

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

REGISTRATION_SERVICE = "pluginregistration.Registration"
DRA_PACKAGES = {
    "v1.DRAPlugin": "k8s.io.kubelet.pkg.apis.dra.v1",
    "v1beta1.DRAPlugin": "k8s.io.kubelet.pkg.apis.dra.v1beta1",
}
"""What GetInfo advertises, in the order of preference, and the proto package behind it."""

PROBE_SERVICE = "dra_driver.probe.DRAPlugin"
"""Our own: the methods of `v1.DRAPlugin`, for probes, which must not wait behind claims."""
HEALTH_SERVICES = ("v1.DRAResourceHealth", "v1alpha1.DRAResourceHealth")
"""As GetInfo advertises them, and as they are called: their proto packages have no longer names.

Their messages are the same. A kubelet before 1.37 knows v1alpha1 alone, and opens it whether it is
advertised or not; from 1.37 on one opens what is advertised, v1 first.
"""
PROBING_SERVICE = "grpc.health.v1.Health"

_Field = descriptor_pb2.FieldDescriptorProto
_STRING, _MESSAGE = _Field.TYPE_STRING, _Field.TYPE_MESSAGE
_MARKED = {"?": _Field.TYPE_BOOL, "#": _Field.TYPE_INT64}

_REGISTRATION = {
    "InfoRequest": [],
    "PluginInfo": ["type", "name", "endpoint", "supported_versions*"],
    "RegistrationStatus": ["plugin_registered?", "error"],
    "RegistrationStatusResponse": [],
}
_DRA = {
    "Claim": ["namespace", "uid", "name"],
    "Device": ["request_names*", "pool_name", "device_name", "cdi_device_ids*", "share_id="],
    "NodePrepareResourcesRequest": ["claims* Claim"],
    "NodePrepareResourceResponse": ["devices* Device", "error"],
    "NodePrepareResourcesResponse": ["claims{} NodePrepareResourceResponse"],
    "NodeUnprepareResourcesRequest": ["claims* Claim"],
    "NodeUnprepareResourceResponse": ["error"],
    "NodeUnprepareResourcesResponse": ["claims{} NodeUnprepareResourceResponse"],
}
_HEALTH = {
    "NodeWatchResourcesRequest": [],
    "NodeWatchResourcesResponse": ["devices* DeviceHealth"],
    "DeviceIdentifier": ["pool_name", "device_name"],
    "DeviceHealth": [
        "device DeviceIdentifier",
        "health#",
        "last_updated_time#",
        "health_check_timeout_seconds#",
        "message",
    ],
}
"""Message -> its fields, numbered from 1. A field is a string unless marked: `*` repeated,
`?` bool, `#` integer (an enum is one on the wire), `=` optional string, `{}` map from string; a
second word is the message type."""
UNKNOWN, HEALTHY, UNHEALTHY = 0, 1, 2
"""Of the enum HealthStatus."""
_PROBING = {"HealthCheckRequest": ["service"], "HealthCheckResponse": ["status#"]}
SERVING, NOT_SERVING = 1, 2
"""Of the enum ServingStatus."""


class Messages:
    """The message classes of one proto package, as attributes by their proto names."""

    def __init__(self, package: str, table: dict[str, list[str]]) -> None:
        file = descriptor_pb2.FileDescriptorProto(
            name=f"{package}/api.proto", package=package, syntax="proto3"
        )
        for name, fields in table.items():
            message = file.message_type.add(name=name)
            for number, field in enumerate(fields, start=1):
                _add_field(message, package, number, field)
        pool = descriptor_pool.DescriptorPool()
        pool.Add(file)
        self._classes = {
            name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{package}.{name}"))
            for name in table
        }

    def __getattr__(self, name: str) -> Any:
        """The message class of that name."""
        try:
            return self._classes[name]
        except KeyError:
            raise AttributeError(name) from None


def _add_field(
    message: descriptor_pb2.DescriptorProto, package: str, number: int, text: str
) -> None:
    text, _, type_name = text.partition(" ")
    name = text.rstrip("*?#={}")
    mark = text[len(name) :]
    field = message.field.add(
        name=name,
        number=number,
        label=_Field.LABEL_REPEATED if mark in ("*", "{}") else _Field.LABEL_OPTIONAL,
        type=_MESSAGE if type_name else _MARKED.get(mark, _STRING),
    )
    if mark == "=":
        # A proto3 optional is a oneof of its own: absent and empty can be told apart.
        field.proto3_optional = True
        field.oneof_index = len(message.oneof_decl)
        message.oneof_decl.add(name=f"_{name}")
    if mark in ("*", "") and type_name:
        field.type_name = f".{package}.{type_name}"
    if mark == "{}":
        entry = message.nested_type.add(name=f"{name.capitalize()}Entry")
        entry.options.map_entry = True
        entry.field.add(name="key", number=1, label=_Field.LABEL_OPTIONAL, type=_STRING)
        entry.field.add(
            name="value",
            number=2,
            label=_Field.LABEL_OPTIONAL,
            type=_MESSAGE,
            type_name=f".{package}.{type_name}",
        )
        field.type_name = f".{package}.{message.name}.{entry.name}"


registration = Messages("pluginregistration", _REGISTRATION)
health = Messages("v1", _HEALTH)
probing = Messages("grpc.health.v1", _PROBING)

dra = {
    version: Messages(
        package,
        # v1beta1 has no share_id.
        _DRA if version.startswith("v1.") else _DRA | {"Device": _DRA["Device"][:-1]},
    )
    for version, package in DRA_PACKAGES.items()
}
