import copy

import api_objects
import hypothesis
import pytest
from api_objects import CLAIMS, CONFIG_MAPS, NODES, PODS
from hypothesis import strategies as st

from dra_driver.sim.api.kinds import problems
from dra_driver.sim.api.storing import applying, patching

JSON = st.recursive(
    st.booleans() | st.integers() | st.text(max_size=3),
    lambda below: st.lists(below, max_size=3) | st.dictionaries(st.text(max_size=2), below),
    max_leaves=8,
)
OBJECTS = st.dictionaries(st.text(max_size=2), JSON, max_size=4)


def merge_patch_between(old, new):
    """The merge patch that makes `new` of `old`, as a client would compute it."""
    patch = dict.fromkeys(set(old) - set(new))
    for key, value in new.items():
        if key not in old:
            patch[key] = value
        elif isinstance(old[key], dict) and isinstance(value, dict):
            patch[key] = merge_patch_between(old[key], value)
        elif old[key] != value or type(old[key]) is not type(value):
            patch[key] = value
    return patch


@hypothesis.given(OBJECTS, OBJECTS)
def test_the_merge_patch_between_two_objects_makes_the_second_of_the_first(old, new):
    before = copy.deepcopy(old)

    assert patching.merge_patch(old, merge_patch_between(old, new)) == new
    assert old == before


@pytest.mark.parametrize(
    ("document", "patch", "expected"),
    [
        ({"a": 1}, [{"op": "add", "path": "/b", "value": 2}], {"a": 1, "b": 2}),
        ({"a": [1, 3]}, [{"op": "add", "path": "/a/1", "value": 2}], {"a": [1, 2, 3]}),
        ({"a": [1]}, [{"op": "add", "path": "/a/-", "value": 2}], {"a": [1, 2]}),
        ({"a": {"b/c": 1}}, [{"op": "remove", "path": "/a/b~1c"}], {"a": {}}),
        ({"a~": 1}, [{"op": "replace", "path": "/a~0", "value": 2}], {"a~": 2}),
        ({"a": 1}, [{"op": "move", "from": "/a", "path": "/b"}], {"b": 1}),
        ({"a": [1]}, [{"op": "copy", "from": "/a", "path": "/b"}], {"a": [1], "b": [1]}),
        ({"a": 1}, [{"op": "test", "path": "/a", "value": 1}], {"a": 1}),
        ({"a": 1}, [{"op": "replace", "path": "", "value": {"b": 1}}], {"b": 1}),
    ],
)
def test_json_patch_operations(document, patch, expected):
    assert patching.json_patch(document, patch) == expected


@pytest.mark.parametrize(
    "patch",
    [
        [{"op": "test", "path": "/a", "value": 2}],
        [{"op": "remove", "path": "/b"}],
        [{"op": "replace", "path": "/b", "value": 1}],
        [{"op": "add", "path": "/b/c", "value": 1}],
        [{"op": "add", "path": "a", "value": 1}],
        [{"op": "add", "path": "/l/9", "value": 1}],
        [{"op": "jump", "path": "/a"}],
        [{"path": "/a"}],
        [{"op": "replace", "path": "", "value": 1}],
    ],
)
def test_a_json_patch_that_cannot_be_applied_is_refused(patch):
    with pytest.raises(problems.ApiError) as caught:
        patching.json_patch({"a": 1, "l": []}, patch)

    assert caught.value.problem.code == 422


CONTAINERS = {"containers": [{"name": "a", "image": "x", "env": [{"name": "E", "value": "1"}]}]}


@pytest.mark.parametrize(
    ("current", "patch", "expected"),
    [
        pytest.param(
            CONTAINERS,
            {"containers": [{"name": "a", "image": "y"}]},
            {"containers": [{"name": "a", "image": "y", "env": [{"name": "E", "value": "1"}]}]},
            id="an entry with the same key is merged",
        ),
        pytest.param(
            CONTAINERS,
            {"containers": [{"name": "b", "image": "z"}]},
            {"containers": [*CONTAINERS["containers"], {"name": "b", "image": "z"}]},
            id="an entry with a new key is added",
        ),
        pytest.param(
            {"containers": [{"name": "a"}, {"name": "b"}]},
            {"containers": [{"name": "a", "$patch": "delete"}]},
            {"containers": [{"name": "b"}]},
            id="an entry is deleted by its key",
        ),
        pytest.param(
            {"containers": [{"name": "a"}, {"name": "b"}]},
            {"containers": [{"$patch": "replace"}, {"name": "c"}]},
            {"containers": [{"name": "c"}]},
            id="a list is replaced on demand",
        ),
        pytest.param(
            {"containers": [{"name": "a"}, {"name": "b"}]},
            {
                "$setElementOrder/containers": [{"name": "c"}, {"name": "b"}, {"name": "a"}],
                "containers": [{"name": "c"}],
            },
            {"containers": [{"name": "c"}, {"name": "b"}, {"name": "a"}]},
            id="entries are put in the order that is asked for",
        ),
        pytest.param(
            {"metadata": {"finalizers": ["x/a", "x/b"]}},
            {"metadata": {"finalizers": ["x/c"]}},
            {"metadata": {"finalizers": ["x/a", "x/b", "x/c"]}},
            id="finalizers are added",
        ),
        pytest.param(
            {"metadata": {"finalizers": ["x/a", "x/b"]}},
            {"metadata": {"$deleteFromPrimitiveList/finalizers": ["x/a"]}},
            {"metadata": {"finalizers": ["x/b"]}},
            id="finalizers are deleted by value",
        ),
        pytest.param(
            {"volumes": [{"name": "v", "emptyDir": {}}]},
            {"volumes": [{"$retainKeys": ["name", "hostPath"], "name": "v", "hostPath": {}}]},
            {"volumes": [{"name": "v", "hostPath": {}}]},
            id="fields that are not retained go",
        ),
        pytest.param(
            {"webhooks": [{"name": "w", "clientConfig": {"caBundle": "YQ==", "url": "x"}}]},
            {"webhooks": [{"name": "w", "clientConfig": {"url": "y"}}]},
            {"webhooks": [{"name": "w", "clientConfig": {"caBundle": "YQ==", "url": "y"}}]},
            id="what a webhook has besides stays",
        ),
        pytest.param(
            {"requests": [{"name": "a"}]},
            {"requests": [{"name": "b"}]},
            {"requests": [{"name": "b"}]},
            id="a list without a known key is replaced",
        ),
        pytest.param(
            {"a": {"b": 1, "c": 2}}, {"a": {"b": None}}, {"a": {"c": 2}}, id="null deletes"
        ),
        pytest.param({"a": {"b": 1}}, {"a": {"$patch": "delete"}}, {}, id="an object is deleted"),
        pytest.param(
            {"a": {"b": 1}},
            {"a": {"$patch": "replace", "c": 1}},
            {"a": {"c": 1}},
            id="an object is replaced",
        ),
    ],
)
def test_strategic_merge(current, patch, expected):
    before = copy.deepcopy(current)

    assert patching.strategic_merge(current, patch) == expected
    assert current == before


def test_conditions_are_merged_by_their_type(api):
    api.create(NODES, api_objects.node())
    for kind in ("Ready", "DiskPressure"):
        condition = {"type": kind, "status": "True"}
        patch = {"status": {"conditions": [condition]}}
        api.patch(f"{NODES}/node-1/status", patch, "strategic-merge-patch+json")

    conditions = api.get(f"{NODES}/node-1")["status"]["conditions"]

    assert [item["type"] for item in conditions] == ["Ready", "DiskPressure"]


def test_reservations_are_merged_by_their_uid(api):
    api.create(CLAIMS, api_objects.claim())
    status = {"allocation": api_objects.allocation()}
    api.patch(f"{CLAIMS}/mine/status", {"status": status})
    for uid in ("u1", "u2"):
        consumer = {"resource": "pods", "name": "p", "uid": uid}
        patch = {"status": {"reservedFor": [consumer]}}
        api.patch(f"{CLAIMS}/mine/status", patch, "strategic-merge-patch+json")

    reserved = api.get(f"{CLAIMS}/mine")["status"]["reservedFor"]

    assert [item["uid"] for item in reserved] == ["u1", "u2"]


def test_a_json_patch_is_applied_to_the_object(api):
    api.create(CONFIG_MAPS, api_objects.config_map(a="1"))

    patched = api.patch(
        f"{CONFIG_MAPS}/settings",
        [{"op": "replace", "path": "/data/a", "value": "2"}],
        "json-patch+json",
    )

    assert patched["data"] == {"a": "2"}


def test_a_json_patch_whose_test_fails_changes_nothing(api):
    made = api.create(CONFIG_MAPS, api_objects.config_map(a="1"))
    operations = [
        {"op": "replace", "path": "/data/a", "value": "2"},
        {"op": "test", "path": "/metadata/uid", "value": "another"},
    ]

    answer = api.send(
        "PATCH",
        f"{CONFIG_MAPS}/settings",
        operations,
        content_type="application/json-patch+json",
    )

    assert answer.status == 422
    assert answer.body["reason"] == "Invalid"
    assert api.get(f"{CONFIG_MAPS}/settings") == made


def test_a_patch_with_a_stale_version_is_a_conflict(api):
    made = api.create(CONFIG_MAPS, api_objects.config_map(a="1"))
    api.patch(f"{CONFIG_MAPS}/settings", {"data": {"a": "2"}})
    version = made["metadata"]["resourceVersion"]

    answer = api.send(
        "PATCH",
        f"{CONFIG_MAPS}/settings",
        {"metadata": {"resourceVersion": version}, "data": {"a": "3"}},
        content_type="application/merge-patch+json",
    )

    assert answer.status == 409


def test_an_unknown_patch_format_is_refused(api):
    api.create(CONFIG_MAPS, api_objects.config_map())

    answer = api.send("PATCH", f"{CONFIG_MAPS}/settings", {}, content_type="application/json")

    assert answer.status == 415
    assert "application/merge-patch+json" in answer.body["message"]


def applied(api, path, body, manager="me"):
    return api.patch(path, body, "apply-patch+yaml", fieldManager=manager, force="true")


def test_an_applied_object_is_created(api):
    body = applied(api, f"{CONFIG_MAPS}/settings", api_objects.config_map(a="1"))

    assert body["data"] == {"a": "1"}
    [entry] = body["metadata"]["managedFields"]
    assert entry["manager"] == "me"
    assert entry["operation"] == "Apply"
    assert entry["fieldsV1"] == {"f:data": {"f:a": {}}}


def test_what_is_no_longer_applied_is_removed(api):
    path = f"{CONFIG_MAPS}/settings"
    applied(api, path, api_objects.config_map(a="1", b="2"))

    assert applied(api, path, api_objects.config_map(b="2"))["data"] == {"b": "2"}


def test_what_others_set_stays(api):
    path = f"{CONFIG_MAPS}/settings"
    applied(api, path, api_objects.config_map(a="1"))
    api.patch(path, {"data": {"c": "3"}})
    applied(api, path, api_objects.config_map(a="1", b="2"), manager="other")

    body = applied(api, path, api_objects.config_map())

    assert body["data"] == {"a": "1", "b": "2", "c": "3"}
    assert applied(api, path, api_objects.config_map(), manager="other")["data"] == {"c": "3"}


def test_applying_the_same_again_changes_nothing(api):
    path = f"{PODS}/train"
    first = applied(api, path, api_objects.pod())

    assert applied(api, path, api_objects.pod()) == first


def test_applied_lists_are_merged_by_their_keys(api):
    body = api_objects.pod()
    api.create(PODS, body)
    body["spec"]["containers"][0]["image"] = "busybox:2"

    patched = applied(api, f"{PODS}/train", body)

    [container] = patched["spec"]["containers"]
    assert container["image"] == "busybox:2"
    assert container["terminationMessagePolicy"] == "File"


def test_a_list_entry_that_is_no_longer_applied_is_removed(api):
    path = f"{CONFIG_MAPS}/settings"
    body = api_objects.config_map()
    body["metadata"]["finalizers"] = ["example.com/a", "example.com/b"]
    applied(api, path, body)
    body["metadata"]["finalizers"] = ["example.com/b"]

    assert applied(api, path, body)["metadata"]["finalizers"] == ["example.com/b"]


def test_apply_needs_a_manager(api):
    answer = api.send(
        "PATCH",
        f"{CONFIG_MAPS}/settings",
        api_objects.config_map(),
        content_type="application/apply-patch+yaml",
    )

    assert answer.status == 400
    assert "fieldManager" in answer.body["message"]


def test_a_status_can_be_applied(api):
    api.create(CLAIMS, api_objects.claim())
    body = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "mine"},
        "status": {"allocation": api_objects.allocation()},
    }

    patched = applied(api, f"{CLAIMS}/mine/status", body)

    assert patched["status"]["allocation"] == api_objects.allocation()


def test_an_entry_of_a_manager_keeps_its_time_while_it_stays_the_same():
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"x": "1"}}

    first = applying.apply({"metadata": {}}, body, manager="me", subresource="", now="early")
    again = applying.apply(first, body, manager="me", subresource="", now="late")
    more = body | {"data": {"x": "1", "y": "2"}}
    changed = applying.apply(first, more, manager="me", subresource="", now="late")

    assert again == first
    assert [entry["time"] for entry in changed["metadata"]["managedFields"]] == ["late"]
