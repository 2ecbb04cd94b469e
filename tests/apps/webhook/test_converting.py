"""Pods that ask as older systems had it, as an API server sends them: patches and templates."""

import copy
import json
import re

import pod_reviews
import pytest

from dra_driver.adapters.kube import kube
from dra_driver.logic.admission import converted_templates
from dra_driver.logic.converting import conversion
from dra_driver.sim.api.serving import options


@pytest.fixture
def client(own_cluster, tmp_path):
    with pod_reviews.converting_webhook(own_cluster, tmp_path) as connected:
        yield connected


def converted(client, body, **changes):
    """The pod after the patch of an answer that allows it."""
    response = client.convert(pod_reviews.review(body, **changes))
    assert response["allowed"], response
    return pod_reviews.patched(body, pod_reviews.patch_of(response))


def test_a_pod_gets_claims_and_their_template_is_there_before_the_answer(own_cluster, client):
    body = pod_reviews.share()
    made = converted(client, body)
    ((name, template),) = pod_reviews.templates(own_cluster).items()
    assert re.fullmatch(r"converted-[0-9a-f]{12}", name)
    assert template["metadata"]["labels"] == {"dra-driver.dev/converted": "webhook"}
    assert made["spec"]["resourceClaims"] == [{"name": "gpu-c", "resourceClaimTemplateName": name}]
    [container] = made["spec"]["containers"]
    assert container == {"name": "c", "image": "i", "resources": {"claims": [{"name": "gpu-c"}]}}
    [request] = template["spec"]["spec"]["devices"]["requests"]
    assert request["exactly"]["capacity"]["requests"] == {"memory": "8000Mi", "cores": "30"}
    assert request["exactly"]["deviceClassName"] == "shared-mps.gpu.nvidia.com"
    # The API server takes such a pod.
    own_cluster.client.create(kube.PODS, made, pod_reviews.NAMESPACE)
