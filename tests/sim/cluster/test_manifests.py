"""Manifests: files to objects, and objects into a real API server."""

import pathlib
import tempfile

import pytest
import served_api

from dra_driver import errors
from dra_driver.adapters.kube import kube
from dra_driver.sim.cluster import manifests

NAMESPACE = "apiVersion: v1\nkind: Namespace\nmetadata: {name: demo}\n"
MAP = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings, namespace: demo}\ndata: {a: b}\n"


def names(objects):
    return [body["metadata"]["name"] for body in objects]


def config_map(name, namespace=None, **data):
    metadata = {"name": name} | ({"namespace": namespace} if namespace else {})
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


# load


def test_all_documents_of_a_file_are_objects_and_empty_ones_are_not(tmp_path):
    path = tmp_path / "all.yaml"
    path.write_text(f"---\n# nothing\n---\n{NAMESPACE}---\n{MAP}---\n")
    objects = manifests.load([path])
    assert names(objects) == ["demo", "settings"]
    assert objects[1]["data"] == {"a": "b"}


def test_a_path_without_any_object_is_refused_as_nothing_would_be_tried(tmp_path):
    path = tmp_path / "none.yaml"
    path.write_text("---\n# nothing\n")
    with pytest.raises(errors.Fatal) as caught:
        manifests.load([path])
    assert str(caught.value).startswith(f"{path}: it has no object; ")


def test_files_of_a_folder_are_read_by_name_and_others_left_alone(tmp_path):
    (tmp_path / "2.yml").write_text(MAP.replace("settings", "second"))
    (tmp_path / "1.yaml").write_text(MAP.replace("settings", "first"))
    (tmp_path / "3.json").write_text('{"apiVersion": "v1", "kind": "A", "metadata": {"name": "x"}}')
    (tmp_path / "README.md").write_text("# not a manifest")
    (tmp_path / "folder").mkdir()
    assert names(manifests.load([tmp_path])) == ["first", "second", "x"]


def test_paths_are_read_in_the_order_in_which_they_are_given(tmp_path):
    for name in ("b", "a"):
        (tmp_path / name).write_text(MAP.replace("settings", name))
    assert names(manifests.load([tmp_path / "b", tmp_path / "a"])) == ["b", "a"]


def test_a_list_is_taken_apart(tmp_path):
    path = tmp_path / "list.json"
    path.write_text(
        '{"apiVersion": "v1", "kind": "List", "items": [{"apiVersion": "v1", "kind": "Pod", '
        '"metadata": {"name": "a"}}, {"apiVersion": "v1", "kind": "Pod", '
        '"metadata": {"generateName": "b-"}}]}'
    )
    assert [body["metadata"] for body in manifests.load([path])] == [
        {"name": "a"},
        {"generateName": "b-"},
    ]


@pytest.mark.parametrize(
    "text",
    [
        "just text",
        "[1, 2]",
        "kind: Pod\nmetadata: {name: a}",
        "apiVersion: v1\nmetadata: {name: a}",
        "apiVersion: v1\nkind: Pod",
        "apiVersion: v1\nkind: Pod\nmetadata: {}",
        "apiVersion: v1\nkind: Pod\nmetadata: {name: 7}",
        "apiVersion: v1\nkind: List\nitems: [7]",
    ],
)
def test_a_document_that_is_no_object_is_refused_with_its_place(tmp_path, text):
    path = tmp_path / "a.yaml"
    path.write_text(f"{NAMESPACE}---\n{text}\n")
    with pytest.raises(errors.Fatal) as refused:
        manifests.load([path])
    assert str(refused.value) == (
        f"{path}, document 2: this is no Kubernetes object: "
        "apiVersion, kind and metadata.name are needed"
    )


@pytest.mark.parametrize(
    ("metadata", "problem"),
    [
        ("{name: a, namespace: 7}", "metadata.namespace: 7; write a text, or leave it out"),
        ("{generateName: a-, annotations: [b]}",
         "metadata.annotations: ['b']; write a mapping of texts, or leave it out"),
        ("{name: a, labels: b}",
         "metadata.labels: 'b'; write a mapping of texts, or leave it out"),
    ],
)  # fmt: skip
def test_metadata_that_cannot_be_read_is_refused_with_its_place(tmp_path, metadata, problem):
    path = tmp_path / "a.yaml"
    path.write_text(f"apiVersion: v1\nkind: Pod\nmetadata: {metadata}\n")
    with pytest.raises(errors.Fatal) as refused:
        manifests.load([path])
    assert str(refused.value) == f"{path}, document 1: {problem}"


def test_metadata_may_be_left_empty(tmp_path):
    path = tmp_path / "a.yaml"
    path.write_text("apiVersion: v1\nkind: Pod\nmetadata: {name: a, labels: , annotations: }\n")
    assert names(manifests.load([path])) == ["a"]


def test_a_path_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(errors.Fatal, match=r"absent\.yaml: no such file or folder"):
        manifests.load([tmp_path / "absent.yaml"])


def test_a_folder_without_manifests_is_refused(tmp_path):
    with pytest.raises(errors.Fatal) as refused:
        manifests.load([tmp_path])
    assert str(refused.value) == f"{tmp_path}: the folder has no .yaml, .yml, .json file"


def test_a_file_that_is_no_yaml_is_refused(tmp_path):
    (tmp_path / "a.yaml").write_text("a: [")
    with pytest.raises(errors.Fatal, match="cannot be read"):
        manifests.load([tmp_path])


# steps


def in_step(name, step=None):
    body = config_map(name)
    if step is not None:
        body["metadata"]["annotations"] = {manifests.STEP_ANNOTATION: step}
    return body


def test_objects_come_in_the_steps_of_their_annotations_and_in_order_within_each():
    objects = [in_step("a", "10"), in_step("b"), in_step("c", "2"), in_step("d", "1")]
    assert [names(step) for step in manifests.steps(objects)] == [["b", "d"], ["c"], ["a"]]
    assert manifests.steps([]) == ()


def test_an_object_without_annotations_is_in_the_first_step():
    body = config_map("a")
    body["metadata"]["annotations"] = None
    assert manifests.steps([body]) == ((body,),)


@pytest.mark.parametrize("step", ["0", "-1", "", "two", "1.5", " 2", "02"])
def test_a_step_that_is_no_whole_number_is_refused(step):
    with pytest.raises(errors.Rejected) as refused:
        manifests.steps([in_step("a"), in_step("b", step)])
    assert str(refused.value) == (
        f'ConfigMap b: annotation demo.dra-driver/step: {step!r}; write a whole number from "1" on'
    )


# apply


@pytest.fixture(scope="module")
def api():
    with tempfile.TemporaryDirectory() as directory:
        made = served_api.ServedApi(pathlib.Path(directory))
        yield made
        made.close()


def stored(api, name, namespace="default"):
    return api.client.get(served_api.CONFIG_MAPS, name, namespace)["data"]


def test_objects_come_into_their_namespaces(api):
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}}
    manifests.apply(
        api.client, [namespace, config_map("one", "team", a="1"), config_map("one", a="2")]
    )
    assert stored(api, "one", "team") == {"a": "1"}
    assert stored(api, "one") == {"a": "2"}


def test_objects_of_any_group_and_without_a_namespace_are_created(api):
    expression = "device.driver == 'gpu.nvidia.com'"
    device_class = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": "fast"},
        "spec": {"selectors": [{"cel": {"expression": expression}}]},
    }
    manifests.apply(api.client, [device_class])
    made = api.client.get(kube.CLASSES, "fast")
    assert made["spec"]["selectors"][0]["cel"]["expression"] == expression


def test_what_is_there_already_is_changed(api):
    manifests.apply(api.client, [config_map("again", a="1", b="1")])
    manifests.apply(api.client, [config_map("again", a="2")])
    assert stored(api, "again") == {"a": "2", "b": "1"}
    default = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}}
    manifests.apply(api.client, [default])


def test_a_kind_that_the_cluster_does_not_have_is_refused(api):
    body = {"apiVersion": "a.example/v1", "kind": "Shop", "metadata": {"name": "a"}}
    with pytest.raises(errors.Fatal) as refused:
        manifests.apply(api.client, [body])
    assert str(refused.value) == (
        'Shop a: no matches for kind "Shop" in version "a.example/v1": '
        "add its CustomResourceDefinition to the manifests"
    )
    body = {"apiVersion": "resource.k8s.io/v1", "kind": "Claim", "metadata": {"name": "a"}}
    with pytest.raises(errors.Fatal) as refused:
        manifests.apply(api.client, [body])
    assert str(refused.value).endswith(
        'no matches for kind "Claim" in version "resource.k8s.io/v1": the cluster has DeviceClass, '
        "ResourceClaim, ResourceClaimTemplate, ResourceSlice there"
    )


def test_a_kind_that_other_releases_have_is_told_with_the_first_of_them(api):
    rule = {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceTaintRule"}
    with pytest.raises(errors.Fatal) as refused:
        manifests.apply(api.client, [rule | {"metadata": {"name": "a"}}])
    assert str(refused.value).endswith(
        "ResourceSlice there; have a release that serves it: --emulate 1.37"
    )


def test_a_version_that_the_cluster_does_not_serve_is_told_with_those_that_it_does(api):
    old = {"apiVersion": "resource.k8s.io/v1beta1", "kind": "ResourceClaim"}
    with pytest.raises(errors.Fatal) as refused:
        manifests.apply(api.client, [old | {"metadata": {"name": "a"}}])
    assert str(refused.value) == (
        'ResourceClaim a: no matches for kind "ResourceClaim" in version '
        '"resource.k8s.io/v1beta1": this cluster (v1.36.2-sim) serves it in resource.k8s.io/v1; '
        "write it so (dra-driver convert does), or have a release that serves v1beta1: "
        "--emulate 1.34"
    )
    old = {"apiVersion": "batch/v1beta1", "kind": "CronJob", "metadata": {"name": "a"}}
    with pytest.raises(errors.Fatal, match=r"serves it in batch/v1; write it so \(kubectl [^,]*$"):
        manifests.apply(api.client, [old])


def test_a_namespace_that_is_not_there_is_told_with_what_to_add(api):
    body = config_map("one", "absent")
    with pytest.raises(errors.Fatal) as refused:
        manifests.apply(api.client, [body])
    assert str(refused.value) == (
        'ConfigMap absent/one: namespaces "absent" not found; add to the manifests: '
        "{apiVersion: v1, kind: Namespace, metadata: {name: absent}}"
    )


def test_what_others_need_may_come_after_them(api):
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "a", "namespace": "later"},
        "spec": {
            "priorityClassName": "urgent",
            "containers": [{"name": "main", "image": "none"}],
        },
    }
    urgent = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "value": 7}
    shop = {"apiVersion": "b.example/v1", "kind": "Shop", "metadata": {"name": "a"}}
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "later"}}
    bodies = [pod, shop, urgent | {"metadata": {"name": "urgent"}}, DEFINITION, namespace]
    manifests.apply(api.client, bodies)
    assert api.client.get(kube.PODS, "a", "later")["spec"]["priority"] == 7
    shops = kube.Resource("b.example", "v1", "shops")
    assert api.client.get(shops, "a", "default")["metadata"]["name"] == "a"


def test_a_kind_that_nobody_defines_is_defined_if_it_has_templates_of_pods(api):
    template = {"spec": {"containers": [{"name": "main", "image": "none"}]}}
    body = {
        "apiVersion": "c.example/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": "a"},
        "spec": {"roles": [{"template": template}]},
    }
    manifests.apply(api.client, [body])
    jobs = kube.Resource("c.example", "v1alpha1", "trainjobs")
    assert api.client.get(jobs, "a", "default")["spec"] == body["spec"]
    old = {"apiVersion": "batch/v1beta1", "kind": "Task", "metadata": {"name": "a"}}
    with pytest.raises(errors.Fatal, match="the cluster has nothing there"):
        manifests.apply(api.client, [old | {"spec": body["spec"]}])


DEFINITION = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "shops.b.example"},
    "spec": {
        "group": "b.example",
        "scope": "Namespaced",
        "names": {"plural": "shops", "kind": "Shop"},
        "versions": [{"name": "v1", "served": True, "storage": True}],
    },
}


def test_what_the_server_refuses_is_told_as_it_says_it(api):
    with pytest.raises(kube.ApiError) as refused:
        manifests.apply(api.client, [config_map("Not_A_Name")])
    assert "ConfigMap" in str(refused.value)
    assert "Not_A_Name" in str(refused.value)
