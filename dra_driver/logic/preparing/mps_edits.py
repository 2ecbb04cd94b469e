"""What the containers of a claim are given of an MPS daemon, and what that tells of it later on."""

import re
from collections.abc import Iterable, Mapping, Sequence

from dra_driver.logic.preparing import cdi, config_checks
from dra_driver.model import mps, prepared, sharing

PIPE_DIR = "/tmp/nvidia-mps"  # noqa: S108 - where CUDA looks for it in a container
"""Mounted at the default place, so that unsetting the variable is no way around the limits."""
CAP = "DRA_DRIVER_MPS_MEMORY_LIMIT"
"""What the daemon holds each of several cards to, for people and for `recalled`: CUDA does not know
it."""
_PERCENT, _MEMORY = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"
_CAP = re.compile(r"(\d+)M", re.ASCII)
_LIMIT = re.compile(r"(?:[\w-]+)=(\d+)M", re.ASCII)
"""Of one device: its UUID, or its number in a client's order; an earlier form had only numbers."""
_ONLY = "0"
"""The number of the only device that a client sees: CUDA uses one MIG instance a process."""
_WRITABLE = ("rw", "nosuid", "nodev", "rbind", "rprivate")


def edits(
    use: prepared.MpsUse, daemon: mps.Daemon, settings: sharing.Mps | None, *, private_shm: bool
) -> cdi.Edits:
    """The edits for the devices of a use. `private_shm`: the daemon has a shared memory of its own.

    `settings` tell what several cards may take each; without them all have what the daemon has.

    Limits of several cards are variables only where they differ. A program that sees some of the
    cards alone, and has a variable that names the others, has no limit at all then, not even that
    of its daemon (seen with driver 580).
    """
    env = {"CUDA_MPS_PIPE_DIRECTORY": PIPE_DIR}
    if use.percent is not None:
        env[_PERCENT] = str(use.percent)
    amounts = _amounts(use, daemon.devices, settings)
    if amounts:
        texts = [f"{device}={amount // mps.MIB}M" for device, amount in amounts.items()]
        env[_MEMORY] = ",".join(texts)
    elif len(daemon.devices) > 1 and use.memory_bytes is not None:
        env[CAP] = f"{use.memory_bytes // mps.MIB}M"
    # A client connects and writes nothing: one that is root must not take the door away.
    mounts = [cdi.Mount(daemon.pipe_dir, PIPE_DIR)]
    if private_shm:
        mounts.append(cdi.Mount(daemon.shm_dir, "/dev/shm", _WRITABLE))  # noqa: S108
    return cdi.Edits(env=env, mounts=tuple(mounts))


def unlike(use: prepared.MpsUse, daemon: mps.Daemon, settings: sharing.Mps | None) -> str:
    """What is to be said of the limits of several cards that differ; empty where they do not."""
    if len(daemon.devices) < 2 or not _amounts(use, daemon.devices, settings):
        return ""
    return (
        "memory limits of the cards differ: they are variables of the containers, and a program "
        "that hides one of the cards has no memory limit at all. Give all cards the same limit, or "
        "write a request and a config for each"
    )


def recalled(
    entries: Iterable[prepared.PreparedDevice],
    given: Mapping[str, cdi.Edits],
    gpus: Mapping[str, str],
) -> prepared.Sharing:
    """What the edits of a claim's devices, by key, tell of the daemons behind them.

    `gpus` are the UUIDs of whole GPUs by device name, in PCI order. Time slices leave no trace in
    edits.
    """
    by_domain: dict[str, dict[str, prepared.PreparedDevice]] = {}
    for entry in entries:
        key = cdi.device_key(entry.device, entry.share_id)
        for mount in given.get(key, cdi.Edits()).mounts:
            if mount.container_path == PIPE_DIR:
                by_domain.setdefault(mount.host_path.split("/")[-2], {})[key] = entry
    return prepared.Sharing(
        mps=tuple(
            _recalled_use(domain, use, given[next(iter(use))].env, gpus)
            for domain, served in by_domain.items()
            for use in _uses(served)
        )
    )


def _uses(
    served: Mapping[str, prepared.PreparedDevice],
) -> Iterable[Mapping[str, prepared.PreparedDevice]]:
    """What uses a daemon, of a claim's devices that it serves: shares of one card each for itself,
    those of several cards by their request.
    """
    several = len({entry.device for entry in served.values()}) > 1
    found: dict[object, dict[str, prepared.PreparedDevice]] = {}
    for key, entry in served.items():
        own = entry.requests if several else entry.share_id
        found.setdefault(None if entry.share_id is None else own, {})[key] = entry
    return found.values()


def _recalled_use(
    domain: str,
    use: Mapping[str, prepared.PreparedDevice],
    env: Mapping[str, str],
    gpus: Mapping[str, str],
) -> prepared.MpsUse:
    is_share = any(entry.share_id is not None for entry in use.values())
    percent = env.get(_PERCENT, "")
    amounts = [int(text) * mps.MIB for text in _LIMIT.findall(env.get(_MEMORY, ""))]
    cap = _CAP.fullmatch(env.get(CAP, ""))
    names = {entry.device for entry in use.values()}
    whole = tuple(uuid for name, uuid in gpus.items() if name in names)
    return prepared.MpsUse(
        domain=domain,
        keys=tuple(use),
        devices=tuple(sorted(names)),
        percent=int(percent) if percent.isdecimal() else None,
        # A device that is not among them has no limit, and so the daemon none.
        memory_bytes=(
            int(cap[1]) * mps.MIB
            if cap
            else max(amounts)
            if amounts and len(amounts) >= len(names)
            else None
        ),
        exclusive=not is_share and bool(whole),
        gpus=() if is_share and len(names) == 1 else whole,
    )


def _amounts(
    use: prepared.MpsUse, uuids: Sequence[str], settings: sharing.Mps | None
) -> dict[str, int]:
    """What the variables of a client hold it to: bytes, by what they call a device.

    A UUID means the same card in whatever order a client sees its cards.
    """
    if len(uuids) > 1:
        if settings is None:
            return {}
        by_uuid = config_checks.memory_limits(settings, uuids)
        is_alike = len({by_uuid.get(uuid) for uuid in uuids}) == 1
        return {} if is_alike else {uuid: by_uuid[uuid] for uuid in uuids if uuid in by_uuid}
    if use.memory_bytes is None:
        return {}
    names = [uuid if uuid.startswith("GPU-") else _ONLY for uuid in uuids]
    return dict.fromkeys(names, use.memory_bytes)
