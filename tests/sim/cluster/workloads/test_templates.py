"""Objects of kinds that nothing here knows: one pod of each template of pods in them."""

import pytest
import workload_scene

from dra_driver.sim.cluster.workloads import templates

POD = {"spec": {"containers": [{"name": "main", "image": "none"}]}}
DEFINITION = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: rayclusters.ray.io}
spec:
  group: ray.io
  scope: Namespaced
  names: {plural: rayclusters, kind: RayCluster}
  versions: [{name: v1, served: true, storage: true}]
"""


@pytest.mark.parametrize(
    ("spec", "places"),
    [
        ({"template": POD}, ["spec.template"]),
        (
            {"headGroupSpec": {"template": POD}, "workerGroupSpecs": [{"template": POD}]},
            ["spec.headGroupSpec.template", "spec.workerGroupSpecs[0].template"],
        ),
        (
            {"replicatedJobs": [{"name": "a", "template": {"spec": {"template": POD}}}]},
            ["spec.replicatedJobs[0].template.spec.template"],
        ),
        (
            {"replicaSpecs": {"Launcher": {"template": POD}, "Worker": {"template": POD}}},
            ["spec.replicaSpecs.Launcher.template", "spec.replicaSpecs.Worker.template"],
        ),
        ({"leaderWorkerTemplate": {"workerTemplate": POD}},
         ["spec.leaderWorkerTemplate.workerTemplate"]),
        ({"template": {"spec": {"steps": []}}}, []),
        ({"template": {"spec": {"containers": []}}}, []),
        ({"template": {"spec": {"containers": ["main"]}}}, []),
        ({"containers": [{"name": "main"}]}, []),
        ({"template": {"metadata": ["a"], **POD}}, []),
        ({"template": {"metadata": {"annotations": ["a"]}, **POD}}, []),
        ({"template": {"metadata": {"labels": "a"}, **POD}}, []),
        ({"template": {"metadata": {"labels": None}, **POD}}, ["spec.template"]),
        (None, []),
    ],
)  # fmt: skip
def test_templates_are_found_wherever_they_are(spec, places):
    assert list(templates.found_in({"spec": spec})) == places


@pytest.fixture
def shop():
    made = workload_scene.Shop()
    made.add(DEFINITION)
    spec = {"headGroupSpec": {"template": POD}, "workers": [{"replicas": 4, "template": POD}]}
    metadata = {"name": "ray"}
    made.add({"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": metadata, "spec": spec})
    made.settle()
    return made


def test_one_pod_is_made_of_each(shop):
    first, second = shop.pods()
    assert first.startswith("ray-headgroupspec-")
    assert second.startswith("ray-workers-0-")
    annotations = shop.pods()[second]["metadata"]["annotations"]
    assert annotations == {templates.MARK: "spec.workers[0].template"}


def test_a_pod_that_is_deleted_comes_again_and_one_that_has_ended_does_not(shop):
    first, second = shop.pods()
    shop.delete("Pod", first)
    shop.end(second)
    shop.settle()
    assert first not in shop.pods()
    assert second in shop.pods()
    assert len(shop.pods()) == 2


def test_they_go_with_the_object_and_with_its_kind(shop):
    shop.delete("CustomResourceDefinition", "rayclusters.ray.io", api="apiextensions.k8s.io/v1")
    assert shop.pods() == {}
