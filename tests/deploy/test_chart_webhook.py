"""The webhook of the chart: its pods, names, ports, and where its certificate is from."""

import re

import chart
import pytest
import yaml

from dra_driver.apps.webhook import webhook
from dra_driver.settings import webhook as webhook_settings

pytestmark = pytest.mark.sampled(7)

CERT_MANAGER = {"webhook": {"certManager": {"enabled": True}}}
SECOND = {"name": "second", "namespace": "gpus"}
"""A release whose names are not the driver's defaults."""
VALUES = yaml.safe_load((chart.PATH / "values.yaml").read_text("utf-8"))
BY_THE_CHART = {
    "address": "a port of the pod's own, which the Service leads to",
    "certificate_dir": "where the chart mounts cert-manager's Secret",
    "configuration": "of the release",
    "kubeconfig": "the pod's service account is used",
    "mutating_configuration": "of the release",
    "namespace": "of the release",
    "secret": "of the release",
    "service": "of the release",
    "status_address": "a port of the pod's own, for probes and metrics",
}
"""Settings that are no values, since they follow from how the pod is made."""
AS_THE_PLUGIN = {"driver_name", "log_format", "log_level"}
"""Settings that are those of the kubelet plugin, below `settings`."""
OF_CONVERSIONS = {
    "convert": "enabled",
    "convert_replicas": "replicas",
    "convert_whole_gpus": "wholeGpus",
    "fleet_seconds": "fleetSeconds",
    "share_class": "shareClass",
}
"""Settings that are values of `webhook.convert`, by their names there."""


def parts(values=None, **options):
    """The objects of the webhook."""
    return chart.part(chart.objects(values, **options), "webhook")


def flags(values=None, **options):
    """The settings that the container's arguments make, as the command reads them."""
    return chart.deployed_settings("webhook", webhook_settings.Webhook, values, **options)


def container(values=None):
    [found] = chart.deployed("webhook", values)["spec"]["containers"]
    return found


def test_it_is_there_unless_it_is_switched_off():
    assert parts()
    assert parts({"webhook": {"enabled": False}}) == []


# Settings


def test_each_setting_is_a_value_or_follows_from_the_pod():
    fields = webhook_settings.Webhook.model_fields
    values = {name for name, field in fields.items() if (field.alias or name) in VALUES["webhook"]}
    assert values == {"check_seconds", "convert", "drain_seconds"}
    assert values | set(BY_THE_CHART) | AS_THE_PLUGIN | set(OF_CONVERSIONS) == set(fields)
    assert set(OF_CONVERSIONS.values()) == set(VALUES["webhook"]["convert"])
    assert {fields[name].alias or name for name in AS_THE_PLUGIN} <= set(VALUES["settings"])


def test_the_flags_are_what_the_values_say():
    values = {
        "webhook": {"checkSeconds": 0.5, "drainSeconds": 12},
        "settings": {"driverName": "gpu.example.com", "logLevel": "debug", "logFormat": "console"},
    }
    config = flags(values)
    assert (config.check_seconds, config.drain_seconds) == (0.5, 12)
    assert (config.driver_name, config.log_level) == ("gpu.example.com", "debug")
    assert config.log_format == "console"


def test_the_default_values_are_the_defaults_of_the_command_but_for_the_log():
    """So the names of the plain manifests are those that the command takes by itself."""
    config, default = flags(), webhook_settings.Webhook()
    names = config.model_dump()
    assert {n for n in names if getattr(config, n) != getattr(default, n)} == {"log_format"}


@pytest.mark.parametrize(
    "values",
    [
        {"checkSeconds": 0},
        {"drainSeconds": 61},
        {"replicas": 0},
        {"checkseconds": 1},
        {"convert": {"replicas": 0}},
        {"convert": {"shareClass": "Shared"}},
        {"convert": {"enable": True}},
    ],
    ids=str,
)
def test_a_value_that_cannot_work_is_refused(values):
    with pytest.raises(chart.helm.HelmValuesError):
        chart.texts({"webhook": values})


# Names


@pytest.mark.parametrize("values", [{}, CERT_MANAGER], ids=["own", "cert-manager"])
def test_it_is_told_the_names_of_this_release(values):
    bodies = parts(values, **SECOND)
    config = flags(values, **SECOND)
    service = chart.the(bodies, "Service", "-webhook")["metadata"]
    assert (config.service, config.namespace) == (service["name"], service["namespace"])
    assert config.service == "second-dra-driver-webhook"
    configuration = chart.the(bodies, "ValidatingWebhookConfiguration")
    assert config.configuration == configuration["metadata"]["name"]
    for hook in configuration["webhooks"]:
        called = {"name": config.service, "namespace": config.namespace, "path": webhook.PATH}
        assert hook["clientConfig"] == {"service": called}


def test_its_own_certificate_is_in_the_secret_that_it_may_write():
    bodies = parts(**SECOND)
    config = flags(**SECOND)
    assert config.certificate_dir is None
    secret = chart.the(bodies, "Secret")
    assert (secret["metadata"]["name"], secret["metadata"]["namespace"]) == (
        config.secret,
        config.namespace,
    )
    [rule] = chart.the(bodies, "Role")["rules"]
    assert rule["resourceNames"] == [config.secret]
    [rule] = chart.the(bodies, "ClusterRole")["rules"]
    assert rule["resourceNames"] == [config.configuration]


def test_what_the_webhook_fills_is_not_in_the_chart():
    """Else an upgrade would put it back."""
    bodies = parts()
    assert {"data", "stringData"}.isdisjoint(chart.the(bodies, "Secret"))
    assert "caBundle" not in str(chart.the(bodies, "ValidatingWebhookConfiguration"))


def test_to_be_asked_changes_nothing_so_dry_runs_are_looked_at_too():
    """The API server refuses a dry run rather than ask a webhook with other side effects."""
    hooks = chart.the(parts(), "ValidatingWebhookConfiguration")["webhooks"]
    assert [hook["sideEffects"] for hook in hooks] == ["None", "None"]


def test_it_asks_about_configs_of_the_driver_by_its_name():
    hooks = chart.the(
        parts({"settings": {"driverName": "gpu.example.com"}}), "ValidatingWebhookConfiguration"
    )["webhooks"]
    assert [hook["name"] for hook in hooks] == ["configs.gpu.example.com", "advice.gpu.example.com"]


@pytest.mark.parametrize("driver", ["gpus", "example.com", "gpu.nvidia.com"])
def test_its_names_have_the_three_parts_that_kubernetes_wants(driver):
    """`IsFullyQualifiedName` in apimachinery's `pkg/util/validation`."""
    bodies = parts({"settings": {"driverName": driver}})
    names = [h["name"] for h in chart.the(bodies, "ValidatingWebhookConfiguration")["webhooks"]]
    assert [name.split(".")[0] for name in names] == ["configs", "advice"]
    assert all(len(name.split(".")) >= 3 and driver in name for name in names)


# cert-manager


def test_with_cert_manager_it_has_no_rights_and_reads_the_certificate_from_a_mount():
    bodies = parts(CERT_MANAGER)
    assert {body["kind"] for body in bodies}.isdisjoint(
        {"Secret", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"}
    )
    certificate = chart.the(bodies, "Certificate", "-webhook")
    name, namespace = certificate["metadata"]["name"], certificate["metadata"]["namespace"]
    assert certificate["spec"]["dnsNames"] == [f"dra-driver-webhook.{namespace}.svc"]
    pod = chart.deployed("webhook", CERT_MANAGER)["spec"]
    [volume], [mount] = pod["volumes"], pod["containers"][0]["volumeMounts"]
    assert volume["secret"]["secretName"] == certificate["spec"]["secretName"]
    assert mount["mountPath"] == str(flags(CERT_MANAGER).certificate_dir)
    assert pod["automountServiceAccountToken"] is False
    configuration = chart.the(bodies, "ValidatingWebhookConfiguration")["metadata"]
    assert configuration["annotations"] == {"cert-manager.io/inject-ca-from": f"{namespace}/{name}"}


def test_what_the_api_server_trusts_stays_when_cert_manager_renews_the_certificate():
    """`caBundle` and the mounted file change at different times; both have to fit meanwhile."""
    kinds = ("Certificate", "Issuer")
    made = {
        (body["kind"], body["metadata"]["name"]): body["spec"]
        for body in parts(CERT_MANAGER)
        if body["kind"] in kinds
    }
    assert len(made) == 4
    leaf = made["Certificate", "dra-driver-webhook"]
    signer = made["Issuer", leaf["issuerRef"]["name"]]
    [authority] = [
        spec
        for spec in made.values()
        if spec.get("secretName") == signer["ca"]["secretName"] != leaf["secretName"]
    ]
    assert authority["isCA"] is True
    assert authority["commonName"]
    # An authority that is renewed with another key would not have signed what is in use.
    assert authority["privateKey"]["rotationPolicy"] == "Never"
    assert made["Issuer", authority["issuerRef"]["name"]] == {"selfSigned": {}}
    # cert-manager renews after two thirds; a leaf lives for 90 days if nothing is said.
    assert int(authority["duration"].removesuffix("h")) / 3 > 90 * 24
    assert "duration" not in leaf


def test_cert_manager_s_secret_is_another_one():
    """Type and owner of a Secret cannot change, so one name would do for one of both only."""
    own = chart.the(parts(), "Secret")["metadata"]["name"]
    theirs = [b for b in parts(CERT_MANAGER) if b["kind"] == "Certificate"]
    assert own not in {body["spec"]["secretName"] for body in theirs}


# Pods


def test_the_ports_are_those_that_the_command_takes():
    config = flags()
    ports = {port["name"]: port["containerPort"] for port in container()["ports"]}
    assert ports == {
        "https": int(config.address.rpartition(":")[2]),
        "status": int(config.status_address.rpartition(":")[2]),
    }
    [port] = chart.the(parts(), "Service", "-webhook")["spec"]["ports"]
    assert (port["port"], port["targetPort"]) == (443, "https")
    probes = {
        name: (probe["httpGet"]["path"], probe["httpGet"]["port"])
        for name, probe in container().items()
        if name.endswith("Probe")
    }
    assert probes == {
        "livenessProbe": ("/healthz", "status"),
        "readinessProbe": ("/readyz", "status"),
    }


def test_it_may_take_as_long_to_end_as_it_goes_on_after_sigterm():
    for seconds, grace in ((0, 25), (5, 30), (0.5, 26), (60, 85)):
        spec = chart.deployed("webhook", {"webhook": {"drainSeconds": seconds}})["spec"]
        assert spec["terminationGracePeriodSeconds"] == grace


def test_an_old_pod_goes_when_a_new_one_is_ready():
    spec = chart.the(parts(), "Deployment")["spec"]
    assert spec["replicas"] == 2
    assert spec["strategy"]["rollingUpdate"] == {"maxUnavailable": 0, "maxSurge": 1}


def test_the_plain_manifests_have_it_with_all_that_it_needs():
    kinds = sorted(body["kind"] for body in chart.part(chart.manifests(), "webhook"))
    assert kinds == sorted(body["kind"] for body in parts())
    docs = (chart.DEPLOY.parent / "docs" / "webhook.md").read_text("utf-8")
    named = set(re.findall(r"deploy/[\w./-]+\.yaml", docs))
    assert {path for path in named if not (chart.DEPLOY.parent / path).exists()} == set()
