"""CustomResourceDefinitions make kinds known, and take them away, over HTTP."""

import pytest
from api_objects import changed

from dra_driver.sim.api.kinds import served_kinds
from dra_driver.sim.api.serving import discovery, server

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
GROUP = "/apis/shop.example"
SHOPS = f"{GROUP}/v1/namespaces/default/shops"


def definition(*versions, scope="Namespaced", **names):
    listed = [
        {"name": name, "served": True, "storage": place == 0, "subresources": {"status": {}}}
        for place, name in enumerate(versions or ("v1",))
    ]
    return {
        "metadata": {"name": "shops.shop.example"},
        "spec": {
            "group": "shop.example",
            "scope": scope,
            "names": {"plural": "shops", "kind": "Shop"} | names,
            "versions": listed,
        },
    }


def shop(name="a", **spec):
    return {"metadata": {"name": name}, "spec": spec}


def test_its_kind_is_served_from_then_on(api):
    assert api.send("GET", SHOPS).status == 404
    made = api.create(DEFINITIONS, definition(shortNames=["sh"], categories=["all"]))
    assert {item["type"]: item["status"] for item in made["status"]["conditions"]} == {
        "NamesAccepted": "True", "Established": "True",
    }  # fmt: skip
    assert made["status"]["acceptedNames"]["singular"] == "shop"
    body = api.create(SHOPS, shop(open=True))
    assert (body["apiVersion"], body["kind"], body["spec"]) == (
        "shop.example/v1", "Shop", {"open": True},
    )  # fmt: skip
    assert body["metadata"]["generation"] == 1
    api.patch(f"{SHOPS}/a/status", {"status": {"sold": 1}})
    assert api.patch(f"{SHOPS}/a", {"spec": {"open": False}})["status"] == {"sold": 1}


def test_discovery_tells_of_it(api):
    api.create(DEFINITIONS, definition(shortNames=["sh"]))
    groups = {item["name"]: item for item in api.get("/apis")["groups"]}
    assert groups["shop.example"]["preferredVersion"]["version"] == "v1"
    listed = {item["name"]: item for item in api.get(f"{GROUP}/v1")["resources"]}
    assert listed["shops"]["shortNames"] == ["sh"]
    assert set(listed) == {"shops", "shops/status"}
    every = api.send("GET", "/apis", headers={"accept": discovery.AGGREGATED}).body
    assert "shop.example" in {item["metadata"]["name"] for item in every["items"]}
    assert "apis/shop.example/v1" in api.get("/openapi/v3")["paths"]
    api.get("/openapi/v3/apis/shop.example/v1")


def test_one_server_knows_nothing_of_the_kinds_of_another(api, shared_api):
    api.create(DEFINITIONS, definition())
    assert shared_api.send("GET", GROUP).status == 404


def test_an_object_is_read_in_each_version(api):
    api.create(DEFINITIONS, definition("v1", "v2", "v1beta1", "v2alpha1"))
    api.create(SHOPS, shop(open=True))
    beta = api.get(SHOPS.replace("v1", "v1beta1") + "/a")
    assert (beta["apiVersion"], beta["spec"]) == ("shop.example/v1beta1", {"open": True})
    listed = [item["version"] for item in api.get(GROUP)["versions"]]
    assert listed == ["v2", "v1", "v1beta1", "v2alpha1"]


def test_cluster_scoped_kinds_have_no_namespace(api):
    api.create(DEFINITIONS, definition(scope="Cluster"))
    assert "namespace" not in api.create(f"{GROUP}/v1/shops", shop())["metadata"]
    assert api.send("POST", SHOPS, shop()).status == 404


def test_objects_go_with_their_definition_and_take_what_they_own_along(api):
    api.create(DEFINITIONS, definition())
    owner = api.create(SHOPS, shop())
    reference = {name: owner[name] for name in ("apiVersion", "kind")}
    reference |= {name: owner["metadata"][name] for name in ("name", "uid")}
    configs = "/api/v1/namespaces/default/configmaps"
    api.create(configs, {"metadata": {"name": "owned", "ownerReferences": [reference]}})
    api.delete(f"{DEFINITIONS}/shops.shop.example")
    assert api.send("GET", GROUP).status == 404
    assert api.names(configs) == []
    # A controller that has not heard of it yet.
    api.create(configs, {"metadata": {"name": "late", "ownerReferences": [reference]}})
    assert api.names(configs) == []
    api.create(DEFINITIONS, definition())
    assert api.names(SHOPS) == []


def test_a_version_that_is_served_no_longer_is_gone(api):
    made = api.create(DEFINITIONS, definition("v1", "v1beta1"))
    made["spec"]["versions"][1]["served"] = False
    api.put(f"{DEFINITIONS}/shops.shop.example", made)
    assert api.send("GET", f"{GROUP}/v1beta1").status == 404
    assert api.send("GET", f"{GROUP}/v1").status == 200


@pytest.mark.parametrize(
    ("path", "value", "cause"),
    [
        ("metadata.name", "shop.shop.example",
         ('metadata.name: Invalid value: "shop.shop.example": '
         'must be spec.names.plural+"."+spec.group')),
        ("spec.group", None, "spec.group: Required value"),
        ("spec.names.kind", None, "spec.names.kind: Required value"),
        ("spec.scope", "Global",
         'spec.scope: Unsupported value: "Global": supported values: "Cluster", "Namespaced"'),
        ("spec.versions", [], "spec.versions: Required value"),
        ("spec.versions.0.name", None, "spec.versions[0].name: Required value"),
        ("spec.versions.0.storage", False, "must have exactly one version marked as storage"),
        ("spec.versions.0.served", False, "must have at least one version marked as served"),
    ],
)  # fmt: skip
def test_a_definition_that_cannot_be_is_refused(api, path, value, cause):
    answer = api.send("POST", DEFINITIONS, changed(definition(), path, value))
    assert answer.status == 422
    assert any(cause in found for found in answer.causes), answer.causes
    assert api.send("GET", GROUP).status == 404


def test_no_kind_of_kubernetes_is_defined_again(api):
    body = definition(plural="jobs", kind="Job")
    body["metadata"]["name"], body["spec"]["group"] = "jobs.batch", "batch"
    answer = api.send("POST", DEFINITIONS, body)
    assert [cause.partition(":")[0] for cause in answer.causes] == [
        "spec.names.plural", "spec.names.kind",
    ]  # fmt: skip


def test_group_and_scope_stay(api):
    made = api.create(DEFINITIONS, definition())
    answer = api.send("PUT", f"{DEFINITIONS}/{made['metadata']['name']}",
                      changed(made, "spec.scope", "Cluster"))  # fmt: skip
    assert answer.causes == ['spec.scope: Invalid value: "Cluster": field is immutable']


def test_versions_sort_as_kubernetes_sorts_them():
    versions = ["v1beta1", "foo10", "v2", "v1alpha2", "v11alpha1", "v1", "v10beta3", "v3beta1"]
    assert sorted(versions, key=served_kinds.age, reverse=True) == [
        "v2", "v1", "v10beta3", "v3beta1", "v1beta1", "v11alpha1", "v1alpha2", "foo10",
    ]  # fmt: skip


def test_a_server_that_has_what_another_had_serves_the_kinds_of_its_definitions():
    first, second = server.ApiServer(), server.ApiServer()
    crd = next(kind for kind in served_kinds.BUILT_IN if kind.plural == "customresourcedefinitions")
    first.registry.create(crd, "", definition())
    second.registry.restore(first.store.contents())
    kind = second.registry.table.find("shop.example", "shops")
    assert (kind.kind, kind.versions) == ("Shop", ("v1",))
