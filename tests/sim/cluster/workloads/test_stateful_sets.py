"""StatefulSets: names, order, and what there is after a change."""

import pytest
import workload_scene
from workload_scene import template, workload


@pytest.fixture
def shop():
    return workload_scene.Shop()


def test_pods_come_one_after_another_each_when_the_one_before_is_ready(shop):
    shop.add(workload("StatefulSet", replicas=3))
    shop.settle(run=False)
    assert list(shop.pods()) == ["web-0"]
    shop.run("web-0")
    shop.settle(run=False)
    assert list(shop.pods()) == ["web-0", "web-1"]
    shop.settle()
    assert list(shop.pods()) == ["web-0", "web-1", "web-2"]


def test_in_parallel_they_come_at_once(shop):
    shop.add(workload("StatefulSet", replicas=3, podManagementPolicy="Parallel"))
    shop.settle(run=False)
    assert list(shop.pods()) == ["web-0", "web-1", "web-2"]


def test_a_pod_says_who_it_is(shop):
    shop.add(workload("StatefulSet", serviceName="db", ordinals={"start": 4}))
    shop.settle()
    [pod] = shop.pods().values()
    labels = pod["metadata"]["labels"]
    assert labels["statefulset.kubernetes.io/pod-name"] == "web-4"
    assert labels["apps.kubernetes.io/pod-index"] == "4"
    assert labels["controller-revision-hash"].startswith("web-")
    assert (pod["spec"]["hostname"], pod["spec"]["subdomain"]) == ("web-4", "db")


def test_a_pod_that_is_deleted_or_has_ended_comes_again_under_its_name(shop):
    shop.add(workload("StatefulSet", replicas=2))
    shop.settle()
    uids = {name: pod["metadata"]["uid"] for name, pod in shop.pods().items()}
    shop.delete("Pod", "web-0")
    shop.end("web-1", phase="Failed")
    shop.settle()
    again = {name: pod["metadata"]["uid"] for name, pod in shop.pods().items()}
    assert set(again) == set(uids)
    assert set(again.values()).isdisjoint(uids.values())


def test_the_last_goes_first_when_there_are_to_be_fewer(shop):
    shop.add(workload("StatefulSet", replicas=3))
    shop.settle()
    shop.change("StatefulSet", replicas=1)
    left = []
    while shop.turn():
        left.append(list(shop.pods()))
    assert ["web-0", "web-1"] in left
    assert list(shop.pods()) == ["web-0"]


def test_a_new_template_takes_over_from_the_last_pod_on_one_at_a_time(shop):
    shop.add(workload("StatefulSet", replicas=3))
    shop.settle()
    shop.change("StatefulSet", template=template(terminationGracePeriodSeconds=1))
    exchanged = []
    while shop.turn():
        new = [
            name
            for name, pod in shop.pods().items()
            if pod["spec"]["terminationGracePeriodSeconds"] == 1
        ]
        exchanged.append(tuple(new))
        shop.run()
    order = list(dict.fromkeys(exchanged))
    assert order[-3:] == [("web-2",), ("web-1", "web-2"), ("web-0", "web-1", "web-2")]
    status = shop.status("StatefulSet")
    assert status["currentRevision"] == status["updateRevision"]
    assert (status["updatedReplicas"], status["readyReplicas"]) == (3, 3)


def test_pods_below_the_partition_and_with_on_delete_stay_as_they_are(shop):
    rolling = {"type": "RollingUpdate", "rollingUpdate": {"partition": 1}}
    shop.add(workload("StatefulSet", replicas=2, updateStrategy=rolling))
    shop.settle()
    old = {name: pod["metadata"]["uid"] for name, pod in shop.pods().items()}
    shop.change("StatefulSet", template=template(terminationGracePeriodSeconds=1))
    shop.settle()
    new = {name: pod["metadata"]["uid"] for name, pod in shop.pods().items()}
    assert new["web-0"] == old["web-0"]
    assert new["web-1"] != old["web-1"]
    shop.change(
        "StatefulSet",
        updateStrategy={"type": "OnDelete"},
        template=template(terminationGracePeriodSeconds=2),
    )
    shop.settle()
    assert {name: pod["metadata"]["uid"] for name, pod in shop.pods().items()} == new
