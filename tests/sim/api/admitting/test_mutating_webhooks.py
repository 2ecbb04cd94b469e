"""Objects that are created in the embedded API server, and webhooks that change them."""

import time

import api_cluster
import mutating_scene as scene
import pytest

from dra_driver.adapters.kube import kube

DENIED = {"allowed": False, "status": {"code": 422, "reason": "Invalid", "message": "too much"}}


@pytest.fixture
def cluster():
    made = api_cluster.Cluster(with_node=False)
    namespace = {"metadata": {"name": "default", "labels": {"team": "a"}}}
    made.client.patch(scene.NAMESPACES, "default", namespace)
    yield made
    made.close()


def register(cluster, *entries, name="hooks"):
    cluster.client.create(scene.CONFIGURATIONS, scene.configuration(*entries, name=name))


def create(cluster, body=None, **options):
    return cluster.client.create(kube.PODS, body or scene.pod(), "default", **options)


def test_a_webhook_changes_what_is_stored(cluster):
    with scene.serving(scene.annotate("by", "hook")) as (hook,):
        register(cluster, scene.entry(hook.client_config))
        made = create(cluster)
        assert made["metadata"]["annotations"] == {"some": "thing", "by": "hook"}
        stored = cluster.client.get(kube.PODS, "train", "default")
        assert stored == made
        (request,) = hook.seen
        assert (request["name"], request["namespace"]) == ("train", "default")
        assert (request["operation"], request["dryRun"], request["oldObject"]) == (
            "CREATE",
            False,
            None,
        )
        assert request["resource"] == {"group": "", "version": "v1", "resource": "pods"}
        assert request["kind"] == {"group": "", "version": "v1", "kind": "Pod"}
        assert request["object"]["kind"] == "Pod"
        assert request["object"]["spec"]["restartPolicy"] == "Always"
        assert hook.paths == ["/convert?timeout=10s"]


def test_what_a_webhook_has_changed_gets_its_defaults_and_is_validated(cluster):
    added = {"name": "more", "image": "app:1"}
    with scene.serving(
        scene.patch({"op": "add", "path": "/spec/containers/-", "value": added})
    ) as (hook,):
        register(cluster, scene.entry(hook.client_config))
        container = create(cluster)["spec"]["containers"][1]
        assert container["imagePullPolicy"] == "IfNotPresent"
        hook.say = scene.patch({"op": "replace", "path": "/spec/restartPolicy", "value": "Maybe"})
        with pytest.raises(kube.ApiError, match=r"spec.restartPolicy: .*Maybe"):
            create(cluster, scene.pod("other"))


def test_a_dry_run_is_told_to_the_webhook(cluster):
    with scene.serving(scene.annotate("by", "hook")) as (hook,):
        register(cluster, scene.entry(hook.client_config))
        assert create(cluster, dry_run=True)["metadata"]["annotations"]["by"] == "hook"
        assert hook.seen[0]["dryRun"] is True
        assert cluster.client.list(kube.PODS, "default")[0] == []


def test_a_denial_is_told_in_the_words_of_the_api_server(cluster):
    with scene.serving(lambda _request: DENIED) as (hook,):
        register(cluster, scene.entry(hook.client_config))
        with pytest.raises(kube.ApiError) as caught:
            create(cluster)
        assert caught.value.status == 422
        assert 'admission webhook "convert.example.com" denied the request: too much' in str(
            caught.value
        )
        hook.say = lambda _request: {"allowed": False}
        with pytest.raises(kube.ApiError, match="denied the request without explanation") as caught:
            create(cluster)
        assert caught.value.status == 400


@pytest.mark.parametrize(
    ("say", "said"),
    [
        (lambda _request: {"allowed": True, "patch": "W10="}, "response.patch but not"),
        (lambda _request: {"allowed": True, "uid": "other"}, "expected response.uid="),
        (lambda _request: {"allowed": True, "patch": "!", "patchType": "JSONPatch"}, "Internal"),
        (scene.patch({"op": "remove", "path": "/spec/nothing"}), "cannot be applied"),
        (scene.patch({"op": "add", "path": "/spec/containers", "value": 7}), "cannot unmarshal"),
    ],
)
def test_an_answer_that_is_none_is_an_internal_error(cluster, say, said):
    with scene.serving(say) as (hook,):
        register(cluster, scene.entry(hook.client_config))
        with pytest.raises(kube.ApiError, match=said) as caught:
            create(cluster)
        assert caught.value.status == 500
        assert cluster.client.list(kube.PODS, "default")[0] == []


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ((500, b"oh\n"), r'an error on the server \("oh"\) has prevented the request'),
        ((404, b"no"), "the server could not find the requested resource"),
        ((418, b"no"), "the server rejected our request for an unknown reason"),
        ((503, b'{"kind": "Status", "message": "not now"}'), "webhook: not now"),
        ((200, b"{"), "json parse error"),
        ((200, b"[" * 100_000), "json parse error"),
        ((200, b"[]"), "expected webhook response of admission.k8s.io/v1"),
    ],
)
def test_http_that_does_not_work_is_an_internal_error(cluster, answer, said):
    with scene.serving(scene.allow) as (hook,):
        hook.answer = lambda _review: answer
        register(cluster, scene.entry(hook.client_config))
        with pytest.raises(kube.ApiError, match=said) as caught:
            create(cluster)
        assert caught.value.status == 500
        assert 'failed calling webhook "convert.example.com": ' in str(caught.value)


def down(**changes):
    return scene.entry({"url": "https://127.0.0.1:1/convert"}, **changes)


def test_a_webhook_that_is_down_is_told_or_passed_by(cluster):
    register(cluster, down())
    with pytest.raises(kube.ApiError) as caught:
        create(cluster)
    assert caught.value.status == 500
    assert (
        'Internal error occurred: failed calling webhook "convert.example.com": failed to call '
        'webhook: Post "https://127.0.0.1:1/convert?timeout=10s": dial tcp 127.0.0.1:1: connect: '
        "connection refused"
    ) in str(caught.value)
    cluster.client.delete(scene.CONFIGURATIONS, "hooks")
    register(cluster, down(failurePolicy="Ignore"))
    assert create(cluster)["metadata"]["name"] == "train"


def test_a_service_has_no_endpoints_here(cluster):
    service = {"name": "hook", "namespace": "default", "path": "/convert"}
    register(cluster, scene.entry({"service": service}))
    with pytest.raises(kube.ApiError) as caught:
        create(cluster)
    assert (
        'Post "https://hook.default.svc:443/convert?timeout=10s": '
        'no endpoints available for service "hook"'
    ) in str(caught.value)


def test_another_authority_is_not_trusted(cluster):
    with scene.serving(scene.allow, scene.allow) as (hook, other):
        wrong = hook.client_config | {"caBundle": other.client_config["caBundle"]}
        register(cluster, scene.entry(wrong))
        with pytest.raises(kube.ApiError, match="tls: failed to verify certificate: x509: "):
            create(cluster)
        assert hook.seen == []


def test_a_webhook_that_takes_too_long_is_not_waited_for_and_others_are_served(cluster):
    reading = []

    def slow(_request):
        # The server answers others meanwhile.
        reading.append(cluster.client.list(kube.PODS, "default"))
        time.sleep(1.2)
        return {"allowed": True}

    with scene.serving(slow) as (hook,):
        register(cluster, scene.entry(hook.client_config, timeoutSeconds=1))
        with pytest.raises(kube.ApiError, match="context deadline exceeded"):
            create(cluster)
        assert len(reading) == 1


# Which objects


def test_selectors_of_namespace_and_object_decide(cluster):
    with scene.serving(scene.annotate("by", "hook")) as (hook,):
        chosen = {
            "namespaceSelector": {"matchLabels": {"team": "a"}},
            "objectSelector": {
                "matchExpressions": [{"key": "hook", "operator": "NotIn", "values": ["no"]}]
            },
        }
        register(cluster, scene.entry(hook.client_config, **chosen))
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "other"}}
        cluster.client.create(scene.NAMESPACES, body)
        cluster.client.create(kube.PODS, scene.pod(), "other")
        create(cluster, scene.pod("left-alone", labels={"hook": "no"}))
        assert hook.seen == []
        assert create(cluster)["metadata"]["annotations"]["by"] == "hook"


@pytest.mark.parametrize(
    ("change", "called"),
    [
        ({"resources": ["*"]}, True),
        ({"resources": ["*/*"]}, True),
        ({"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"]}, True),
        ({"scope": "Namespaced"}, True),
        ({"scope": "Cluster"}, False),
        ({"resources": ["pods/status"]}, False),
        ({"operations": ["UPDATE"]}, False),
        ({"apiGroups": ["apps"]}, False),
        ({"apiVersions": ["v2"]}, False),
    ],
)
def test_rules_decide(cluster, change, called):
    with scene.serving(scene.allow) as (hook,):
        entry = scene.entry(hook.client_config, rules=[scene.rule(**change)])
        register(cluster, entry)
        create(cluster)
        assert bool(hook.seen) is called


def test_an_equivalent_version_is_shown_as_the_rule_has_it():
    cluster = api_cluster.Cluster(with_node=False, resource_versions=("v1", "v1beta1"))
    beta = kube.Resource("resource.k8s.io", "v1beta1", "resourceclaims")
    body = {
        "metadata": {"name": "one"},
        "spec": {"devices": {"requests": [{"name": "gpu", "deviceClassName": "a.b"}]}},
    }
    added = {"op": "add", "path": "/spec/devices/requests/0/exactly/count", "value": 3}
    rule = scene.rule(apiGroups=["resource.k8s.io"], resources=["resourceclaims"])
    with scene.serving(scene.patch(added)) as (hook,):
        exact = scene.entry(hook.client_config, rules=[rule], matchPolicy="Exact")
        register(cluster, exact)
        assert cluster.client.create(beta, body, "default", dry_run=True)
        assert hook.seen == []
        cluster.client.delete(scene.CONFIGURATIONS, "hooks")
        register(cluster, scene.entry(hook.client_config, rules=[rule]))
        made = cluster.client.create(beta, body, "default")
        assert made["spec"]["devices"]["requests"][0]["count"] == 3
        assert hook.seen[0]["requestKind"]["version"] == "v1beta1"
        assert hook.seen[0]["kind"]["version"] == "v1"
    cluster.close()


def test_a_webhook_is_not_asked_of_configurations(cluster):
    everything = scene.rule(apiGroups=["*"], apiVersions=["*"], resources=["*"])
    register(cluster, down(rules=[everything]))
    register(cluster, down(), name="another")


def test_pods_with_generated_names_have_none_yet(cluster):
    with scene.serving(scene.allow) as (hook,):
        register(cluster, scene.entry(hook.client_config))
        body = scene.pod()
        body["metadata"] = {"generateName": "train-"}
        assert create(cluster, body)["metadata"]["name"].startswith("train-")
        assert "name" not in hook.seen[0]
        assert "name" not in hook.seen[0]["object"]["metadata"]


def test_where_the_namespace_is_missing_nobody_is_asked(cluster):
    register(cluster, down())
    with pytest.raises(kube.NotFound, match='namespaces "nowhere" not found'):
        cluster.client.create(kube.PODS, scene.pod(), "nowhere")


def test_an_apply_that_creates_is_admitted(cluster):
    with scene.serving(scene.annotate("by", "hook")) as (hook,):
        register(cluster, scene.entry(hook.client_config))
        made = cluster.client.apply(kube.PODS, scene.pod(), "default", manager="me")
        assert made["metadata"]["annotations"]["by"] == "hook"
        cluster.client.apply(kube.PODS, scene.pod(), "default", manager="me")
        assert len(hook.seen) == 1


# Several


def test_webhooks_come_in_the_order_of_names_and_see_what_others_made(cluster):
    with scene.serving(scene.annotate("first", "1"), scene.allow) as (first, second):
        register(cluster, scene.entry(second.client_config), name="b")
        register(cluster, scene.entry(first.client_config), name="a")
        create(cluster)
        assert second.seen[0]["object"]["metadata"]["annotations"]["first"] == "1"
        assert len(first.seen) == len(second.seen) == 1


@pytest.mark.parametrize(("policy", "calls"), [("IfNeeded", 2), ("Never", 1)])
def test_one_is_asked_again_where_another_has_changed_the_object(cluster, policy, calls):
    with scene.serving(scene.allow, scene.annotate("later", "1")) as (first, second):
        register(
            cluster,
            scene.entry(first.client_config, "first.example.com", reinvocationPolicy=policy),
            scene.entry(second.client_config, "second.example.com", reinvocationPolicy=policy),
        )
        create(cluster)
        assert len(first.seen) == calls
        assert len(second.seen) == 1
        if calls > 1:
            assert first.seen[1]["object"]["metadata"]["annotations"]["later"] == "1"


def test_nobody_is_asked_again_where_nothing_has_changed(cluster):
    same = scene.patch({"op": "replace", "path": "/metadata/annotations/some", "value": "thing"})
    with scene.serving(scene.allow, same) as (first, second):
        register(
            cluster,
            scene.entry(first.client_config, "first.example.com", reinvocationPolicy="IfNeeded"),
            scene.entry(second.client_config, "second.example.com", reinvocationPolicy="IfNeeded"),
        )
        create(cluster)
        assert len(first.seen) == len(second.seen) == 1


def test_warnings_reach_the_client(cluster, monkeypatch):
    replies = []
    original = kube.Client._request

    def noting(self, *args, **options):
        replies.append(original(self, *args, **options))
        return replies[-1]

    monkeypatch.setattr(kube.Client, "_request", noting)
    warn = {"warnings": ["mind the gap"]}
    with scene.serving(lambda _request: {"allowed": True} | warn) as (hook,):
        register(cluster, scene.entry(hook.client_config))
        create(cluster)
        assert replies[-1].headers["Warning"] == '299 - "mind the gap"'
        hook.say = lambda _request: DENIED | warn
        with pytest.raises(kube.ApiError):
            create(cluster, scene.pod("other"))
        assert replies[-1].headers["Warning"] == '299 - "mind the gap"'
