"""What happens to pods when something goes wrong beside them, or the driver is exchanged."""

import contextlib
import time

import pytest
from e2e_site import LOOK_SECONDS, PENDING, exactly

from dra_driver.adapters.kube import kube


@pytest.fixture
def one(scratch):
    """A namespace with a template for one GPU."""
    scratch.template("one", exactly("gpu"))
    return scratch


def start(scratch, name, **options):
    scratch.pod(name, {"gpu": "template/one"}, **options)


def on_node(scratch, node):
    return {"nodeSelector": scratch.site.only(node)}


@pytest.mark.covers("e2e_node: must register after plugin restart", "e2e_node: service reconnect")
def test_a_pod_outlives_a_plugin_that_is_killed_and_the_next_one_starts_more(one, driver):
    node = one.site.nodes[0]
    start(one, "before", **on_node(one, node))
    one.wait_running("before")
    driver.kill(node)
    start(one, "after", **on_node(one, node))
    one.wait_running("before", "after")
    assert one.sees("before") != one.sees("after")
    one.delete_pod("before")
    driver.wait_ready()


@pytest.mark.covers(
    "e2e_node: must process pod created when the plugin is away, runs after it starts"
)
def test_a_pod_that_comes_while_the_plugin_is_away_runs_when_it_is_back(one, driver):
    with driver.away():
        start(one, "pod")
        time.sleep(LOOK_SECONDS)
        assert one.phase("pod") == PENDING
    one.wait_running("pod")
    assert len(one.sees("pod")) == 1


@pytest.mark.covers(
    "e2e/dra: must unprepare resources for force-deleted pod", "bats misc: stale PrepareStarted"
)
def test_a_pod_that_is_deleted_by_force_while_the_plugin_is_down_leaves_nothing(one, driver):
    start(one, "pod")
    one.wait_running("pod")
    [place] = one.allocated("pod")
    with driver.away():
        one.site.client.delete(kube.PODS, "pod", one.namespace, grace_period=0)
    one.site.wait(lambda: not one.claims(), "the claim to be gone")
    node, device = place.split("/")
    index = one.site.devices()[node, device]["attributes"]["index"]["int"]
    attribute = "device.attributes['gpu.nvidia.com'].index"
    one.template("same", exactly("gpu", "gpu.nvidia.com", f"{attribute} == {index}"))
    one.pod("next", {"gpu": "template/same"}, **on_node(one, node))
    one.wait_running("next")
    assert one.allocated("next") == [place]


@pytest.mark.covers("updown: simple GPU", "e2e/dra: runs pod after driver starts")
def test_pods_stay_while_the_driver_is_uninstalled_and_end_when_it_is_there_again(one, driver):
    start(one, "user")
    one.wait_running("user")
    before = one.sees("user")
    with driver.away():
        one.site.client.delete(kube.PODS, "user", one.namespace, grace_period=1)
    one.site.wait(lambda: one.site.is_gone(kube.PODS, "user", one.namespace), "the pod to be gone")
    start(one, "next")
    one.wait_running("next")
    assert len(before) == len(one.sees("next")) == 1


@pytest.mark.covers("e2e/dra: rolling update", "e2e/dra: sequential update")
def test_pods_start_all_the_time_while_the_driver_is_updated(one, driver):
    numbers = []
    driver.roll()
    # At least one before, and one after the last exchange of a pod.
    while not numbers or not driver.is_ready():
        numbers.append(len(numbers))
        start(one, f"pod-{numbers[-1]}")
        with contextlib.suppress(AssertionError):
            one.wait_running(f"pod-{numbers[-1]}")
        one.delete_pod(f"pod-{numbers[-1]}")
    driver.wait_ready()
    start(one, "last")
    one.wait_running("last")


@pytest.fixture
def own_machine(machine):
    """The hosts, where they are this machine's."""
    if machine is None:
        pytest.skip("needs the hosts of the cluster: it runs on the embedded one alone")
    return machine


@pytest.mark.covers(
    "e2e_node: must register after Kubelet restart",
    "e2e_node: ResourceSlice must be removed on kubelet startup",
)
def test_a_kubelet_that_is_restarted_finds_the_plugin_and_the_slices_are_there_again(
    one, own_machine
):
    node = own_machine.nodes[one.site.nodes[0]]
    before = {body["metadata"]["uid"] for body in one.site.slices()}
    node.restart_kubelet()
    one.site.wait(one.site.complete, "the slices")
    after = {body["metadata"]["uid"] for body in one.site.slices()}
    assert len(after - before) == len(before - after) > 0
    start(one, "pod", **on_node(one, node.name))
    one.wait_running("pod")


@pytest.mark.covers("the API server goes, and comes back")
def test_pods_go_on_while_the_api_server_is_away(one, own_machine):
    start(one, "before")
    one.wait_running("before")
    with own_machine.api_away():
        time.sleep(LOOK_SECONDS)
    start(one, "after")
    one.wait_running("before", "after")
    one.delete_pod("before")
