"""What has to be set up for a claim's devices, as configs and shares say."""

import dataclasses
import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence

from dra_driver import errors
from dra_driver.logic.offering import abilities, shares
from dra_driver.logic.preparing import cdi, config_checks, config_choice, configs
from dra_driver.model import claims, devices, prepared, quantities, sharing
from dra_driver.model import shares as share_model

Divisions = Mapping[str, share_model.Shares]
"""How the devices are divided that many claims consume, by device name."""


@dataclasses.dataclass(frozen=True, slots=True)
class Claimed:
    """A claim's result on this node, with what the device is."""

    result: claims.Result
    offer: devices.Offer

    @property
    def key(self) -> str:
        """Tells it from other devices and shares of the claim."""
        return cdi.device_key(self.result.device.device, self.result.share_id)

    @property
    def type(self) -> sharing.DeviceType:
        """What kind of device it is."""
        if self.offer.vfio is not None:
            return sharing.DeviceType.VFIO
        is_whole = self.offer.spot is None
        return sharing.DeviceType.GPU if is_whole else sharing.DeviceType.MIG


_NOTHING = prepared.Sharing()


@dataclasses.dataclass(frozen=True, slots=True)
class Needs:
    """What to set up: what is remembered of it, and the settings of MPS by domain.

    `vfio` says, by device name, how GPUs are handed to a virtual machine.
    """

    remembered: prepared.Sharing = _NOTHING
    mps: Mapping[str, sharing.Mps] = dataclasses.field(default_factory=dict)
    vfio: Mapping[str, sharing.Vfio] = dataclasses.field(default_factory=dict)


NO_NEEDS = Needs()


def needs(
    ref: claims.ClaimRef,
    claim: claims.ResourceClaim,
    driver_name: str,
    claimed: Sequence[Claimed],
    divisions: Divisions,
) -> Needs:
    """What the claim's devices on this node need.

    Raises:
        errors.Rejected: a config is invalid, or cannot work on its devices.
    """
    entries = _entries(ref, claim, driver_name)
    _refuse_undivided(claimed, divisions)
    groups: dict[tuple[int | None, str], list[Claimed]] = {}
    choices: dict[int | None, config_choice.Choice] = {}
    together = _together(claimed, divisions)
    for one in claimed:
        if one.result.admin_access:
            continue
        choice = _choice(ref, entries, one)
        choices[choice.position] = choice
        group = groups.setdefault((choice.position, _part(one, together)), [])
        if all(one.key != other.key for other in group):
            group.append(one)
    mps: list[prepared.MpsUse] = []
    slices: list[prepared.TimeSlice] = []
    settings: dict[str, sharing.Mps] = {}
    handed: dict[str, sharing.Vfio] = {}
    for (position, _), group in groups.items():
        choice = choices[position]
        subject = f"claim {ref}, {choice}"
        _check(choice.config, group, subject)
        match choice.config.settings:
            case sharing.TimeSlicing() as wanted:
                _refuse_shares(group, divisions, subject)
                slices += [_time_slice(one, wanted) for one in group]
            case sharing.Mps() as wanted:
                use = _mps_use(ref, group, wanted, divisions)
                mps.append(use)
                settings[use.domain] = wanted
            case sharing.Vfio() as how:
                handed |= {one.result.device.device: how for one in group}
            case None:
                mps += _enforced(ref, group, divisions)
    _refuse_several_daemons(ref, claimed, mps)
    return Needs(prepared.Sharing(mps=tuple(mps), time_slices=tuple(slices)), settings, handed)


def _part(one: Claimed, together: Collection[str]) -> str:
    """What a device is set up with besides its config: a share has a daemon of its own kind."""
    if one.result.share_id is None:
        return ""
    return f"of {one.result.base_request}" if one.result.base_request in together else one.key


def _together(claimed: Sequence[Claimed], divisions: Divisions) -> set[str]:
    """The requests of which all devices are shares of GPUs, one of each, that MPS limits.

    A container uses all of them, and CUDA talks to one daemon only: these have one together.
    """
    by_request: dict[str, list[Claimed]] = {}
    for one in claimed:
        if not one.result.admin_access:
            by_request.setdefault(one.result.base_request, []).append(one)
    return {
        request
        for request, found in by_request.items()
        if len(found) > 1
        and len({one.result.device for one in found}) == len(found)
        and all(
            one.result.share_id is not None
            and one.offer.spot is None
            and _enforcement(one, divisions)
            for one in found
        )
    }


def domain_id(*parts: str) -> str:
    """The name of a domain: 16 hexadecimal digits that depend on all parts."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def cap(uses: Iterable[prepared.MpsUse]) -> tuple[int | None, int | None]:
    """What a daemon has to allow so that each of its users gets what it may: percent, bytes."""
    known = list(uses)
    percents = [use.percent for use in known]
    amounts = [use.memory_bytes for use in known]
    return (
        None if None in percents else max((p for p in percents if p is not None), default=None),
        None if None in amounts else max((a for a in amounts if a is not None), default=None),
    )


def _entries(
    ref: claims.ClaimRef, claim: claims.ResourceClaim, driver_name: str
) -> Sequence[config_choice.Entry]:
    found = claim.allocation.configs if claim.allocation else ()
    try:
        return config_choice.entries(found, driver_name)
    except errors.Rejected as error:
        raise errors.Rejected(f"claim {ref}: {error}") from error


def _choice(
    ref: claims.ClaimRef, entries: Iterable[config_choice.Entry], one: Claimed
) -> config_choice.Choice:
    try:
        return config_choice.for_result(entries, one.result, one.type)
    except errors.Rejected as error:
        raise errors.Rejected(f"claim {ref}: {error}") from error


def _check(config: sharing.Config, group: Sequence[Claimed], subject: str) -> None:
    facts = [
        config_checks.Facts(
            name=one.result.device.device,
            type=one.type,
            uuid=_uuid(one.offer),
            compute_capability=one.offer.gpu.compute_capability,
            memory=_memory(one.offer),
            time_slices=one.offer.gpu.time_slices,
            no_mps=abilities.why_no_mps(one.offer.gpu),
        )
        for one in group
    ]
    config_checks.check(config, facts, subject=subject)


def _uuid(offer: devices.Offer) -> str | None:
    if offer.spot is None:
        return offer.gpu.uuid
    return offer.instance.uuid if offer.instance else None


def _memory(offer: devices.Offer) -> int | None:
    return offer.profile.memory_mib * 2**20 if offer.profile else offer.gpu.memory_bytes


def _refuse_shares(group: Sequence[Claimed], divisions: Divisions, subject: str) -> None:
    for one in group:
        if one.result.share_id is not None and _enforcement(one, divisions):
            raise errors.Rejected(
                f"{subject}: TimeSlicing cannot be applied to a share of "
                f"{one.result.device.device}, whose limits MPS holds. Remove `sharing`"
            )


def _time_slice(one: Claimed, wanted: sharing.TimeSlicing) -> prepared.TimeSlice:
    return prepared.TimeSlice(
        device=one.result.device.device, gpu=one.offer.gpu.uuid, number=wanted.interval.number
    )


def _mps_use(
    ref: claims.ClaimRef, group: Sequence[Claimed], wanted: sharing.Mps, divisions: Divisions
) -> prepared.MpsUse:
    """A daemon for the devices of one config; a share keeps to its own limits besides."""
    names = tuple(sorted({one.result.device.device for one in group}))
    by_claim = wanted.domain is sharing.Domain.CLAIM
    trust = ref.uid if by_claim else f"namespace {ref.namespace}"
    first = group[0]
    if len(names) > 1 and first.type is sharing.DeviceType.MIG:
        raise errors.Rejected(
            f"claim {ref}: one MPS config for the partitions {', '.join(names)}: CUDA uses one "
            "partition a process. Give each request a config of its own, and each container one "
            "request"
        )
    is_share = first.result.share_id is not None
    memory = _memory_of_group(group, wanted)
    percent = wanted.thread_percentage
    if is_share and _enforcement(first, divisions):
        limits = _common_limits(ref, group, divisions)
        part = wanted.client_limit(limits.memory_bytes)
        if not part:
            raise errors.Rejected(
                f"claim {ref}: a share of {names[0]} with {configs.quantity(limits.memory_bytes)} "
                f"of memory is too small for maxClients {wanted.max_clients}: each process needs "
                "at least 1Mi. Ask for more memory, or write a smaller maxClients"
            )
        memory = part if memory is None else min(memory, part)
        percent = min(percent or 100, limits.percent)
    return prepared.MpsUse(
        domain=domain_id(trust, *names),
        keys=tuple(one.key for one in group),
        devices=names,
        percent=percent,
        memory_bytes=memory,
        exclusive=not is_share and first.type is sharing.DeviceType.GPU,
        gpus=_in_pci_order(one for one in group if one.offer.spot is None),
    )


def most_memory(wanted: sharing.Mps, gpus: Sequence[str]) -> int | None:
    """What a process may take on each of several GPUs, by UUID, at most: the largest of the limits.

    That is what a daemon can hold clients to, in whatever order they see its devices. None: there
    is a GPU without a limit.
    """
    limits = config_checks.memory_limits(wanted, gpus)
    return max(limits.values()) if limits.keys() == set(gpus) else None


def _memory_of_group(group: Sequence[Claimed], wanted: sharing.Mps) -> int | None:
    if len(group) > 1:
        return most_memory(wanted, [one.offer.gpu.uuid for one in group])
    # A partition may have no UUID yet. It has been checked that the only entry is for it.
    promised = next(iter(wanted.per_device.values()), wanted.memory_limit)
    return None if promised is None else wanted.client_limit(promised)


def _in_pci_order(group: Iterable[Claimed]) -> tuple[str, ...]:
    """The UUIDs of whole GPUs, in the order in which CUDA numbers like cards."""
    gpus = {one.offer.gpu.pci_address: one.offer.gpu.uuid for one in group}
    return tuple(gpus[address] for address in sorted(gpus))


def _enforced(
    ref: claims.ClaimRef, group: Sequence[Claimed], divisions: Divisions
) -> Iterable[prepared.MpsUse]:
    """The daemon that holds shares to their limits where no config says anything.

    Of several cards it is one for all, so that a container can use them.
    """
    limited = [
        one for one in group if one.result.share_id is not None and _enforcement(one, divisions)
    ]
    if not limited:
        return
    limits = _common_limits(ref, limited, divisions)
    names = tuple(sorted({one.result.device.device for one in limited}))
    yield prepared.MpsUse(
        domain=domain_id(f"namespace {ref.namespace}", *names),
        keys=tuple(one.key for one in limited),
        devices=names,
        percent=limits.percent,
        memory_bytes=limits.memory_bytes,
        gpus=_in_pci_order(limited) if len(names) > 1 else (),
    )


def _common_limits(
    ref: claims.ClaimRef, group: Sequence[Claimed], divisions: Divisions
) -> share_model.Limits:
    """What the shares of one daemon may use, each on its card.

    Raises:
        errors.Rejected: they differ. A daemon numbers its limits by its client's order of cards, so
            that a client which hides a card would have the limit of another one.
    """
    found = {one.result.device.device: _limits(one, divisions) for one in group}
    if len(set(found.values())) > 1:
        told = ", ".join(
            f"{quantities.of_bytes(each.memory_bytes)} and {each.percent} % of {name}"
            for name, each in sorted(found.items())
        )
        raise errors.Rejected(
            f"claim {ref}, request {group[0].result.base_request!r}: its shares differ ({told}), "
            "and one MPS daemon has one limit for all of its cards. Ask for `memory` and `cores`, "
            "so that all are alike, or for one device a request, and give each container one "
            "request"
        )
    return next(iter(found.values()))


def _enforcement(one: Claimed, divisions: Divisions) -> bool:
    division = divisions.get(one.result.device.device)
    return division is not None and division.enforcement is share_model.Enforcement.MPS


def _limits(one: Claimed, divisions: Divisions) -> share_model.Limits:
    name = one.result.device.device
    found = shares.limits(one.result.consumed_capacity, divisions[name], _memory(one.offer) or 0)
    part = shares.part(one.result.consumed_capacity, divisions[name], _memory(one.offer) or 0)
    if found.memory_bytes > part:
        raise errors.Rejected(
            f"request {one.result.request!r}: {quantities.of_bytes(found.memory_bytes)} of memory "
            f"is more than its shares of device {name!r} have, which is "
            f"{quantities.of_bytes(part)}: ask for more shares, or for less memory"
        )
    return found


def _refuse_several_daemons(
    ref: claims.ClaimRef, claimed: Iterable[Claimed], mps: Iterable[prepared.MpsUse]
) -> None:
    """A container gets all devices of a request, and CUDA talks to one daemon only."""
    domains = {key: use.domain for use in mps for key in use.keys}
    found: dict[str, set[str | None]] = {}
    for one in claimed:
        if not one.result.admin_access:
            found.setdefault(one.result.base_request, set()).add(domains.get(one.key))
    for request, several in found.items():
        if len(several) > 1:
            raise errors.Rejected(
                f"claim {ref}, request {request!r}: its devices need more than one MPS daemon, or "
                "some of them none, and CUDA talks to one only. Ask for one device a request, and "
                "give each container one request"
            )


def _refuse_undivided(claimed: Iterable[Claimed], divisions: Divisions) -> None:
    """Nobody would hold a share to its limits whose device is not divided any more."""
    for one in claimed:
        name = one.result.device.device
        is_share = one.result.share_id is not None and not one.result.admin_access
        if is_share and name not in divisions:
            raise errors.Rejected(
                f"request {one.result.request!r}: it has a share of device {name!r}, which is not "
                "shared any more by the settings of this node. Delete the pod, so that the claim "
                "can be allocated anew"
            )
