"""Pods that ask as older systems had it, as an API server sends them: what is answered."""

import contextlib
import json
import re
import threading

import pod_reviews
import pytest
import webhook_scene

from dra_driver.adapters.kube import kube
from dra_driver.apps.webhook import converting
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


def refused(client, body, **changes):
    """The status of an answer that refuses, without a patch."""
    response = client.convert(pod_reviews.review(body, **changes))
    assert not response["allowed"]
    assert pod_reviews.patch_of(response) == []
    return response["status"]


# Patches


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
    told = json.loads(made["metadata"]["annotations"]["dra-driver.dev/converted-from"])
    assert any("nvidia.com/gpumem" in text and "8000" in text for text in told)
    # The API server takes such a pod.
    own_cluster.client.create(kube.PODS, made, pod_reviews.NAMESPACE)


def test_what_stays_of_the_pod_is_not_in_the_patch(client):
    body = pod_reviews.share(nodeSelector={"a/b~c": "d"})
    body["metadata"]["annotations"] = {"x": "y"}
    body["spec"]["containers"].append({"name": "other", "image": "i"})
    patch = pod_reviews.patch_of(client.convert(pod_reviews.review(body)))
    assert sorted(step["path"] for step in patch) == [
        "/metadata/annotations/dra-driver.dev~1converted-from",
        "/spec/containers/0/resources/claims",
        "/spec/containers/0/resources/limits",
        "/spec/resourceClaims",
    ]


def test_equal_asks_share_one_template_and_others_have_their_own(own_cluster, client):
    for name in ("a", "b"):
        converted(client, pod_reviews.share(name=name) | {})
    assert len(pod_reviews.templates(own_cluster)) == 1
    converted(client, pod_reviews.share("9000"))
    assert len(pod_reviews.templates(own_cluster)) == 2


def test_pods_that_come_at_once_to_several_webhooks_share_one_template(own_cluster, tmp_path):
    answers = []
    begin = threading.Barrier(8)

    def ask(client):
        begin.wait(60)
        answers.append(client.convert(pod_reviews.review(pod_reviews.share())))

    with contextlib.ExitStack() as stack:
        names = [str(number) for number in range(8)]
        for name in names:
            (tmp_path / name).mkdir()
        clients = [
            stack.enter_context(pod_reviews.converting_webhook(own_cluster, tmp_path / name))
            for name in names
        ]
        threads = [threading.Thread(target=ask, args=(client,)) for client in clients]
        for each in threads:
            each.start()
        for each in threads:
            each.join(60)
    assert [answer["allowed"] for answer in answers] == [True] * 8
    assert len({answer["patch"] for answer in answers}) == 1
    assert len(pod_reviews.templates(own_cluster)) == 1


def test_templates_are_in_the_namespace_of_the_pod(own_cluster, client):
    own_cluster.client.create(kube.NAMESPACES, {"metadata": {"name": "other"}})
    converted(client, pod_reviews.share(), namespace="other")
    assert pod_reviews.templates(own_cluster) == {}
    assert len(pod_reviews.templates(own_cluster, "other")) == 1


def test_claims_that_a_pod_has_stay(client):
    body = pod_reviews.share(resourceClaims=[{"name": "gpu-c", "resourceClaimName": "mine"}])
    body["spec"]["containers"][0]["resources"]["claims"] = [{"name": "gpu-c", "request": "r"}]
    made = converted(client, body)
    mine, added = made["spec"]["resourceClaims"]
    assert mine == {"name": "gpu-c", "resourceClaimName": "mine"}
    assert added["name"] != "gpu-c"
    assert made["spec"]["containers"][0]["resources"]["claims"] == [
        {"name": "gpu-c", "request": "r"},
        {"name": added["name"]},
    ]


def test_a_pod_whose_name_is_still_to_be_made_is_converted(client):
    body = pod_reviews.share()
    body["metadata"] = {"generateName": "job-"}
    made = converted(client, body, name="")
    assert made["spec"]["resourceClaims"]
    assert made["metadata"]["generateName"] == "job-"


def test_names_are_within_the_limits_for_containers_of_the_longest_name(own_cluster, client):
    body = pod_reviews.share()
    [container] = body["spec"]["containers"]
    names = ["c" * 62 + "a", "c" * 62 + "b"]
    body["spec"]["containers"] = [container | {"name": name} for name in names]
    made = converted(client, body)
    claims = [each["name"] for each in made["spec"]["resourceClaims"]]
    assert len(set(claims)) == 2
    assert all(re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", name) for name in claims)
    own_cluster.client.create(kube.PODS, made, pod_reviews.NAMESPACE)


def test_a_pod_that_is_converted_is_left_as_it_is(own_cluster, client):
    made = converted(client, pod_reviews.share())
    before = len(own_cluster.faults.calls)
    assert client.convert(pod_reviews.review(made)) == {
        "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
        "allowed": True,
    }
    assert len(own_cluster.faults.calls) == before


@pytest.mark.parametrize(
    "changes",
    [
        {"operation": "UPDATE"},
        {"operation": "DELETE", "object": None},
        {"subResource": "ephemeralcontainers"},
        {"resource": {"group": "apps", "version": "v1", "resource": "deployments"}},
        {"resource": {"group": "example.com", "version": "v1", "resource": "pods"}},
    ],
    ids=str,
)
def test_what_is_no_new_pod_is_allowed_as_it_is(own_cluster, client, changes):
    response = client.convert(pod_reviews.review(pod_reviews.share(), **changes))
    assert response["allowed"]
    assert pod_reviews.patch_of(response) == []
    assert pod_reviews.templates(own_cluster) == {}


@pytest.mark.parametrize(
    "body",
    [pod_reviews.pod(), pod_reviews.pod({"cpu": "1"}), pod_reviews.pod({"nvidia.com/gpu": "1"})],
    ids=["nothing", "cpu", "whole"],
)
def test_a_pod_that_asks_for_nothing_old_is_not_asked_about_anywhere(own_cluster, client, body):
    response = client.convert(pod_reviews.review(body))
    assert (response["allowed"], pod_reviews.patch_of(response)) == (True, [])
    assert pod_reviews.calls(own_cluster, "resourceslices", "list") == 0


def test_whole_gpus_are_converted_where_that_is_wanted(own_cluster, tmp_path):
    body = pod_reviews.pod({"nvidia.com/gpu": "2"})
    with pod_reviews.converting_webhook(
        own_cluster, tmp_path, convert_whole_gpus=True, share_class="mine"
    ) as client:
        made = converted(client, body)
        converted(client, pod_reviews.share())
    assert "limits" not in made["spec"]["containers"][0]["resources"]
    asked = [
        template["spec"]["spec"]["devices"]["requests"][0]["exactly"]
        for template in pod_reviews.templates(own_cluster).values()
    ]
    assert {each["deviceClassName"]: each["count"] for each in asked} == {
        "gpu.nvidia.com": 2,
        "mine": 1,
    }


# Dry runs


def test_a_dry_run_tells_the_patch_and_makes_nothing(own_cluster, client):
    made = converted(client, pod_reviews.share(), dryRun=True)
    assert pod_reviews.templates(own_cluster) == {}
    assert converted(client, pod_reviews.share()) == made
    assert len(pod_reviews.templates(own_cluster)) == 1


# Refusals


def test_what_cannot_be_converted_is_refused_with_all_that_is_wrong(own_cluster, client):
    body = pod_reviews.share("0")
    [container] = body["spec"]["containers"]
    body["spec"]["containers"] = [container, container | {"name": "d"}]
    status = refused(client, body)
    assert (status["code"], status["reason"]) == (422, "Invalid")
    assert (status["details"]["kind"], status["details"]["name"]) == ("Pod", "p")
    causes = {cause["field"]: cause["message"] for cause in status["details"]["causes"]}
    assert set(causes) == {"container c: nvidia.com/gpumem", "container d: nvidia.com/gpumem"}
    assert status["message"].startswith("2 problems in what the pod asks for: container c: ")
    for field, said in causes.items():
        assert f"{field}: {said}" in status["message"]
    assert pod_reviews.templates(own_cluster) == {}


def test_of_many_problems_some_are_told_and_the_others_counted(client):
    body = pod_reviews.share("0")
    [container] = body["spec"]["containers"]
    body["spec"]["containers"] = [container | {"name": f"c{number}"} for number in range(30)]
    status = refused(client, body)
    assert len(status["details"]["causes"]) == 10
    assert status["message"].endswith("and 20 more problems")


def test_without_an_api_server_the_pod_is_refused_with_the_reason(own_cluster, client):
    own_cluster.stop()
    status = refused(client, pod_reviews.share())
    assert (status["code"], status["reason"]) == (500, "InternalError")
    assert status["message"].startswith("the pod cannot be converted now: POST /apis/resource.k8s")
    assert "Create it again later" in status["message"]


def test_an_api_server_that_is_silent_is_waited_for_no_longer_than_a_review_may_take(
    own_cluster, tmp_path, monkeypatch
):
    monkeypatch.setattr(converting, "REQUEST_SECONDS", 0.05)
    rule = _of_templates(options.Fault(delay_seconds=1.0))
    with (
        pod_reviews.converting_webhook(own_cluster, tmp_path) as client,
        own_cluster.faults.where(rule),
    ):
        status = refused(client, pod_reviews.share())
    assert status["code"] == 500
    assert "no answer" in status["message"]


def test_what_an_api_server_may_take_in_all_is_less_than_the_webhook_is_waited_for():
    worst = max(converting.SECONDS, converting.FLEET_SECONDS) + converting.REQUEST_SECONDS
    assert worst < 10


@pytest.mark.parametrize("status", [403, 429, 500, 503])
def test_what_the_api_server_refuses_refuses_the_pod(own_cluster, client, status):
    with own_cluster.faults.where(_of_templates(options.Fault(status=status, message="no way"))):
        answer = refused(client, pod_reviews.share())
    assert answer["code"] == 500
    assert "no way" in answer["message"]
    converted(client, pod_reviews.share())


@pytest.mark.parametrize("dry_run", [False, True], ids=["for good", "dry run"])
@pytest.mark.parametrize("status", [400, 422])
def test_a_template_that_is_not_allowed_is_a_problem_of_the_pod(
    own_cluster, client, status, dry_run
):
    with own_cluster.faults.where(_of_templates(options.Fault(status=status, message="no way"))):
        answer = refused(client, pod_reviews.share(), dryRun=dry_run)
    assert answer["code"] == 422
    [cause] = answer["details"]["causes"]
    assert cause["field"].startswith("ResourceClaimTemplate default/converted-")
    assert cause["message"] == "refused: no way"


def test_a_dry_run_tells_of_rights_that_are_missing(own_cluster, client):
    with own_cluster.faults.where(
        lambda call: options.Fault(status=403, message="no way") if call.verb == "create" else None
    ):
        assert "no way" in refused(client, pod_reviews.share(), dryRun=True)["message"]


def _of_templates(fault):
    return lambda call: fault if call.resource == "resourceclaimtemplates" else None


@pytest.mark.parametrize("dry_run", [False, True], ids=["for good", "dry run"])
def test_an_api_server_without_claims_of_v1_is_told_so(own_cluster, tmp_path, dry_run):
    own_cluster.restart_with(resource_versions=("v1beta2", "v1beta1"))
    with pod_reviews.converting_webhook(own_cluster, tmp_path) as client:
        status = refused(client, pod_reviews.share(), dryRun=dry_run)
        assert "does not serve resource.k8s.io/v1" in status["message"]
        assert "Kubernetes 1.34" in status["message"]


def test_a_namespace_that_is_no_name_is_no_review(client):
    for namespace in ("", "../kube-system", "a/b", None, 7, "A" * 64):
        document = pod_reviews.review(pod_reviews.share(), namespace=namespace)
        answer = client.send(json.dumps(document).encode(), path=pod_reviews.PATH)
        assert answer.status == 400
        assert answer.body.startswith(b"request.namespace: ")


# Served or not


def test_it_is_served_only_where_that_is_wanted(own_cluster, tmp_path):
    with contextlib.closing(_stopping(webhook_scene.Scene(tmp_path))) as scene:
        scene.wait_served()
        with scene.client() as client:
            answer = client.send(b"{}", path=pod_reviews.PATH)
            assert (answer.status, answer.body) == (404, b"reviews are taken at /validate\n")
        assert 'resource="pods"' not in scene.status("/metrics")[1]


def _stopping(scene):
    scene.close = scene.webhook.stop
    return scene


def test_configs_are_still_looked_at_and_pods_are_counted(own_cluster, tmp_path):
    scene = webhook_scene.Scene(tmp_path, convert=True, kubeconfig=own_cluster.kubeconfig)
    with contextlib.closing(_stopping(scene)):
        scene.wait_served()
        pem = scene.authority.cert_pem.bytes()
        with pod_reviews.Client(scene.webhook.port, pem, webhook_scene.SERVICE) as client:
            converted(client, pod_reviews.share())
            refused(client, pod_reviews.share("0"))
            assert client.ask(pod_reviews.review(pod_reviews.share()))["allowed"]
        text = scene.status("/metrics")[1]
        for outcome, count in (("allowed", 1.0), ("refused", 1.0)):
            labels = f'driver="gpu.nvidia.com",outcome="{outcome}",resource="pods"'
            assert f"dra_driver_webhook_reviews_total{{{labels}}} {count}" in text
