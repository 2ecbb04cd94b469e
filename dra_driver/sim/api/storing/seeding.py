"""What a cluster has from the start."""

from dra_driver.sim.api.kinds import kinds
from dra_driver.sim.api.storing import registry

_NAMESPACES = ("default", "kube-system")


def seed(objects: registry.Registry) -> None:
    """Creates the namespaces that always exist."""
    for kind in kinds.KINDS:
        if kind.resource == "namespaces":
            for name in _NAMESPACES:
                objects.create(
                    kind, "", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
                )
