"""What a cluster has from the start."""

from dra_driver.sim.api.kinds import priorities, workload_kinds
from dra_driver.sim.api.storing import registry

_NAMESPACES = ("default", "kube-system")


def seed(objects: registry.Registry) -> None:
    """Creates the namespaces and priority classes that always exist."""
    kind = objects.table.stored_in("namespaces")
    for name in _NAMESPACES:
        objects.create(
            kind, "", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        )
    kind = objects.table.stored_in(workload_kinds.PRIORITY_CLASSES)
    for name, value in priorities.SYSTEM.items():
        body = {"apiVersion": kind.api_version("v1"), "kind": kind.kind, "value": value}
        objects.create(kind, "", body | {"metadata": {"name": name}})
