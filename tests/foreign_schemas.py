"""What the chart uses of the schemas of kinds that do not come with Kubernetes.

Taken from the CustomResourceDefinitions of their projects: names, types, patterns and what is
required. Fields that the chart does not use are left out, so that one more has to be looked up.
"""

from typing import Any

Json = dict[str, Any]

_TEXT = {"type": "string"}
_TEXTS = {"type": "array", "items": _TEXT}
_SWITCH = {"type": "boolean"}
_DURATION = (
    r"^(0|(([0-9]+)y)?(([0-9]+)w)?(([0-9]+)d)?(([0-9]+)h)?(([0-9]+)m)?(([0-9]+)s)?(([0-9]+)ms)?)$"
)


def _object(required: str, **properties: Json) -> Json:
    return {
        "type": "object",
        "properties": properties,
        "required": required.split(),
        "additionalProperties": False,
    }


def _map(values: Json) -> Json:
    return {"type": "object", "additionalProperties": values}


def _kind(api_version: str, kind: str, required: str, *, namespaced: bool, **fields: Json) -> Json:
    metadata = _object(
        "name namespace" if namespaced else "name",
        name=_TEXT,
        labels=_map(_TEXT),
        annotations=_map(_TEXT),
        **({"namespace": _TEXT} if namespaced else {}),
    )
    return _object(
        f"apiVersion kind metadata {required}",
        apiVersion={"const": api_version},
        kind={"const": kind},
        metadata=metadata,
        **fields,
    )


_EITHER = {
    "if": {"required": ["selfSigned"]},
    "then": {"properties": {"ca": False}},
    "else": {"required": ["ca"]},
}
"""An issuer is of one type; cert-manager's own webhook sees to that."""
_STRATEGY = _object("type", type={"enum": ["MustRunAs", "MustRunAsNonRoot", "RunAsAny"]})

SCHEMAS = {
    # cert-manager/cert-manager: deploy/crds/cert-manager.io_issuers.yaml
    "Issuer": _kind(
        "cert-manager.io/v1",
        "Issuer",
        "spec",
        namespaced=True,
        spec=_object(
            "",
            selfSigned=_object("", crlDistributionPoints=_TEXTS),
            ca=_object("secretName", secretName=_TEXT),
        )
        | _EITHER,
    ),
    # cert-manager/cert-manager: deploy/crds/cert-manager.io_certificates.yaml
    "Certificate": _kind(
        "cert-manager.io/v1",
        "Certificate",
        "spec",
        namespaced=True,
        spec=_object(
            "issuerRef secretName",
            secretName=_TEXT,
            dnsNames=_TEXTS,
            isCA=_SWITCH,
            commonName={"type": "string", "maxLength": 64},
            duration={"type": "string", "pattern": r"^([0-9]+(h|m|s))+$"},
            privateKey=_object(
                "",
                algorithm={"enum": ["RSA", "ECDSA", "Ed25519"]},
                rotationPolicy={"enum": ["Never", "Always"]},
            ),
            issuerRef=_object("name", group=_TEXT, kind=_TEXT, name=_TEXT),
        ),
    ),
    # prometheus-operator/prometheus-operator:
    # example/prometheus-operator-crd/monitoring.coreos.com_servicemonitors.yaml
    "ServiceMonitor": _kind(
        "monitoring.coreos.com/v1",
        "ServiceMonitor",
        "spec",
        namespaced=True,
        spec=_object(
            "endpoints selector",
            selector=_object("", matchLabels=_map(_TEXT)),
            endpoints={
                "type": "array",
                "items": _object(
                    "", port=_TEXT, path=_TEXT, interval={"type": "string", "pattern": _DURATION}
                ),
            },
        ),
    ),
    # openshift/api: security/v1/zz_generated.featuregated-crd-manifests/
    # securitycontextconstraints.security.openshift.io/AAA_ungated.yaml
    "SecurityContextConstraints": _kind(
        "security.openshift.io/v1",
        "SecurityContextConstraints",
        "allowHostDirVolumePlugin allowHostIPC allowHostNetwork allowHostPID allowHostPorts "
        "allowPrivilegedContainer allowedCapabilities defaultAddCapabilities priority "
        "readOnlyRootFilesystem requiredDropCapabilities volumes",
        namespaced=False,
        allowHostDirVolumePlugin=_SWITCH,
        allowHostIPC=_SWITCH,
        allowHostNetwork=_SWITCH,
        allowHostPID=_SWITCH,
        allowHostPorts=_SWITCH,
        allowPrivilegeEscalation=_SWITCH,
        allowPrivilegedContainer=_SWITCH,
        allowedCapabilities=_TEXTS,
        defaultAddCapabilities=_TEXTS,
        fsGroup=_STRATEGY,
        groups=_TEXTS,
        priority={"type": ["integer", "null"]},
        readOnlyRootFilesystem=_SWITCH,
        requiredDropCapabilities=_TEXTS,
        runAsUser=_object("type", type=_STRATEGY["properties"]["type"], uid={"type": "integer"}),
        seLinuxContext=_STRATEGY,
        seccompProfiles=_TEXTS,
        supplementalGroups=_STRATEGY,
        users=_TEXTS,
        volumes=_TEXTS,
    ),
}
"""A JSON schema for each of these kinds, by kind."""
