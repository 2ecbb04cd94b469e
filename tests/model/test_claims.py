import pytest

from dra_driver import errors
from dra_driver.model import claims, slices

REF = claims.ClaimRef("team-a", "train-gpu-x7", claims.ClaimUid("0a1b"))

CLAIM = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "ResourceClaim",
    "metadata": {"namespace": "team-a", "name": "train-gpu-x7", "uid": "0a1b"},
    "spec": {
        "devices": {
            "requests": [
                {
                    "name": "one",
                    "exactly": {
                        "deviceClassName": "gpu.nvidia.com",
                        "allocationMode": "ExactCount",
                        "count": 2,
                        "selectors": [{"cel": {"expression": "true"}}],
                        "tolerations": [{"operator": "Exists"}],
                    },
                },
                {
                    "name": "any",
                    "firstAvailable": [
                        {"name": "large", "deviceClassName": "big"},
                        {"name": "small", "deviceClassName": "little", "count": 3},
                    ],
                },
                {
                    "name": "watch",
                    "exactly": {
                        "deviceClassName": "gpu.nvidia.com",
                        "allocationMode": "All",
                        "adminAccess": True,
                    },
                },
            ],
            "constraints": [
                {"matchAttribute": "gpu.nvidia.com/numaNode", "requests": ["one", "any/large"]},
                {"distinctAttribute": "gpu.nvidia.com/uuid"},
            ],
            "config": [
                {
                    "requests": ["one"],
                    "opaque": {"driver": "gpu.nvidia.com", "parameters": {"kind": "GpuConfig"}},
                }
            ],
        }
    },
    "status": {
        "allocation": {
            "devices": {
                "results": [
                    {
                        "request": "any/large",
                        "driver": "gpu.nvidia.com",
                        "pool": "node-1",
                        "device": "gpu-0",
                        "shareID": "11111111-2222-3333-4444-555555555555",
                        "tolerations": [{"operator": "Exists", "key": "k"}],
                    },
                    {
                        "request": "watch",
                        "driver": "gpu.nvidia.com",
                        "pool": "node-1",
                        "device": "gpu-1",
                        "adminAccess": True,
                    },
                ],
                "config": [
                    {
                        "source": "FromClass",
                        "opaque": {"driver": "gpu.nvidia.com", "parameters": {"a": 1}},
                    },
                    {
                        "source": "FromClaim",
                        "opaque": {"driver": "other.example.com", "parameters": {"b": 2}},
                        "requests": ["any"],
                    },
                ],
            },
            "nodeSelector": {"nodeSelectorTerms": [{"matchFields": []}]},
        },
        "reservedFor": [{"resource": "pods", "name": "train", "uid": "p1"}],
    },
}

RESULTS = (
    claims.Result(
        "any/large",
        slices.DeviceId("gpu.nvidia.com", "node-1", "gpu-0"),
        share_id="11111111-2222-3333-4444-555555555555",
        extra={"tolerations": [{"operator": "Exists", "key": "k"}]},
    ),
    claims.Result("watch", slices.DeviceId("gpu.nvidia.com", "node-1", "gpu-1"), admin_access=True),
)

CONFIGS = (
    claims.OpaqueConfig("gpu.nvidia.com", {"a": 1}, source="FromClass"),
    claims.OpaqueConfig("other.example.com", {"b": 2}, requests=("any",), source="FromClaim"),
)


def test_a_claim_is_read_with_requests_constraints_and_configs():
    claim = claims.parse(CLAIM)
    assert claim.ref == REF
    assert claim.requests == (
        claims.Request(
            "one",
            (
                claims.DeviceRequest(
                    "one", "gpu.nvidia.com", selectors=("true",), count=2,
                    extra={"tolerations": [{"operator": "Exists"}]},
                ),
            ),
        ),
        claims.Request(
            "any",
            (
                claims.DeviceRequest("large", "big", count=1),
                claims.DeviceRequest("small", "little", count=3),
            ),
            prioritized=True,
        ),
        claims.Request(
            "watch",
            (
                claims.DeviceRequest(
                    "watch", "gpu.nvidia.com", mode="All", count=None, admin_access=True
                ),
            ),
        ),
    )  # fmt: skip
    assert claim.constraints == (
        claims.Constraint("gpu.nvidia.com/numaNode", distinct=False, requests=("one", "any/large")),
        claims.Constraint("gpu.nvidia.com/uuid", distinct=True),
    )
    assert claim.configs == (
        claims.OpaqueConfig("gpu.nvidia.com", {"kind": "GpuConfig"}, ("one",), "FromClaim"),
    )
    assert claim.reserved_for == ("p1",)
    assert not claim.deleting


def test_an_allocation_is_read_and_written_without_loss():
    allocation = claims.parse(CLAIM).allocation
    assert allocation == claims.Allocation(
        RESULTS, CONFIGS, {"nodeSelectorTerms": [{"matchFields": []}]}
    )
    assert claims.format_allocation(allocation) == CLAIM["status"]["allocation"]


def test_an_empty_allocation_is_not_no_allocation():
    body = CLAIM | {"status": {"allocation": {}}}
    assert claims.parse(body).allocation == claims.Allocation(())
    assert claims.format_allocation(claims.Allocation(())) == {"devices": {"results": []}}


@pytest.mark.parametrize("status", [None, {}, {"allocation": None}])
def test_a_claim_that_is_not_allocated_has_no_allocation(status):
    assert claims.parse(CLAIM | {"status": status}).allocation is None


def test_the_outcome_is_read_whatever_the_shape_of_the_requests():
    flat = {"devices": {"requests": [{"name": "one", "deviceClassName": "gpu.nvidia.com"}]}}
    claim = claims.parse_outcome(CLAIM | {"spec": flat})
    assert claim.ref == REF
    assert claim.requests == ()
    assert claim.allocation is not None
    assert claim.allocation.results == RESULTS


def test_a_claim_that_is_being_deleted_says_so():
    metadata = CLAIM["metadata"] | {"deletionTimestamp": "2026-01-01T00:00:00Z"}
    assert claims.parse(CLAIM | {"metadata": metadata}).deleting


def test_a_request_of_an_unknown_kind_is_refused_by_name():
    spec = {"devices": {"requests": [{"name": "later", "atLeast": {}}]}}
    with pytest.raises(errors.Rejected) as caught:
        claims.parse(CLAIM | {"spec": spec})
    assert str(caught.value) == (
        "request 'later': neither `exactly` nor `firstAvailable` is known here; "
        "a newer kind of request needs a newer driver"
    )


def test_a_constraint_of_an_unknown_kind_is_refused():
    spec = {"devices": {"constraints": [{"nearAttribute": "x"}]}}
    with pytest.raises(errors.Rejected) as caught:
        claims.parse(CLAIM | {"spec": spec})
    assert str(caught.value) == (
        "constraint {'nearAttribute': 'x'}: allowed is exactly one of "
        "matchAttribute, distinctAttribute"
    )


def test_a_class_is_read_and_its_configs_are_from_the_class():
    body = {
        "metadata": {"name": "gpu.nvidia.com"},
        "spec": {
            "selectors": [{"cel": {"expression": "a"}}, {"cel": {"expression": "b"}}],
            "config": [{"opaque": {"driver": "gpu.nvidia.com", "parameters": {"a": 1}}}],
            "extendedResourceName": "nvidia.com/gpu",
        },
    }
    assert claims.parse_class(body) == claims.DeviceClass(
        "gpu.nvidia.com",
        ("a", "b"),
        (claims.OpaqueConfig("gpu.nvidia.com", {"a": 1}, (), "FromClass"),),
        "nvidia.com/gpu",
    )
    assert claims.parse_class({"metadata": {"name": "x"}}) == claims.DeviceClass("x")


def test_a_result_of_an_alternative_belongs_to_the_base_request():
    request = claims.parse(CLAIM).requests[1]
    assert request.result_name(request.alternatives[0]) == "any/large"
    assert RESULTS[0].base_request == "any"
    plain = claims.parse(CLAIM).requests[0]
    assert plain.result_name(plain.alternatives[0]) == "one"
    assert RESULTS[1].base_request == "watch"


def test_a_reference_reads_namespace_name_and_uid():
    assert str(REF) == "team-a/train-gpu-x7 (0a1b)"
