"""Pods of the chart start with the flags that are rendered, and do what they are for."""

import base64
import pathlib
import tempfile

import api_cluster
import chart
import chart_pods
import config_cases
import pytest
import webhook_reviews as reviews

from dra_driver.adapters.kube import kube
from dra_driver.apps.controller import leading
from dra_driver.apps.webhook import webhook_certificates

pytestmark = pytest.mark.sampled(9)

BAD = reviews.config({"apiVersion": "resource.nvidia.com/v1beta1", "kind": "GpuConfig", "x": 1})
GOOD = reviews.config(config_cases.gpu())


@pytest.fixture
def root():
    with tempfile.TemporaryDirectory(prefix="dra-", dir="/tmp") as name:
        yield pathlib.Path(name)


@pytest.fixture
def node(root):
    made = chart_pods.Node(root)
    yield made
    made.close()


def container(template):
    [found] = template["spec"]["containers"]
    return found


def rendered(template):
    """The command line of the container."""
    return [*container(template)["command"], *container(template)["args"]][1:]


def is_ready(process, template):
    probe = container(template)["readinessProbe"]["httpGet"]
    return process.ask(probe["path"]) == 200


# The webhook


def install(node, values):
    """What the webhook needs to be there."""
    bodies = chart.part(chart.objects(values), "webhook")
    secret = chart.the(bodies, "Secret")
    node.client.create(webhook_certificates.SECRETS, secret, chart.NAMESPACE)
    configuration = chart.the(bodies, "ValidatingWebhookConfiguration")
    node.client.create(webhook_certificates.CONFIGURATIONS, configuration)


def test_the_webhook_starts_and_answers_who_trusts_what_it_told_the_api_server(node):
    values = {"fullnameOverride": "gpus", "settings": {"logLevel": "debug"}}
    install(node, values)
    template = chart.deployed("webhook", values)
    process = node.run(template, "gpus-webhook-1")
    assert process.arguments() == rendered(template)
    api_cluster.wait_for(lambda: is_ready(process, template), "the pod is ready")
    assert process.ask(container(template)["livenessProbe"]["httpGet"]["path"]) == 200
    hooks = node.client.get(webhook_certificates.CONFIGURATIONS, "gpus-webhook")["webhooks"]
    [bundle] = {hook["clientConfig"]["caBundle"] for hook in hooks}
    [service] = {hook["clientConfig"]["service"]["name"] for hook in hooks}
    name = f"{service}.{chart.NAMESPACE}.svc"
    port = process.logged("started")["reviews"]
    with reviews.Client(port, base64.b64decode(bundle), name) as client:
        for configs, allowed in (([GOOD], True), ([BAD], False)):
            body = reviews.made("resourceclaims", configs=configs)
            assert client.ask(reviews.review("resourceclaims", body=body))["allowed"] is allowed


# The controller


def holder(node):
    lease = node.client.get(leading.LEASES, "dra-driver-controller", chart.NAMESPACE)
    return (lease.get("spec") or {}).get("holderIdentity")


def test_of_the_controller_s_pods_one_leads_and_the_next_follows_when_it_ends(node):
    values = {"controller": {"retrySeconds": 0.1}}
    replicas = chart.the(chart.part(chart.objects(values), "controller"), "Deployment")["spec"][
        "replicas"
    ]
    lease = chart.the(chart.part(chart.objects(values), "controller"), "Lease")
    node.client.create(leading.LEASES, lease, chart.NAMESPACE)
    template = chart.deployed("controller", values)
    names = [f"controller-{number}" for number in range(replicas)]
    assert len(names) == 2
    processes = {}
    for name in names:
        processes[name] = node.run(template, name)
        processes[name].logged("started")
    for process in processes.values():
        assert process.arguments() == rendered(template)
        assert is_ready(process, template)
        assert process.ask("/metrics") == 200
    first = api_cluster.wait_for(lambda: _held_by(node, names), "one leads")
    [second] = set(names) - {first}
    node.delete(first)
    api_cluster.wait_for(lambda: holder(node) == second, "the other one leads")
    assert is_ready(processes[second], template)


def _held_by(node, names):
    found = holder(node)
    assert found in (None, *names)
    return found


# The kubelet plugin


def test_the_plugin_starts_is_registered_and_publishes_and_its_probes_pass(node, root):
    values = {
        "metrics": {"enabled": False},
        "settings": {
            "cdiDir": str(root / "cdi"),
            "kubeletRoot": str(root),
            "simulateGpus": "h100-80gb-hbm3:1,t4:1",
            "migMode": "off",
        },
    }
    template = chart.the(chart.objects(values), "DaemonSet")["spec"]["template"]
    process = node.run(template, "plugin-1")
    assert process.arguments() == rendered(template)
    node.cluster.wait_devices("gpu-0", "gpu-1")
    startup, liveness, readiness = (
        container(template)[f"{name}Probe"]["exec"]["command"]
        for name in ("startup", "liveness", "readiness")
    )
    # The kubelet may register it after its devices are published.
    api_cluster.wait_for(lambda: process.execute(readiness) == 0, "the pod is ready")
    assert [process.execute(probe) for probe in (startup, liveness)] == [0, 0]
    registered = list((root / "plugins_registry").iterdir())
    uid = node.client.get(kube.PODS, "plugin-1", chart.NAMESPACE)["metadata"]["uid"]
    assert [path.name for path in registered] == [f"gpu.nvidia.com-{uid}-reg.sock"]
