"""What Kueue charges for claims of this driver's classes, with the configuration of docs/kueue.md.

The rules are those of kubernetes-sigs/kueue ff69552e, pkg/dra: claims.go (`countDevicesPerClass`),
counters.go (`matchDevicesWithSelectors`, `computeCounterCharges`), capacity.go, mapper.go.
"""

import re

import chart
import pytest
import yaml

from dra_driver.logic.cel import selection
from dra_driver.model import quantities, slices

PAGE = (chart.DEPLOY.parent / "docs" / "kueue.md").read_text("utf-8")
BLOCKS = [
    body for text in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    for body in yaml.safe_load_all(text)
]  # fmt: skip
GI = 2**30
MI = 2**20


class NotAdmittedError(Exception):
    """Why a workload waits, or is refused."""


def block(kind):
    [body] = [each for each in BLOCKS if each.get("kind") == kind]
    return body


MAPPINGS = {
    name: mapping
    for mapping in block("Configuration")["resources"]["deviceClassMappings"]
    for name in mapping["deviceClassNames"]
}


class Kueue:
    """Charges a claim template's requests."""

    def __init__(self, classes, published):
        self._classes = classes
        self._published = published

    def charge(self, spec):
        """Amounts by quota resource."""
        devices = spec["devices"]
        if devices.get("constraints") or devices.get("config"):
            raise NotAdmittedError("constraints and config are not supported")
        found = {}
        for request in devices["requests"]:
            resource, amount = self._charged(request)
            found[resource] = found.get(resource, 0) + amount
        return found

    def _charged(self, request):
        asked = request.get("exactly")
        if asked is None:
            raise NotAdmittedError("FirstAvailable device selection is not supported")
        if asked.get("allocationMode", "ExactCount") != "ExactCount":
            raise NotAdmittedError("AllocationMode 'All' is not supported")
        mapping = MAPPINGS.get(asked["deviceClassName"])
        if mapping is None:
            raise NotAdmittedError(f"DeviceClass {asked['deviceClassName']} is not mapped")
        count = asked.get("count", 1)
        [source] = mapping.get("sources") or [{}]
        if not source:
            return mapping["name"], count
        [(kind, how)] = source.items()
        met = [device for device in self._devices(how) if self._meets(device, how, asked)]
        if len(met) < count:
            raise NotAdmittedError(f"{len(met)} device(s) match but {count} requested")
        if kind == "counter":
            return mapping["name"], _counted(met, how["name"]) * count
        return mapping["name"], _consumed(met, how["name"], asked) * count

    def _devices(self, how):
        """Those of complete pools of the driver."""
        pools = {}
        for body in self._published:
            spec = body["spec"]
            if spec["driver"] == how["driver"]:
                pools.setdefault(spec["pool"]["name"], []).append(spec)
        for specs in pools.values():
            newest = max(spec["pool"]["generation"] for spec in specs)
            listed = [spec for spec in specs if spec["pool"]["generation"] == newest]
            if len(listed) == listed[0]["pool"]["resourceSliceCount"]:
                yield from (device for spec in listed for device in spec.get("devices", ()))

    def _meets(self, device, how, asked):
        """Whether the source's selector, those of the class and of the request hold, in order.

        An expression that fails is an error, whichever device it fails for.
        """
        of_class = self._classes[asked["deviceClassName"]]["spec"]["selectors"]
        parsed = slices.parse_device(device)
        return all(
            selection.compile(each["cel"]["expression"]).matches(parsed, how["driver"])
            for each in (how["deviceSelector"], *of_class, *asked.get("selectors", ()))
        )


def _counted(devices, counter):
    values = [
        quantities.parse(entry["counters"][counter]["value"]).value
        for device in devices
        for entry in device.get("consumesCounters", ())
        if counter in entry["counters"]
    ]
    if not values:
        raise NotAdmittedError(f"matched devices have no consumesCounters entry for {counter}")
    return max(values)


def _consumed(devices, name, asked):
    """Of each device what the request comes to by its policy, and of those the largest."""
    wanted = asked.get("capacity", {}).get("requests", {}).get(name)
    known = [device["capacity"][name] for device in devices if name in device.get("capacity", {})]
    values = [amount for body in known if (amount := _rounded(wanted, body)) is not None]
    if not values:
        raise NotAdmittedError(f"no device has so much of the capacity {name}")
    return max(values)


def _rounded(wanted, capacity):
    """What a share of this capacity takes; None where it cannot have so much."""
    policy, whole = capacity.get("requestPolicy"), quantities.parse(capacity["value"]).value
    if wanted is None:
        return quantities.parse(policy["default"]).value if policy else whole
    amount = quantities.parse(wanted).value
    if policy:
        low, most, step = (
            quantities.parse(policy["validRange"][key]).value for key in ("min", "max", "step")
        )
        amount = low + -(-max(amount - low, 0) // step) * step
        whole = min(whole, most)
    return amount if amount <= whole else None


@pytest.fixture
def kueue(fleet):
    return Kueue(fleet.classes(), fleet.slices())


def template(class_name, *expressions, name="gpu", **fields):
    selectors = [{"cel": {"expression": text}} for text in expressions]
    asked = {"deviceClassName": class_name, "selectors": selectors, **fields}
    return {"devices": {"requests": [{"name": name, "exactly": asked}]}}


def profile(name):
    return f'device.attributes["gpu.nvidia.com"].profile == "{name}"'


@pytest.mark.parametrize("class_name", ["mig.nvidia.com", "mig.gpu.nvidia.com"])
@pytest.mark.parametrize(
    ("selectors", "count", "expected"),
    [
        ([profile("1g.10gb")], 1, 9984 * MI),
        ([profile("1g.10gb")], 3, 3 * 9984 * MI),
        ([profile("3g.40gb")], 1, 40448 * MI),
        ([], 1, 81152 * MI),
    ],
)
def test_a_partition_is_charged_by_its_memory(kueue, class_name, selectors, count, expected):
    assert kueue.charge(template(class_name, *selectors, count=count)) == {
        "nvidia.com/mig.memory": expected
    }


@pytest.mark.parametrize(
    "class_name",
    [
        "gpu.nvidia.com",
        "exclusive.gpu.nvidia.com",
        "time-sliced.gpu.nvidia.com",
        "mps.gpu.nvidia.com",
    ],
)
def test_whole_gpus_are_charged_by_number(kueue, class_name):
    assert kueue.charge(template(class_name, count=2)) == {"nvidia.com/gpu": 2}


@pytest.mark.parametrize(
    ("capacity", "expected"),
    [
        ({"requests": {"memory": "10Gi", "cores": "10"}}, 10 * GI),
        ({"requests": {"memory": "1048577"}}, 2 * MI),
        ({"requests": {"cores": "10"}}, 81559 * MI),
    ],
)
def test_a_share_is_charged_what_it_asks_for_and_else_all_of_a_card(kueue, capacity, expected):
    spec = template("shared.gpu.nvidia.com", capacity=capacity)
    assert kueue.charge(spec) == {"nvidia.com/shared.memory": expected}


def test_what_is_charged_for_a_partition_is_what_it_takes(fleet, kueue):
    spec = template("mig.nvidia.com", profile("2g.20gb"))
    pod = fleet.pod(spec["devices"]["requests"]).wait_running()
    [result] = pod.results()
    [device] = [
        device
        for body in fleet.slices()
        if body["spec"]["pool"]["name"] == result["pool"]
        for device in body["spec"].get("devices", ())
        if device["name"] == result["device"]
    ]
    [entry] = device["consumesCounters"]
    taken = quantities.parse(entry["counters"]["memory"]["value"]).value
    assert kueue.charge(spec) == {"nvidia.com/mig.memory": taken}
    pod.delete()


def test_every_device_of_a_card_that_is_cut_on_demand_has_the_counter_and_no_other(fleet):
    for body in fleet.slices():
        for device in body["spec"].get("devices", ()):
            counters = {
                name for one in device.get("consumesCounters", ()) for name in one["counters"]
            }
            assert ("memory" in counters) == (body["spec"]["nodeName"] == "mig"), device["name"]


def test_a_counter_is_of_no_use_for_cards_that_have_none(kueue, monkeypatch):
    counter = MAPPINGS["mig.nvidia.com"]["sources"][0]["counter"]
    whole = counter | {"deviceSelector": {"cel": {"expression": "true"}}}
    mapping = {"name": "memory", "sources": [{"counter": whole}]}
    monkeypatch.setitem(MAPPINGS, "gpu.nvidia.com", mapping)
    assert kueue.charge(template("gpu.nvidia.com")) == {"memory": 81152 * MI}
    tesla = 'device.attributes["gpu.nvidia.com"].productName == "Tesla T4"'
    with pytest.raises(NotAdmittedError, match="no consumesCounters entry"):
        kueue.charge(template("gpu.nvidia.com", tesla))


REFUSED = [
    template("mps.gpu.nvidia.com", allocationMode="All"),
    template("team-a"),
    {"devices": {"requests": [{"name": "gpu", "firstAvailable": []}]}},
    {"devices": template("gpu.nvidia.com")["devices"] | {"config": [{"opaque": {}}]}},
    {"devices": template("gpu.nvidia.com")["devices"] | {"constraints": [{}]}},
]


@pytest.mark.parametrize("spec", REFUSED, ids=["all", "class", "alternatives", "config", "match"])
def test_what_the_page_says_is_refused_is(kueue, spec):
    with pytest.raises(NotAdmittedError):
        kueue.charge(spec)


@pytest.mark.parametrize(
    ("class_name", "kind"),
    [("time-sliced.gpu.nvidia.com", "TimeSlicing"), ("mps.gpu.nvidia.com", "MPS")],
)
def test_a_claim_without_config_is_shared_as_its_class_says(fleet, kueue, class_name, kind):
    spec = template(class_name)
    kueue.charge(spec)
    pod = fleet.pod(spec["devices"]["requests"], node="plain").wait_running()
    [entry] = pod.claim()["status"]["allocation"]["devices"]["config"]
    assert entry["source"] == "FromClass"
    assert entry["opaque"]["parameters"]["sharing"]["strategy"] == kind
    mounted = {inside for _, inside in pod.view().mounts}
    assert ("/tmp/nvidia-mps" in mounted) == (kind == "MPS")
    slices_of_time = set(fleet.running.nodes["plain"].time_slices().values())
    assert slices_of_time == ({"Long"} if kind == "TimeSlicing" else set())
    pod.delete()


def test_the_queue_covers_every_resource_that_is_mapped():
    [group] = block("ClusterQueue")["spec"]["resourceGroups"]
    quotas = {one["name"] for one in group["flavors"][0]["resources"]}
    assert set(group["coveredResources"]) == quotas
    assert {mapping["name"] for mapping in MAPPINGS.values()} <= quotas
    assert block("LocalQueue")["spec"]["clusterQueue"] == block("ClusterQueue")["metadata"]["name"]
