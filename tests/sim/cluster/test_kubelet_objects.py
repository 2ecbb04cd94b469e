"""What the kubelet writes to the objects of its pods, and removes."""

import kubelet_node
from polling import until

from dra_driver.adapters.kube import kube
from dra_driver.sim.api.serving import options
from dra_driver.sim.cluster import plugins


def test_the_status_of_a_pod_is_not_written_to_one_that_came_again_by_its_name(
    node, agent, monkeypatch
):
    get, again = node.client.get, []

    def replaced(resource, name, namespace):
        body = get(resource, name, namespace)
        if not again:
            node.delete_pod("train", force=True)
            again.append(node.add_pod("train"))
        return body

    node.add_pod("train")
    # The kubelet asks for a pod to write its status, and for nothing else of this one.
    monkeypatch.setattr(node.client, "get", replaced)
    node.bind("train")
    until(lambda: again and agent._pods == {}, what="the first one is over")
    assert get(kube.PODS, "train", "default") == again[0]


def test_slices_of_a_driver_that_is_gone_are_deleted_though_the_server_fails_at_first(
    node, agent, monkeypatch
):
    monkeypatch.setattr(plugins, "RETRY_SECONDS", 0.05)
    monkeypatch.setattr(agent.plugins, "_wipe_seconds", 0.1)
    plugin = node.add_plugin()
    spec = {
        "driver": plugin.name,
        "nodeName": kubelet_node.NODE,
        "pool": {"name": kubelet_node.NODE, "generation": 1, "resourceSliceCount": 1},
    }
    node.client.create(kube.SLICES, {"metadata": {"name": "left"}, "spec": spec})
    asked = []

    def two_fail(call):
        if (call.verb, call.resource) == ("deletecollection", "resourceslices"):
            asked.append(call)
            return options.Fault(status=500) if len(asked) < 3 else None
        return None

    node.api.rule = two_fail
    plugin.stop()
    until(lambda: node.client.list(kube.SLICES)[0] == [], what="no slice is left")
    assert len(asked) == 3


def test_a_deletion_that_the_server_does_not_carry_out_is_asked_for_again(node, agent):
    asked = []

    def three_fail(call):
        if (call.verb, call.resource) == ("delete", "pods"):
            asked.append(call)
            return options.Fault(status=500) if 1 < len(asked) < 5 else None
        return None

    node.run_pod("train")
    node.wait_phase("train", "Running")
    node.api.rule = three_fail
    node.delete_pod("train")
    node.wait_gone("train")
    assert len(asked) > 4
