"""The same objects in the versions of the API, and what becomes of fields that do not exist."""

import copy

import api_objects
import hypothesis
import pytest
from api_objects import CLAIMS, CONFIG_MAPS, SLICES, claim, device, resource_slice
from hypothesis import strategies as st

from dra_driver import errors
from dra_driver.sim.api.kinds import conversion, kinds

ALL = ("v1", "v1beta2", "v1beta1")
CLAIM = kinds.find("resource.k8s.io", "resourceclaims")
SLICE = kinds.find("resource.k8s.io", "resourceslices")

OLD_CLAIM = {
    "apiVersion": "resource.k8s.io/v1beta1",
    "kind": "ResourceClaim",
    "metadata": {"name": "mine"},
    "spec": {
        "devices": {
            "requests": [
                {"name": "gpu", "deviceClassName": "c", "count": 2},
                {"name": "any", "firstAvailable": [{"name": "a", "deviceClassName": "c"}]},
            ]
        }
    },
}


def old(path):
    return path.replace("/v1/", "/v1beta1/")


@pytest.fixture(scope="module")
def versions():
    with api_objects.Api(resource_versions=ALL) as running:
        yield running


def test_an_old_claim_is_the_new_one_in_other_words(versions):
    made = versions.create(old(CLAIMS), OLD_CLAIM)
    new = versions.get(f"{CLAIMS}/mine")

    requests = new["spec"]["devices"]["requests"]
    count = {"allocationMode": "ExactCount", "count": 1}
    assert new["apiVersion"] == "resource.k8s.io/v1"
    assert requests[0] == {
        "name": "gpu",
        "exactly": {"deviceClassName": "c", "allocationMode": "ExactCount", "count": 2},
    }
    assert requests[1]["firstAvailable"] == [{"name": "a", "deviceClassName": "c", **count}]
    assert made["apiVersion"] == "resource.k8s.io/v1beta1"
    assert made["spec"]["devices"]["requests"][0]["count"] == 2
    assert versions.get(f"{old(CLAIMS)}/mine") == made
    assert made["metadata"] == new["metadata"]


def test_an_old_slice_is_the_new_one_in_other_words(versions):
    new = versions.create(SLICES, resource_slice("s", device(taints=[])))

    shown = versions.get(f"{old(SLICES)}/s")

    assert shown["spec"]["devices"] == [
        {"name": "gpu-0", "basic": {"attributes": {"model": {"string": "H100"}}}}
    ]
    shown["spec"]["devices"][0]["basic"]["attributes"]["model"] = {"string": "T4"}
    versions.put(f"{old(SLICES)}/s", shown)
    changed = versions.get(f"{SLICES}/s")
    assert changed["spec"]["devices"] == [device(attributes={"model": {"string": "T4"}})]
    assert changed["metadata"]["generation"] == new["metadata"]["generation"] + 1


def test_the_middle_version_is_like_the_newest(versions):
    body = claim("beta2") | {"apiVersion": "resource.k8s.io/v1beta2"}

    made = versions.create(CLAIMS.replace("/v1/", "/v1beta2/"), body)

    assert versions.get(f"{CLAIMS}/beta2")["spec"] == made["spec"]


def test_an_old_object_can_be_patched_in_its_own_words(versions):
    body = copy.deepcopy(OLD_CLAIM)
    body["metadata"] = {"name": "patched"}
    versions.create(old(CLAIMS), body)
    patch = [{"op": "add", "path": "/metadata/labels", "value": {"a": "b"}}]

    patched = versions.patch(f"{old(CLAIMS)}/patched", patch, "json-patch+json")

    assert patched["metadata"]["labels"] == {"a": "b"}
    assert patched["spec"]["devices"]["requests"][0]["deviceClassName"] == "c"


def test_a_watch_speaks_the_version_that_was_asked_for(versions):
    version = versions.get(SLICES)["metadata"]["resourceVersion"]
    with versions.watch(old(SLICES), resourceVersion=version) as watched:
        versions.create(SLICES, resource_slice("watched"))
        body = watched.next()["object"]

    assert body["apiVersion"] == "resource.k8s.io/v1beta1"
    assert "basic" in body["spec"]["devices"][0]


@pytest.mark.parametrize("version", ALL)
def test_only_the_versions_that_are_wanted_are_served(version):
    with api_objects.Api(resource_versions=(version,)) as api:
        served = {name: api.exists(SLICES.replace("/v1/", f"/{name}/")) for name in ALL}
        group = api.get("/apis/resource.k8s.io")

    assert served == {name: name == version for name in ALL}
    assert [item["version"] for item in group["versions"]] == [version]
    assert group["preferredVersion"]["version"] == version


@pytest.mark.parametrize("wanted", [(), ("v2",), ("v1", "v1alpha3")])
def test_a_version_that_does_not_exist_is_refused(wanted):
    with pytest.raises(errors.Rejected, match="resource_versions"):
        api_objects.Api(resource_versions=wanted)


NAMES = st.sampled_from(["a", "b", "c"])
FIELDS = st.fixed_dictionaries({}, optional={"count": st.integers(1, 3), "selectors": st.just([])})
REQUESTS = st.lists(
    st.builds(lambda name, fields: {"name": name, "exactly": {"deviceClassName": "c", **fields}},
              NAMES, FIELDS)
    | st.builds(lambda name, below: {"name": name, "firstAvailable": below},
                NAMES, st.lists(st.just({"name": "s", "deviceClassName": "c"}), min_size=1)),
    max_size=4,
)  # fmt: skip
DEVICES = st.lists(
    st.builds(lambda name, fields: {"name": name, **fields}, NAMES,
              st.fixed_dictionaries({}, optional={"attributes": st.just({"a": {"int": 1}}),
                                                  "allNodes": st.booleans()})),
    max_size=3,
)  # fmt: skip


@hypothesis.given(REQUESTS)
def test_a_claim_survives_the_way_through_the_old_version(requests):
    body = claim(spec={"devices": {"requests": requests}})
    before = copy.deepcopy(body)

    shown = conversion.from_stored(CLAIM, "v1beta1", body)

    assert body == before
    assert conversion.to_stored(CLAIM, "v1beta1", copy.deepcopy(shown)) == body


@hypothesis.given(DEVICES)
def test_a_slice_survives_the_way_through_the_old_version(devices):
    body = resource_slice("s", devices=devices)

    shown = conversion.from_stored(SLICE, "v1beta1", body)

    assert conversion.to_stored(SLICE, "v1beta1", copy.deepcopy(shown)) == body


UNKNOWN = api_objects.changed(claim(), "spec.devices.requests.0.exactly.colour", "red")
MESSAGE = 'unknown field "spec.devices.requests[0].exactly.colour"'


def test_an_unknown_field_is_refused_on_demand(api):
    answer = api.send("POST", CLAIMS, UNKNOWN, fieldValidation="Strict")

    assert answer.status == 400
    assert answer.body["message"] == (
        'ResourceClaim in version "v1" cannot be handled as a ResourceClaim: '
        f"strict decoding error: {MESSAGE}"
    )


@pytest.mark.parametrize("query", [{}, {"fieldValidation": "Warn"}])
def test_an_unknown_field_is_dropped_with_a_warning(api, query):
    answer = api.send("POST", CLAIMS, UNKNOWN, **query)

    assert answer.status == 201
    assert "colour" not in answer.body["spec"]["devices"]["requests"][0]["exactly"]
    assert MESSAGE in answer.headers["warning"].replace("\\", "")


def test_an_unknown_field_can_be_dropped_without_a_word(api):
    answer = api.send("POST", CLAIMS, UNKNOWN, fieldValidation="Ignore")

    assert answer.status == 201
    assert "warning" not in answer.headers


def test_an_unknown_field_in_a_patch_is_refused_on_demand(api):
    api.create(CLAIMS, claim())

    answer = api.send(
        "PATCH",
        f"{CLAIMS}/mine",
        {"metadata": {"label": {}}},
        content_type="application/merge-patch+json",
        fieldValidation="Strict",
    )

    assert answer.status == 400
    assert 'unknown field "metadata.label"' in answer.body["message"]


def test_a_field_of_another_version_is_unknown(api):
    answer = api.send(
        "POST",
        CLAIMS,
        OLD_CLAIM | {"apiVersion": "resource.k8s.io/v1"},
        fieldValidation="Strict",
    )

    assert answer.status == 400
    assert 'unknown field "spec.devices.requests[0].deviceClassName"' in answer.body["message"]


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ("spec.devices", [], "cannot unmarshal array into Go struct field spec.devices of type"),
        ("spec.devices.requests", {}, "cannot unmarshal object into Go struct field"),
        ("spec.devices.requests.0.exactly.count", "1", "cannot unmarshal string"),
        ("spec.devices.requests.0.exactly.count", True, "cannot unmarshal bool"),
        ("spec.devices.requests.0.exactly.count", 1.5, "cannot unmarshal number"),
        ("spec.devices.requests.0.exactly.adminAccess", "yes", "of type bool"),
        ("spec.devices.requests.0.name", 1, "of type string"),
        ("spec.devices.requests.0.exactly.capacity", {"requests": {"m": "lots"}}, "quantities"),
        ("metadata.creationTimestamp", "yesterday", "parsing time"),
        ("metadata.labels", {"a": 1}, "of type string"),
    ],
)
def test_a_value_of_the_wrong_type_is_refused(api, path, value, words):
    answer = api.send("POST", CLAIMS, api_objects.changed(claim(), path, value))

    assert answer.status == 400
    assert answer.body["reason"] == "BadRequest"
    assert words in answer.body["message"]


def test_a_null_is_a_field_that_is_not_set(api):
    body = claim()
    body["metadata"]["labels"] = None
    body["spec"]["devices"] |= {"constraints": None, "config": None}

    made = api.create(CLAIMS, body)

    assert "labels" not in made["metadata"]
    assert set(made["spec"]["devices"]) == {"requests"}


def test_what_is_in_parameters_is_left_as_it_is(api):
    parameters = {"a": None, "b": [], "c": {}, "d": {"colour": "red"}}
    config = [{"opaque": {"driver": "d", "parameters": parameters}}]

    made = api.create(CLAIMS, claim(spec=api_objects.claim_spec(config=config)))

    assert made["spec"]["devices"]["config"] == config


def test_the_data_of_a_config_map_is_text(api):
    answer = api.send("POST", CONFIG_MAPS, {"metadata": {"name": "x"}, "data": {"a": 1}})

    assert answer.status == 400
