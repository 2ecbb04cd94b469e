import api_objects
import pytest

from dra_driver.sim.api.kinds import served_kinds
from dra_driver.sim.api.serving import discovery

GROUPS = {
    "admissionregistration.k8s.io": ["v1"],
    "apiextensions.k8s.io": ["v1"],
    "apiregistration.k8s.io": ["v1"],
    "apps": ["v1"],
    "autoscaling": ["v2", "v1"],
    "batch": ["v1"],
    "coordination.k8s.io": ["v1"],
    "discovery.k8s.io": ["v1"],
    "events.k8s.io": ["v1"],
    "networking.k8s.io": ["v1"],
    "node.k8s.io": ["v1"],
    "policy": ["v1"],
    "rbac.authorization.k8s.io": ["v1"],
    "resource.k8s.io": ["v1"],
    "scheduling.k8s.io": ["v1"],
    "storage.k8s.io": ["v1"],
}
"""Versions of each group, the preferred one first."""


def test_the_server_says_which_version_it_plays(api):
    version = api.get("/version")

    assert (version["major"], version["minor"]) == ("1", "36")
    assert version["gitVersion"] == "v1.36.2-sim"


def test_another_version_can_be_played():
    with api_objects.Api(kubernetes_version="v1.34.3") as api:
        version = api.get("/version")

    assert (version["minor"], version["gitVersion"]) == ("34", "v1.34.3")


@pytest.mark.parametrize("path", ["/healthz", "/livez", "/readyz", "/readyz/ping"])
def test_the_server_is_well(shared_api, path):
    answer = shared_api.send("GET", path)

    assert (answer.status, answer.body) == (200, "ok")


def test_groups_and_versions_are_listed(shared_api):
    assert shared_api.get("/api")["versions"] == ["v1"]
    groups = {
        group["name"]: group["preferredVersion"]["groupVersion"]
        for group in shared_api.get("/apis")["groups"]
    }

    assert groups == {name: f"{name}/{versions[0]}" for name, versions in GROUPS.items()}


def test_the_resources_of_a_version_are_listed(shared_api):
    listed = shared_api.get("/apis/resource.k8s.io/v1")

    resources = {item["name"]: item for item in listed["resources"]}
    assert listed["groupVersion"] == "resource.k8s.io/v1"
    assert set(resources) == {
        "deviceclasses",
        "resourceclaims",
        "resourceclaims/status",
        "resourceclaimtemplates",
        "resourceslices",
    }
    assert resources["resourceslices"]["namespaced"] is False
    assert resources["resourceclaims"]["kind"] == "ResourceClaim"
    assert "watch" in resources["resourceclaims"]["verbs"]
    assert resources["resourceclaims/status"]["verbs"] == ["get", "patch", "update"]


def test_the_core_group_has_short_names(shared_api):
    resources = {item["name"]: item for item in shared_api.get("/api/v1")["resources"]}

    assert resources["pods"]["shortNames"] == ["po"]
    assert resources["pods/binding"]["kind"] == "Binding"


@pytest.mark.parametrize("path", ["/apis/nobody.example", "/apis/apps/v2", "/api/v2"])
def test_what_is_not_served_is_not_described(shared_api, path):
    assert shared_api.send("GET", path).status == 404


@pytest.mark.parametrize(("path", "groups"), [("/api", [""]), ("/apis", sorted(GROUPS))])
def test_everything_can_be_described_in_one_answer(shared_api, path, groups):
    answer = shared_api.send("GET", path, headers={"accept": discovery.AGGREGATED})

    assert answer.headers["content-type"] == discovery.AGGREGATED
    assert answer.body["kind"] == "APIGroupDiscoveryList"
    assert sorted(item["metadata"]["name"] for item in answer.body["items"]) == sorted(groups)
    described = {
        (item["metadata"]["name"], version["version"], resource["resource"])
        for item in answer.body["items"]
        for version in item["versions"]
        for resource in version["resources"]
    }
    assert described == {
        (kind.group, version, kind.plural)
        for kind in served_kinds.BUILT_IN
        if kind.group in groups
        for version in GROUPS.get(kind.group, ["v1"])
        if kind.is_in(version, 36)
    }


def test_every_version_has_a_document(shared_api):
    paths = shared_api.get("/openapi/v3")["paths"]

    listed = {f"apis/{group}/{version}" for group, found in GROUPS.items() for version in found}
    assert set(paths) == {"api/v1"} | listed
    for entry in paths.values():
        assert shared_api.get(entry["serverRelativeURL"])["openapi"] == "3.0.0"


def test_a_document_has_the_fields_of_its_kinds(shared_api):
    document = shared_api.get("/openapi/v3/apis/resource.k8s.io/v1")

    schemas = document["components"]["schemas"]
    claim = schemas["io.k8s.api.resource.v1.ResourceClaim"]
    devices = claim["properties"]["spec"]["properties"]["devices"]["properties"]
    request = devices["requests"]["items"]["properties"]
    assert set(request) == {"name", "exactly", "firstAvailable"}
    assert request["exactly"]["properties"]["count"]["type"] == "integer"


def test_a_document_says_that_fields_can_be_validated(shared_api):
    paths = shared_api.get("/openapi/v3/api/v1")["paths"]
    patch = paths["/api/v1/namespaces/{namespace}/pods/{name}"]["patch"]

    assert "fieldValidation" in [parameter["name"] for parameter in patch["parameters"]]
    assert patch["x-kubernetes-group-version-kind"]["kind"] == "Pod"


@pytest.mark.parametrize("path", ["/openapi/v3/apis/apps/v2", "/openapi/v2"])
def test_a_document_that_there_is_not(shared_api, path):
    assert shared_api.send("GET", path).status == 404
