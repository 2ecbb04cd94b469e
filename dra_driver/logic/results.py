"""Chosen devices -> `status.allocation`: results, the configs that apply, the nodes it ties to.

Source: Kubernetes 1.36 `structured/internal/incubating/allocator_incubating.go`, the end of
Allocate and createNodeSelector.
"""

import dataclasses
from collections.abc import Iterator, Sequence

from dra_driver.logic import demand, pools
from dra_driver.model import claims, nodes

Chosen = tuple[demand.Want, pools.Candidate]


def allocation(
    claim: claims.ResourceClaim, chosen: Sequence[Chosen], node: nodes.Node
) -> claims.Allocation:
    """The allocation of one claim; `chosen` in the order of its requests."""
    return claims.Allocation(
        results=tuple(_result(want, candidate) for want, candidate in chosen),
        configs=(*_class_configs(chosen), *_claim_configs(claim, chosen)),
        node_selector=_node_selector([candidate for _, candidate in chosen], node),
    )


def _result(want: demand.Want, candidate: pools.Candidate) -> claims.Result:
    tolerations = want.spec.extra.get("tolerations")
    return claims.Result(
        request=want.name,
        device=candidate.id,
        admin_access=want.spec.admin_access,
        extra={"tolerations": tolerations} if tolerations else {},
    )


def _class_configs(chosen: Sequence[Chosen]) -> Iterator[claims.OpaqueConfig]:
    """Each class once, for the requests that use it."""
    classes = {want.device_class.name: want.device_class for want, _ in chosen}
    for name, device_class in classes.items():
        users = dict.fromkeys(want.name for want, _ in chosen if want.device_class.name == name)
        for config in device_class.configs:
            yield dataclasses.replace(config, requests=tuple(users), source=claims.FROM_CLASS)


def _claim_configs(
    claim: claims.ResourceClaim, chosen: Sequence[Chosen]
) -> Iterator[claims.OpaqueConfig]:
    """In the order of the claim; one with `requests` once for each of them that it concerns."""
    names = {want.name for want, _ in chosen}
    for config in claim.configs:
        concerned = sum(
            request.name in config.requests
            or any(name in config.requests for name in _chosen_names(request, names))
            for request in claim.requests
        )
        for _ in range(concerned if config.requests else 1):
            yield dataclasses.replace(config, source=claims.FROM_CLAIM)


def _chosen_names(request: claims.Request, names: set[str]) -> set[str]:
    return {request.result_name(alternative) for alternative in request.alternatives} & names


def _node_selector(chosen: Sequence[pools.Candidate], node: nodes.Node) -> claims.Json | None:
    if any(candidate.node_name is not None for candidate in chosen):
        return nodes.only(node.name)
    merged: dict[str, list[claims.Json]] = {}
    for candidate in chosen:
        for term in (candidate.node_selector or {}).get("nodeSelectorTerms") or ():
            for field in ("matchExpressions", "matchFields"):
                for requirement in term.get(field) or ():
                    if requirement not in (known := merged.setdefault(field, [])):
                        known.append(requirement)
    return {"nodeSelectorTerms": [merged]} if merged else None
