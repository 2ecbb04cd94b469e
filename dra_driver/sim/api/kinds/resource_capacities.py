"""Rules for the capacities of devices that can be allocated several times.

Source: Kubernetes 1.36 and 1.37, `pkg/apis/resource/validation/validation.go`.
"""

from typing import Any

from dra_driver.model import quantities
from dra_driver.sim.api.kinds import fields, resource_gates, strategies

Json = dict[str, Any]
Quantity = quantities.Quantity

_MAX_VALID_VALUES = 10
_AMOUNTS_SINCE = 37
"""The minor version of Kubernetes from which on the amounts of a policy have limits of their own:
kubernetes/kubernetes#140666, #139698, #140442."""
_MOST = 2**63 - 1
_MILLI = 1000


def validate(
    capacity: Json, path: str, *, multiple: bool, around: strategies.Surroundings
) -> fields.Errors:
    """What is wrong with a capacity.

    `multiple`: its device can be allocated several times.
    """
    policy, place = capacity.get("requestPolicy"), f"{path}.requestPolicy"
    if policy is None:
        return []
    if not multiple:
        return [fields.forbidden(place, "allowMultipleAllocations must be true")]
    if around.minor >= _AMOUNTS_SINCE and (found := _amount_errors(policy, place)):
        return found
    whole = quantities.parse(capacity.get("value", "0"))
    known = around.minor >= resource_gates.KNOWN_SINCE[resource_gates.FRACTIONAL_CAPACITY]
    fractions = known and resource_gates.FRACTIONAL_CAPACITY not in around.disabled_gates
    return _policy_errors(policy, whole, place, fractions=fractions)


def _amount_errors(policy: Json, place: str) -> fields.Errors:
    found = []
    limits = policy.get("validRange") or {}
    told = {f"{place}.validRange.{name}": limits.get(name) for name in ("min", "max", "step")}
    for path, text in {f"{place}.default": policy.get("default"), **told}.items():
        if text is None:
            continue
        amount = quantities.parse(text).amount
        if not 0 <= amount <= _MOST:
            found.append(fields.invalid(path, text, f"must be between 0 and {_MOST}"))
        elif path.endswith(".step") and amount == 0:
            found.append(fields.invalid(path, text, "must be greater than zero"))
    return found


def _policy_errors(policy: Json, whole: Quantity, place: str, *, fractions: bool) -> fields.Errors:
    values, limits = policy.get("validValues"), policy.get("validRange")
    if values and limits is not None:
        detail = (
            "exactly one policy can be specified, "
            'cannot specify "validValues" and "validRange" at the same time'
        )
        return [fields.forbidden(place, detail)]
    if not values and limits is None:
        return []
    used = "validValues" if values else "validRange"
    if "default" not in policy:
        return [fields.required(f"{place}.default", f"required when {used} is defined")]
    default = quantities.parse(policy["default"])
    if values:
        parsed = [quantities.parse(value) for value in values]
        return _values_errors(parsed, default, whole, f"{place}.validValues", fractions=fractions)
    return _range_errors(limits or {}, default, whole, f"{place}.validRange", fractions=fractions)


def positive(text: str | None, path: str) -> fields.Errors:
    """A quantity, if there is one, that has to be above zero."""
    if text is None or quantities.parse(text).amount > 0:
        return []
    return [fields.invalid(path, text, "must be positive")]


def _values_errors(
    values: list[Quantity], default: Quantity, whole: Quantity, path: str, *, fractions: bool
) -> fields.Errors:
    found = [
        fields.invalid(f"{path}[{i}]", str(value), "values must be sorted in ascending order")
        for i, value in enumerate(values)
        if i and values[i - 1] > value
    ]

    def check(value: Quantity, place: str) -> fields.Errors:
        if value <= whole:
            return []
        return [fields.invalid(place, str(value), f"option is larger than capacity value: {whole}")]

    def key(value: Quantity) -> str:
        # Without fractions compared as whole numbers, rounded up: 500m and 1 are the same value.
        return str(value.amount if fractions else value.value)

    found += fields.distinct(values, _MAX_VALID_VALUES, path, check, key)
    # Of too many values none is looked at.
    if len(values) > _MAX_VALID_VALUES or default not in values:
        detail = "default value is not valid according to the requestPolicy"
        found.append(fields.invalid(path, str(default), detail))
    return found


def _range_errors(
    limits: Json, default: Quantity, whole: Quantity, path: str, *, fractions: bool
) -> fields.Errors:
    if "min" not in limits:
        return [fields.required(f"{path}.min", "required when validRange is defined")]
    least = quantities.parse(limits["min"])
    most = quantities.parse(limits["max"]) if "max" in limits else None
    amounts = {name: quantities.parse(text) for name, text in limits.items()}
    unit = 1
    if fractions and any(item.amount.denominator != 1 for item in amounts.values()):
        unit = _MILLI
        if found := _milli_errors({"default": default, **amounts}, path):
            return found
    found = []
    if least > whole:
        detail = f"min is larger than capacity value: {whole}"
        found.append(fields.invalid(f"{path}.min", str(least), detail))
    if default < least:
        detail = f"default is less than min: {least}"
        found.append(fields.invalid(f"{path}.min", str(default), detail))
    if most is not None:
        found += _most_errors(least, most, default, whole, path)
    if "step" in limits:
        step = quantities.parse(limits["step"])
        found += _step_errors(step, least, [default, most], whole, f"{path}.step", unit)
    return found


def _milli_errors(amounts: dict[str, Quantity], path: str) -> fields.Errors:
    detail = "value cannot be represented as a milli value"
    return [
        fields.invalid(f"{path}.{name}", str(item), detail)
        for name, item in sorted(amounts.items())
        if (item.amount * _MILLI).denominator != 1 or item.amount * _MILLI > _MOST
    ]


def _most_errors(
    least: Quantity, most: Quantity, default: Quantity, whole: Quantity, path: str
) -> fields.Errors:
    found = []
    if least > most:
        found.append(fields.invalid(f"{path}.max", str(least), f"min is larger than max: {most}"))
    if most > whole:
        detail = f"max is larger than capacity value: {whole}"
        found.append(fields.invalid(f"{path}.max", str(most), detail))
    if default > most:
        detail = f"default is more than max: {most}"
        found.append(fields.invalid(f"{path}.max", str(default), detail))
    return found


def _as_int64(number: int) -> int:
    """As Go computes with 64 bits: what is too large goes on at the other end."""
    return (number + 2**63) % 2**64 - 2**63


def _in(amount: Quantity, unit: int) -> int:
    """How many parts, of which `unit` are one, rounded up."""
    return Quantity(amount.amount * unit, amount.format).value


def _step_errors(
    step: Quantity,
    least: Quantity,
    values: list[Quantity | None],
    whole: Quantity,
    path: str,
    unit: int,
) -> fields.Errors:
    # A negative one passes; with zero the real server fails to divide.
    if step.value == 0:
        return [fields.invalid(path, str(step), "must be greater than zero")]
    found = []
    once = Quantity(least.amount + step.amount, least.format)
    if once > whole:
        detail = f"one step {once} is larger than capacity value: {whole}"
        found.append(fields.invalid(path, str(step), detail))
    for value in values:
        if value is not None and _as_int64(_in(value, unit) - _in(least, unit)) % _in(step, unit):
            detail = f"value is not a multiple of a given step ({step}) from ({least})"
            found.append(fields.invalid(path, str(value), detail))
    return found
