"""Conversions as a cluster has them: the chart's objects, its rights, an API server that asks."""

import base64
import contextlib

import chart
import mutating_scene
import pod_reviews
import pytest
import rbac_rules
import trustme
import webhook_scene

from dra_driver.adapters.kube import kube
from dra_driver.apps.webhook import converting, webhook, webhook_certificates
from dra_driver.logic.admission import converted

ON = {"webhook": {"convert": {"enabled": True}}}
NAMESPACE, LABEL = "old", {"dra-driver.dev/convert": "enabled"}


@contextlib.contextmanager
def serving(cluster, **changes):
    """A webhook with a certificate of its own, in a cluster with the chart's objects for it."""
    bodies = chart.part(chart.objects(ON), "webhook")
    cluster.client.create(kube.NAMESPACES, {"metadata": {"name": chart.NAMESPACE}})
    secret = chart.the(bodies, "Secret")
    cluster.client.create(webhook_certificates.SECRETS, secret, chart.NAMESPACE)
    for resource, kind in (
        (webhook_certificates.CONFIGURATIONS, "ValidatingWebhookConfiguration"),
        (webhook_certificates.MUTATING, "MutatingWebhookConfiguration"),
    ):
        cluster.client.create(resource, chart.the(bodies, kind))
    agent = "dra-driver/test webhook"
    config = webhook_scene.settings(kubeconfig=cluster.kubeconfig, **changes)
    running = webhook.Webhook(
        config,
        lambda config: webhook.certificate_source(config, user_agent=agent),
        lambda config: converting.converter(config, user_agent=agent),
    )
    running.start()
    try:
        assert running.wait_served(60)
        yield running
    finally:
        running.stop()


def bundles(cluster, resource):
    found = cluster.client.get(resource, "dra-driver-webhook")
    return {hook["clientConfig"].get("caBundle") for hook in found["webhooks"]}


def test_both_configurations_trust_one_authority(own_cluster):
    with serving(own_cluster, convert=True):
        [bundle] = bundles(own_cluster, webhook_certificates.MUTATING)
        assert bundles(own_cluster, webhook_certificates.CONFIGURATIONS) == {bundle}
        assert base64.b64decode(bundle).startswith(b"-----BEGIN CERTIFICATE-----")


def test_without_conversions_the_other_configuration_is_not_looked_at(own_cluster):
    with serving(own_cluster, convert=False):
        assert bundles(own_cluster, webhook_certificates.MUTATING) == {None}
    assert pod_reviews.calls(own_cluster, "mutatingwebhookconfigurations", "get") == 0


def test_what_it_asks_for_is_allowed_and_nothing_else_is(own_cluster):
    own_cluster.faults.calls.clear()
    with serving(own_cluster, convert=True) as running:
        bundle, *_ = bundles(own_cluster, webhook_certificates.MUTATING)
        pem = base64.b64decode(bundle)
        with pod_reviews.Client(running.port, pem, webhook_scene.SERVICE) as client:
            for _ in range(2):
                review = pod_reviews.review(pod_reviews.share())
                assert client.convert(review)["allowed"]
                [template] = pod_reviews.templates(own_cluster)
                patch = {"metadata": {"annotations": {"dra-driver.dev/unused-since": "x"}}}
                own_cluster.client.patch(kube.TEMPLATES, template, patch, pod_reviews.NAMESPACE)
            assert client.convert(review)["allowed"]
    calls = [each for each in own_cluster.faults.calls if each.user_agent.endswith("webhook")]
    rights = rbac_rules.granted(chart.part(chart.objects(ON), "webhook"))
    assert rbac_rules.refused(rights, calls) == []
    assert rbac_rules.unused(rights, calls) == set()


# An API server that asks


@pytest.fixture
def asking(own_cluster, tmp_path):
    """A cluster whose API server asks the webhook, as the chart has it but for the address."""
    authority = trustme.CA()
    issued = authority.issue_cert("127.0.0.1")
    (tmp_path / "tls.key").write_bytes(issued.private_key_pem.bytes())
    (tmp_path / "tls.crt").write_bytes(issued.cert_chain_pems[0].bytes())
    scene = webhook_scene.Scene(
        tmp_path, issued=False, convert=True, kubeconfig=own_cluster.kubeconfig
    )
    scene.wait_served()
    body = chart.the(chart.objects(ON), "MutatingWebhookConfiguration")
    [hook] = body["webhooks"]
    path = hook["clientConfig"]["service"]["path"]
    hook["clientConfig"] = {
        "url": f"https://127.0.0.1:{scene.webhook.port}{path}",
        "caBundle": base64.b64encode(authority.cert_pem.bytes()).decode(),
    }
    own_cluster.client.create(webhook_certificates.MUTATING, body)
    for name, labels in ((NAMESPACE, LABEL), ("plain", {}), (chart.NAMESPACE, LABEL)):
        own_cluster.client.create(kube.NAMESPACES, {"metadata": {"name": name, "labels": labels}})
    yield own_cluster
    scene.webhook.stop()


def create(cluster, body, namespace=NAMESPACE, **options):
    metadata = {key: value for key, value in body["metadata"].items() if key != "namespace"}
    return cluster.client.create(kube.PODS, body | {"metadata": metadata}, namespace, **options)


def test_a_pod_is_stored_with_its_claims(asking):
    body = pod_reviews.share()
    body["metadata"] = {"generateName": "job-"}
    made = create(asking, body)
    [template] = pod_reviews.templates(asking, NAMESPACE)
    assert made["metadata"]["name"].startswith("job-")
    [claim] = made["spec"]["resourceClaims"]
    assert claim["resourceClaimTemplateName"] == template
    assert "limits" not in made["spec"]["containers"][0]["resources"]


def test_a_dry_run_leaves_nothing(asking):
    made = create(asking, pod_reviews.share(), dry_run=True)
    assert made["spec"]["resourceClaims"]
    assert pod_reviews.templates(asking, NAMESPACE) == {}
    assert asking.client.list(kube.PODS, NAMESPACE)[0] == []


def test_pods_elsewhere_and_those_that_do_not_want_it_stay_as_they_are(asking):
    body = pod_reviews.share()
    made = create(asking, body, "plain")
    assert "resourceClaims" not in made["spec"]
    body["metadata"]["labels"] = {"hami.io/webhook": "ignore"}
    assert "resourceClaims" not in create(asking, body)["spec"]


def test_a_refusal_is_told_to_whoever_makes_the_pod(asking):
    with pytest.raises(kube.Refused) as refused:
        create(asking, pod_reviews.share("0"))
    assert "convert.gpu.nvidia.com" in refused.value.message
    assert "container c: nvidia.com/gpumem: '0'" in refused.value.message
    assert refused.value.fields == ("container c: nvidia.com/gpumem",)


def test_what_another_webhook_adds_later_is_converted_too(asking):
    [container] = pod_reviews.share("9000")["spec"]["containers"]
    add = {"op": "add", "path": "/spec/containers/-", "value": container | {"name": "added"}}

    def inject(request):
        names = [each["name"] for each in request["object"]["spec"]["containers"]]
        say = mutating_scene.allow if "added" in names else mutating_scene.patch(add)
        return say(request)

    with mutating_scene.serving(inject) as [hook]:
        theirs = mutating_scene.configuration(
            mutating_scene.entry(hook.client_config, reinvocationPolicy="IfNeeded"), name="zz"
        )
        asking.client.create(webhook_certificates.MUTATING, theirs)
        made = create(asking, pod_reviews.share())
    assert len(hook.seen) == 2
    claims = {each["name"]: each for each in made["spec"]["resourceClaims"]}
    assert list(claims) == ["gpu-c", "gpu-added"]
    used = [each["resources"] for each in made["spec"]["containers"]]
    assert used == [{"claims": [{"name": name}]} for name in claims]
    named = {each["resourceClaimTemplateName"] for each in claims.values()}
    assert named == set(pod_reviews.templates(asking, NAMESPACE))
    assert len(converted.converted_from(made)) == 2


def test_while_it_is_away_pods_of_other_namespaces_are_made_and_old_ones_are_not(asking):
    found = asking.client.get(webhook_certificates.MUTATING, "dra-driver-webhook")
    found["webhooks"][0]["clientConfig"]["url"] = "https://127.0.0.1:9/convert"
    asking.client.replace(webhook_certificates.MUTATING, found)
    with pytest.raises(kube.ApiError, match="failed calling webhook"):
        create(asking, pod_reviews.pod())
    assert create(asking, pod_reviews.share(), "plain")
    # Its own pods are never in need of it.
    assert create(asking, pod_reviews.share(), chart.NAMESPACE)
