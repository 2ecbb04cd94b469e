"""The demos: each pod becomes what its annotation says, with the GPUs that the READMEs name."""

import copy
import pathlib
import re

import pytest
from e2e_site import NAMESPACES, Scratch

from dra_driver.adapters.kube import kube
from dra_driver.sim.cluster import manifests
from dra_driver.sim.demo import outcome

pytestmark = [pytest.mark.sampled(6), pytest.mark.covers("the demos of this driver")]

DEMO = pathlib.Path(__file__).parents[2] / "demo"
MANIFESTS = sorted(
    str(path.relative_to(DEMO))
    for folder in ("quickstart", "mig", "sharing")
    for path in (DEMO / folder).glob("*.yaml")
)
MIXED = "a100-40gb-sxm4:2,h100-80gb-hbm3:2,t4:2,v100-16gb-sxm2:2"
SETTINGS = [
    (r"quickstart/", {"simulateGpus": MIXED}),
    (r"(mig/[34]|sharing/6)-", {"simulateGpus": "h100-80gb-hbm3:2"}),
    (r"sharing/4-", {"simulateGpus": "h100-80gb-hbm3:1", "shares": "memory"}),
    (r"sharing/5-", {"simulateGpus": "h100-80gb-hbm3:1", "shares": "memory", "migMode": "off"}),
    (r"", {"simulateGpus": "h100-80gb-hbm3:1"}),
]
LATE_SECONDS = 20
"""When pods end that end by themselves, on a cluster where starting takes longer."""


def settings_of(manifest):
    return next(settings for pattern, settings in SETTINGS if re.match(pattern, manifest))


@pytest.fixture(scope="module")
def set_as(site, driver):
    """Sets the driver as a manifest needs it, on one node; as it was after the last."""
    before = []

    def apply(settings):
        if before[-1:] != [settings]:
            driver.apply(settings, node=site.nodes[0])
            before.append(settings)

    yield apply
    driver.apply()


def as_here(site, where, body):
    """An object of a demo as it is made here: with an image that nodes have, and later ends."""
    body = copy.deepcopy(body)
    for container in body.get("spec", {}).get("containers") or ():
        container["image"] = site.options.pod_image
        if where == "cluster":
            command = container.get("command") or []
            container["command"] = [
                re.sub(r"sleep 4$", f"sleep {LATE_SECONDS}", word) for word in command
            ]
    return body


class Watched:
    """The pods of a manifest, and what was seen of them."""

    def __init__(self, site, namespaces):
        self.site = site
        self.namespaces = namespaces
        self.waited = set()
        self.ran = set()
        self.told = {}

    def pods(self):
        return [
            body
            for namespace in self.namespaces
            for body in self.site.client.list(kube.PODS, namespace)[0]
        ]

    def look(self):
        """What each pod has become, beside what it should."""
        found = {}
        for body in self.pods():
            uid, namespace = body["metadata"]["uid"], body["metadata"]["namespace"]
            events, _ = self.site.client.list(kube.EVENTS, namespace)
            mine = [one for one in events if one.get("involvedObject", {}).get("uid") == uid]
            reasons = {one.get("reason") for one in mine}
            phase = (body.get("status") or {}).get("phase", "Pending")
            if "FailedScheduling" in reasons:
                self.waited.add(uid)
            if phase in outcome.RUNS:
                self.ran.add(uid)
            elif "FailedPrepareDynamicResources" in reasons:
                phase = outcome.REFUSED
            elif uid in self.waited and not body["spec"].get("nodeName"):
                phase = outcome.UNSCHEDULABLE
            name = f"{namespace}/{body['metadata']['name']}"
            found[name] = (outcome.expectation(body), phase, uid in self.waited, uid in self.ran)
            self.told[name] = [one.get("message") for one in mine][-1:]
        return found

    def is_as_expected(self):
        found = self.look()
        return bool(found) and all(map(_is_as_expected, found.values()))

    def is_through(self):
        """Whether the next step may come: all are as expected, or have run."""
        found = self.look()
        return bool(found) and all(_is_as_expected(one) or one[3] for one in found.values())


def _is_as_expected(pod):
    expected, became, waited, _ = pod
    if expected == outcome.WAITED:
        return waited and became in outcome.RUNS
    return became in outcome.RUNS if expected == outcome.RUNNING else became == expected


@pytest.mark.parametrize("manifest", MANIFESTS)
def test_pods_of_a_demo_become_what_is_expected(site, driver, where, set_as, manifest):
    set_as(settings_of(manifest))
    objects = manifests.load([DEMO / manifest])
    spaces = [body for body in objects if body["kind"] == "Namespace"]
    watched = Watched(site, [body["metadata"]["name"] for body in spaces])
    site.delete(spaces)
    try:
        steps = manifests.steps(objects)
        for step in steps:
            site.apply(as_here(site, where, body) for body in step)
            is_last = step is steps[-1]
            settled = watched.is_as_expected if is_last else watched.is_through
            site.wait(settled, lambda: f"{watched.look()} {watched.told}")
        for body in watched.pods():
            if body["status"]["phase"] in outcome.RUNS:
                space, name = body["metadata"]["namespace"], body["metadata"]["name"]
                for container in body["spec"]["containers"]:
                    assert Scratch(site, space).sees(name, container["name"])
    finally:
        for body in spaces:
            if not site.is_gone(NAMESPACES, body["metadata"]["name"]):
                Scratch(site, body["metadata"]["name"]).empty()
        site.delete(spaces)
