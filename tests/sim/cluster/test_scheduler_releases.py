"""What pods get on clusters of 1.37 and 1.38, over real HTTP."""

import pytest
from control_plane import DRIVER, ControlPlane, request

from dra_driver.logic.scheduling import emulation


@pytest.fixture
def new_plane(tmp_path):
    """Makes control planes of a release, with one node."""
    made = []

    def new_plane(release, *devices, **options):
        plane = ControlPlane(tmp_path, kubernetes_version=f"v{release}.0-emulated", **options)
        made.append(plane)
        plane.add_class(f'device.driver == "{DRIVER}"')
        plane.add_node("node-a")
        plane.add_slice("node-a", *devices)
        return plane.start_scheduler(behaviour=emulation.of_release(release))

    yield new_plane
    for plane in made:
        plane.close()


def test_devices_agree_in_an_attribute_that_the_request_derives(new_plane):
    gates = frozenset({"DRADerivedAttributes"})
    devices = [
        {"name": f"gpu-{n}", "attributes": {"place": {"string": f"numa{n % 2}-{n}"}}}
        for n in range(3)
    ]
    plane = new_plane("1.37", *devices, enabled_gates=gates)
    derived = {
        "name": "derived/numa",
        "expression": f'device.attributes["{DRIVER}"].place.split("-")[0]',
    }
    plane.add_claim(
        "two",
        request("gpu", count=2, derivedAttributes=[derived]),
        constraints=[{"matchAttribute": "derived/numa"}],
    )
    plane.add_pod("pod", claims={"gpu": "two"})
    assert plane.node_of("pod") == "node-a"
    assert plane.devices_of("two") == ["node-a/gpu-0", "node-a/gpu-2"]


@pytest.mark.parametrize("release", ["1.37", "1.38"])
def test_a_config_for_all_requests_has_no_names_and_the_plugin_is_told_so(new_plane, release):
    plane = new_plane(release, "gpu-0", "gpu-1")
    config = {"requests": ["a", "b"], "opaque": {"driver": DRIVER, "parameters": {}}}
    plane.add_claim("two", request("a"), request("b"), config=[config])
    plane.add_pod("pod", claims={"gpu": "two"})
    assert plane.node_of("pod") == "node-a"
    assert plane.claim("two")["status"]["allocation"]["devices"]["config"] == [
        {"source": "FromClaim", "opaque": config["opaque"]}
    ]
