"""Warnings for what is legal and will surprise: where, what will happen, what to write.

The API server cuts a warning after 256 characters (`k8s.io/apiserver/pkg/warning`).
"""

import itertools
import json
import re
from collections.abc import Iterator, Mapping, Sequence

from dra_driver.logic.admission import (
    admitted,
    advised_names,
    advised_tolerations,
    share_defaults,
)
from dra_driver.logic.cel import selection
from dra_driver.logic.offering import classes
from dra_driver.logic.preparing import config_choice
from dra_driver.model import claims, quantities, sharing, slices, texts

LONGEST = 256
LONGEST_READ = 1024
MOST_READ = 8 * 1024
"""Characters of an expression, and of all of one object, that are looked at."""
_LOOP = re.compile(r"\.\s*(all|exists|existsOne|exists_one|map|filter|transform\w*|sort\w*)\s*\(")
_GPU, _MIG, _VFIO = sharing.DeviceType.GPU, sharing.DeviceType.MIG, sharing.DeviceType.VFIO
_RESOURCE_DOMAIN = "resource.kubernetes.io"
_PCIE_ROOT = f"{_RESOURCE_DOMAIN}/pcieRoot"
_NUMA_NODE = f"{_RESOURCE_DOMAIN}/numaNode"
ADDRESSABLE = "addressableMemory"
"""The memory of a GPU for virtual machines, as the bus tells it."""
_SLICES = tuple(f"memorySlice{number}" for number in range(8))

ALWAYS: Mapping[sharing.DeviceType, Mapping[str, slices.AttributeValue]] = {
    _GPU: {
        "type": "gpu",
        "uuid": "GPU-0",
        "index": 0,
        "minor": 0,
        "migCapable": True,
        "mpsCapable": True,
        "timeSliceCapable": True,
    },
    _MIG: {
        "type": "mig",
        "parentUUID": "GPU-0",
        "profile": "1g.10gb",
        "memorySlices": 1,
        "placementStart": 0,
    },
    _VFIO: {
        "type": "vfio",
        "uuid": "41cb4dba-0000-5000-8000-000000000000",
        "vendorID": "0x10de",
        "deviceID": "0x2330",
        "productName": "GH100 [H100 SXM5 80GB]",
        "iommuFDEnabled": True,
        "iommuGroup": 7,
        f"{_RESOURCE_DOMAIN}/pciBusID": "0000:3b:00.0",
    },
}
"""Attributes that each device of a type has and not each of the other, with values like theirs."""

COMMON: Mapping[str, slices.AttributeValue] = {
    "productName": "NVIDIA H100 80GB HBM3",
    "brand": "Nvidia",
    "architecture": "Hopper",
    "cudaComputeCapability": slices.Version("9.0.0"),
    "cudaDriverVersion": slices.Version("12.9.0"),
    "driverVersion": slices.Version("580.65.6"),
    f"{_RESOURCE_DOMAIN}/pciBusID": "0000:3b:00.0",
}
"""Attributes that each GPU and each partition has, unless its driver fails to tell."""

FABRIC: Mapping[str, slices.AttributeValue] = {
    "gpuModuleID": 1,
    "partition1": 8,
    "partition2": 4,
    "partition4": 2,
    "partition8": 1,
}
"""Attributes of GPUs, for virtual machines or not, where Fabric Manager is asked."""

OPTIONAL: Mapping[str, slices.AttributeValue] = {
    "uuid": "MIG-0",
    "addressingMode": "HMM",
    "numaNode": 0,
    _NUMA_NODE: 0,
    _PCIE_ROOT: "pci0000:3a",
    "enforcement": "MPS",
}
"""Attributes of GPUs and partitions that depend on the machine and on the driver's settings."""

OPTIONAL_VFIO: Mapping[str, slices.AttributeValue] = {
    "gpuUUID": "GPU-0",
    "numaNode": 0,
    _NUMA_NODE: 0,
    _PCIE_ROOT: "pci0000:3a",
    **FABRIC,
}
"""Attributes of GPUs for virtual machines that depend on the machine, and on what NVML told."""

_ENGINES = (
    "multiprocessors",
    "copyEngines",
    "decoders",
    "encoders",
    "jpegEngines",
    "ofaEngines",
)
CAPACITY: Mapping[sharing.DeviceType, tuple[str, ...]] = {
    _GPU: ("memory",),
    _MIG: ("memory", *_ENGINES),
    _VFIO: (ADDRESSABLE,),
}
"""Capacities that each device of a type has."""

OPTIONAL_CAPACITY = (*_ENGINES, *_SLICES, "cores", "shares")
"""Capacities that depend on how the card can be cut and is shared."""
_VOCABULARY = advised_names.Vocabulary(
    attributes={
        *COMMON,
        *OPTIONAL,
        *OPTIONAL_VFIO,
        *(name for one in ALWAYS.values() for name in one),
    },
    capacity={*OPTIONAL_CAPACITY, *(name for one in CAPACITY.values() for name in one)},
)


def warnings(
    body: admitted.Admitted, entries: Sequence[config_choice.Entry], driver: str
) -> tuple[str, ...]:
    """What will surprise about an object, of very much the first; `entries` are its configs, which
    are valid.

    No more is found out than is told: who makes claims chooses how much there is to say of them.
    """
    found = itertools.chain(
        body.beyond,
        _tolerations(body, entries, driver),
        _memory(body, entries, driver),
        _without_effect(body, entries, driver),
        advised_names.told(body, driver, _VOCABULARY),
        share_defaults.advised(body, driver),
        _soft_limits(body, entries),
        _selectors(body, driver),
    )
    told = [_cut(text) for text in itertools.islice(found, texts.MOST_PROBLEMS)]
    more = ["and more warnings"] if next(found, None) is not None else []
    return (*told, *more)


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def _result(asked: admitted.Asked, driver: str) -> claims.Result:
    return claims.Result(asked.name, slices.DeviceId(driver, "", ""))


def _tolerations(
    body: admitted.Admitted, entries: Sequence[config_choice.Entry], driver: str
) -> Iterator[str]:
    own = classes.names(driver)
    for asked in body.asked:
        named = any(entry.names(_result(asked, driver)) for entry in entries)
        if asked.device_class not in own and not named:
            continue
        yield from advised_tolerations.told(asked, driver)


def _memory(
    body: admitted.Admitted, entries: Sequence[config_choice.Entry], driver: str
) -> Iterator[str]:
    types = classes.types(driver)
    for asked in body.asked:
        wanted = next(
            (name for name in ("memory", f"{driver}/memory") if name in asked.capacity), None
        )
        if wanted is None:
            continue
        device_type = types.get(asked.device_class, _GPU)
        entry = config_choice.in_force(entries, _result(asked, driver), device_type)
        if entry is not None and isinstance(entry.config.settings, sharing.TimeSlicing):
            yield (
                f"{asked.path}.capacity.requests[{wanted}]: TimeSlicing guarantees no memory: each "
                "process can take all of the device: use MPS with defaultPinnedDeviceMemoryLimit, "
                "or a MIG device"
            )


def _without_effect(
    body: admitted.Admitted, entries: Sequence[config_choice.Entry], driver: str
) -> Iterator[str]:
    """Configs for a type of device that the object, by the names of classes, never has."""
    types = classes.types(driver)
    named = [one.device_class for one in body.asked]
    if body.resource == admitted.CLASSES:
        named = [body.name]
    if not named or any(name not in types for name in named):
        return
    paths = {one.position: one.path for one in body.configs}
    have = {types[name] for name in named}
    for entry in entries:
        kind = entry.config.kind
        if not entry.requests and kind.device_type not in have:
            yield (
                f"{paths[entry.position]}: {kind} has no effect: devices of class "
                f"{', '.join(sorted(set(named)))} are of type {', '.join(sorted(have))}: write a "
                f"{' or a '.join(sharing.Kind.of(one) for one in sorted(have))}"
            )


def _soft_limits(body: admitted.Admitted, entries: Sequence[config_choice.Entry]) -> Iterator[str]:
    """Limits of several GPUs that differ: the daemon holds programs to the largest of them."""
    paths = {one.position: one.path for one in body.configs}
    for entry in entries:
        settings = entry.config.settings
        if isinstance(settings, sharing.Mps) and len(set(settings.per_device.values())) > 1:
            largest = max(*settings.per_device.values(), settings.memory_limit or 0)
            most = quantities.of_bytes(largest)
            yield (
                f"{paths[entry.position]}: defaultPerDevicePinnedMemoryLimit: the limits differ; "
                f"the daemon's is {most}. A program that hides one of the GPUs has none at all. "
                "Give all the same, or write a request and a config for each"
            )


def _selectors(body: admitted.Admitted, driver: str) -> Iterator[str]:
    types = classes.types(driver)
    known: list[tuple[admitted.Selector, sharing.DeviceType | None]] = []
    for asked in body.asked:
        known += [(selector, types.get(asked.device_class)) for selector in asked.selectors]
    left = MOST_READ
    for selector, device_type in (*((one, None) for one in body.selectors), *known):
        # A domain in other letters is not the driver's, which is worth a word.
        if driver not in selector.expression.lower() or not _is_quick(selector.expression):
            continue
        left -= len(selector.expression)
        if left < 0:
            return
        # What another class lets through to a claim's expression is not known.
        sure = device_type is not None or body.resource == admitted.CLASSES
        met = (_GPU, _MIG) if device_type is None else (device_type,)
        yield from _unguarded(selector, met, driver, sure=sure)


def _is_quick(expression: str) -> bool:
    """Whether an expression is read in a moment: somebody waits for the answer."""
    return len(expression) <= LONGEST_READ and len(_LOOP.findall(expression)) <= 1


def _unguarded(
    selector: admitted.Selector,
    types: Sequence[sharing.DeviceType],
    driver: str,
    *,
    sure: bool,
) -> Iterator[str]:
    """What an expression reads of devices that may lack it.

    With `sure`, devices of every one of the types come to the expression, unless it turns them
    away by their type; else it is not known which of them do.
    """
    expression = selector.expression
    try:
        compiled = selection.compile(expression)
    except selection.CompileError:
        return  # The API server says so itself.
    for text in advised_names.in_expression(compiled, driver, _VOCABULARY):
        yield f"{selector.path}: {text}"
    met = [one for one in types if not _turned_away(compiled, one, driver)]
    for name in _names():
        lacking = [one for one in met if _fails(compiled, one, name, driver)]
        if not lacking or not (sure or lacking == met):
            continue
        guarded = selection.guarded(expression, name.rpartition("/")[2])
        if guarded is None or _asks(guarded, name, driver) <= _asks(expression, name, driver):
            continue
        if len(types) == 1 and not _may_have(types[0], name):
            yield _elsewhere(selector.path, name, types[0], driver)
        else:
            yield _advice(selector.path, name, lacking, guarded, driver)


def _names() -> Iterator[str]:
    """What some device may lack."""
    owned = {name for one in ALWAYS.values() for name in one if name != "type"}
    counted = {name for one in CAPACITY.values() for name in one}
    yield from sorted({*owned, *COMMON, *OPTIONAL, *OPTIONAL_VFIO, *counted, *OPTIONAL_CAPACITY})


def _turned_away(
    compiled: selection.Selector, device_type: sharing.DeviceType, driver: str
) -> bool:
    """Whether the driver's name and the type of a device alone make the expression false."""
    known = {"device.driver", f"device.attributes[{json.dumps(driver)}].type"}
    return any(
        conjunct.outcome is False and {path for path, _ in conjunct.reads} <= known
        for conjunct in compiled.explain(_device(device_type, ""), driver)
    )


def _fails(
    compiled: selection.Selector, device_type: sharing.DeviceType, name: str, driver: str
) -> bool:
    """Whether a device of the type may lack something, and the expression then fails."""
    last = name.rpartition("/")[2]
    if last not in compiled.expression or name in _always(device_type):
        return False
    outcomes = compiled.explain(_device(device_type, name), driver)
    return any(conjunct.outcome == f"no such key: {last}" for conjunct in outcomes)


def _always(device_type: sharing.DeviceType) -> set[str]:
    return {*ALWAYS[device_type], *_common(device_type), *CAPACITY[device_type]}


def _common(device_type: sharing.DeviceType) -> Mapping[str, slices.AttributeValue]:
    return {} if device_type is _VFIO else COMMON


def _optional(device_type: sharing.DeviceType) -> Mapping[str, slices.AttributeValue]:
    if device_type is _VFIO:
        return OPTIONAL_VFIO
    return {**OPTIONAL, **FABRIC} if device_type is _GPU else OPTIONAL


def _optional_capacity(device_type: sharing.DeviceType) -> Sequence[str]:
    return () if device_type is _VFIO else OPTIONAL_CAPACITY


def _may_have(device_type: sharing.DeviceType, name: str) -> bool:
    return (
        name in _always(device_type)
        or name in _optional(device_type)
        or name in _optional_capacity(device_type)
    )


def _device(device_type: sharing.DeviceType, lacking: str) -> slices.Device:
    """A device of the type with everything that one may have, but for what is lacking."""
    attributes = {**_common(device_type), **_optional(device_type), **ALWAYS[device_type]}
    capacity = (*CAPACITY[device_type], *_optional_capacity(device_type))
    return slices.Device(
        "sample",
        {name: value for name, value in attributes.items() if name != lacking},
        {name: quantities.of_bytes(2**30) for name in capacity if name != lacking},
    )


def _asks(expression: str, name: str, driver: str) -> int:
    """How often an expression asks whether a device of the driver has something."""
    domain, _, last = name.rpartition("/")
    question = f"{json.dumps(last)} in device"
    table = f"[{json.dumps(domain or driver)}]"
    return sum(expression.count(f"{question}.{kind}{table}") for kind in ("attributes", "capacity"))


def _elsewhere(path: str, name: str, lacking: sharing.DeviceType, driver: str) -> str:
    """Of what devices of one type alone have, in a request of the class of another."""
    # Of classes with the same devices the first counts.
    named = {kind: one for one, kind in reversed(list(classes.types(driver).items()))}
    head = (
        f"{path}: devices of class {named[lacking]} never have {name}, which keeps the pod pending"
    )
    if lacking is _VFIO and name == "memory":
        return f"{head}: write {ADDRESSABLE}, which is what the bus tells of it"
    having = [named[one] for one in ALWAYS if _may_have(one, name)]
    return f"{head}: ask for class {' or '.join(having)}"


def _advice(
    path: str,
    name: str,
    lacking: Sequence[sharing.DeviceType],
    guarded: str,
    driver: str,
) -> str:
    domain, _, last = name.rpartition("/")
    types = " or ".join(lacking)
    head = f"{path}: one device of type {types} without {last} keeps the pod pending: write "
    if len(head) + len(guarded) <= LONGEST:
        return head + guarded
    table = "capacity" if name in OPTIONAL_CAPACITY else "attributes"
    question = f'{json.dumps(last)} in device.{table}["{domain or driver}"]'
    return f"{head}{question} && before it is read"
