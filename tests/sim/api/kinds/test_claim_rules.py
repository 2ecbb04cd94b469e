"""Every limit of the table for what ResourceClaims and templates may ask for."""

import api_objects
import pytest
from api_objects import CLAIMS, CLASSES, NAMESPACES, TEMPLATES, changed, claim, template

LABEL = "a lowercase RFC 1123 label must consist of"
NO_SUCH = "must be the name of a request in the claim"
TEN_KIB = 10 * 1024


def exactly(**fields):
    return {"deviceClassName": "gpu.nvidia.com", **fields}


def request(name="gpu", **fields):
    return {"name": name, "exactly": exactly(**fields)}


def alternative(name="small", **fields):
    return {"name": name, **exactly(**fields)}


def first_available(*alternatives, name="gpu"):
    return {"name": name, "firstAvailable": list(alternatives) or [alternative()]}


def spec(*requests, **devices):
    return {"devices": {"requests": list(requests) or [request()], **devices}}


def selector(expression="true"):
    return {"cel": {"expression": expression}}


def opaque(parameters=None, driver="gpu.nvidia.com", **fields):
    parameters = {"a": 1} if parameters is None else parameters
    return {"opaque": {"driver": driver, "parameters": parameters}, **fields}


def sized(size):
    """An object of so many bytes as JSON."""
    return {"a": "x" * (size - len('{"a":""}'))}


def match(attribute="gpu.nvidia.com/model", **fields):
    return {"matchAttribute": attribute, **fields}


ACCEPTED = {
    "no requests": {"devices": {}},
    "32 requests": spec(*(request(f"r{index}") for index in range(32))),
    "8 alternatives": spec(first_available(*(alternative(f"a{index}") for index in range(8)))),
    "32 selectors": spec(request(selectors=[selector()] * 32)),
    "an expression of 10 KiB": spec(request(selectors=[selector("x" * TEN_KIB)])),
    "a count": spec(request(count=8)),
    "all devices": spec(request(allocationMode="All")),
    "all devices and count zero": spec(request(allocationMode="All", count=0)),
    "any number of tolerations": spec(request(tolerations=[{"operator": "Exists"}] * 130)),
    "any name of a capacity": spec(request(capacity={"requests": {"a-b": "1", "c" * 33: "1"}})),
    "a toleration for a while": spec(
        request(tolerations=[{"key": "k", "effect": "NoExecute", "tolerationSeconds": 60}])
    ),
    "capacity": spec(request(capacity={"requests": {"gpu.nvidia.com/memory": "10Gi"}})),
    "32 constraints": spec(constraints=[match()] * 32),
    "a constraint on a request": spec(constraints=[match(requests=["gpu"])]),
    "a constraint on an alternative": spec(
        first_available(), constraints=[match(requests=["gpu/small"])]
    ),
    "a constraint on two attributes, of which the matched one is looked at": spec(
        constraints=[match(distinctAttribute="b")]
    ),
    "a distinct attribute": spec(constraints=[{"distinctAttribute": "a.example/b"}]),
    "32 configs": spec(config=[opaque()] * 32),
    "parameters of 10 KiB": spec(config=[opaque(sized(TEN_KIB))]),
    "a config for a request and an alternative": spec(
        request("other"), first_available(), config=[opaque(requests=["other", "gpu/small"])]
    ),
    "a config for all alternatives": spec(first_available(), config=[opaque(requests=["gpu"])]),
}


@pytest.mark.parametrize("accepted", ACCEPTED.values(), ids=ACCEPTED)
@pytest.mark.parametrize(("path", "make"), [(CLAIMS, claim), (TEMPLATES, template)])
def test_accepted(shared_api, path, make, accepted):
    body = changed(make(spec=accepted), "metadata", {"generateName": "x-"})

    answer = shared_api.send("POST", path, body)

    assert (answer.status, answer.causes) == (201, [])


REFUSED = {
    "33 requests": (
        spec(*(request(f"r{index}") for index in range(33))),
        "devices.requests: Too many: 33: must have at most 32 items",
    ),
    "two requests of one name": (
        spec(request("a"), request("a")),
        'devices.requests[1]: Duplicate value: "a"',
    ),
    "a request without a name": (
        spec({"exactly": exactly()}),
        f'devices.requests[0].name: Invalid value: "": {LABEL}',
    ),
    "a request name in capitals": (
        spec(request("GPU")),
        f'devices.requests[0].name: Invalid value: "GPU": {LABEL}',
    ),
    "a request of neither form": (
        spec({"name": "a"}),
        "devices.requests[0]: Required value: exactly one of `exactly` or `firstAvailable`",
    ),
    "a request of both forms": (
        spec({"name": "a", "exactly": exactly(), "firstAvailable": [alternative()]}),
        "devices.requests[0]: Invalid value: null: exactly one of",
    ),
    "a request without a class": (
        spec({"name": "a", "exactly": {}}),
        "devices.requests[0].exactly.deviceClassName: Required value",
    ),
    "a class name that is no subdomain": (
        spec(request(deviceClassName="a_b")),
        'devices.requests[0].exactly.deviceClassName: Invalid value: "a_b"',
    ),
    "9 alternatives": (
        spec(first_available(*(alternative(f"a{index}") for index in range(9)))),
        "devices.requests[0].firstAvailable: Too many: 9: must have at most 8 items",
    ),
    "two alternatives of one name": (
        spec(first_available(alternative("a"), alternative("a"))),
        'devices.requests[0].firstAvailable[1]: Duplicate value: "a"',
    ),
    "an alternative without a class": (
        spec(first_available({"name": "a"})),
        "devices.requests[0].firstAvailable[0].deviceClassName: Required value",
    ),
    "an alternative name with a slash": (
        spec(first_available(alternative("a/b"))),
        "devices.requests[0].firstAvailable[0].name: Invalid value",
    ),
    "33 selectors": (
        spec(request(selectors=[selector()] * 33)),
        "devices.requests[0].exactly.selectors: Too many: 33: must have at most 32 items",
    ),
    "a selector without CEL": (
        spec(request(selectors=[{}])),
        "devices.requests[0].exactly.selectors[0].cel: Required value",
    ),
    "an empty expression": (
        spec(request(selectors=[selector("")])),
        (
            'devices.requests[0].exactly.selectors[0].cel.expression: Invalid value: "": '
            "compilation failed"
        ),
    ),
    "an expression above 10 KiB": (
        spec(request(selectors=[selector("x" * (TEN_KIB + 1))])),
        (
            "devices.requests[0].exactly.selectors[0].cel.expression: Too long: "
            "may not be more than 10240 bytes"
        ),
    ),
    "an unknown allocation mode": (
        spec(request(allocationMode="Some")),
        (
            'devices.requests[0].exactly.allocationMode: Unsupported value: "Some": '
            'supported values: "All", "ExactCount"'
        ),
    ),
    "all devices and a count": (
        spec(request(allocationMode="All", count=2)),
        (
            "devices.requests[0].exactly.count: Invalid value: 2: must not be specified when "
            "allocationMode is 'All'"
        ),
    ),
    "a negative count": (
        spec(request(count=-1)),
        "devices.requests[0].exactly.count: Invalid value: -1: must be greater than zero",
    ),
    "an unknown toleration operator": (
        spec(request(tolerations=[{"operator": "Like"}])),
        'devices.requests[0].exactly.tolerations[0].operator: Unsupported value: "Like"',
    ),
    "a toleration of existence with a value": (
        spec(request(tolerations=[{"key": "k", "operator": "Exists", "value": "v"}])),
        (
            'devices.requests[0].exactly.tolerations[0].value: Invalid value: "v": '
            "must be empty for operator `Exists`"
        ),
    ),
    "an unknown toleration effect": (
        spec(request(tolerations=[{"key": "k", "effect": "NoStart"}])),
        "devices.requests[0].exactly.tolerations[0].effect: Unsupported value",
    ),
    "a toleration key that is no label key": (
        spec(request(tolerations=[{"key": "a b", "operator": "Exists"}])),
        'devices.requests[0].exactly.tolerations[0].key: Invalid value: "a b"',
    ),
    "33 constraints": (
        spec(constraints=[match()] * 33),
        "devices.constraints: Too many: 33: must have at most 32 items",
    ),
    "a constraint on nothing": (
        spec(constraints=[{"requests": ["gpu"]}]),
        'devices.constraints[0]: Required value: exactly one of "matchAttribute" or',
    ),
    "a constraint on two attributes of which the matched one has no domain": (
        spec(constraints=[match("model", distinctAttribute="a.example/b")]),
        'devices.constraints[0].matchAttribute: Invalid value: "model"',
    ),
    "a matched attribute without a domain": (
        spec(constraints=[match("model")]),
        (
            'devices.constraints[0].matchAttribute: Invalid value: "model": '
            "a fully qualified name must be a domain and a name separated by a slash"
        ),
    ),
    "a distinct attribute without a domain": (
        spec(constraints=[{"distinctAttribute": "model"}]),
        'devices.constraints[0].distinctAttribute: Invalid value: "model"',
    ),
    "a constraint on an unknown request": (
        spec(constraints=[match(requests=["cpu"])]),
        f'devices.constraints[0].requests[0]: Invalid value: "cpu": {NO_SUCH}',
    ),
    "a constraint on an unknown alternative": (
        spec(first_available(), constraints=[match(requests=["gpu/large"])]),
        f'devices.constraints[0].requests[0]: Invalid value: "gpu/large": {NO_SUCH}',
    ),
    "a constraint on a request twice": (
        spec(constraints=[match(requests=["gpu", "gpu"])]),
        'devices.constraints[0].requests[1]: Duplicate value: "gpu"',
    ),
    "33 configs": (
        spec(config=[opaque()] * 33),
        "devices.config: Too many: 33: must have at most 32 items",
    ),
    "a config for an unknown request": (
        spec(config=[opaque(requests=["gpu/small/er"])]),
        f'devices.config[0].requests[0]: Invalid value: "gpu/small/er": {NO_SUCH}',
    ),
    "a config without parameters for anyone": (
        spec(config=[{"requests": ["gpu"]}]),
        "devices.config[0].opaque: Required value",
    ),
    "a config for no driver": (
        spec(config=[opaque(driver="")]),
        "devices.config[0].opaque.driver: Required value",
    ),
    "no parameters": (
        spec(config=[{"opaque": {"driver": "gpu.nvidia.com"}}]),
        "devices.config[0].opaque.parameters: Required value",
    ),
    "parameters that are no object": (
        spec(config=[opaque([1])]),
        (
            'devices.config[0].opaque.parameters: Invalid value: "<value omitted>": '
            "must be a valid JSON object"
        ),
    ),
    "parameters above 10 KiB": (
        spec(config=[opaque(sized(TEN_KIB + 1))]),
        "devices.config[0].opaque.parameters: Too long: may not be more than 10240 bytes",
    ),
}


@pytest.mark.parametrize(("refused", "cause"), REFUSED.values(), ids=REFUSED)
@pytest.mark.parametrize(
    ("path", "make", "prefix"), [(CLAIMS, claim, "spec."), (TEMPLATES, template, "spec.spec.")]
)
def test_refused(shared_api, path, make, prefix, refused, cause):
    answer = shared_api.send("POST", path, make(spec=refused))

    assert answer.status == 422
    assert [text for text in answer.causes if text.startswith(prefix + cause)], answer.causes


def test_an_expression_is_checked_by_the_cluster():
    def check(expression):
        return "no such thing" if "unicorn" in expression else None

    with api_objects.Api(expression_check=check) as api:
        bad = spec(request(selectors=[selector("device.unicorn")]))
        answer = api.send("POST", CLAIMS, claim(spec=bad))
        api.create(CLAIMS, claim(spec=spec(request(selectors=[selector("device.horse")]))))
        classed = api.send(
            "POST", CLASSES, api_objects.device_class(selectors=[selector("unicorn")])
        )

    path = "spec.devices.requests[0].exactly.selectors[0].cel.expression"
    assert answer.causes == [f'{path}: Invalid value: "device.unicorn": no such thing']
    assert classed.causes == [
        'spec.selectors[0].cel.expression: Invalid value: "unicorn": no such thing'
    ]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, {"allocationMode": "ExactCount", "count": 1}),
        ({"count": 3}, {"allocationMode": "ExactCount", "count": 3}),
        ({"allocationMode": "", "count": 0}, {"allocationMode": "ExactCount", "count": 1}),
        ({"allocationMode": "All"}, {"allocationMode": "All"}),
    ],
)
def test_mode_and_count_have_defaults(shared_api, given, expected):
    asked = spec(request("a", **given), first_available(alternative("b", **given), name="c"))
    body = changed(claim(spec=asked), "metadata", {"generateName": "x-"})

    made = shared_api.create(CLAIMS, body)["spec"]["devices"]["requests"]

    assert made[0]["exactly"] == exactly(**expected)
    assert made[1]["firstAvailable"] == [alternative("b", **expected)]


@pytest.mark.parametrize("operator", [{}, {"operator": ""}, {"operator": None}])
def test_tolerations_are_for_equal_values_by_default(shared_api, operator):
    body = claim(spec=spec(request(tolerations=[{"key": "k", "value": "v", **operator}])))
    body = changed(body, "metadata", {"generateName": "x-"})

    made = shared_api.create(CLAIMS, body)["spec"]["devices"]["requests"][0]["exactly"]

    assert made["tolerations"] == [{"key": "k", "value": "v", "operator": "Equal"}]


@pytest.mark.parametrize(("path", "make"), [(CLAIMS, claim), (TEMPLATES, template)])
def test_what_is_asked_for_cannot_be_changed(api, path, make):
    made = api.create(path, make())
    name = made["metadata"]["name"]
    other = make(name, spec=spec(request(count=2)))

    answer = api.send("PUT", f"{path}/{name}", other)
    labelled = api.patch(f"{path}/{name}", {"metadata": {"labels": {"a": "b"}}})

    assert answer.status == 422
    assert answer.causes[0].startswith("spec: Invalid value: ")
    assert answer.causes[0].endswith(": field is immutable")
    assert labelled["metadata"]["labels"] == {"a": "b"}


def test_an_empty_list_is_no_change(api):
    api.create(CLAIMS, claim())
    same = changed(claim(), "spec.devices", {**spec(request())["devices"], "config": []})
    same["spec"]["devices"]["requests"][0]["firstAvailable"] = []

    answer = api.send("PUT", f"{CLAIMS}/mine", same)

    assert (answer.status, answer.causes) == (200, [])


@pytest.mark.parametrize(("path", "make"), [(CLAIMS, claim), (TEMPLATES, template)])
def test_admin_access_needs_a_label_of_the_namespace(api, path, make):
    labels = {"resource.kubernetes.io/admin-access": "true"}
    api.create(NAMESPACES, {"metadata": {"name": "admins", "labels": labels}})
    body = make(spec=spec(request("other"), request(adminAccess=True)))

    answer = api.send("POST", path, body)
    api.create(path.replace("/default/", "/admins/"), body)

    assert answer.causes == [
        (
            "spec.devices.requests[1].adminAccess: Forbidden: admin access to devices requires the "
            "`resource.kubernetes.io/admin-access: true` label on the containing namespace"
        )
    ]


def test_no_admin_access_needs_no_label(api):
    api.create(CLAIMS, claim(spec=spec(request(adminAccess=False))))
