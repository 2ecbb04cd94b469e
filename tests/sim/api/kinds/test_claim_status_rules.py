"""Every limit of the table for the status of ResourceClaims."""

import itertools

import api_objects
import pytest
from api_objects import CLAIMS, NAMESPACES, allocation, changed, claim, result

SHARE = "0f0e0d0c-0b0a-4908-8706-050403020100"
OTHER_SHARE = "ffffffff-0b0a-4908-8706-050403020100"
TEN_KIB = 10 * 1024
NAMES = (f"claim-{number}" for number in itertools.count())

SPEC = {
    "devices": {
        "requests": [
            {"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}},
            {
                "name": "any",
                "firstAvailable": [{"name": "small", "deviceClassName": "gpu.nvidia.com"}],
            },
        ]
    }
}


def consumers(count):
    return [{"resource": "pods", "name": f"p{i}", "uid": f"u{i}"} for i in range(count)]


def results(count):
    return [result(f"gpu-{index}") for index in range(count)]


def allocated(*items, **fields):
    return {"allocation": allocation(*items, **fields)}


def configured(**config):
    body = {"source": "FromClaim", "opaque": {"driver": "d", "parameters": {}}, **config}
    return with_configs(body)


def with_configs(*configs):
    status = allocated()
    status["allocation"]["devices"]["config"] = list(configs)
    return status


def reported(*, of=None, **fields):
    """As the server has it: conditions are null if there are none."""
    of = of or result()
    device = {key: of[key] for key in ("driver", "pool", "device", "shareID") if key in of}
    return {**allocated(of), "devices": [{"conditions": None, **device, **fields}]}


def condition(**fields):
    return {
        "type": "Ready",
        "status": "True",
        "reason": "Fine",
        "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
        **fields,
    }


def sized(size):
    return {"a": "x" * (size - len('{"a":""}'))}


def network(**fields):
    return reported(networkData=fields)


CONFIG = {"source": "FromClass", "opaque": {"driver": "d", "parameters": {}}}


def node(name):
    field = {"key": "metadata.name", "operator": "In", "values": [name]}
    return {"nodeSelectorTerms": [{"matchFields": [field]}]}


NODE = node("node-1")

ACCEPTED = {
    "nothing": {},
    "32 results": allocated(*results(32)),
    "a result for an alternative": allocated(result(request="any/small")),
    "a node": allocated(nodeSelector=NODE),
    "any toleration": allocated(
        result(tolerations=[{"key": "a b", "operator": "Like", "effect": "x"}] * 17)
    ),
    "256 consumers": {**allocated(), "reservedFor": consumers(256)},
    "64 configs": with_configs(*[CONFIG] * 64),
    "a config for a request": configured(requests=["gpu", "any/small"]),
    "two shares of a device": allocated(result(shareID=SHARE), result(shareID=OTHER_SHARE)),
    "consumed capacity": allocated(result(shareID=SHARE, consumedCapacity={"memory": "10Gi"})),
    "binding conditions": allocated(
        result(bindingConditions=["a"], bindingFailureConditions=["b"]),
        allocationTimestamp="2026-01-01T00:00:00Z",
    ),
    "a report of a device": reported(conditions=[condition()], data={"a": 1}),
    "a report of a share": reported(of=result(shareID=SHARE), data={"a": 1}),
    "8 conditions": reported(conditions=[condition(type=f"c{i}") for i in range(8)]),
    "data of 10 KiB": reported(data=sized(TEN_KIB)),
    "network data": network(
        interfaceName="x" * 256,
        hardwareAddress="x" * 128,
        ips=[f"10.0.0.{i}/24" for i in range(15)] + ["2001:db8::1/64"],
    ),
}


@pytest.fixture
def path(shared_api):
    name = next(NAMES)
    shared_api.create(CLAIMS, claim(name, spec=SPEC))
    return f"{CLAIMS}/{name}/status"


def write(api, path, status):
    return api.send("PUT", path, {"metadata": {}, "status": status})


@pytest.mark.parametrize("status", ACCEPTED.values(), ids=ACCEPTED)
def test_accepted(shared_api, path, status):
    answer = write(shared_api, path, status)

    assert (answer.status, answer.causes) == (200, [])
    assert answer.body["status"] == status


REFUSED = {
    "33 results": (
        allocated(*results(33)),
        "status.allocation.devices.results: Too many: 33: must have at most 32 items",
    ),
    "a result for an unknown request": (
        allocated(result(request="cpu")),
        'status.allocation.devices.results[0].request: Invalid value: "cpu": must be the name',
    ),
    "a result for an unknown alternative": (
        allocated(result(request="any/large")),
        'status.allocation.devices.results[0].request: Invalid value: "any/large"',
    ),
    "a result without a driver": (
        allocated(changed(result(), "driver", None)),
        "status.allocation.devices.results[0].driver: Required value",
    ),
    "a result without a pool": (
        allocated(changed(result(), "pool", None)),
        "status.allocation.devices.results[0].pool: Required value",
    ),
    "a device name that is no label": (
        allocated(result("GPU_0")),
        'status.allocation.devices.results[0].device: Invalid value: "GPU_0"',
    ),
    "a share that is no UUID": (
        allocated(result(shareID="1")),
        'status.allocation.devices.results[0].shareID: Invalid value: "1": uid must be in',
    ),
    "a share in capitals": (
        allocated(result(shareID=SHARE.upper())),
        "status.allocation.devices.results[0].shareID: Invalid value",
    ),
    "binding conditions without failure conditions": (
        allocated(result(bindingConditions=["a"])),
        "status.allocation.devices.results[0].bindingFailureConditions: Invalid value",
    ),
    "a node of a name that is no subdomain": (
        allocated(nodeSelector=node("NODE 1")),
        (
            "status.allocation.nodeSelector.nodeSelectorTerms[0].matchFields[0].values[0]: "
            'Invalid value: "NODE 1": a lowercase RFC 1123 subdomain'
        ),
    ),
    "a node selector without terms": (
        allocated(nodeSelector={}),
        "status.allocation.nodeSelector.nodeSelectorTerms: Required value",
    ),
    "65 configs": (
        with_configs(*[CONFIG] * 65),
        "status.allocation.devices.config: Too many: 65: must have at most 64 items",
    ),
    "a config from nowhere": (
        configured(source=""),
        "status.allocation.devices.config[0].source: Required value",
    ),
    "a config from an unknown source": (
        configured(source="FromPod"),
        (
            'status.allocation.devices.config[0].source: Unsupported value: "FromPod": '
            'supported values: "FromClaim", "FromClass"'
        ),
    ),
    "a config for an unknown request": (
        configured(requests=["cpu"]),
        'status.allocation.devices.config[0].requests[0]: Invalid value: "cpu"',
    ),
    "257 consumers": (
        {**allocated(), "reservedFor": consumers(257)},
        "status.reservedFor: Too many: 257: must have at most 256 items",
    ),
    "a consumer twice": (
        {**allocated(), "reservedFor": consumers(1) * 2},
        'status.reservedFor[1]: Duplicate value: "u0"',
    ),
    "a consumer without a UID": (
        {**allocated(), "reservedFor": [{"resource": "pods", "name": "p"}]},
        "status.reservedFor[0].uid: Required value",
    ),
    "a consumer of nothing": (
        {"reservedFor": consumers(1)},
        "status.reservedFor: Forbidden: may not be specified when `allocated` is not set",
    ),
    "a report of a device that is not allocated": (
        reported(device="gpu-1"),
        (
            'status.devices[0]: Invalid value: "gpu.nvidia.com/node-1/gpu-1": '
            "must be an allocated device in the claim"
        ),
    ),
    "a report of a share that is not allocated": (
        reported(shareID=SHARE),
        f'status.devices[0]: Invalid value: "gpu.nvidia.com/node-1/gpu-0/{SHARE}"',
    ),
    "9 conditions": (
        reported(conditions=[condition(type=f"c{i}") for i in range(9)]),
        "status.devices[0].conditions: Too many: 9: must have at most 8 items",
    ),
    "a condition twice": (
        reported(conditions=[condition()] * 2),
        'status.devices[0].conditions[1].type: Duplicate value: "Ready"',
    ),
    "a condition without a type": (
        reported(conditions=[condition(type="")]),
        "status.devices[0].conditions[0].type: Invalid value",
    ),
    "a condition that may be": (
        reported(conditions=[condition(status="Maybe")]),
        'status.devices[0].conditions[0].status: Unsupported value: "Maybe"',
    ),
    "a condition without a reason": (
        reported(conditions=[condition(reason="")]),
        "status.devices[0].conditions[0].reason: Required value",
    ),
    "a condition whose reason is a sentence": (
        reported(conditions=[condition(reason="all is well")]),
        "status.devices[0].conditions[0].reason: Invalid value",
    ),
    "a condition of no time": (
        reported(conditions=[changed(condition(), "lastTransitionTime", None)]),
        "status.devices[0].conditions[0].lastTransitionTime: Required value",
    ),
    "data above 10 KiB": (
        reported(data=sized(TEN_KIB + 1)),
        "status.devices[0].data: Too long: may not be more than 10240 bytes",
    ),
    "data that is no object": (
        reported(data=[1]),
        'status.devices[0].data: Invalid value: "<value omitted>": must be a valid JSON object',
    ),
    "an interface name of 257 bytes": (
        network(interfaceName="x" * 257),
        "status.devices[0].networkData.interfaceName: Too long: may not be more than 256 bytes",
    ),
    "a hardware address of 129 bytes": (
        network(hardwareAddress="x" * 129),
        "status.devices[0].networkData.hardwareAddress: Too long",
    ),
    "17 addresses": (
        network(ips=[f"10.0.0.{i}/24" for i in range(17)]),
        "status.devices[0].networkData.ips: Too many: 17: must have at most 16 items",
    ),
    "an address without a prefix length": (
        network(ips=["10.0.0.1"]),
        'status.devices[0].networkData.ips[0]: Invalid value: "10.0.0.1": must be a valid address',
    ),
    "an address that is none": (
        network(ips=["10.0.0.300/24"]),
        "status.devices[0].networkData.ips[0]: Invalid value",
    ),
    "an address that is not in canonical form": (
        network(ips=["2001:DB8::1/64"]),
        "status.devices[0].networkData.ips[0]: Invalid value",
    ),
    "an address twice": (
        network(ips=["10.0.0.1/24"] * 2),
        "status.devices[0].networkData.ips[1]: Duplicate value",
    ),
}


@pytest.mark.parametrize(("status", "cause"), REFUSED.values(), ids=REFUSED)
def test_refused(shared_api, path, status, cause):
    answer = write(shared_api, path, status)

    assert answer.status == 422
    assert [text for text in answer.causes if text.startswith(cause)], answer.causes


def test_of_too_many_conditions_each_that_is_there_twice_is_told(shared_api, path):
    answer = write(shared_api, path, reported(conditions=[condition()] * 9))

    place = "status.devices[0].conditions"
    assert answer.causes == [
        f"{place}: Too many: 9: must have at most 8 items",
        *(f'{place}[{index}].type: Duplicate value: "Ready"' for index in range(1, 9)),
    ]


def test_an_allocation_cannot_be_changed(shared_api, path):
    write(shared_api, path, allocated())

    answer = write(shared_api, path, allocated(result("gpu-1")))

    assert answer.status == 422
    assert answer.causes[0].startswith("status.allocation: Invalid value")
    assert answer.causes[0].endswith("field is immutable")


def test_an_allocation_can_be_given_up_and_made_anew(shared_api, path):
    write(shared_api, path, {**allocated(), "reservedFor": consumers(1)})

    given_up = write(shared_api, path, {})
    anew = write(shared_api, path, allocated(result("gpu-1")))

    assert given_up.body["status"] == {}
    assert anew.body["status"] == allocated(result("gpu-1"))


def test_an_allocation_that_is_in_use_is_not_given_up(shared_api, path):
    write(shared_api, path, {**allocated(), "reservedFor": consumers(1)})

    assert write(shared_api, path, {"reservedFor": consumers(1)}).status == 422


def test_the_report_of_a_device_goes_with_its_allocation(shared_api, path):
    status = reported(data={"a": 1})
    write(shared_api, path, status)

    answer = write(shared_api, path, {"devices": status["devices"]})

    assert (answer.status, answer.body["status"]) == (200, {})


def test_a_claim_that_is_being_deleted_gets_no_new_consumers(shared_api, path):
    write(shared_api, path, {**allocated(), "reservedFor": consumers(2)})
    claim_path = path.removesuffix("/status")
    shared_api.patch(claim_path, {"metadata": {"finalizers": ["example.com/a"]}})
    shared_api.delete(claim_path)

    fewer = write(shared_api, path, {**allocated(), "reservedFor": consumers(1)})
    more = write(shared_api, path, {**allocated(), "reservedFor": consumers(2)})

    assert fewer.status == 200
    assert more.causes[0].startswith("status.reservedFor: Forbidden: new entries may not be added")


def test_admin_access_needs_a_label_of_the_namespace(api):
    labels = {"resource.kubernetes.io/admin-access": "true"}
    api.create(NAMESPACES, {"metadata": {"name": "admins", "labels": labels}})
    answers = []
    for collection in (CLAIMS, CLAIMS.replace("/default/", "/admins/")):
        api.create(collection, claim())
        status = allocated(result(adminAccess=True))
        answers.append(write(api, f"{collection}/mine/status", status))

    assert [answer.status for answer in answers] == [422, 200]
    place = "status.allocation.devices.results[0].adminAccess"
    assert answers[0].causes[0].startswith(f"{place}: Forbidden: admin access to devices")


def test_a_lack_of_admin_access_is_told_first(shared_api, path):
    status = {**allocated(result(adminAccess=True)), "reservedFor": consumers(1) * 2}

    assert [cause.partition(": ")[0] for cause in write(shared_api, path, status).causes] == [
        "status.allocation.devices.results[0].adminAccess",
        "status.reservedFor[1]",
    ]


def test_a_claim_whose_spec_was_accepted_is_not_questioned_with_its_status():
    accepted = [True]
    with api_objects.Api(
        expression_check=lambda _expression: None if accepted[0] else "not any more"
    ) as api:
        spec = api_objects.claim_spec()
        selectors = [{"cel": {"expression": "true"}}]
        api.create(
            CLAIMS, claim(spec=changed(spec, "devices.requests.0.exactly.selectors", selectors))
        )
        accepted[0] = False

        answer = write(api, f"{CLAIMS}/mine/status", allocated())

    assert answer.status == 200
