"""What the driver publishes, and that it stays so."""

import pytest
from e2e_site import DRIVER, exactly

from dra_driver.adapters.kube import kube

MIG = "mig.nvidia.com"
COMMON = {
    "addressingMode", "architecture", "brand", "cudaComputeCapability", "cudaDriverVersion",
    "driverVersion", "productName", "resource.kubernetes.io/pciBusID", "type",
}  # fmt: skip


@pytest.mark.covers("e2e/dra: must manage ResourceSlices", "integration/dra: CreateResourceSlices")
def test_each_node_has_one_pool_that_belongs_to_it(site, driver):
    for body in site.slices():
        node = body["spec"]["nodeName"]
        uid = site.client.get(kube.NODES, node)["metadata"]["uid"]
        owner = body["metadata"]["ownerReferences"]
        assert [(one["kind"], one["name"], one["uid"]) for one in owner] == [("Node", node, uid)]
        assert body["spec"]["pool"]["name"] == node


@pytest.mark.covers("bats basic: gpu attributes", "bats dynmig: gpu attributes, mig attributes")
@pytest.mark.parametrize(("kind", "more"), [("gpu", {"uuid"}), ("mig", {"parentUUID", "profile"})])
def test_devices_have_the_attributes_of_the_vendor_s_driver(site, driver, kind, more):
    found = [
        device["attributes"].keys()
        for device in site.devices().values()
        if device["attributes"]["type"] == {"string": kind}
    ]
    assert found
    assert all(keys >= COMMON | more for keys in found)


@pytest.mark.covers("e2e_node: slices must not be removed if plugin restarts quickly enough")
def test_slices_are_not_written_for_pods_that_come_and_go(scratch):
    def pools():
        """What is published, but for the order of partitions: that follows what is in use."""
        return {
            one["metadata"]["uid"]: (
                one["spec"]["pool"],
                sorted(device["name"] for device in one["spec"].get("devices") or ()),
            )
            for one in scratch.site.slices()
        }

    before = pools()
    scratch.template("one", exactly("gpu", MIG))
    for number in range(2):
        scratch.pod(f"pod-{number}", {"gpu": "template/one"})
        scratch.wait_running(f"pod-{number}")
        scratch.delete_pod(f"pod-{number}")
    assert pools() == before


@pytest.mark.covers("e2e/dra: must manage ResourceSlices")
def test_a_slice_that_is_deleted_is_there_again(site, driver):
    before = sorted(one["spec"]["nodeName"] for one in site.slices())
    [first, *_] = site.slices()
    site.client.delete(kube.SLICES, first["metadata"]["name"])
    gone = first["metadata"]["uid"]

    def there():
        slices = site.slices()
        nodes = sorted(one["spec"]["nodeName"] for one in slices)
        return (
            nodes == before
            and gone not in [one["metadata"]["uid"] for one in slices]
            and site.complete()
        )

    site.wait(there, "the slice that was deleted")


@pytest.mark.covers("integration/dra: PublishResourceSlices")
def test_a_slice_that_somebody_has_edited_is_as_it_was(site, driver):
    [first, *_] = [one for one in site.slices() if one["spec"].get("devices")]
    name, spec = first["metadata"]["name"], first["spec"]
    edited = {"spec": {"devices": spec["devices"][:-1] or None}}
    site.client.patch(kube.SLICES, name, edited)
    site.wait(
        lambda: site.client.get(kube.SLICES, name)["spec"]["devices"] == spec["devices"],
        f"slice {name} to be as it was",
    )
    assert DRIVER in spec["driver"]
