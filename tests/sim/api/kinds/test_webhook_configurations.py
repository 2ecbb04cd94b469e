"""MutatingWebhookConfigurations: defaults, and what is refused."""

import api_cluster
import mutating_scene as scene
import pytest

from dra_driver.adapters.kube import kube

URL = {"url": "https://example.com/convert"}


@pytest.fixture(scope="module")
def cluster():
    made = api_cluster.Cluster(with_node=False)
    yield made
    made.close()


def create(cluster, *entries):
    body = scene.configuration(*entries)
    return cluster.client.create(scene.CONFIGURATIONS, body, dry_run=True)


def test_what_is_not_said_has_its_default(cluster):
    (hook,) = create(cluster, scene.entry(URL))["webhooks"]
    assert hook["failurePolicy"] == "Fail"
    assert hook["matchPolicy"] == "Equivalent"
    assert hook["reinvocationPolicy"] == "Never"
    assert hook["timeoutSeconds"] == 10
    assert hook["namespaceSelector"] == hook["objectSelector"] == {}
    assert hook["rules"][0]["scope"] == "*"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"name": ""}, "webhooks[0].name: Required value"),
        ({"name": "a.b"}, 'webhooks[0].name: Invalid value: "a.b": should be a domain with at'),
        ({"name": "A.b.c"}, "webhooks[0].name: Invalid value"),
        ({"failurePolicy": "Maybe"}, 'webhooks[0].failurePolicy: Unsupported value: "Maybe"'),
        ({"matchPolicy": "Maybe"}, "webhooks[0].matchPolicy: Unsupported value"),
        ({"reinvocationPolicy": "Often"}, "webhooks[0].reinvocationPolicy: Unsupported value"),
        ({"sideEffects": "Some"}, "webhooks[0].sideEffects: Unsupported value"),
        ({"sideEffects": None}, "webhooks[0].sideEffects: Required value"),
        ({"timeoutSeconds": 0}, "webhooks[0].timeoutSeconds: Invalid value: 0: the timeout value"),
        ({"timeoutSeconds": 31}, "must be between 1 and 30 seconds"),
        ({"admissionReviewVersions": []}, "webhooks[0].admissionReviewVersions: Required value"),
        ({"admissionReviewVersions": ["v2"]}, "must include at least one of v1"),
        ({"matchConditions": [{"name": "a"}]}, "webhooks[0].matchConditions: Forbidden"),
        ({"clientConfig": {}}, "webhooks[0].clientConfig: Required value: exactly one of url or"),
        (
            {"clientConfig": URL | {"service": {"name": "a", "namespace": "b"}}},
            "exactly one of url or service is required",
        ),
        ({"clientConfig": {"service": {"name": "a"}}}, "clientConfig.service.namespace: Required"),
        ({"clientConfig": {"url": "http://a"}}, "'https' is the only allowed URL scheme"),
        ({"clientConfig": {"url": "https://"}}, "host must be specified"),
        ({"clientConfig": {"url": "https://u:p@a"}}, "user information is not permitted"),
        ({"clientConfig": {"url": "https://a/?q"}}, "query parameters are not permitted"),
        ({"clientConfig": {"url": "https://a/#q"}}, "fragments are not permitted"),
        ({"clientConfig": {"url": "https://a:b/"}}, "url must be a valid URL"),
        ({"clientConfig": URL | {"caBundle": "!"}}, "webhooks[0].clientConfig.caBundle: Invalid"),
        ({"rules": [scene.rule(operations=[])]}, "webhooks[0].rules[0].operations: Required value"),
        ({"rules": [scene.rule(operations=["MAKE"])]}, "rules[0].operations[0]: Unsupported value"),
        ({"rules": [scene.rule(resources=[])]}, "webhooks[0].rules[0].resources: Required value"),
        ({"rules": [scene.rule(scope="Any")]}, "webhooks[0].rules[0].scope: Unsupported value"),
        (
            {"namespaceSelector": {"matchExpressions": [{"key": "a", "operator": "Is"}]}},
            "webhooks[0].namespaceSelector.matchExpressions[0].operator: Unsupported value",
        ),
        (
            {"objectSelector": {"matchExpressions": [{"operator": "Exists"}]}},
            "webhooks[0].objectSelector.matchExpressions[0].key: Required value",
        ),
    ],
)
def test_what_cannot_be_followed_is_refused(cluster, changes, said):
    with pytest.raises(kube.ApiError) as caught:
        create(cluster, scene.entry(URL, **changes))
    assert caught.value.status == 422
    assert said in str(caught.value)


def test_two_of_a_name_are_refused(cluster):
    with pytest.raises(kube.ApiError, match=r"webhooks\[1\].name: Duplicate value"):
        create(cluster, scene.entry(URL), scene.entry(URL))
