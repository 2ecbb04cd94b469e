"""What Volcano's capacity plugin charges a queue for claims of this driver's classes.

The rules are those of volcano-sh/volcano ed72c7c8, pkg/scheduler/cache/cache.go (requests of a
claim) and pkg/scheduler/plugins/capacity/capacity.go (`parseDRAResourceList`).
"""

import re
from collections import defaultdict

import chart
import pytest
import yaml

from dra_driver.model import quantities


def charged(claim, *, consumable=True):
    """Amounts by the key of a queue: of devices, and of what each of them was asked for."""
    found = defaultdict(int)
    for request in claim["spec"]["devices"]["requests"]:
        asked = request.get("exactly")
        if asked is None or asked.get("allocationMode") == "All":
            continue
        name, count = asked["deviceClassName"], asked.get("count") or 1
        found[f"deviceclass/{name}"] += count
        amounts = asked.get("capacity", {}).get("requests", {}) if consumable else {}
        for dimension, amount in amounts.items():
            found[f"{dimension}.deviceclass/{name}"] += quantities.parse(amount).value * count
    return dict(found)


def request(class_name, **fields):
    return [{"name": "gpu", "exactly": {"deviceClassName": class_name, **fields}}]


SHARE = {"requests": {"memory": "2Gi", "cores": "5"}}


@pytest.mark.parametrize(
    ("class_name", "fields", "expected"),
    [
        ("gpu.nvidia.com", {"count": 2}, {"deviceclass/gpu.nvidia.com": 2}),
        ("mig.nvidia.com", {}, {"deviceclass/mig.nvidia.com": 1}),
        ("mps.gpu.nvidia.com", {}, {"deviceclass/mps.gpu.nvidia.com": 1}),
        (
            "shared.gpu.nvidia.com",
            {"capacity": SHARE},
            {
                "deviceclass/shared.gpu.nvidia.com": 1,
                "memory.deviceclass/shared.gpu.nvidia.com": 2 * 2**30,
                "cores.deviceclass/shared.gpu.nvidia.com": 5,
            },
        ),
    ],
)
def test_a_queue_is_charged_by_class(fleet, class_name, fields, expected):
    pod = fleet.pod(request(class_name, **fields)).wait_running()
    assert charged(pod.claim()) == expected
    pod.delete()


def test_a_share_without_amounts_takes_a_card_and_is_charged_none_of_it(fleet):
    pod = fleet.pod(request("shared.gpu.nvidia.com")).wait_running()
    assert charged(pod.claim()) == {"deviceclass/shared.gpu.nvidia.com": 1}
    assert pod.results()[0]["consumedCapacity"]["cores"] == "100"
    pod.delete()


def test_all_devices_are_charged_as_none(fleet):
    whole = request("exclusive.gpu.nvidia.com", allocationMode="All")
    pod = fleet.pod(whole, node="plain").wait_running()
    assert (len(pod.results()), charged(pod.claim())) == (2, {})
    pod.delete()


def test_the_queue_of_the_page_has_keys_of_classes_that_there_are(fleet):
    page = (chart.DEPLOY.parent / "docs" / "schedulers.md").read_text("utf-8")
    [queue] = [yaml.safe_load(text) for text in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)]
    keys = queue["spec"]["capability"]
    named = {key.partition("deviceclass/")[2] for key in keys}
    assert named <= set(fleet.classes())
    share = {"deviceClassName": "shared.gpu.nvidia.com", "capacity": SHARE}
    claim = {"spec": {"devices": {"requests": [{"name": "gpu", "exactly": share}]}}}
    assert set(charged(claim)) <= set(keys)
