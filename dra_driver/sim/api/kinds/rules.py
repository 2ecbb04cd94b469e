"""Which strategy holds for which resource."""

from collections.abc import Mapping
from types import MappingProxyType

from dra_driver.sim.api.kinds import (
    core_rules,
    definitions,
    priorities,
    resource_claims,
    resource_slices,
    resource_status,
    resource_taint_rules,
    strategies,
    webhook_configurations,
    workload_kinds,
    workload_rules,
)

ALL: Mapping[str, strategies.Strategy] = MappingProxyType(
    {
        "namespaces": core_rules.NAMESPACE,
        "nodes": core_rules.NODE,
        "pods": core_rules.POD,
        "events": core_rules.EVENT,
        "secrets": core_rules.SECRET,
        "deviceclasses.resource.k8s.io": resource_claims.CLASS,
        "devicetaintrules.resource.k8s.io": resource_taint_rules.STRATEGY,
        "resourceclaims.resource.k8s.io": resource_status.STRATEGY,
        "resourceclaimtemplates.resource.k8s.io": resource_claims.TEMPLATE,
        "resourceslices.resource.k8s.io": resource_slices.STRATEGY,
        webhook_configurations.MUTATING: webhook_configurations.STRATEGY,
        workload_kinds.PRIORITY_CLASSES: priorities.CLASS,
        workload_kinds.DEFINITIONS: definitions.STRATEGY,
        **workload_rules.BY_RESOURCE,
    }
)
"""Resource -> strategy; of others nothing is checked but the metadata."""
