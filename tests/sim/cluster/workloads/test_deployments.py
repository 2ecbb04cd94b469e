"""Deployments and ReplicaSets: what there is after the controllers have done their part."""

import re

import pytest
import workload_scene
from workload_scene import template, workload


@pytest.fixture
def shop():
    return workload_scene.Shop()


def sets(shop):
    """Of each ReplicaSet, oldest first, how many pods it wants."""
    found = shop.objects("replicasets.apps")
    found.sort(key=lambda b: int(b["metadata"]["annotations"]["deployment.kubernetes.io/revision"]))
    return [item["spec"]["replicas"] for item in found]


def images(shop):
    return [pod["spec"]["containers"][0]["image"] for pod in shop.pods().values()]


def with_image(image):
    return template(containers=[{"name": "main", "image": image}])


def conditions(status):
    return {item["type"]: (item["status"], item["reason"]) for item in status["conditions"]}


def test_a_deployment_makes_a_replica_set_which_makes_pods(shop):
    shop.add(workload("Deployment", replicas=2))
    shop.settle()
    [replica_set] = shop.objects("replicasets.apps")
    digest = replica_set["metadata"]["labels"]["pod-template-hash"]
    assert replica_set["metadata"]["name"] == f"web-{digest}"
    assert replica_set["spec"]["selector"]["matchLabels"] == {
        "app": "web", "pod-template-hash": digest,
    }  # fmt: skip
    assert len(shop.pods()) == 2
    for name, pod in shop.pods().items():
        assert re.fullmatch(rf"web-{digest}-[a-z0-9]{{5}}", name)
        assert pod["metadata"]["labels"] == {"app": "web", "pod-template-hash": digest}
        [owner] = pod["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["name"], owner["controller"]) == (
            "ReplicaSet", f"web-{digest}", True,
        )  # fmt: skip


def test_its_status_is_what_kubectl_waits_for(shop):
    shop.add(workload("Deployment", replicas=2))
    shop.settle(run=False)
    status = shop.status("Deployment")
    assert (status["replicas"], status["unavailableReplicas"]) == (2, 2)
    assert conditions(status) == {
        "Available": ("False", "MinimumReplicasUnavailable"),
        "Progressing": ("True", "ReplicaSetUpdated"),
    }
    shop.settle()
    status = shop.status("Deployment")
    assert status["observedGeneration"] == 1
    assert {name: status[f"{name}Replicas"] for name in ("updated", "ready", "available")} == {
        "updated": 2, "ready": 2, "available": 2,
    }  # fmt: skip
    assert "unavailableReplicas" not in status
    assert conditions(status) == {
        "Available": ("True", "MinimumReplicasAvailable"),
        "Progressing": ("True", "NewReplicaSetAvailable"),
    }


def test_a_pod_that_is_deleted_or_has_ended_is_made_again(shop):
    shop.add(workload("Deployment", replicas=2))
    shop.settle()
    first, second = shop.pods()
    shop.delete("Pod", first)
    shop.end(second, phase="Failed")
    shop.settle()
    running = [name for name, pod in shop.pods().items() if pod["status"]["phase"] == "Running"]
    assert len(running) == 2
    assert {first, second}.isdisjoint(running)


def test_scaling_up_and_down(shop):
    shop.add(workload("Deployment", replicas=1))
    shop.settle()
    shop.change("Deployment", replicas=3)
    shop.settle()
    assert len(shop.pods()) == 3
    shop.change("Deployment", replicas=0)
    shop.settle()
    assert shop.pods() == {}
    assert "replicas" not in shop.status("Deployment")


def test_of_too_many_pods_those_that_do_not_run_go_first(shop):
    shop.add(workload("ReplicaSet", replicas=3))
    shop.settle(run=False)
    ready, unready, pending = shop.pods()
    shop.run(ready)
    shop.restarted(unready, 1)
    shop.change("ReplicaSet", replicas=2)
    shop.settle(run=False)
    assert pending not in shop.pods()
    shop.change("ReplicaSet", replicas=1)
    shop.settle(run=False)
    assert list(shop.pods()) == [ready]


def test_a_new_template_takes_over_with_one_pod_too_many_and_none_too_few(shop):
    shop.add(workload("Deployment", replicas=3))
    shop.settle()
    shop.change("Deployment", template=with_image("new"))
    running = []
    while shop.turn():
        alive = [pod for pod in shop.pods().values() if pod["status"]["phase"] == "Running"]
        running.append((len(alive), len(shop.pods())))
        shop.run()
    assert min(alive for alive, _ in running) >= 3
    assert max(every for _, every in running) == 4
    assert images(shop) == ["new"] * 3
    assert sets(shop) == [0, 3]


def test_a_new_template_that_does_not_run_leaves_the_old_pods(shop):
    shop.add(workload("Deployment", replicas=3))
    shop.settle()
    shop.change("Deployment", template=with_image("broken"))
    shop.settle(run=False)
    assert sorted(images(shop)) == ["broken", "none", "none", "none"]


def test_with_recreate_the_old_pods_are_gone_before_the_new_ones_come(shop):
    slow = template()
    slow["metadata"]["finalizers"] = ["example.com/slow"]
    shop.add(workload("Deployment", replicas=2, strategy={"type": "Recreate"}, template=slow))
    shop.settle()
    old = list(shop.pods())
    shop.change("Deployment", template=with_image("new"))
    for name in old:
        shop.settle()
        assert set(images(shop)) == {"none"}
        shop.release(name)
    shop.settle()
    assert images(shop) == ["new", "new"]


def test_with_recreate_an_earlier_template_comes_back_when_the_pods_are_gone(shop):
    shop.add(workload("Deployment", replicas=1, strategy={"type": "Recreate"}))
    shop.settle()
    first = shop.get("Deployment")["spec"]["template"]
    slow = with_image("new")
    slow["metadata"]["finalizers"] = ["example.com/slow"]
    shop.change("Deployment", template=slow)
    shop.settle()
    [name] = shop.pods()
    shop.change("Deployment", template=first)
    shop.settle()
    assert images(shop) == ["new"]
    shop.release(name)
    shop.settle()
    assert images(shop) == ["none"]


def test_an_earlier_template_gets_its_replica_set_back_with_a_new_revision(shop):
    shop.add(workload("Deployment", replicas=1))
    shop.settle()
    old = shop.get("Deployment")["spec"]["template"]
    shop.change("Deployment", template=with_image("new"))
    shop.settle()
    shop.change("Deployment", template=old)
    shop.settle()
    assert len(shop.objects("replicasets.apps")) == 2
    assert images(shop) == ["none"]
    revision = shop.get("Deployment")["metadata"]["annotations"]
    assert revision["deployment.kubernetes.io/revision"] == "3"


def test_replica_sets_are_kept_for_as_many_rollbacks_as_are_asked_for(shop):
    shop.add(workload("Deployment", replicas=1, revisionHistoryLimit=1))
    for image in ("b", "c", "d"):
        shop.settle()
        shop.change("Deployment", template=with_image(image))
    shop.settle()
    assert sets(shop) == [0, 1]


def test_a_paused_deployment_does_not_move(shop):
    shop.add(workload("Deployment", replicas=1))
    shop.settle()
    shop.change("Deployment", paused=True, template=with_image("new"))
    shop.settle()
    assert images(shop) == ["none"]


def test_what_a_deployment_has_made_goes_with_it(shop):
    shop.add(workload("Deployment", replicas=2))
    shop.settle()
    shop.delete("Deployment", "web", api="apps/v1")
    assert shop.objects("replicasets.apps") == []
    assert shop.pods() == {}


def test_a_replication_controller_takes_its_selector_from_the_template(shop):
    body = workload("ReplicationController", "v1", replicas=2)
    del body["spec"]["selector"]
    shop.add(body)
    shop.settle()
    assert len(shop.pods()) == 2
    status = shop.status("ReplicationController", api="v1")
    assert (status["replicas"], status["readyReplicas"]) == (2, 2)
