"""Which objects the API server asks the webhook about, and which wait for nobody."""

import json

import chart
import config_cases
import pytest
import webhook_reviews as reviews

from dra_driver.logic.admission import admission, admitted

pytestmark = pytest.mark.sampled(9)


def hooks(values=None):
    bodies = chart.part(chart.objects(values), "webhook")
    return chart.the(bodies, "ValidatingWebhookConfiguration")["webhooks"]


def asker(values=None):
    """What tells which of the webhooks are asked about a review, as the API server finds out."""
    cel = pytest.importorskip("cel_expr_python.cel", reason="no wheel of CEL's own runtime")
    config = cel.NewEnvConfigFromYaml("name: conditions\nextensions:\n- name: optional\n")
    names = ("object", "oldObject", "request")
    environment = cel.NewEnv(config=config, variables=dict.fromkeys(names, cel.Type.DYN))
    conditions = [
        (hook["name"], condition["name"], environment.compile(condition["expression"]))
        for hook in hooks(values)
        for condition in hook["matchConditions"]
    ]

    def ask(review):
        request = review["request"]
        data = {name: request[name] for name in ("object", "oldObject")} | {"request": request}
        no = set()
        for hook, name, program in conditions:
            outcome = program.eval(data=data)
            assert outcome.type() == cel.Type.BOOL, (hook, name, review, outcome.value())
            if not outcome.value():
                no.add(hook)
        return [
            one.partition(".")[0]
            for one in dict.fromkeys(c[0] for c in conditions)
            if one not in no
        ]

    return ask


@pytest.fixture(scope="module")
def asked():
    return asker()


def test_both_hear_of_the_same_resources():
    first, second = hooks()
    assert first["rules"] == second["rules"]
    (rule,) = first["rules"]
    assert rule == {
        "apiGroups": [admitted.GROUP],
        "apiVersions": list(admitted.VERSIONS),
        "operations": ["CREATE", "UPDATE"],
        "resources": ["resourceclaims", "resourceclaimtemplates", "deviceclasses"],
    }
    assert (first["failurePolicy"], second["failurePolicy"]) == ("Fail", "Ignore")


OWN = reviews.config(config_cases.gpu())
OTHER = reviews.config({"x": 1}, driver="dra.example")


@pytest.mark.parametrize(("resource", "version"), reviews.EVERYWHERE)
def test_with_a_config_of_the_driver_the_webhook_must_answer(asked, resource, version):
    for configs in ([OWN], [OTHER, OWN]):
        body = reviews.made(resource, version, configs=configs)
        assert asked(reviews.review(resource, version, body)) == ["configs"]


OF_THE_CHART = ["time-sliced.gpu.nvidia.com", "mps.gpu.nvidia.com"]


def test_the_chart_s_own_classes_are_made_while_no_webhook_answers_and_no_others(asked):
    def answer(name, resource="deviceclasses", **fields):
        body = reviews.made(resource, configs=[OWN]) | {"metadata": {"name": name}}
        return asked(reviews.review(resource, body=body, **fields))

    for name in OF_THE_CHART:
        assert answer(name) == []
        assert answer(name, "resourceclaims") == ["configs"]
        old = reviews.made("deviceclasses") | {"metadata": {"name": name}}
        assert answer(name, operation="UPDATE", oldObject=old) == ["configs"]
    assert answer("mps.gpu.nvidia.com.example") == ["configs"]


@pytest.mark.parametrize(
    ("classes", "awaited"),
    [
        ({"create": False}, OF_THE_CHART),
        ({"presets": {"mps": False}}, ["mps.gpu.nvidia.com"]),
        ({"presets": {"timeSliceInterval": "", "mps": False}}, OF_THE_CHART),
    ],
    ids=["none", "one", "without config"],
)
def test_a_class_that_the_chart_does_not_make_is_asked_about(classes, awaited):
    asked = asker({"deviceClasses": classes})
    for name in OF_THE_CHART:
        body = reviews.made("deviceclasses", configs=[OWN]) | {"metadata": {"name": name}}
        expected = ["configs"] if name in awaited else []
        assert asked(reviews.review("deviceclasses", body=body)) == expected


@pytest.mark.parametrize(("resource", "version"), reviews.EVERYWHERE)
def test_without_one_nobody_waits_for_the_webhook(asked, resource, version):
    for configs in ([], [OTHER]):
        body = reviews.made(resource, version, configs=configs)
        assert asked(reviews.review(resource, version, body)) == []
    shapes = [{}, {"devices": {}}, {"spec": {}}, {"spec": {"devices": {}}}]
    for spec in shapes:
        body = {"metadata": {"name": "some"}, "spec": spec}
        assert asked(reviews.review(resource, version, body)) == []


@pytest.mark.parametrize("resource", reviews.KINDS)
def test_an_update_that_leaves_the_spec_as_it_is_waits_for_nobody(asked, resource):
    old = reviews.made(resource, configs=[OWN])
    new = old | {"metadata": {"name": "some", "finalizers": []}}
    assert asked(reviews.review(resource, body=new, operation="UPDATE", oldObject=old)) == []
    changed = reviews.made(resource, configs=[OWN, OWN])
    update = reviews.review(resource, body=changed, operation="UPDATE", oldObject=old)
    assert asked(update) == ["configs"]


NUMA = reviews.selector('device.attributes["gpu.nvidia.com"].numaNode == 1')
FOREIGN = reviews.selector('device.attributes["nic.example"].numaNode == 1')
TOLERATED = [{"operator": "Exists"}]
REQUESTS = [
    reviews.request("gpu"),
    reviews.request("gpu", selectors=NUMA),
    reviews.request("gpu", selectors=FOREIGN),
    reviews.request("gpu", "mig.nvidia.com", tolerations=TOLERATED),
    reviews.request("gpu", "shared.gpu.nvidia.com", tolerations=TOLERATED),
    reviews.request("gpu", "shared-mps.gpu.nvidia.com", tolerations=TOLERATED),
    reviews.request("gpu", "exclusive.gpu.nvidia.com", tolerations=TOLERATED),
    reviews.request("gpu", "mig.gpu.nvidia.com", tolerations=TOLERATED),
    reviews.request("gpu", "time-sliced.gpu.nvidia.com", tolerations=TOLERATED),
    reviews.request("gpu", "mps.gpu.nvidia.com", tolerations=TOLERATED),
    reviews.request("gpu", "exclusive.gpu.nvidia.com"),
    reviews.request("gpu", "nic.example", tolerations=TOLERATED),
    reviews.request("gpu", "team-a", selectors=NUMA),
    reviews.request(
        "gpu",
        firstAvailable=[
            {"name": "a", "deviceClassName": "team-a"},
            {"name": "b", "deviceClassName": "mig.nvidia.com", "tolerations": TOLERATED},
        ],
    ),
    reviews.request(
        "gpu", firstAvailable=[{"name": "a", "deviceClassName": "x", "selectors": NUMA}]
    ),
    reviews.request("gpu", "vfio.gpu.nvidia.com"),
    reviews.request(
        "gpu", firstAvailable=[{"name": "a", "deviceClassName": "vfio.gpu.nvidia.com"}]
    ),
]


@pytest.mark.parametrize("resource", ["resourceclaims", "resourceclaimtemplates"])
@pytest.mark.parametrize("version", admitted.VERSIONS)
def test_whoever_would_be_warned_is_asked_about(asked, resource, version):
    warned = 0
    for request in REQUESTS:
        requests = [reviews.request("first", "team-a"), request]
        review = reviews.review(
            resource, version, reviews.made(resource, version, requests=requests)
        )
        expected = bool(admission.decide(review, reviews.DRIVER).warnings)
        assert asked(review) == (["advice"] if expected else []), request
        warned += expected
    assert warned == 11


NAMED = [
    {"configs": [reviews.config({}, driver="GPU.nvidia.com")]},
    {"configs": [OTHER, reviews.config({}, driver="gpu.NVIDIA.com")]},
    {"constraints": [{"matchAttribute": "gpu.nvidia.com/productname"}]},
    {"constraints": [{"requests": ["gpu"], "distinctAttribute": "gpu.nvidia.com/productname"}]},
    {"requests": [reviews.request("gpu", selectors=reviews.selector(
        'device.attributes["GPU.nvidia.com"].index == 1'))]},
    {"requests": [reviews.request("gpu", "shared.gpu.nvidia.com", capacity={
        "requests": {"memory": "10Gi"}})]},
    {"requests": [reviews.request("gpu", capacity={"requests": {"memroy": "10Gi"}})]},
]  # fmt: skip
SILENT = [
    {"configs": [reviews.config({}, driver="xgpu.nvidia.com")]},
    {"configs": [reviews.config({}, driver="gpu.nvidia.com.example")]},
    {"configs": [reviews.config({}, driver="gpuxnvidia.com")]},
    {"constraints": [{"matchAttribute": "nic.example/productname"}]},
    {"requests": [reviews.request("gpu", "team-a", capacity={"requests": {"memroy": "10Gi"}})]},
]


@pytest.mark.parametrize("resource", ["resourceclaims", "resourceclaimtemplates"])
@pytest.mark.parametrize("version", admitted.VERSIONS)
def test_names_that_nothing_has_are_asked_about(asked, resource, version):
    for fields, expected in (*((one, True) for one in NAMED), *((one, False) for one in SILENT)):
        review = reviews.review(resource, version, reviews.made(resource, version, **fields))
        decision = admission.decide(review, reviews.DRIVER)
        assert (decision.allowed, bool(decision.warnings)) == (True, expected), fields
        assert asked(review) == (["advice"] if expected else []), fields


def test_a_class_with_a_config_for_another_spelling_of_the_driver_is_asked_about(asked):
    for configs, expected in ((NAMED[0]["configs"], ["advice"]), ([OTHER], [])):
        body = reviews.made("deviceclasses", configs=configs)
        assert asked(reviews.review("deviceclasses", body=body)) == expected


def test_classes_are_asked_about_if_their_expressions_read_the_drivers_attributes(asked):
    for selectors, expected in ((NUMA, ["advice"]), (FOREIGN, [])):
        body = reviews.made("deviceclasses", selectors=selectors)
        assert asked(reviews.review("deviceclasses", body=body)) == expected


@pytest.mark.parametrize("driver", ["gpu.nvidia.com", "gpu.example.com"])
@pytest.mark.parametrize("version", admitted.VERSIONS)
def test_the_classes_of_the_chart_are_stored_before_there_is_a_webhook(driver, version):
    """Helm makes them after the configuration of the webhook: else an install would not end."""
    values = {
        "resourceApiVersion": version,
        "settings": {"driverName": driver},
        "deviceClasses": {"shared": True},
    }
    ask = asker(values)
    bodies = [body for body in chart.objects(values) if body["kind"] == "DeviceClass"]
    assert len(bodies) >= 3
    for body in bodies:
        assert ask(reviews.review("deviceclasses", version, body)) in ([], ["advice"])
    [advice] = [hook for hook in hooks(values) if hook["name"].startswith("advice.")]
    assert advice["failurePolicy"] == "Ignore"


def test_another_driver_name_is_looked_for_in_the_conditions():
    ask = asker({"settings": {"driverName": "gpu.example.com"}})
    own = reviews.config(config_cases.gpu(), driver="gpu.example.com")
    for configs, expected in (([own], ["configs"]), ([OWN], [])):
        body = reviews.made("resourceclaims", configs=configs)
        assert ask(reviews.review("resourceclaims", body=body)) == expected
    assert "nvidia" not in json.dumps(hooks({"settings": {"driverName": "gpu.example.com"}}))
