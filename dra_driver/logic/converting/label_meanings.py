"""What a requirement on a label of GPU feature discovery asks of a device, in CEL.

Labels tell of a node, selectors of a device: on a node whose cards are of several kinds a label
tells of one of them, and a selector is held to the card that the claim gets.
Source of labels, spelling and units: GPU feature discovery 0.18 (`internal/lm/resource.go`,
`nvml.go`, `mig-strategy.go` of the device plugin).
"""

import dataclasses
import re
from collections.abc import Callable, Mapping

from dra_driver.logic.cel import quoting
from dra_driver.logic.converting import gpu_products, label_expressions, label_facts
from dra_driver.model import texts

DOMAIN = "nvidia.com/"

_INSTANCES = re.compile(r"mig-([^/]{1,40}gb(?:[-.]me(?:\.all)?|[-.]gfx|[-.]all)?)\.([a-z.-]+)")
_ENGINES = {
    "multiprocessors": "multiprocessors",
    "engines.copy": "copyEngines",
    "engines.decoder": "decoders",
    "engines.encoder": "encoders",
    "engines.jpeg": "jpegEngines",
    "engines.ofa": "ofaEngines",
}


@dataclasses.dataclass(frozen=True, slots=True)
class Requirement:
    """One requirement on a label, as `matchExpressions` has it."""

    key: str
    operator: str
    values: tuple[str, ...] = ()

    def __str__(self) -> str:
        """As messages have it."""
        shown = ", ".join(self.values)
        match self.operator:
            case "Exists" | "DoesNotExist":
                text = f"{self.key} {self.operator}"
            case "Gt" | "Lt":
                text = f"{self.key} {'>' if self.operator == 'Gt' else '<'} {shown}"
            case "In" if len(self.values) == 1:
                text = f"{self.key}={shown}"
            case _:
                text = f"{self.key} {self.operator} [{shown}]"
        return texts.told(text, 256)


@dataclasses.dataclass(frozen=True, slots=True)
class Meaning:
    """What a device has to be. No expression: whatever a claim gets meets it, as `note` says.

    `partition`: whether what is asked for is a partition, though its resource has the name of GPUs;
    None where nothing says that.
    """

    expression: str
    note: str = ""
    partition: bool | None = None


def of(requirement: Requirement, asked: label_facts.Asked) -> Meaning:
    """What a requirement asks of each device.

    Raises:
        label_facts.UnsaidError: no selector says that.
    """
    name = requirement.key.removeprefix(DOMAIN)
    if name in {"gpu.product", "gpu.present", "mig.strategy", "gpu.memory"}:
        return _SPECIAL[name](requirement, asked)
    if found := _INSTANCES.fullmatch(name):
        return _of_instances(requirement, asked, gpu_products.profile(found[1]), found[2])
    return Meaning(_said(label_facts.of(name, asked), requirement))


def _said(fact: label_facts.Fact, requirement: Requirement) -> str:
    match requirement.operator:
        case "Exists":
            return fact.known
        case "DoesNotExist":
            return f"!({fact.known})"
        case "In":
            return label_expressions.both(fact.known, fact.equals(requirement.values))
        case "NotIn":
            return f"!({label_expressions.both(fact.known, fact.equals(requirement.values))})"
    compare = fact.above if requirement.operator == "Gt" else fact.below
    if compare is None or len(requirement.values) != 1:
        raise label_facts.UnsaidError("its values are no numbers, so that no node meets it")
    return label_expressions.both(fact.known, compare(label_facts.integer(requirement.values[0])))


def _product(requirement: Requirement, asked: label_facts.Asked) -> Meaning:
    """A product with its suffixes: a partition by its profile, which has a class of its own."""
    name = f"{asked.attributes}.productName"
    known = label_expressions.known("productName", asked.attributes)
    if requirement.operator in {"Exists", "DoesNotExist"}:
        return Meaning(_said(label_facts.Fact(known, lambda _: ""), requirement))
    if requirement.operator not in {"In", "NotIn"}:
        raise label_facts.UnsaidError("its values are no numbers, so that no node meets it")
    products = [gpu_products.read(value) for value in requirement.values]
    if any(product.invalid for product in products):
        raise label_facts.UnsaidError(
            "it is the label of a node whose MIG instances are in no order"
        )
    note = "shared or not is said by the class" if any(p.shared for p in products) else ""
    whole = [product.name for product in products if product.profile is None]
    parts = [product for product in products if product.profile is not None]
    label = f"{name}.replace(' ', '-')"
    if requirement.operator == "NotIn":
        if not whole:
            return Meaning("", "what a claim asks for is cut for it: no partition of a node's own")
        return Meaning(
            f"!({label_expressions.both(known, label_expressions.one_of(label, whole))})", note
        )
    if whole and parts:
        raise label_facts.UnsaidError(
            "it names GPUs and partitions, and a request asks for one of the two", refused=True
        )
    if not parts:
        return Meaning(
            label_expressions.both(known, label_expressions.one_of(label, whole)),
            note,
            partition=False,
        )
    pairs = [_partition_of(part, label, asked) for part in parts]
    either = (
        pairs[0] if len(pairs) == 1 else label_expressions.any_of([f"({pair})" for pair in pairs])
    )
    known = label_expressions.both(label_expressions.known("profile", asked.attributes), known)
    return Meaning(label_expressions.both(known, either), note, partition=True)


def _partition_of(product: gpu_products.Product, label: str, asked: label_facts.Asked) -> str:
    profile = label_expressions.one_of(f"{asked.attributes}.profile", [product.profile or ""])
    return label_expressions.both(label_expressions.one_of(label, [product.name]), profile)


def _memory(requirement: Requirement, asked: label_facts.Asked) -> Meaning:
    """The card's memory, or with the strategy `single` that of its partitions."""
    if asked.partitions:
        raise label_facts.UnsaidError(
            "it tells of the card, and partitions have only their own memory"
        )
    return Meaning(_said(label_facts.memory(asked), requirement))


def _present(requirement: Requirement, _: label_facts.Asked) -> Meaning:
    """`true` on nodes with GPUs (of the GPU operator, or of those who set it by hand)."""
    if requirement.operator == "Exists" or (
        requirement.operator == "In" and "true" in requirement.values
    ):
        return Meaning("", "a claim is met only where GPUs are")
    raise label_facts.UnsaidError("it tells of nodes without GPUs")


def _strategy(requirement: Requirement, _: label_facts.Asked) -> Meaning:
    """What the device plugin calls partitions. With `single` a GPU is a partition."""
    if requirement.operator == "In" and not {*requirement.values} - {"none", "mixed"}:
        return Meaning("", "partitions are cut for claims, on any node")
    raise label_facts.UnsaidError(
        "with the strategy `single` `nvidia.com/gpu` is a partition: ask for nvidia.com/mig-…"
    )


_SPECIAL: Mapping[str, Callable[[Requirement, label_facts.Asked], Meaning]] = {
    "gpu.product": _product,
    "gpu.memory": _memory,
    "gpu.present": _present,
    "mig.strategy": _strategy,
}


def _of_instances(
    requirement: Requirement, asked: label_facts.Asked, profile: str, name: str
) -> Meaning:
    """Of partitions of a profile: what holds for those that the pod asks for, and for others not.

    A node has such a label only if it has such partitions, of which claims need none.
    """
    if profile not in asked.profiles:
        raise label_facts.UnsaidError("it tells of partitions that the pod does not ask for")
    if name == "count":
        least = requirement.operator == "Gt" and requirement.values == ("0",)
        if requirement.operator == "Exists" or least:
            return Meaning("", "such partitions are cut for the claim")
        raise label_facts.UnsaidError(
            "partitions are cut for claims: there is no number of them before"
        )
    ours = f"{asked.attributes}.?profile.orValue('') == {quoting.literal(profile)}"
    if name == "product":
        bare = dataclasses.replace(
            requirement, values=tuple(_card_of(value, profile) for value in requirement.values)
        )
        said = _product(bare, asked).expression
    elif name == "memory":
        said = _said(label_facts.memory(asked), requirement)
    elif name in _ENGINES:
        said = _said(label_facts.engine(_ENGINES[name], asked), requirement)
    else:
        raise label_facts.UnsaidError("it tells of a node, and no device has it")
    return Meaning(f"!({ours}) || {said if said.startswith('!') else f'({said})'}")


def _card_of(value: str, profile: str) -> str:
    """The product of the card in `CARD-MIG-PROFILE`."""
    product = gpu_products.read(value)
    if product.profile != profile:
        raise label_facts.UnsaidError("its value is of another profile than its name")
    return product.name
