"""What KubeVirt reads of a claim's devices in its virt-launcher pod.

The rules are those of kubevirt/kubevirt d923fdb8, pkg/dra (`metadata`, `utils`): exactly one file a
request, the request by the name that the VirtualMachine states, exactly one device; a device with
`mdevUUID` is a mediated one, else `resource.kubernetes.io/pciBusID` is handed over.
"""

import json
import pathlib

import kubelet_node
import neighbour_fleet
import pytest
from polling import until

from dra_driver.adapters.kube import kube

ROOT = "/var/run/kubernetes.io/dra-device-attributes"
KNOWN = "metadata.resource.k8s.io/v1alpha1"


class Launcher:
    """A container, by the files that are mounted into it."""

    def __init__(self, view):
        self._files = {inside: pathlib.Path(host) for host, inside in view.mounts}

    def device(self, claim, request, *, template=False):
        """The one device of a request of a claim, as its pod names both."""
        kind = "resourceclaimtemplates" if template else "resourceclaims"
        folder = f"{ROOT}/{kind}/{claim}/{request}"
        found = [
            host
            for inside, host in self._files.items()
            if str(pathlib.PurePath(inside).parent) == folder and inside.endswith("-metadata.json")
        ]
        assert len(found) == 1, f"{len(found)} files in {folder}"
        [requested] = [one for one in _known(found[0])["requests"] if one["name"] == request]
        [device] = requested["devices"]
        return device["attributes"]

    def address(self, *names, **options):
        """What is handed to the virtual machine: kind, and how it is found on the host."""
        told = self.device(*names, **options)
        if told.get("mdevUUID", {}).get("string"):
            return "mdev", told["mdevUUID"]["string"]
        return "pci", told["resource.kubernetes.io/pciBusID"]["string"]


def _known(path):
    """The first object of the stream whose version it knows."""
    decoder, rest = json.JSONDecoder(), path.read_text("utf-8").strip()
    while rest:
        body, end = decoder.raw_decode(rest)
        assert body["apiVersion"]
        if body["apiVersion"] == KNOWN:
            return body
        rest = rest[end:].lstrip()
    raise AssertionError(f"{path}: no version that is known")


def exactly(name, device_class="gpu.nvidia.com", **fields):
    return {"name": name, "exactly": {"deviceClassName": device_class, **fields}}


def published(fleet, result):
    """A device as it is in the slices, by what a claim was given."""
    [device] = [
        device
        for body in fleet.slices()
        if body["spec"]["pool"]["name"] == result["pool"]
        for device in body["spec"].get("devices", ())
        if device["name"] == result["device"]
    ]
    return device["attributes"]


def test_the_card_of_a_claim_that_the_pod_names_is_found_by_its_address(fleet):
    pod = fleet.pod([exactly("gpu")], node="plain").wait_running()
    [result] = pod.results()
    expected = published(fleet, result)["resource.kubernetes.io/pciBusID"]["string"]
    assert Launcher(pod.view()).address(pod.name, "gpu") == ("pci", expected)
    pod.delete()


def test_the_card_of_a_claim_from_a_template_is_found_by_what_the_pod_calls_it(fleet):
    spec = {"devices": {"requests": [exactly("gpu")]}}
    fleet.client.create(
        kube.TEMPLATES, {"metadata": {"name": "vm"}, "spec": {"spec": spec}}, "default"
    )
    body = {
        "metadata": {"name": "virt-launcher"},
        "spec": {
            "containers": [kubelet_node.container("main", {"name": "mine"})],
            "resourceClaims": [{"name": "mine", "resourceClaimTemplateName": "vm"}],
            "nodeSelector": {"kubernetes.io/hostname": "plain"},
        },
    }
    fleet.client.create(kube.PODS, body, "default")
    pod = neighbour_fleet.Pod(fleet, "virt-launcher", "default").wait_running()
    launcher = Launcher(pod.view())
    kind, address = launcher.address("mine", "gpu", template=True)
    [status] = pod.body()["status"]["resourceClaimStatuses"]
    claim = fleet.client.get(kube.CLAIMS, status["resourceClaimName"], "default")
    [result] = claim["status"]["allocation"]["devices"]["results"]
    expected = published(fleet, result)["resource.kubernetes.io/pciBusID"]["string"]
    assert (kind, address) == ("pci", expected)
    with pytest.raises(AssertionError, match="0 files"):
        launcher.device(status["resourceClaimName"], "gpu")
    fleet.client.delete(kube.PODS, "virt-launcher", "default", grace_period=0)
    uid = claim["metadata"]["uid"]
    until(
        lambda: not any(uid in json.dumps(one) for one in fleet.specs("plain")),
        what="the files are gone",
    )


def test_requests_of_one_claim_have_a_file_each_and_only_their_own_device(fleet):
    pod = fleet.pod([exactly("one"), exactly("two")], node="plain").wait_running()
    launcher = Launcher(pod.view())
    by_request = {result["request"]: published(fleet, result) for result in pod.results()}
    for name in ("one", "two"):
        assert launcher.device(pod.name, name)["uuid"] == by_request[name]["uuid"]
    pod.delete()


def test_the_alternative_of_a_request_is_not_found_under_the_name_of_the_request(fleet):
    """As docs/metadata.md says: virtual machines need requests with `exactly`."""
    large = {"name": "large", "deviceClassName": "gpu.nvidia.com"}
    pod = fleet.pod([{"name": "gpu", "firstAvailable": [large]}], node="plain").wait_running()
    with pytest.raises(ValueError, match="not enough values"):
        Launcher(pod.view()).device(pod.name, "gpu")
    pod.delete()


@pytest.mark.parametrize(
    ("node", "device_class", "fields"),
    [
        ("plain", "gpu.nvidia.com", {}),
        ("plain", "mps.gpu.nvidia.com", {}),
        ("mig", "mig.nvidia.com", {}),
        ("shared", "shared.gpu.nvidia.com", {"capacity": {"requests": {"memory": "10Gi"}}}),
    ],
)
def test_no_device_of_any_kind_is_taken_for_a_mediated_one(fleet, node, device_class, fields):
    pod = fleet.pod([exactly("gpu", device_class, **fields)], node=node).wait_running()
    told = Launcher(pod.view()).device(pod.name, "gpu")
    assert "mdevUUID" not in told
    assert told["resource.kubernetes.io/pciBusID"]["string"].startswith("0000:")
    assert len(told) <= 32
    pod.delete()
