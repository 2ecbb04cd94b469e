"""DaemonSets: on which nodes there are pods."""

import pytest
import workload_scene
from workload_scene import template, workload


@pytest.fixture
def shop():
    made = workload_scene.Shop("a", "b")
    gpu = {"key": "nvidia.com/gpu", "effect": "NoSchedule"}
    for name, labels, spec in (("c", {"gpu": "yes"}, {}), ("d", {}, {"taints": [gpu]})):
        metadata = {"name": name, "labels": labels}
        made.add({"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": spec})
    return made


def nodes(shop):
    """For which nodes there are pods, by the affinity that a pod was given."""
    return sorted(term["matchFields"][0]["values"][0] for term in terms(shop))


def terms(shop):
    return [
        term
        for pod in shop.pods().values()
        for term in pod["spec"]["affinity"]["nodeAffinity"][
            "requiredDuringSchedulingIgnoredDuringExecution"
        ]["nodeSelectorTerms"]
    ]


def test_each_node_whose_taints_are_tolerated_gets_a_pod(shop):
    shop.add(workload("DaemonSet"))
    shop.settle()
    assert nodes(shop) == ["a", "b", "c"]
    status = shop.status("DaemonSet")
    assert (status["desiredNumberScheduled"], status["numberReady"]) == (3, 3)
    assert (status["updatedNumberScheduled"], status["numberAvailable"]) == (3, 3)


def test_a_toleration_and_a_selector_choose_the_nodes(shop):
    tolerated = template(tolerations=[{"key": "nvidia.com/gpu", "operator": "Exists"}])
    shop.add(workload("DaemonSet", template=tolerated))
    shop.settle()
    assert nodes(shop) == ["a", "b", "c", "d"]
    shop.change("DaemonSet", template=template(nodeSelector={"gpu": "yes"}))
    shop.settle()
    assert nodes(shop) == ["c"]


def test_affinity_of_the_template_is_kept_beside_the_node(shop):
    wanted = {"key": "gpu", "operator": "Exists"}
    required = {"nodeSelectorTerms": [{"matchExpressions": [wanted]}]}
    affinity = {
        "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required},
    }
    shop.add(workload("DaemonSet", template=template(affinity=affinity)))
    shop.settle()
    [term] = terms(shop)
    assert term["matchExpressions"] == [wanted]
    assert nodes(shop) == ["c"]


def test_a_node_that_comes_gets_a_pod_and_one_that_goes_loses_it(shop):
    shop.add(workload("DaemonSet"))
    shop.settle()
    shop.add({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "new"}})
    shop.delete("Node", "a")
    shop.settle()
    assert nodes(shop) == ["b", "c", "new"]


def test_a_pod_that_has_ended_is_made_again(shop):
    shop.add(workload("DaemonSet"))
    shop.settle()
    first = next(iter(shop.pods()))
    shop.end(first, phase="Failed")
    shop.settle()
    assert first not in shop.pods()
    assert nodes(shop) == ["a", "b", "c"]


def test_a_new_template_takes_over_one_node_after_another(shop):
    shop.add(workload("DaemonSet"))
    shop.settle()
    shop.change("DaemonSet", template=template(terminationGracePeriodSeconds=1))
    least = 3
    while shop.turn():
        ready = [pod for pod in shop.pods().values() if pod["status"]["phase"] == "Running"]
        least = min(least, len(ready))
        shop.run()
    assert least == 2
    graces = {pod["spec"]["terminationGracePeriodSeconds"] for pod in shop.pods().values()}
    assert graces == {1}


def test_of_two_pods_for_one_node_one_goes(shop):
    shop.add(workload("DaemonSet"))
    shop.settle()
    first = next(iter(shop.pods().values()))
    kept = {name: first["metadata"][name] for name in ("labels", "ownerReferences")}
    twin = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "twin"} | kept}
    shop.add(twin | {"spec": first["spec"]})
    assert len(shop.pods()) == 4
    shop.settle()
    assert nodes(shop) == ["a", "b", "c"]
