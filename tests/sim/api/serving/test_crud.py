import re

import api_objects
import pytest
from api_objects import CLAIMS, CONFIG_MAPS, NAMESPACES, NODES, PODS, SLICES

from dra_driver.sim.api.storing import registry


def test_the_usual_namespaces_exist_from_the_start(api):
    assert api.names(NAMESPACES) == ["default", "kube-system"]


def test_a_created_object_has_what_only_the_server_can_give(api):
    made = api.create(CONFIG_MAPS, api_objects.config_map(a="1"))

    metadata = made["metadata"]
    assert re.fullmatch(r"[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}", metadata["uid"])
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", metadata["creationTimestamp"])
    assert metadata["namespace"] == "default"
    assert int(metadata["resourceVersion"]) > 0
    assert api.get(f"{CONFIG_MAPS}/settings") == made


def test_what_only_the_server_gives_is_not_taken_from_a_client(api):
    body = api_objects.config_map()
    body["metadata"] |= {
        "uid": "mine",
        "creationTimestamp": "2001-01-01T00:00:00Z",
        "deletionTimestamp": "2001-01-01T00:00:00Z",
        "generation": 7,
        "selfLink": "/x",
    }

    metadata = api.create(CONFIG_MAPS, body)["metadata"]

    assert metadata["uid"] != "mine"
    assert not metadata["creationTimestamp"].startswith("2001")
    assert not {"deletionTimestamp", "generation", "selfLink"} & set(metadata)


def test_a_generated_name_is_the_prefix_and_five_characters(api):
    body = api_objects.claim()
    body["metadata"] = {"generateName": "train-gpu-"}

    names = {api.create(CLAIMS, body)["metadata"]["name"] for _ in range(20)}

    assert len(names) == 20
    assert all(re.fullmatch(r"train-gpu-[bcdfghjklmnpqrstvwxz2456789]{5}", name) for name in names)


def test_a_generated_name_that_somebody_has_is_tried_again(api, monkeypatch):
    drawn = iter("bbbbbbbbbbccccc")
    monkeypatch.setattr(registry.secrets, "choice", lambda _alphabet: next(drawn))
    names = [
        api.create(PODS, api_objects.pod() | {"metadata": {"generateName": "x-"}})["metadata"][
            "name"
        ]
        for _ in range(2)
    ]
    assert names == ["x-bbbbb", "x-ccccc"]


def test_a_generated_name_is_no_longer_than_63(api):
    body = api_objects.claim()
    body["metadata"] = {"generateName": "x" * 80}

    assert len(api.create(CLAIMS, body)["metadata"]["name"]) == 63


def test_a_name_can_be_taken_once(api):
    api.create(CLAIMS, api_objects.claim())

    answer = api.send("POST", CLAIMS, api_objects.claim())

    assert answer.status == 409
    assert answer.body == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": 'resourceclaims.resource.k8s.io "mine" already exists',
        "reason": "AlreadyExists",
        "details": {"name": "mine", "group": "resource.k8s.io", "kind": "resourceclaims"},
        "code": 409,
    }


def test_an_object_that_is_not_there_is_not_found(api):
    answer = api.send("GET", f"{CLAIMS}/x")

    assert answer.status == 404
    assert answer.body["message"] == 'resourceclaims.resource.k8s.io "x" not found'
    assert answer.body["reason"] == "NotFound"
    assert answer.body["details"]["kind"] == "resourceclaims"


def test_an_object_of_the_core_group_is_named_without_a_group(api):
    assert api.send("GET", f"{PODS}/x").body["message"] == 'pods "x" not found'


@pytest.mark.parametrize(
    "path",
    [
        "/api/v1/unicorns",
        "/api/v2/pods",
        "/apis/resource.k8s.io/v1beta1/resourceslices",
        "/apis/nobody.example/v1/things",
        "/api/v1/namespaces/default/nodes",
        "/api/v1/pods/train",
        f"{PODS}/train/attach",
        "/nowhere",
    ],
)
def test_a_path_that_is_not_served_is_not_found(shared_api, path):
    answer = shared_api.send("GET", path)

    assert answer.status == 404
    assert answer.body["message"] == "the server could not find the requested resource"


def test_nothing_is_created_in_a_namespace_that_does_not_exist(api):
    answer = api.send("POST", "/api/v1/namespaces/nowhere/configmaps", api_objects.config_map())

    assert answer.status == 404
    assert answer.body["message"] == 'namespaces "nowhere" not found'


def test_the_namespace_of_the_object_is_that_of_the_path(api):
    body = api_objects.config_map()
    body["metadata"]["namespace"] = "kube-system"

    answer = api.send("POST", CONFIG_MAPS, body)

    assert answer.status == 400
    assert "kube-system" in answer.body["message"]


def test_an_object_that_is_not_namespaced_loses_its_namespace(api):
    body = api_objects.node()
    body["metadata"]["namespace"] = "default"

    assert "namespace" not in api.create(NODES, body)["metadata"]


def test_a_copy_of_an_object_cannot_be_created_with_its_version(api):
    made = api.create(CONFIG_MAPS, api_objects.config_map())
    made["metadata"]["name"] = "copy"

    answer = api.send("POST", CONFIG_MAPS, made)

    assert answer.status == 500
    assert "resourceVersion should not be set" in answer.body["message"]


def test_an_update_with_the_current_version_is_made(api):
    made = api.create(CONFIG_MAPS, api_objects.config_map(a="1"))

    updated = api.put(f"{CONFIG_MAPS}/settings", made | {"data": {"a": "2"}})

    assert updated["data"] == {"a": "2"}
    assert int(updated["metadata"]["resourceVersion"]) > int(made["metadata"]["resourceVersion"])
    assert updated["metadata"]["uid"] == made["metadata"]["uid"]
    assert updated["metadata"]["creationTimestamp"] == made["metadata"]["creationTimestamp"]


def test_an_update_with_a_stale_version_is_a_conflict(api):
    made = api.create(CONFIG_MAPS, api_objects.config_map(a="1"))
    api.put(f"{CONFIG_MAPS}/settings", made | {"data": {"a": "2"}})

    answer = api.send("PUT", f"{CONFIG_MAPS}/settings", made | {"data": {"a": "3"}})

    assert answer.status == 409
    assert answer.body["reason"] == "Conflict"
    assert answer.body["message"] == (
        'Operation cannot be fulfilled on configmaps "settings": the object has been modified; '
        "please apply your changes to the latest version and try again"
    )
    assert api.get(f"{CONFIG_MAPS}/settings")["data"] == {"a": "2"}


def test_an_update_without_a_version_is_made_in_any_case(api):
    api.create(CONFIG_MAPS, api_objects.config_map(a="1"))

    updated = api.put(f"{CONFIG_MAPS}/settings", api_objects.config_map(a="2"))

    assert updated["data"] == {"a": "2"}


def test_an_update_of_another_object_of_that_name_is_a_conflict(api):
    api.create(CONFIG_MAPS, api_objects.config_map())
    body = api_objects.config_map()
    body["metadata"]["uid"] = "of-an-older-one"

    answer = api.send("PUT", f"{CONFIG_MAPS}/settings", body)

    assert answer.status == 409
    assert "UID in precondition: of-an-older-one" in answer.body["message"]


def test_an_update_does_not_create(api):
    answer = api.send("PUT", f"{CONFIG_MAPS}/settings", api_objects.config_map())

    assert answer.status == 404


def test_the_name_in_the_object_is_that_in_the_path(api):
    api.create(CONFIG_MAPS, api_objects.config_map())

    answer = api.send("PUT", f"{CONFIG_MAPS}/settings", api_objects.config_map("other"))

    assert answer.status == 400
    assert answer.body["message"] == (
        "the name of the object (other) does not match the name on the URL (settings)"
    )


def test_a_write_that_changes_nothing_raises_no_version(api):
    made = api.create(SLICES, api_objects.resource_slice())

    again = api.put(f"{SLICES}/node-1-gpus", made)
    patched = api.patch(f"{SLICES}/node-1-gpus", {"spec": {"nodeName": "node-1"}})

    assert again == patched == made


def test_the_generation_counts_changes_of_the_spec_alone(api):
    made = api.create(SLICES, api_objects.resource_slice())
    labelled = api.patch(f"{SLICES}/node-1-gpus", {"metadata": {"labels": {"a": "b"}}})
    changed = api.patch(f"{SLICES}/node-1-gpus", {"spec": {"pool": {"generation": 2}}})

    generations = [body["metadata"]["generation"] for body in (made, labelled, changed)]

    assert generations == [1, 1, 2]


def test_a_client_cannot_set_the_generation(api):
    made = api.create(SLICES, api_objects.resource_slice())
    made["metadata"]["generation"] = 9

    assert api.put(f"{SLICES}/node-1-gpus", made)["metadata"]["generation"] == 1


def test_a_list_is_sorted_and_has_the_version_of_the_last_write(api):
    for name in ("b", "c", "a"):
        last = api.create(CONFIG_MAPS, api_objects.config_map(name))

    listed = api.get(CONFIG_MAPS)

    assert listed["kind"] == "ConfigMapList"
    assert listed["apiVersion"] == "v1"
    assert [item["metadata"]["name"] for item in listed["items"]] == ["a", "b", "c"]
    assert listed["metadata"]["resourceVersion"] == last["metadata"]["resourceVersion"]


def test_a_list_across_namespaces_has_all_of_them(api):
    api.create(CONFIG_MAPS, api_objects.config_map("here"))
    api.create("/api/v1/namespaces/kube-system/configmaps", api_objects.config_map("there"))

    assert api.names("/api/v1/configmaps") == ["here", "there"]
    assert api.names(CONFIG_MAPS) == ["here"]


def test_a_list_can_be_read_in_pages(api):
    for index in range(5):
        api.create(CONFIG_MAPS, api_objects.config_map(f"n{index}"))

    pages, position = [], ""
    while True:
        page = api.get(CONFIG_MAPS, limit=2, **({"continue": position} if position else {}))
        pages.append([item["metadata"]["name"] for item in page["items"]])
        position = page["metadata"].get("continue", "")
        if not position:
            break

    assert pages == [["n0", "n1"], ["n2", "n3"], ["n4"]]


def test_a_list_at_a_version_that_has_not_come_yet_times_out(api):
    answer = api.send("GET", CONFIG_MAPS, resourceVersion=str(10**15))

    assert answer.status == 504
    assert answer.body["details"]["causes"][0]["reason"] == "ResourceVersionTooLarge"


def test_a_dry_run_shows_what_would_be_and_does_nothing(api):
    shown = api.create(CLAIMS, api_objects.claim(), dryRun="All")

    assert shown["spec"]["devices"]["requests"][0]["exactly"]["count"] == 1
    assert not api.exists(f"{CLAIMS}/mine")


def test_a_dry_run_of_an_update_does_nothing(api):
    made = api.create(CONFIG_MAPS, api_objects.config_map(a="1"))

    shown = api.put(f"{CONFIG_MAPS}/settings", made | {"data": {"a": "2"}}, dryRun="All")

    assert shown["data"] == {"a": "2"}
    assert api.get(f"{CONFIG_MAPS}/settings") == made


def test_a_body_that_is_no_json_is_refused(api):
    answer = api.send("POST", CONFIG_MAPS, "no object")

    assert answer.status == 400


def test_a_body_in_another_format_is_refused(api):
    answer = api.send(
        "POST",
        CONFIG_MAPS,
        api_objects.config_map(),
        content_type="application/yaml",
    )

    assert answer.status == 415
    assert answer.body["reason"] == "UnsupportedMediaType"


def test_a_body_above_3_mib_is_refused(api):
    answer = api.send("POST", CONFIG_MAPS, api_objects.config_map(a="x" * 3 * 1024 * 1024))

    assert answer.status == 413
    assert answer.body["reason"] == "RequestEntityTooLarge"


def test_the_largest_slice_fits(api):
    attributes = {f"example.com/{'a' * 30}{i:02}": {"string": "x" * 64} for i in range(32)}
    devices = [api_objects.device(f"{'d' * 60}{i:03}", attributes=attributes) for i in range(128)]

    made = api.create(SLICES, api_objects.resource_slice("large", *devices))

    assert len(made["spec"]["devices"]) == 128


def test_options_of_a_deletion_are_an_object(api):
    api.create(CONFIG_MAPS, api_objects.config_map())

    assert api.send("DELETE", f"{CONFIG_MAPS}/settings", []).status == 400


def test_an_object_of_another_kind_is_refused(api):
    answer = api.send("POST", CONFIG_MAPS, api_objects.pod())

    assert answer.status == 400
    assert "ConfigMap" in answer.body["message"]


def test_an_object_of_another_version_is_refused(api):
    body = api_objects.claim() | {"apiVersion": "resource.k8s.io/v1beta1"}

    answer = api.send("POST", CLAIMS, body)

    assert answer.status == 400
    assert "resource.k8s.io/v1beta1" in answer.body["message"]


@pytest.mark.parametrize(("method", "path"), [("PUT", CONFIG_MAPS), ("PATCH", CONFIG_MAPS)])
def test_a_collection_cannot_be_replaced(shared_api, method, path):
    assert shared_api.send(method, path, {}).status == 405
