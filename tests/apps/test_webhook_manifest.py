"""deploy/webhook.yaml: objects as Kubernetes knows them, no right too many, who is asked when."""

import json
import pathlib

import config_cases
import kubernetes
import pytest
import served_api
import webhook_reviews as reviews
import webhook_scene
import yaml

from dra_driver import webhook_settings
from dra_driver.adapters import kube
from dra_driver.apps import webhook, webhook_certificates
from dra_driver.logic import admission, admitted

DEPLOY = pathlib.Path(__file__).parents[2] / "deploy"
OBJECTS = list(yaml.safe_load_all((DEPLOY / "webhook.yaml").read_text()))
MODELS = {
    "Deployment": "V1Deployment",
    "PodDisruptionBudget": "V1PodDisruptionBudget",
    "ValidatingWebhookConfiguration": "V1ValidatingWebhookConfiguration",
    "ServiceAccount": "V1ServiceAccount",
    "Secret": "V1Secret",
    "Service": "V1Service",
    "Role": "V1Role",
    "RoleBinding": "V1RoleBinding",
    "ClusterRole": "V1ClusterRole",
    "ClusterRoleBinding": "V1ClusterRoleBinding",
}
DEFAULTS = webhook_settings.Webhook()


def the(kind):
    (found,) = [one for one in OBJECTS if one["kind"] == kind]
    return found


@pytest.mark.parametrize("body", OBJECTS, ids=lambda body: body["kind"])
def test_each_object_is_one_that_kubernetes_knows(body):
    """A field that a model does not have would be lost on the way through it."""
    api = kubernetes.client.ApiClient()
    model = api.deserialize(json.dumps(body), MODELS[body["kind"]], "application/json")
    assert api.sanitize_for_serialization(model) == body


def test_the_names_are_those_of_the_settings():
    service, configuration = the("Service"), the("ValidatingWebhookConfiguration")
    assert service["metadata"] == {"name": DEFAULTS.service, "namespace": DEFAULTS.namespace}
    assert the("Secret")["metadata"]["name"] == DEFAULTS.secret
    assert configuration["metadata"]["name"] == DEFAULTS.configuration
    for hook in configuration["webhooks"]:
        expected = {"name": DEFAULTS.service, "namespace": DEFAULTS.namespace, "path": webhook.PATH}
        assert hook["clientConfig"] == {"service": expected}
    namespaces = {one["metadata"].get("namespace", DEFAULTS.namespace) for one in OBJECTS}
    assert namespaces == {DEFAULTS.namespace}


def test_the_pods_are_found_by_the_service_and_spared_by_the_budget():
    deployment = the("Deployment")["spec"]
    labels = deployment["template"]["metadata"]["labels"]
    assert deployment["selector"]["matchLabels"] == labels
    assert the("Service")["spec"]["selector"] == labels
    assert the("PodDisruptionBudget")["spec"]["selector"]["matchLabels"] == labels
    assert deployment["replicas"] == 2
    (container,) = deployment["template"]["spec"]["containers"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert ports == {
        "https": int(DEFAULTS.address.rpartition(":")[2]),
        "status": int(DEFAULTS.status_address.rpartition(":")[2]),
    }
    (port,) = the("Service")["spec"]["ports"]
    assert port["targetPort"] in ports
    for probe in ("livenessProbe", "readinessProbe"):
        assert container[probe]["httpGet"]["port"] in ports


def test_the_webhook_does_what_its_roles_allow_and_they_allow_no_more(tmp_path):
    allowed = {
        (verb, resource, name)
        for kind in ("Role", "ClusterRole")
        for rule in the(kind)["rules"]
        for verb in rule["verbs"]
        for resource in rule["resources"]
        for name in rule["resourceNames"]
    }
    served = served_api.ServedApi(tmp_path)
    try:
        body = {"metadata": {"name": DEFAULTS.namespace}}
        served.client.create(kube.NAMESPACES, body)
        served.client.create(webhook_certificates.SECRETS, the("Secret"), DEFAULTS.namespace)
        served.client.create(
            webhook_certificates.CONFIGURATIONS, the("ValidatingWebhookConfiguration")
        )
        served.calls.clear()
        webhook_certificates.SelfManaged(webhook_scene.settings(), served.client).get()
        assert {(call.verb, call.resource, call.name) for call in served.calls} == allowed
    finally:
        served.close()


# Who is asked


@pytest.fixture(scope="module")
def asked():
    """Which of the webhooks are asked about a review, as the API server finds out."""
    cel = pytest.importorskip("cel_expr_python.cel", reason="no wheel of CEL's own runtime")
    config = cel.NewEnvConfigFromYaml("name: conditions\nextensions:\n- name: optional\n")
    names = ("object", "oldObject", "request")
    environment = cel.NewEnv(config=config, variables=dict.fromkeys(names, cel.Type.DYN))
    conditions = [
        (hook["name"], condition["name"], environment.compile(condition["expression"]))
        for hook in the("ValidatingWebhookConfiguration")["webhooks"]
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


def test_both_hear_of_the_same_resources():
    first, second = the("ValidatingWebhookConfiguration")["webhooks"]
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
    assert warned == 5


def test_classes_are_asked_about_if_their_expressions_read_the_drivers_attributes(asked):
    for selectors, expected in ((NUMA, ["advice"]), (FOREIGN, [])):
        body = reviews.made("deviceclasses", selectors=selectors)
        assert asked(reviews.review("deviceclasses", body=body)) == expected
