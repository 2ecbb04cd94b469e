"""What pods get on clusters of 1.37 and 1.38, over real HTTP."""

import pytest
from control_plane import DRIVER, ControlPlane, request

from dra_driver.adapters.kube import kube
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


def rule(plane, name, effect="NoSchedule", **spec):
    taint = {"key": "example.com/ill", "effect": effect}
    return plane.create(kube.TAINT_RULES, name, spec={"taint": taint, **spec})


def test_a_rule_keeps_pods_from_the_devices_that_it_selects_and_goes_again(new_plane):
    plane = new_plane("1.37", "gpu-0", "gpu-1")
    rule(plane, "by-name", deviceSelector={"driver": DRIVER, "device": "gpu-0"})
    rule(plane, "elsewhere", deviceSelector={"driver": "other.example.com"})
    plane.add_claim("first")
    plane.add_pod("first", claims={"gpu": "first"})
    assert plane.node_of("first") == "node-a"
    assert plane.devices_of("first") == ["node-a/gpu-1"]
    plane.add_claim("second")
    plane.add_pod("second", claims={"gpu": "second"})
    plane.refusal_of("second", containing="tainted example.com/ill:NoSchedule")
    plane.client.delete(kube.TAINT_RULES, "by-name")
    assert plane.node_of("second") == "node-a"
    assert plane.devices_of("second") == ["node-a/gpu-0"]


def test_a_claim_may_tolerate_it(new_plane):
    plane = new_plane("1.38", "gpu-0")
    rule(plane, "all", deviceSelector={})
    tolerated = request(tolerations=[{"key": "example.com/ill", "operator": "Exists"}])
    plane.add_claim("mine", tolerated)
    plane.add_pod("pod", claims={"gpu": "mine"})
    assert plane.node_of("pod") == "node-a"


def test_rules_are_not_served_by_default_before_1_37(tmp_path):
    plane = ControlPlane(tmp_path)
    with pytest.raises(kube.NotFound):
        rule(plane, "all", deviceSelector={})
    plane.close()
