"""The webhook of the chart is that of deploy/webhook.yaml, under the names of the release."""

import copy

import chart
import pytest
import yaml

from dra_driver import cli, settings, webhook_settings

OWN = {"webhook": {"enabled": True}}
CERT_MANAGER = {"webhook": {"enabled": True, "certManager": {"enabled": True}}}
SECOND = {"name": "second", "namespace": "gpus"}
"""A release whose names are not the driver's defaults."""
OF_THE_RELEASE = ("app.kubernetes.io/instance", "app.kubernetes.io/version")


def parts(values, **options):
    """The objects of the webhook."""
    return [
        body
        for body in chart.objects(values, **options)
        if body["metadata"].get("labels", {}).get("app.kubernetes.io/component") == "webhook"
    ]


def flags(values, **options):
    """The settings that the container's arguments make, as the command reads them."""
    [container] = chart.the(parts(values, **options), "Deployment")["spec"]["template"]["spec"][
        "containers"
    ]
    read = cli._parser().parse_args(["webhook", *container["args"]])
    fields = webhook_settings.Webhook.model_fields
    return settings.resolve(
        webhook_settings.Webhook,
        environment={},
        flags={name: getattr(read, name) for name in fields},
    )


def plain(body):
    """The object without what is of the release: labels, image, arguments."""
    body = copy.deepcopy(body)
    body["metadata"].pop("labels", None)
    spec = body.get("spec", {})
    template = spec.get("template", {})
    for labels in (
        template.get("metadata", {}).get("labels", {}),
        spec.get("selector", {}),
        spec.get("selector", {}).get("matchLabels", {}),
        *(
            constraint["labelSelector"]["matchLabels"]
            for constraint in template.get("spec", {}).get("topologySpreadConstraints", ())
        ),
    ):
        for name in OF_THE_RELEASE:
            labels.pop(name, None)
    for container in template.get("spec", {}).get("containers", ()):
        for name in ("args", "image", "imagePullPolicy"):
            container.pop(name, None)
    return body


def test_it_is_there_only_if_it_is_asked_for():
    assert parts({}) == []


def test_its_objects_are_those_of_the_plain_manifest():
    text = (chart.DEPLOY / "webhook.yaml").read_text("utf-8")
    expected = [plain(body) for body in yaml.safe_load_all(text)]
    made = [plain(body) for body in parts(OWN)]

    def by_kind(body):
        return body["kind"]

    assert sorted(made, key=by_kind) == sorted(expected, key=by_kind)


@pytest.mark.parametrize("values", [OWN, CERT_MANAGER], ids=["own", "cert-manager"])
def test_it_is_told_the_names_of_this_release(values):
    bodies = parts(values, **SECOND)
    config = flags(values, **SECOND)
    service = chart.the(bodies, "Service")["metadata"]
    assert (config.service, config.namespace) == (service["name"], service["namespace"])
    assert config.service == "second-dra-driver-webhook"
    configuration = chart.the(bodies, "ValidatingWebhookConfiguration")
    assert config.configuration == configuration["metadata"]["name"]
    for hook in configuration["webhooks"]:
        called = hook["clientConfig"]["service"]
        assert (called["name"], called["namespace"]) == (config.service, config.namespace)


def test_its_own_certificate_is_in_the_secret_that_it_may_write():
    bodies = parts(OWN, **SECOND)
    config = flags(OWN, **SECOND)
    assert config.certificate_dir is None
    secret = chart.the(bodies, "Secret")["metadata"]
    assert (secret["name"], secret["namespace"]) == (config.secret, config.namespace)
    [rule] = chart.the(bodies, "Role")["rules"]
    assert rule["resourceNames"] == [config.secret]
    [rule] = chart.the(bodies, "ClusterRole")["rules"]
    assert rule["resourceNames"] == [config.configuration]


def test_with_cert_manager_it_has_no_rights_and_reads_the_certificate_from_a_mount():
    bodies = parts(CERT_MANAGER)
    assert {body["kind"] for body in bodies}.isdisjoint(
        {"Secret", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"}
    )
    certificate = chart.the(bodies, "Certificate")
    name, namespace = certificate["metadata"]["name"], certificate["metadata"]["namespace"]
    assert certificate["spec"]["dnsNames"] == [f"dra-driver-webhook.{namespace}.svc"]
    pod = chart.the(bodies, "Deployment")["spec"]["template"]["spec"]
    [volume], [mount] = pod["volumes"], pod["containers"][0]["volumeMounts"]
    assert volume["secret"]["secretName"] == certificate["spec"]["secretName"]
    assert mount["mountPath"] == str(flags(CERT_MANAGER).certificate_dir)
    configuration = chart.the(bodies, "ValidatingWebhookConfiguration")["metadata"]
    assert configuration["annotations"] == {"cert-manager.io/inject-ca-from": f"{namespace}/{name}"}


def test_it_asks_about_configs_of_the_driver_by_its_name():
    values = OWN | {"settings": {"driverName": "gpu.example.com"}}
    hooks = chart.the(parts(values), "ValidatingWebhookConfiguration")["webhooks"]
    assert [hook["name"] for hook in hooks] == [
        "configs.gpu.example.com",
        "advice.gpu.example.com",
    ]
    assert "nvidia" not in str(hooks)
    assert "mig.example.com" in str(hooks)
    assert flags(values).driver_name == "gpu.example.com"
