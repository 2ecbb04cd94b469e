import api_objects
import pytest
from api_objects import CONFIG_MAPS, EVENTS, NAMESPACES, NODES, PODS, changed, pod

CLAIM = {"name": "gpu", "resourceClaimName": "mine"}


def container(name="main", **fields):
    return {"name": name, "image": "busybox:1", **fields}


def uses(*names, **fields):
    return container(resources={"claims": [{"name": name, **fields} for name in names]})


def create(api, body):
    return api.send("POST", PODS, changed(body, "metadata", {"generateName": "pod-"}))


ACCEPTED = {
    "a container": pod(),
    "several containers": pod(containers=[container("a"), container("b")]),
    "a claim by its name": pod(containers=[uses("gpu")], resourceClaims=[CLAIM]),
    "one request of a claim": pod(containers=[uses("gpu", request="a")], resourceClaims=[CLAIM]),
    "two requests of a claim": pod(
        containers=[
            container(
                resources={"claims": [{"name": "gpu", "request": name} for name in ("a", "b")]}
            )
        ],
        resourceClaims=[CLAIM],
    ),
    "a claim from a template": pod(
        resourceClaims=[{"name": "gpu", "resourceClaimTemplateName": "one"}]
    ),
    "a claim that only an init container uses": pod(
        initContainers=[uses("gpu") | {"name": "init"}], resourceClaims=[CLAIM]
    ),
    "fields that are not known here": pod(
        containers=[container(livenessProbe={"exec": {"command": ["true"]}})],
        topologySpreadConstraints=[],
        hostNetwork=True,
    ),
}


@pytest.mark.parametrize("body", ACCEPTED.values(), ids=ACCEPTED)
def test_a_pod_may_have(shared_api, body):
    answer = create(shared_api, body)

    assert (answer.status, answer.causes) == (201, [])


REFUSED = {
    "no containers": (pod(containers=[]), "spec.containers: Required value"),
    "a container without a name": (
        pod(containers=[container("")]),
        "spec.containers[0].name: Required value",
    ),
    "a container name in capitals": (
        pod(containers=[container("Main")]),
        'spec.containers[0].name: Invalid value: "Main"',
    ),
    "a container without an image": (
        pod(containers=[container(image="")]),
        "spec.containers[0].image: Required value",
    ),
    "a restart policy of no kubelet": (
        pod(restartPolicy="Sometimes"),
        'spec.restartPolicy: Unsupported value: "Sometimes": supported values: "Always", "Never"',
    ),
    "a variable without a name": (
        pod(containers=[container(env=[{"name": "A"}, {"value": "1"}])]),
        "spec.containers[0].env[1].name: Required value",
    ),
    "two containers of one name": (
        pod(containers=[container(), container()]),
        'spec.containers[1].name: Duplicate value: "main"',
    ),
    "a container and an init container of one name": (
        pod(initContainers=[container()]),
        'spec.initContainers[0].name: Duplicate value: "main"',
    ),
    "a container that uses a claim that the pod does not have": (
        pod(containers=[uses("gpu")]),
        'spec.containers[0].resources.claims[0].name: Not found: "gpu"',
    ),
    "an init container that uses a claim that the pod does not have": (
        pod(initContainers=[uses("gpu") | {"name": "init"}]),
        'spec.initContainers[0].resources.claims[0].name: Not found: "gpu"',
    ),
    "a container that uses a claim without naming it": (
        pod(containers=[uses("")], resourceClaims=[CLAIM]),
        "spec.containers[0].resources.claims[0].name: Required value",
    ),
    "a container that uses a claim twice": (
        pod(containers=[uses("gpu", "gpu")], resourceClaims=[CLAIM]),
        'spec.containers[0].resources.claims[1]: Duplicate value: "gpu"',
    ),
    "a claim without a name": (
        pod(resourceClaims=[{"resourceClaimName": "mine"}]),
        "spec.resourceClaims[0].name: Required value",
    ),
    "a claim name with a dot": (
        pod(resourceClaims=[CLAIM | {"name": "a.b"}]),
        'spec.resourceClaims[0].name: Invalid value: "a.b"',
    ),
    "two claims of one name": (
        pod(resourceClaims=[CLAIM, CLAIM]),
        'spec.resourceClaims[1]: Duplicate value: "gpu"',
    ),
    "a claim from nowhere": (
        pod(resourceClaims=[{"name": "gpu"}]),
        "spec.resourceClaims[0]: Required value: must specify one of: `resourceClaimName`",
    ),
    "a claim from two places": (
        pod(resourceClaims=[CLAIM | {"resourceClaimTemplateName": "one"}]),
        "spec.resourceClaims[0]: Invalid value",
    ),
    "a claim that cannot be a name": (
        pod(resourceClaims=[CLAIM | {"resourceClaimName": "a_b"}]),
        'spec.resourceClaims[0].resourceClaimName: Invalid value: "a_b"',
    ),
}


@pytest.mark.parametrize(("body", "cause"), REFUSED.values(), ids=REFUSED)
def test_a_pod_may_not_have(shared_api, body, cause):
    answer = create(shared_api, body)

    assert answer.status == 422
    assert [text for text in answer.causes if text.startswith(cause)], answer.causes


def test_a_pod_gets_the_usual_defaults(api):
    made = api.create(PODS, pod())

    spec = made["spec"]
    assert made["status"] == {"phase": "Pending", "qosClass": "BestEffort"}
    assert spec["restartPolicy"] == "Always"
    assert spec["terminationGracePeriodSeconds"] == 30
    assert spec["schedulerName"] == "default-scheduler"
    assert spec["serviceAccountName"] == "default"
    assert [item["key"] for item in spec["tolerations"]] == [
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/unreachable",
    ]
    assert made["metadata"]["generation"] == 1


def test_a_toleration_of_its_own_is_not_doubled(api):
    own = {"key": "node.kubernetes.io/not-ready", "operator": "Exists"}

    tolerations = api.create(PODS, pod(tolerations=[own]))["spec"]["tolerations"]

    assert tolerations[0] == own
    assert [item["key"] for item in tolerations[1:]] == ["node.kubernetes.io/unreachable"]


@pytest.mark.parametrize(
    ("image", "policy"),
    [
        ("busybox", "Always"),
        ("busybox:latest", "Always"),
        ("registry:5000/busybox", "Always"),
        ("busybox:1.36", "IfNotPresent"),
        ("registry:5000/busybox:1.36", "IfNotPresent"),
    ],
)
def test_how_an_image_is_pulled_follows_from_its_tag(shared_api, image, policy):
    made = create(shared_api, pod(containers=[container(image=image)])).body

    assert made["spec"]["containers"][0]["imagePullPolicy"] == policy


BOTH = {"cpu": "1", "memory": "1Gi"}


@pytest.mark.parametrize(
    ("resources", "quality"),
    [
        ({}, "BestEffort"),
        ({"requests": {"cpu": "1"}}, "Burstable"),
        ({"limits": BOTH}, "Guaranteed"),
        ({"limits": BOTH, "requests": BOTH}, "Guaranteed"),
        ({"limits": BOTH, "requests": {"cpu": "500m"}}, "Burstable"),
        ({"limits": {"nvidia.com/gpu": "1"}}, "BestEffort"),
    ],
)
def test_the_quality_of_service_follows_from_the_resources(shared_api, resources, quality):
    made = create(shared_api, pod(containers=[container(resources=resources)])).body

    assert made["status"]["qosClass"] == quality


def test_limits_are_requests_where_there_are_none(shared_api):
    limits = {"nvidia.com/gpu": "1"}
    made = create(shared_api, pod(containers=[container(resources={"limits": limits})])).body

    assert made["spec"]["containers"][0]["resources"]["requests"] == limits


@pytest.mark.parametrize(
    "patch",
    [
        {"containers": [container(image="busybox:2")]},
        {"terminationGracePeriodSeconds": 5},
        {"activeDeadlineSeconds": 60},
    ],
)
def test_a_few_things_in_a_pod_can_be_changed(api, patch):
    api.create(PODS, pod())

    patched = api.patch(f"{PODS}/train", {"spec": patch}, "strategic-merge-patch+json")

    assert patched["metadata"]["generation"] == 2


@pytest.mark.parametrize(
    "patch",
    [
        {"nodeName": "node-1"},
        {"resourceClaims": [CLAIM]},
        {"containers": [container(command=["true"])]},
        {"restartPolicy": "Never"},
    ],
)
def test_the_rest_of_a_pod_cannot_be_changed(api, patch):
    api.create(PODS, pod())

    answer = api.send(
        "PATCH",
        f"{PODS}/train",
        {"spec": patch},
        content_type="application/strategic-merge-patch+json",
    )

    assert answer.status == 422
    assert answer.causes[0].startswith("spec: Forbidden: pod updates may not change fields other")


def test_an_event_is_in_the_namespace_of_its_object(api):
    event = {"metadata": {"name": "e"}, "involvedObject": {"kind": "Pod", "namespace": "other"}}

    answer = api.send("POST", EVENTS, event)

    assert answer.causes == [
        'involvedObject.namespace: Invalid value: "other": does not match event.namespace'
    ]


def test_an_event_of_an_object_without_a_namespace_is_in_default(api):
    event = {"metadata": {"name": "e"}, "involvedObject": {"kind": "Node", "name": "node-1"}}

    assert api.create(EVENTS, event)["metadata"]["namespace"] == "default"


def test_events_are_the_same_in_both_groups(api):
    newer = EVENTS.replace("/api/v1", "/apis/events.k8s.io/v1")
    event = {
        "metadata": {"name": "e"},
        "regarding": {"kind": "Pod", "name": "p", "namespace": "default"},
        "note": "hello",
        "reason": "Greeting",
        "type": "Normal",
        "eventTime": "2026-01-01T00:00:00.123456Z",
        "reportingController": "c",
        "action": "Greet",
    }

    made = api.create(newer, event)
    older = api.get(f"{EVENTS}/e")

    assert made["apiVersion"] == "events.k8s.io/v1"
    assert {key: made[key] for key in event if key != "metadata"} == {
        key: event[key] for key in event if key != "metadata"
    }
    assert older["apiVersion"] == "v1"
    assert older["message"] == "hello"
    assert older["involvedObject"]["name"] == "p"
    assert older["reportingComponent"] == "c"


def test_the_texts_of_a_secret_become_data(api):
    secret = {"metadata": {"name": "s"}, "data": {"a": "QQ=="}, "stringData": {"b": "B"}}

    made = api.create("/api/v1/namespaces/default/secrets", secret)

    assert made["type"] == "Opaque"
    assert made["data"] == {"a": "QQ==", "b": "Qg=="}
    assert "stringData" not in made


BAD_METADATA = {
    "no name": ({}, "metadata.name: Required value: name or generateName is required"),
    "a name in capitals": (
        {"name": "Mine"},
        'metadata.name: Invalid value: "Mine": a lowercase RFC 1123 subdomain',
    ),
    "a name of 254 characters": ({"name": "x" * 254}, "metadata.name: Invalid value"),
    "a prefix that cannot begin a name": (
        {"generateName": "_x-"},
        'metadata.generateName: Invalid value: "_x-"',
    ),
    "a label key with two slashes": (
        {"name": "x", "labels": {"a/b/c": ""}},
        'metadata.labels: Invalid value: "a/b/c"',
    ),
    "a label key of 64 characters": (
        {"name": "x", "labels": {"k" * 64: ""}},
        f'metadata.labels: Invalid value: "{"k" * 64}": name part must be no more than 63',
    ),
    "a label prefix that is no subdomain": (
        {"name": "x", "labels": {"A_B/c": ""}},
        'metadata.labels: Invalid value: "A_B/c": prefix part',
    ),
    "a label value with a blank": (
        {"name": "x", "labels": {"a": "b c"}},
        'metadata.labels: Invalid value: "b c"',
    ),
    "a label value of 64 characters": (
        {"name": "x", "labels": {"a": "v" * 64}},
        f'metadata.labels: Invalid value: "{"v" * 64}": must be no more than 63 bytes',
    ),
    "an annotation key with a blank": (
        {"name": "x", "annotations": {"a b": ""}},
        'metadata.annotations: Invalid value: "a b"',
    ),
    "annotations above 256 KiB": (
        {"name": "x", "annotations": {"a": "x" * (256 * 1024)}},
        "metadata.annotations: Too long: may not be more than 262144 bytes",
    ),
    "an owner without a UID": (
        {"name": "x", "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p"}]},
        'metadata.ownerReferences[0].uid: Invalid value: "": must not be empty',
    ),
    "two controllers": (
        {
            "name": "x",
            "ownerReferences": [
                {"apiVersion": "v1", "kind": "Pod", "name": n, "uid": n, "controller": True}
                for n in ("a", "b")
            ],
        },
        "metadata.ownerReferences: Invalid value",
    ),
    "a finalizer with a blank": (
        {"name": "x", "finalizers": ["a b"]},
        'metadata.finalizers[0]: Invalid value: "a b"',
    ),
}


@pytest.mark.parametrize(("metadata", "cause"), BAD_METADATA.values(), ids=BAD_METADATA)
def test_metadata_that_is_refused(shared_api, metadata, cause):
    answer = shared_api.send("POST", CONFIG_MAPS, {"metadata": metadata})

    assert answer.status == 422
    assert [text for text in answer.causes if text.startswith(cause)], answer.causes


def test_the_name_of_a_namespace_is_a_label(api):
    answer = api.send("POST", NAMESPACES, {"metadata": {"name": "a.b"}})

    assert answer.causes == ['metadata.name: Invalid value: "a.b": must not contain dots']


def test_a_dotted_name_is_fine_for_a_node(api):
    assert api.create(NODES, api_objects.node("node-1.example.com"))
