"""Chosen devices -> `status.allocation`: results, the configs that apply, the nodes it ties to.

Source: Kubernetes 1.36 and 1.37 `structured/internal/incubating/allocator_incubating.go`, the end
of Allocate and createNodeSelector.
"""

import dataclasses
from collections.abc import Callable, Iterator, Sequence

from dra_driver.logic.scheduling import candidacy, capacities, demand, emulation
from dra_driver.model import claims, nodes

ShareIds = Callable[[], str]
"""Gives a new random UUID, in lower case, at each call."""

_CONDITIONS = ("bindingConditions", "bindingFailureConditions")


@dataclasses.dataclass(frozen=True, slots=True)
class Chosen:
    """A device for a request; of one that can be shared, how much of each capacity."""

    want: demand.Want
    candidate: candidacy.Candidate
    taken: capacities.Amounts


def allocation(
    claim: claims.ResourceClaim,
    chosen: Sequence[Chosen],
    node: nodes.Node,
    share_ids: ShareIds,
    behaviour: emulation.Emulation = emulation.FIXED,
) -> claims.Allocation:
    """The allocation of one claim; `chosen` in the order of its requests."""
    configs = (*_class_configs(chosen), *_claim_configs(claim, chosen, behaviour))
    if not behaviour.configs_name_all:
        configs = tuple(_shortened(config, claim, chosen) for config in configs)
    return claims.Allocation(
        results=tuple(_result(item, share_ids) for item in chosen),
        configs=configs,
        node_selector=_node_selector([item.candidate for item in chosen], node),
    )


def _result(item: Chosen, share_ids: ShareIds) -> claims.Result:
    tolerations = item.want.spec.extra.get("tolerations")
    device = item.candidate.device.extra
    extra = {"tolerations": tolerations} if tolerations else {}
    extra |= {name: list(device[name]) for name in _CONDITIONS if device.get(name)}
    return claims.Result(
        request=item.want.name,
        device=item.candidate.id,
        admin_access=item.want.spec.admin_access,
        share_id=share_ids() if item.candidate.shareable else None,
        extra=extra,
        consumed_capacity=item.taken,
    )


def _class_configs(chosen: Sequence[Chosen]) -> Iterator[claims.OpaqueConfig]:
    """Each class once, for the requests that use it."""
    wants = [item.want for item in chosen]
    classes = {want.device_class.name: want.device_class for want in wants}
    for name, device_class in classes.items():
        users = dict.fromkeys(want.name for want in wants if want.device_class.name == name)
        for config in device_class.configs:
            yield dataclasses.replace(config, requests=tuple(users), source=claims.FROM_CLASS)


def _claim_configs(
    claim: claims.ResourceClaim, chosen: Sequence[Chosen], behaviour: emulation.Emulation
) -> Iterator[claims.OpaqueConfig]:
    """In the order of the claim, those that concern a request; as released once for each."""
    names = {item.want.name for item in chosen}
    for config in claim.configs:
        concerned = sum(_concerns(config, request, names) for request in claim.requests)
        times = concerned if config.requests else 1
        for _ in range(times if behaviour.configs_repeat else min(times, 1)):
            yield dataclasses.replace(config, source=claims.FROM_CLAIM)


def _concerns(config: claims.OpaqueConfig, request: claims.Request, names: set[str]) -> bool:
    """Whether a config names a request, or its alternative that was chosen."""
    named = _chosen_names(request, names) | {request.name}
    return not named.isdisjoint(config.requests)


def _shortened(
    config: claims.OpaqueConfig, claim: claims.ResourceClaim, chosen: Sequence[Chosen]
) -> claims.OpaqueConfig:
    """The config without names if it names every request: no name stands for all."""
    names = {item.want.name for item in chosen}
    if all(_concerns(config, request, names) for request in claim.requests):
        return dataclasses.replace(config, requests=())
    return config


def _chosen_names(request: claims.Request, names: set[str]) -> set[str]:
    return {request.result_name(alternative) for alternative in request.alternatives} & names


def _node_selector(chosen: Sequence[candidacy.Candidate], node: nodes.Node) -> claims.Json | None:
    if any(
        candidate.node_name is not None or candidate.device.extra.get("bindsToNode")
        for candidate in chosen
    ):
        return nodes.only(node.name)
    merged: dict[str, list[claims.Json]] = {}
    for candidate in chosen:
        for term in (candidate.node_selector or {}).get("nodeSelectorTerms") or ():
            for field in ("matchExpressions", "matchFields"):
                known = merged.setdefault(field, [])
                for requirement in term.get(field) or ():
                    if _sense(requirement) not in map(_sense, known):
                        known.append(requirement)
    merged = {field: known for field, known in merged.items() if known}
    return {"nodeSelectorTerms": [merged]} if merged else None


def _sense(requirement: claims.Json) -> tuple[str, str, frozenset[str]]:
    """Equal for requirements that say the same: values in another order, or twice."""
    values = frozenset(requirement.get("values") or ())
    return requirement["key"], requirement["operator"], values
