"""Kinds of Kubernetes that are kept as they come, and nothing acts on them.

They are there so that what belongs to a workload can be applied along with it. Only their metadata
is checked.
"""

from dra_driver.sim.api.kinds import kinds


def _plain(
    group: str, versions: str, plural: str, kind: str, scope: str = "Namespaced", *short: str
) -> kinds.Kind:
    """A kind with a status; `versions` are separated by blanks, the newest first."""
    return kinds.Kind(
        group,
        tuple(versions.split()),
        plural,
        kind.lower(),
        kind,
        namespaced=scope == "Namespaced",
        short_names=short,
        subresources=("status",),
        generation=True,
        name_rule=kinds.PATH_SEGMENT if group == _RBAC else kinds.DNS_SUBDOMAIN,
    )


_RBAC = "rbac.authorization.k8s.io"
_ADMISSION = "admissionregistration.k8s.io"
_CLUSTER = "Cluster"
_NAMESPACED = "Namespaced"

KINDS: tuple[kinds.Kind, ...] = (
    _plain("", "v1", "services", "Service", _NAMESPACED, "svc"),
    _plain("", "v1", "endpoints", "Endpoints", _NAMESPACED, "ep"),
    _plain("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim", _NAMESPACED, "pvc"),
    _plain("", "v1", "persistentvolumes", "PersistentVolume", _CLUSTER, "pv"),
    _plain("", "v1", "resourcequotas", "ResourceQuota", _NAMESPACED, "quota"),
    _plain("", "v1", "limitranges", "LimitRange", _NAMESPACED, "limits"),
    _plain("", "v1", "podtemplates", "PodTemplate"),
    _plain("apps", "v1", "controllerrevisions", "ControllerRevision"),
    _plain("autoscaling", "v2 v1", "horizontalpodautoscalers", "HorizontalPodAutoscaler",
           _NAMESPACED, "hpa"),
    _plain("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", _NAMESPACED, "pdb"),
    _plain("networking.k8s.io", "v1", "ingresses", "Ingress", _NAMESPACED, "ing"),
    _plain("networking.k8s.io", "v1", "ingressclasses", "IngressClass", _CLUSTER),
    _plain("networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy", _NAMESPACED, "netpol"),
    _plain(_RBAC, "v1", "roles", "Role"),
    _plain(_RBAC, "v1", "rolebindings", "RoleBinding"),
    _plain(_RBAC, "v1", "clusterroles", "ClusterRole", _CLUSTER),
    _plain(_RBAC, "v1", "clusterrolebindings", "ClusterRoleBinding", _CLUSTER),
    _plain("storage.k8s.io", "v1", "storageclasses", "StorageClass", _CLUSTER, "sc"),
    _plain("storage.k8s.io", "v1", "csidrivers", "CSIDriver", _CLUSTER),
    _plain("node.k8s.io", "v1", "runtimeclasses", "RuntimeClass", _CLUSTER),
    _plain(_ADMISSION, "v1", "validatingadmissionpolicies", "ValidatingAdmissionPolicy", _CLUSTER),
    _plain(_ADMISSION, "v1", "validatingadmissionpolicybindings",
           "ValidatingAdmissionPolicyBinding", _CLUSTER),
    _plain("apiregistration.k8s.io", "v1", "apiservices", "APIService", _CLUSTER),
)  # fmt: skip
