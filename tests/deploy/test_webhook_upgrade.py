"""What becomes of the webhook's certificate when the chart's objects are applied anew.

By the real `kubectl`, as `helm upgrade` does it: a three-way merge on the client, or server-side.
"""

import base64
import os
import shutil
import subprocess
import sysconfig

import api_cluster
import chart
import pytest
import served_api
import webhook_reviews as reviews
import webhook_scene
import yaml

from dra_driver.adapters.kube import kube
from dra_driver.apps.webhook import webhook, webhook_certificates

pytestmark = pytest.mark.sampled(9)

SECRET, CONFIGURATION = "dra-driver-webhook-certificate", "dra-driver-webhook"
AS_KUBECTL = ("apply",)
SERVER_SIDE = ("apply", "--server-side")
WAYS = pytest.mark.parametrize("way", [AS_KUBECTL, SERVER_SIDE], ids=" ".join)


@pytest.fixture
def api(tmp_path):
    served = served_api.ServedApi(tmp_path)
    served.client.create(kube.NAMESPACES, {"metadata": {"name": chart.NAMESPACE}})
    yield served
    served.close()


@pytest.fixture
def kubectl(api, tmp_path):
    program = shutil.which("kubectl", path=sysconfig.get_path("scripts"))
    assert program is not None

    def call(*arguments, values=None):
        """One command on the Secret and the configuration as the chart renders them."""
        kinds = ("Secret", "ValidatingWebhookConfiguration")
        bodies = [b for b in chart.objects(values) if b["kind"] in kinds]
        assert len(bodies) == 2
        path = tmp_path / "manifest.yaml"
        path.write_text(yaml.safe_dump_all(bodies), "utf-8")
        flags = (f"--kubeconfig={api.kubeconfig}", f"--cache-dir={tmp_path}")
        subprocess.run(
            [program, *flags, *arguments, "-f", str(path)],
            env={"HOME": str(tmp_path), "PATH": os.environ["PATH"]},
            capture_output=True,
            timeout=60,
            check=True,
        )

    return call


@pytest.fixture
def running(api):
    """A webhook that looks after its certificate; it is started by the call."""
    made = []

    def start():
        made.append(
            webhook.Webhook(
                webhook_scene.settings(),
                lambda config: webhook_certificates.SelfManaged(config, api.client),
            )
        )
        made[0].start()
        assert made[0].wait_served(60)
        return made[0]

    yield start
    for each in made:
        each.stop()


def data(api):
    secret = api.client.get(webhook_certificates.SECRETS, SECRET, chart.NAMESPACE)
    return secret.get("data") or {}


def hooks(api):
    body = api.client.get(webhook_certificates.CONFIGURATIONS, CONFIGURATION)
    return body["webhooks"]


def bundles(api):
    return [hook["clientConfig"].get("caBundle") for hook in hooks(api)]


def is_answered(api, running):
    """Whether one who trusts what the API server has been told gets an answer."""
    found = bundles(api)
    if None in found:
        return False
    [bundle] = set(found)
    try:
        with reviews.Client(
            running.port, base64.b64decode(bundle), webhook_scene.SERVICE
        ) as client:
            return client.ask(reviews.review("resourceclaims"))["allowed"]
    except OSError:
        return False


@WAYS
@pytest.mark.parametrize(
    "values", [{}, {"nameOverride": "gpus", "fullnameOverride": "dra-driver"}], ids=str
)
def test_what_the_webhook_has_written_stays_when_the_chart_is_applied_again(
    api, kubectl, way, values
):
    kubectl(*way)
    assert (data(api), bundles(api)) == ({}, [None, None])
    webhook_certificates.SelfManaged(webhook_scene.settings(), api.client).get()
    before = data(api), bundles(api)
    assert None not in before[1]
    kubectl(*way, values=values)
    assert (data(api), bundles(api)) == before
    body = api.client.get(webhook_certificates.CONFIGURATIONS, CONFIGURATION)
    name = values.get("nameOverride", "dra-driver")
    assert body["metadata"]["labels"]["app.kubernetes.io/name"] == name


def test_webhooks_that_get_another_name_are_told_the_authority_at_the_next_look(
    api, kubectl, running
):
    kubectl("apply")
    served = running()
    api_cluster.wait_for(lambda: is_answered(api, served), "the webhook answers")
    kubectl("apply", values={"settings": {"driverName": "gpu.example.com"}})
    assert {hook["name"].partition(".")[2] for hook in hooks(api)} == {"gpu.example.com"}
    api_cluster.wait_for(lambda: is_answered(api, served), "the webhook answers again")


def test_what_a_replacement_takes_away_is_made_anew_at_the_next_look(api, kubectl, running):
    """`kubectl replace` and `helm upgrade --force` do not merge."""
    kubectl("apply")
    served = running()
    api_cluster.wait_for(lambda: is_answered(api, served), "the webhook answers")
    before = data(api)

    def replaced():
        try:
            kubectl("replace")
        except subprocess.CalledProcessError as error:
            # The webhook wrote after kubectl had read, and before it wrote.
            if b"(Conflict)" in error.stderr:
                return False
            raise
        return True

    api_cluster.wait_for(replaced, "both objects are replaced")
    api_cluster.wait_for(
        lambda: data(api) and data(api) != before and is_answered(api, served),
        "the webhook answers with another certificate",
    )
