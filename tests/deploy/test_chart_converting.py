"""The part of the chart that has pods converted: off, and with no right, unless it is wanted."""

import contextlib
import datetime as dt

import api_cluster
import chart
import pytest
import rbac_rules

from dra_driver import telemetry
from dra_driver.adapters.kube import kube
from dra_driver.apps.controller import unused
from dra_driver.apps.webhook import webhook
from dra_driver.settings import controller as controller_settings
from dra_driver.settings import webhook as webhook_settings

pytestmark = pytest.mark.sampled(7)

ON = {"webhook": {"convert": {"enabled": True}}}
WITH_CERT_MANAGER = {"webhook": {"convert": {"enabled": True}, "certManager": {"enabled": True}}}
ALONE = {"controller": {"parameters": False}}
"""Without parameter objects, for which there are templates as well."""
POD = {"DRA_DRIVER_IDENTITY": "controller-1"}
BOTH = pytest.mark.parametrize("values", [ON, WITH_CERT_MANAGER], ids=["own", "cert-manager"])


def parts(component, values=None, **options):
    return chart.part(chart.objects(values, **options), component)


def rights(component, values=None):
    """Resource and verb of each right, and the one name that it is for; those in all namespaces."""
    granted = rbac_rules.granted(parts(component, values))
    return {(each.resource, each.verb, each.name) for each in granted if not each.namespace}


def test_by_default_nothing_is_converted():
    kinds = {body["kind"] for body in [*chart.objects(), *chart.manifests()]}
    assert "MutatingWebhookConfiguration" not in kinds
    assert chart.deployed_settings("webhook", webhook_settings.Webhook).convert is False
    config = chart.deployed_settings("controller", controller_settings.Controller, environment=POD)
    assert config.converted_templates is False


def test_the_flags_are_what_the_values_say():
    values = {
        "enabled": True,
        "shareClass": "shared.gpu.nvidia.com",
        "wholeGpus": True,
        "replicas": 4,
        "fleetSeconds": 60,
    }
    config = chart.deployed_settings(
        "webhook", webhook_settings.Webhook, {"webhook": {"convert": values}}
    )
    assert config.convert
    assert config.convert_whole_gpus
    assert (config.share_class, config.convert_replicas) == ("shared.gpu.nvidia.com", 4)
    assert config.fleet_seconds == 60


@pytest.mark.parametrize(
    ("webhook_values", "removes"),
    [
        ({"convert": {"enabled": True}}, True),
        ({"convert": {"enabled": False}}, False),
        ({"enabled": False, "convert": {"enabled": True}}, False),
    ],
    ids=["on", "off", "no webhook"],
)
def test_the_controller_removes_templates_where_the_webhook_makes_some(webhook_values, removes):
    values = {"webhook": webhook_values} | ALONE
    config = chart.deployed_settings(
        "controller", controller_settings.Controller, values, environment=POD
    )
    assert config.converted_templates is removes
    more = rights("controller", values) - rights("controller", ALONE)
    assert more == (
        {
            ("resourceclaimtemplates", "list", ""),
            ("resourceclaimtemplates", "patch", ""),
            ("resourceclaimtemplates", "delete", ""),
            ("pods", "list", ""),
        }
        if removes
        else set()
    )


@BOTH
def test_pods_are_sent_of_namespaces_that_want_it_when_they_are_created_and_at_no_other_time(
    values,
):
    options = {"name": "second", "namespace": "gpus"}
    bodies = parts("webhook", values, **options)
    configuration = chart.the(bodies, "MutatingWebhookConfiguration")
    [hook] = configuration["webhooks"]
    called = {"name": "second-dra-driver-webhook", "namespace": "gpus", "path": webhook.CONVERT}
    assert hook["clientConfig"] == {"service": called}
    name = {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["gpus"]}
    assert hook["namespaceSelector"] == {
        "matchLabels": {"dra-driver.dev/convert": "enabled"},
        "matchExpressions": [name],
    }
    [expression] = hook["objectSelector"]["matchExpressions"]
    assert expression == {"key": "hami.io/webhook", "operator": "NotIn", "values": ["ignore"]}
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"]}
    assert hook["rules"] == [rule | {"resources": ["pods"]}]
    assert (hook["failurePolicy"], hook["reinvocationPolicy"]) == ("Fail", "IfNeeded")
    assert (hook["sideEffects"], hook["matchPolicy"]) == ("NoneOnDryRun", "Equivalent")
    assert hook["timeoutSeconds"] == 10
    config = chart.deployed_settings("webhook", webhook_settings.Webhook, values, **options)
    assert config.mutating_configuration == configuration["metadata"]["name"]


@pytest.mark.parametrize("driver", ["gpus", "example.com", "gpu.nvidia.com"])
def test_its_name_has_the_three_parts_that_kubernetes_wants(driver):
    bodies = parts("webhook", ON | {"settings": {"driverName": driver}})
    [hook] = chart.the(bodies, "MutatingWebhookConfiguration")["webhooks"]
    assert len(hook["name"].split(".")) >= 3
    assert hook["name"].startswith("convert.")
    assert driver in hook["name"]


def test_the_webhook_may_do_no_more_than_it_needs_for_it():
    templates = {("resourceclaimtemplates", verb, "") for verb in ("get", "create", "patch")}
    slices = {("resourceslices", "list", "")}
    name = "dra-driver-webhook"
    told = {("mutatingwebhookconfigurations", verb, name) for verb in ("get", "update")}
    assert rights("webhook", ON) - rights("webhook") == templates | slices | told
    assert rights("webhook", WITH_CERT_MANAGER) == templates | slices


def test_with_cert_manager_its_pods_have_a_token_and_a_way_to_the_api_server():
    spec = chart.deployed("webhook", WITH_CERT_MANAGER)["spec"]
    assert "automountServiceAccountToken" not in spec
    values = WITH_CERT_MANAGER | {"networkPolicy": {"enabled": True, "apiServerPorts": [6443]}}
    policy = chart.the(parts("webhook", values), "NetworkPolicy")["spec"]
    assert policy["egress"]
    configuration = chart.the(parts("webhook", values), "MutatingWebhookConfiguration")
    assert configuration["metadata"]["annotations"] == {
        "cert-manager.io/inject-ca-from": "dra-driver/dra-driver-webhook"
    }


def test_what_the_webhook_fills_is_not_in_the_chart():
    """Else an upgrade would put it back."""
    assert "caBundle" not in str(chart.the(parts("webhook", ON), "MutatingWebhookConfiguration"))


def test_roles_that_others_make_are_left_to_them():
    kinds = {body["kind"] for body in parts("webhook", ON | {"rbac": {"create": False}})}
    assert "MutatingWebhookConfiguration" in kinds
    assert kinds.isdisjoint({"Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"})


def test_what_the_controller_asks_for_is_allowed_and_nothing_else_is():
    """Of templates; the rest is in `test_rbac_parts`."""
    cluster = api_cluster.Cluster()
    with contextlib.closing(cluster):
        _use_up(cluster)
        granted = rbac_rules.granted(parts("controller", ON | ALONE))
        calls = [each for each in cluster.faults.calls if each.user_agent == "controller"]
    assert rbac_rules.refused(granted, calls) == []
    needed = {each for each in granted if each.resource == "resourceclaimtemplates"}
    assert rbac_rules.unused(needed, calls) == set()


def _use_up(cluster):
    """A template is marked, then removed."""
    requests = [{"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}}]
    metadata = {"name": "one", "labels": {"dra-driver.dev/converted": "webhook"}}
    spec = {"spec": {"devices": {"requests": requests}}}
    cluster.client.create(kube.TEMPLATES, {"metadata": metadata, "spec": spec}, "default")
    config = chart.deployed_settings(
        "controller", controller_settings.Controller, ON, environment=POD
    )
    client = kube.Client(kubeconfig=cluster.kubeconfig, user_agent="controller")
    days = iter(range(1, 9))
    cleaner = unused.Cleaner(
        config,
        client,
        telemetry.ControllerMetrics("gpu.nvidia.com"),
        lambda: dt.datetime(2026, 1, next(days), tzinfo=dt.UTC),
    )
    for _ in range(2):
        cleaner.forget()
        cleaner.clean(0.0, lambda: True)
    assert cluster.client.list(kube.TEMPLATES, "default")[0] == []
