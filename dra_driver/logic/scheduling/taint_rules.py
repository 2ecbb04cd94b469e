"""DeviceTaintRules: taints that people put on devices, whatever the drivers publish.

Source: Kubernetes 1.37, `resource/v1.DeviceTaintRule` and
`k8s.io/dynamic-resource-allocation/resourceslice/tracker`.
"""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

from dra_driver.logic.scheduling import emulation
from dra_driver.model import slices

Json = dict[str, Any]


@dataclasses.dataclass(frozen=True, slots=True)
class Rule:
    """A taint for all devices that are selected; `selector` is None where there is none."""

    name: str
    selector: Mapping[str, str] | None
    taint: Json

    def selects(self, device: slices.DeviceId) -> bool:
        """Whether a device is; an empty selector selects all, none selects none."""
        if self.selector is None:
            return False
        found = dataclasses.asdict(device)
        return all(found.get(key) == value for key, value in self.selector.items())


def parse(body: Json, behaviour: emulation.Emulation = emulation.FIXED) -> Rule:
    """The rule in a `resource.k8s.io/v1` object."""
    selector = body["spec"].get("deviceSelector")
    if selector is None and behaviour.rules_need_no_selector:
        selector = {}
    return Rule(body["metadata"]["name"], selector, body["spec"]["taint"])


def applied(published: slices.ResourceSlice, rules: Iterable[Rule]) -> slices.ResourceSlice:
    """The slice with the taints of rules, by their names, beside those that it has."""
    ordered = sorted(rules, key=lambda rule: rule.name)
    devices = tuple(_tainted(published, device, ordered) for device in published.devices)
    return dataclasses.replace(published, devices=devices)


def _tainted(
    published: slices.ResourceSlice, device: slices.Device, rules: Iterable[Rule]
) -> slices.Device:
    named = slices.DeviceId(published.driver, published.pool, device.name)
    more = [rule.taint for rule in rules if rule.selects(named)]
    if not more:
        return device
    taints = [*(device.extra.get("taints") or ()), *more]
    return dataclasses.replace(device, extra={**device.extra, "taints": taints})
