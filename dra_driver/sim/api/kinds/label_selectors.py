"""Label selectors of objects: `matchLabels` and `matchExpressions`.

Source: `k8s.io/apimachinery/pkg/apis/meta/v1`, LabelSelectorAsSelector.
"""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from dra_driver.sim.api.kinds import fields

Json = dict[str, Any]

_OPERATORS: Mapping[str, Callable[[str | None, Sequence[str]], bool]] = MappingProxyType(
    {
        "In": lambda found, values: found in values,
        "NotIn": lambda found, values: found not in values,
        "Exists": lambda found, _: found is not None,
        "DoesNotExist": lambda found, _: found is None,
    }
)


def errors(selector: Json, path: str) -> fields.Errors:
    """What is wrong with the expressions of a selector."""

    def check(item: Json, place: str) -> fields.Errors:
        if not item.get("key"):
            return [fields.required(f"{place}.key")]
        if item.get("operator") not in _OPERATORS:
            return [fields.not_supported(f"{place}.operator", item.get("operator"), _OPERATORS)]
        return []

    return fields.each(selector.get("matchExpressions"), f"{path}.matchExpressions", check)


def matches(selector: Json, labels: Mapping[str, str]) -> bool:
    """Whether a selector without errors holds for the labels."""
    wanted = selector.get("matchLabels") or {}
    return all(labels.get(key) == value for key, value in wanted.items()) and all(
        _OPERATORS[item["operator"]](labels.get(item["key"]), item.get("values") or ())
        for item in selector.get("matchExpressions") or ()
    )
