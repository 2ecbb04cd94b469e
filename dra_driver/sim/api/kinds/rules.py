"""Which strategy holds for which resource."""

from collections.abc import Mapping
from types import MappingProxyType

from dra_driver.sim.api.kinds import (
    core_rules,
    resource_claims,
    resource_slices,
    resource_status,
    strategies,
)

ALL: Mapping[str, strategies.Strategy] = MappingProxyType(
    {
        "namespaces": core_rules.NAMESPACE,
        "nodes": core_rules.NODE,
        "pods": core_rules.POD,
        "events": core_rules.EVENT,
        "secrets": core_rules.SECRET,
        "deviceclasses.resource.k8s.io": resource_claims.CLASS,
        "resourceclaims.resource.k8s.io": resource_status.STRATEGY,
        "resourceclaimtemplates.resource.k8s.io": resource_claims.TEMPLATE,
        "resourceslices.resource.k8s.io": resource_slices.STRATEGY,
    }
)
"""Resource -> strategy; of others nothing is checked but the metadata."""
