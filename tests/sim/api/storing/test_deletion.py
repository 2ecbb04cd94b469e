import api_objects
import pytest
from api_objects import CLAIMS, CLASSES, CONFIG_MAPS, NAMESPACES, NODES, PODS, SLICES, TEMPLATES


@pytest.fixture
def bound_pod(api):
    api.create(PODS, api_objects.pod())
    target = {"target": {"kind": "Node", "name": "node-1"}}
    api.create(f"{PODS}/train/binding", target)
    return api.get(f"{PODS}/train")


def test_a_deleted_object_is_gone(api):
    made = api.create(CONFIG_MAPS, api_objects.config_map())

    answer = api.delete(f"{CONFIG_MAPS}/settings")

    assert answer["status"] == "Success"
    uid = made["metadata"]["uid"]
    assert answer["details"] == {"name": "settings", "kind": "configmaps", "uid": uid}
    assert not api.exists(f"{CONFIG_MAPS}/settings")
    assert api.send("DELETE", f"{CONFIG_MAPS}/settings").status == 404


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (CLAIMS, api_objects.claim()),
        (TEMPLATES, api_objects.template()),
        (CLASSES, api_objects.device_class()),
        (SLICES, api_objects.resource_slice()),
        (PODS, api_objects.pod()),
    ],
)
def test_some_kinds_answer_a_deletion_with_the_object(api, path, body):
    api.create(path, body)

    answer = api.delete(f"{path}/{body['metadata']['name']}")

    assert answer["kind"] == body["kind"]
    assert answer["metadata"]["name"] == body["metadata"]["name"]


def test_a_finalizer_holds_an_object_until_it_is_removed(api):
    api.create(CLAIMS, api_objects.claim(finalizers=["example.com/mine"]))

    answer = api.delete(f"{CLAIMS}/mine")
    held = api.get(f"{CLAIMS}/mine")
    again = api.delete(f"{CLAIMS}/mine")
    api.patch(f"{CLAIMS}/mine", {"metadata": {"finalizers": None}})

    assert answer == held == again
    assert "deletionTimestamp" in held["metadata"]
    assert held["metadata"]["deletionGracePeriodSeconds"] == 0
    assert not api.exists(f"{CLAIMS}/mine")


def test_one_finalizer_of_two_still_holds(api):
    api.create(CLAIMS, api_objects.claim(finalizers=["example.com/a", "example.com/b"]))
    api.delete(f"{CLAIMS}/mine")

    api.patch(f"{CLAIMS}/mine", {"metadata": {"finalizers": ["example.com/b"]}})

    assert api.get(f"{CLAIMS}/mine")["metadata"]["finalizers"] == ["example.com/b"]


def test_an_object_that_is_being_deleted_gets_no_new_finalizer(api):
    api.create(CLAIMS, api_objects.claim(finalizers=["example.com/a"]))
    api.delete(f"{CLAIMS}/mine")

    answer = api.send(
        "PATCH",
        f"{CLAIMS}/mine",
        {"metadata": {"finalizers": ["example.com/a", "example.com/b"]}},
        content_type="application/merge-patch+json",
    )

    assert answer.status == 422
    assert answer.body["details"]["causes"][0]["field"] == "metadata.finalizers"


def test_a_client_cannot_undo_a_deletion(api):
    api.create(CLAIMS, api_objects.claim(finalizers=["example.com/a"]))
    deleting = api.delete(f"{CLAIMS}/mine")

    patched = api.patch(f"{CLAIMS}/mine", {"metadata": {"deletionTimestamp": None}})

    assert patched == deleting


@pytest.mark.parametrize(
    ("precondition", "word"),
    [({"uid": "of-another"}, "UID"), ({"resourceVersion": "1"}, "ResourceVersion")],
)
def test_a_precondition_that_does_not_hold_is_a_conflict(api, precondition, word):
    api.create(CONFIG_MAPS, api_objects.config_map())

    answer = api.send("DELETE", f"{CONFIG_MAPS}/settings", {"preconditions": precondition})

    assert answer.status == 409
    assert f"the {word} in the precondition" in answer.body["message"]
    assert api.exists(f"{CONFIG_MAPS}/settings")


def test_a_precondition_that_holds_lets_the_deletion_happen(api):
    metadata = api.create(CONFIG_MAPS, api_objects.config_map())["metadata"]

    preconditions = {name: metadata[name] for name in ("uid", "resourceVersion")}
    api.delete(f"{CONFIG_MAPS}/settings", {"preconditions": preconditions})

    assert not api.exists(f"{CONFIG_MAPS}/settings")


def test_a_dry_run_deletes_nothing(api):
    api.create(CONFIG_MAPS, api_objects.config_map())

    api.delete(f"{CONFIG_MAPS}/settings", {"dryRun": ["All"]})

    assert api.exists(f"{CONFIG_MAPS}/settings")


def test_a_pod_without_a_node_is_gone_at_once(api):
    api.create(PODS, api_objects.pod())

    api.delete(f"{PODS}/train")

    assert not api.exists(f"{PODS}/train")


@pytest.mark.usefixtures("bound_pod")
def test_a_pod_on_a_node_waits_for_its_kubelet(api):
    deleting = api.delete(f"{PODS}/train")
    held = api.get(f"{PODS}/train")
    api.delete(f"{PODS}/train", {"gracePeriodSeconds": 0})

    assert deleting == held
    assert held["metadata"]["deletionGracePeriodSeconds"] == 30
    assert held["metadata"]["deletionTimestamp"] > held["metadata"]["creationTimestamp"]
    assert not api.exists(f"{PODS}/train")


@pytest.mark.usefixtures("bound_pod")
def test_a_forced_deletion_removes_a_pod_at_once(api):
    api.delete(f"{PODS}/train", gracePeriodSeconds=0)

    assert not api.exists(f"{PODS}/train")


@pytest.mark.usefixtures("bound_pod")
def test_the_grace_period_can_be_shortened_but_not_extended(api):
    periods = []
    for seconds in (20, 60, 5):
        body = api.delete(f"{PODS}/train", {"gracePeriodSeconds": seconds})
        periods.append(body["metadata"]["deletionGracePeriodSeconds"])

    assert periods == [20, 20, 5]


@pytest.mark.usefixtures("bound_pod")
def test_a_finished_pod_does_not_wait(api):
    api.patch(f"{PODS}/train/status", {"status": {"phase": "Succeeded"}})

    api.delete(f"{PODS}/train")

    assert not api.exists(f"{PODS}/train")


def test_a_forced_deletion_still_waits_for_finalizers(api, bound_pod):
    finalizers = {"metadata": {"finalizers": ["example.com/a"]}}
    api.patch(f"{PODS}/{bound_pod['metadata']['name']}", finalizers)

    api.delete(f"{PODS}/train", {"gracePeriodSeconds": 0})
    held = api.get(f"{PODS}/train")
    api.patch(f"{PODS}/train", {"metadata": {"finalizers": None}})

    assert held["metadata"]["deletionGracePeriodSeconds"] == 0
    assert not api.exists(f"{PODS}/train")


def test_a_dependent_goes_with_its_owner(api):
    node = api.create(NODES, api_objects.node())
    body = api_objects.resource_slice()
    body["metadata"]["ownerReferences"] = api_objects.owned_by(node)
    api.create(SLICES, body)

    api.delete(f"{NODES}/node-1")

    assert api.names(SLICES) == []


def test_dependents_of_dependents_go_too(api):
    owner = api.create(CONFIG_MAPS, api_objects.config_map("a"))
    for name in ("b", "c"):
        body = api_objects.config_map(name)
        body["metadata"]["ownerReferences"] = api_objects.owned_by(owner)
        owner = api.create(CONFIG_MAPS, body)

    api.delete(f"{CONFIG_MAPS}/a")

    assert api.names(CONFIG_MAPS) == []


def test_a_dependent_stays_until_its_last_owner_is_gone(api):
    owners = [api.create(CONFIG_MAPS, api_objects.config_map(name)) for name in ("a", "b")]
    body = api_objects.config_map("c")
    references = [api_objects.owned_by(owner)[0] for owner in owners]
    references[1]["controller"] = False
    body["metadata"]["ownerReferences"] = references
    api.create(CONFIG_MAPS, body)

    api.delete(f"{CONFIG_MAPS}/a")
    after_the_first = api.names(CONFIG_MAPS)
    api.delete(f"{CONFIG_MAPS}/b")

    assert after_the_first == ["b", "c"]
    assert api.names(CONFIG_MAPS) == []


def test_an_object_whose_owner_never_was_is_collected(api):
    node = api.create(NODES, api_objects.node())
    node["metadata"]["uid"] = "00000000-0000-0000-0000-000000000000"
    body = api_objects.resource_slice()
    body["metadata"]["ownerReferences"] = api_objects.owned_by(node)

    api.create(SLICES, body)

    assert api.names(SLICES) == []


def test_an_owner_of_an_unknown_kind_is_taken_to_exist(api):
    body = api_objects.pod()
    owner = {"apiVersion": "example.com/v1", "kind": "Job", "metadata": {"name": "j", "uid": "u"}}
    body["metadata"]["ownerReferences"] = api_objects.owned_by(owner)

    api.create(PODS, body)

    assert api.exists(f"{PODS}/train")


def test_orphaned_dependents_stay(api):
    owner = api.create(CONFIG_MAPS, api_objects.config_map("a"))
    body = api_objects.config_map("b")
    body["metadata"]["ownerReferences"] = api_objects.owned_by(owner)
    api.create(CONFIG_MAPS, body)

    api.delete(f"{CONFIG_MAPS}/a", {"propagationPolicy": "Orphan"})

    assert "ownerReferences" not in api.get(f"{CONFIG_MAPS}/b")["metadata"]


def test_a_finalizer_holds_a_dependent_as_well(api):
    owner = api.create(PODS, api_objects.pod())
    body = api_objects.claim(finalizers=["resource.kubernetes.io/delete-protection"])
    body["metadata"]["ownerReferences"] = api_objects.owned_by(owner)
    api.create(CLAIMS, body)

    api.delete(f"{PODS}/train")

    assert "deletionTimestamp" in api.get(f"{CLAIMS}/mine")["metadata"]


def test_a_collection_is_deleted_by_its_selectors(api):
    for index in range(4):
        body = api_objects.resource_slice(f"slice-{index}", nodeName=f"node-{index % 2}")
        body["metadata"]["labels"] = {"odd": str(index % 2)}
        api.create(SLICES, body)

    listed = api.delete(SLICES, fieldSelector="spec.nodeName=node-0", labelSelector="odd=0")

    assert [item["metadata"]["name"] for item in listed["items"]] == ["slice-0", "slice-2"]
    assert api.names(SLICES) == ["slice-1", "slice-3"]


def test_a_namespace_takes_its_content_with_it(api):
    api.create(NAMESPACES, {"metadata": {"name": "team"}})
    api.create("/api/v1/namespaces/team/pods", api_objects.pod())
    api.create("/apis/resource.k8s.io/v1/namespaces/team/resourceclaims", api_objects.claim())
    api.create(CONFIG_MAPS, api_objects.config_map())

    api.delete(f"{NAMESPACES}/team")

    assert not api.exists(f"{NAMESPACES}/team")
    assert api.names("/api/v1/pods") == []
    assert api.names("/apis/resource.k8s.io/v1/resourceclaims") == []
    assert api.names("/api/v1/configmaps") == ["settings"]


def test_a_namespace_waits_for_content_that_waits(api):
    api.create(NAMESPACES, {"metadata": {"name": "team"}})
    path = "/apis/resource.k8s.io/v1/namespaces/team/resourceclaims"
    api.create(path, api_objects.claim(finalizers=["example.com/a"]))

    api.delete(f"{NAMESPACES}/team")
    waiting = api.get(f"{NAMESPACES}/team")
    refused = api.send("POST", path, api_objects.claim("late"))
    api.patch(f"{path}/mine", {"metadata": {"finalizers": None}})

    assert waiting["status"]["phase"] == "Terminating"
    assert refused.status == 403
    assert refused.body["message"] == (
        'resourceclaims.resource.k8s.io "late" is forbidden: unable to create new content in '
        "namespace team because it is being terminated"
    )
    assert not api.exists(f"{NAMESPACES}/team")
