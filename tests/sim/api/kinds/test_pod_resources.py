"""Extended resources of pods: what may be asked for, and the status that tells of the claim."""

import api_objects
import pytest
from api_objects import PODS, changed, pod

GPU = "nvidia.com/gpu"
NO_NAME = "requests.nvidia.com/gpu"
IMPLICIT = "deviceclass.resource.kubernetes.io/gpu"
PATH = "spec.containers[0].resources"


def container(name="main", limits=None, requests=None):
    amounts = {"limits": limits, "requests": requests}
    resources = {key: value for key, value in amounts.items() if value is not None}
    return {"name": name, "image": "busybox:1", "resources": resources}


def create(api, *containers, **spec):
    body = pod(containers=list(containers), **spec)
    return api.send("POST", PODS, changed(body, "metadata", {"generateName": "pod-"}))


@pytest.mark.parametrize(
    "amounts",
    [
        {"limits": {GPU: "2"}},
        {"limits": {GPU: 2}, "requests": {GPU: "2000m"}},
        {"limits": {GPU: "0"}},
        {"requests": {IMPLICIT: "1"}},
        {"limits": {"cpu": "1"}, "requests": {"cpu": "500m"}},
    ],
    ids=str,
)
def test_containers_may_ask_for(shared_api, amounts):
    answer = create(shared_api, container(**amounts))
    assert (answer.status, answer.causes) == (201, [])


REFUSED = {
    "a part of one": (
        {"limits": {GPU: "0.5"}},
        f'{PATH}.limits[{GPU}]: Invalid value: "500m": must be an integer',
    ),
    "less than nothing": (
        {"limits": {GPU: "-1"}},
        f'{PATH}.limits[{GPU}]: Invalid value: "-1": must be greater than or equal to 0',
    ),
    "other requests than limits": (
        {"limits": {GPU: "2"}, "requests": {GPU: "1"}},
        f'{PATH}.requests: Invalid value: "1": must be equal to {GPU} limit of 2',
    ),
    "requests without limits": (
        {"requests": {GPU: "1"}},
        f"{PATH}.limits: Required value: Limit must be set for non overcommitable resources",
    ),
    "what is no name": (
        {"limits": {NO_NAME: "1"}},
        f'{PATH}.limits[{NO_NAME}]: Invalid value: "{NO_NAME}": doesn\'t follow extended resource',
    ),
}


@pytest.mark.parametrize(("amounts", "cause"), REFUSED.values(), ids=REFUSED)
def test_containers_may_not_ask_for(shared_api, amounts, cause):
    answer = create(shared_api, container(**amounts))
    assert answer.status == 422
    assert answer.causes[0].startswith(cause)


def test_init_containers_are_looked_at_too(shared_api):
    answer = create(shared_api, container(), initContainers=[container("init", {GPU: "0.5"})])
    assert answer.causes[0].startswith(f"spec.initContainers[0].resources.limits[{GPU}]: Invalid")


# The status


def mapping(container="main", resource=GPU, request="container-0-request-0"):
    return {"containerName": container, "resourceName": resource, "requestName": request}


def told(*mappings, name="pod-extended-resources-x7k2q"):
    status = {"resourceClaimName": name, "requestMappings": list(mappings)}
    return {"status": {"extendedResourceClaimStatus": status}}


@pytest.fixture
def status_of(api):
    """Writes to the status of a pod with a GPU, and gives the answer."""
    api.create(PODS, pod(containers=[container(limits={GPU: "1"})]))

    def status_of(body):
        path = f"{PODS}/train/status"
        return api.send("PATCH", path, body, content_type="application/merge-patch+json")

    return status_of


def test_a_pod_tells_which_claim_it_got_and_for_what(api, status_of):
    body = told(mapping(), mapping(request="container-1-request-0"))
    assert status_of(body).status == 200
    assert api.get(f"{PODS}/train")["status"].items() >= body["status"].items()


STATUS = "status.extendedResourceClaimStatus"
WRONG = {
    "no mapping": (told(), f"{STATUS}.requestMappings: Required value: at least one request"),
    "another container": (
        told(mapping(container="other")),
        f'{STATUS}.requestMappings[0].containerName: Invalid value: "other": must match the name',
    ),
    "a resource that it does not ask for": (
        told(mapping(), mapping(resource="nvidia.com/mig")),
        f'{STATUS}.requestMappings[1].resourceName: Invalid value: "nvidia.com/mig": must match',
    ),
    "a request that is no name": (
        told(mapping(request="A b")),
        f'{STATUS}.requestName: Invalid value: "A b": a lowercase RFC 1123 label',
    ),
    "a mapping twice": (
        told(mapping(), mapping()),
        f'{STATUS}.requestMappings[1].containerName: Duplicate value: "main"',
    ),
    "no claim": (told(mapping(), name=""), f"{STATUS}.resourceClaimName: Required value"),
    "a claim that is no name": (
        told(mapping(), name="a_b"),
        f'{STATUS}.resourceClaimName: Invalid value: "a_b"',
    ),
}


@pytest.mark.parametrize(("body", "cause"), WRONG.values(), ids=WRONG)
def test_it_may_not_tell(api, status_of, body, cause):
    answer = status_of(body)
    assert answer.status == 422
    assert answer.causes[0].startswith(cause), answer.causes
    assert "extendedResourceClaimStatus" not in api.get(f"{PODS}/train")["status"]


@pytest.mark.parametrize(("minor", "kept"), [(35, False), (36, True)])
def test_the_status_is_kept_where_the_gate_is_on(minor, kept):
    with api_objects.Api(kubernetes_version=f"v1.{minor}.0") as api:
        api.create(PODS, pod(containers=[container(limits={GPU: "1"})]))
        written = api.patch(f"{PODS}/train/status", told(mapping()))
    assert ("extendedResourceClaimStatus" in written["status"]) is kept
