"""The `kubernetes` package against the embedded API."""

import api_objects
import kubernetes
import pytest
from kubernetes.client import exceptions
from workload_scene import job, workload


@pytest.fixture
def client(api, tmp_path):
    path = tmp_path / "kubeconfig"
    api.server.write_kubeconfig(path)
    client = kubernetes.config.new_client_from_config(str(path))
    yield client
    client.close()
    client.rest_client.pool_manager.clear()


@pytest.fixture
def core(client):
    return kubernetes.client.CoreV1Api(client)


@pytest.fixture
def resources(client):
    return kubernetes.client.ResourceV1Api(client)


def test_objects_are_created_read_and_listed(core):
    made = core.create_namespaced_pod("default", api_objects.pod())

    read = core.read_namespaced_pod("train", "default")

    assert read == made
    assert read.spec.containers[0].image == "busybox:1"
    assert read.metadata.creation_timestamp.tzinfo is not None
    listed = core.list_pod_for_all_namespaces(field_selector="status.phase=Pending")
    assert [item.metadata.name for item in listed.items] == ["train"]


def test_claims_and_slices_are_typed(resources):
    resources.create_resource_slice(api_objects.resource_slice())
    claim = resources.create_namespaced_resource_claim("default", api_objects.claim())
    status = {"status": {"allocation": api_objects.allocation()}}
    resources.patch_namespaced_resource_claim_status("mine", "default", status)

    read = resources.read_namespaced_resource_claim("mine", "default")

    assert claim.spec.devices.requests[0].exactly.count == 1
    assert read.status.allocation.devices.results[0].device == "gpu-0"
    [found] = resources.list_resource_slice(field_selector="spec.driver=gpu.nvidia.com").items
    assert found.spec.devices[0].attributes["model"].string == "H100"


def test_a_typed_object_can_be_written_back(resources):
    made = resources.create_resource_slice(api_objects.resource_slice())
    made.spec.pool.generation = 2

    written = resources.replace_resource_slice("node-1-gpus", made)

    assert written.spec.pool.generation == 2
    assert written.metadata.generation == 2


@pytest.mark.parametrize(
    ("act", "status", "reason"),
    [
        (lambda core: core.read_namespaced_pod("x", "default"), 404, "NotFound"),
        (lambda core: core.create_namespace(_namespace("default")), 409, "AlreadyExists"),
        (lambda core: core.create_namespace(_namespace("A")), 422, "Invalid"),
    ],
)
def test_failures_are_exceptions_with_a_status(core, act, status, reason):
    with pytest.raises(exceptions.ApiException) as caught:
        act(core)

    assert caught.value.status == status
    assert f'"reason":"{reason}"' in caught.value.body


def _namespace(name):
    return {"metadata": {"name": name}}


def test_a_pod_is_bound(core):
    core.create_namespaced_pod("default", api_objects.pod())
    target = kubernetes.client.V1ObjectReference(kind="Node", name="node-1")
    body = kubernetes.client.V1Binding(target=target, metadata={"name": "train"})

    core.create_namespaced_pod_binding("train", "default", body, _preload_content=False)

    assert core.read_namespaced_pod("train", "default").spec.node_name == "node-1"


def test_a_list_and_a_watch_follow_each_other(core):
    core.create_namespace(_namespace("a"))
    version = core.list_namespace().metadata.resource_version
    core.create_namespace(_namespace("b"))
    core.delete_namespace("a")
    watch = kubernetes.watch.Watch()

    seen = []
    for event in watch.stream(core.list_namespace, resource_version=version, timeout_seconds=60):
        seen.append((event["type"], event["object"].metadata.name))
        if len(seen) == 3:
            watch.stop()

    assert seen == [("ADDED", "b"), ("MODIFIED", "a"), ("DELETED", "a")]


def test_a_watch_from_an_old_version_has_expired(api, core):
    core.create_namespace(_namespace("a"))
    api.server.store.forget()
    watch = kubernetes.watch.Watch()

    with pytest.raises(exceptions.ApiException) as caught:
        list(watch.stream(core.list_namespace, resource_version="1", timeout_seconds=60))

    assert caught.value.status == 410


def test_collections_are_deleted(resources):
    for index in range(3):
        body = api_objects.resource_slice(f"s{index}", nodeName=f"node-{index % 2}")
        resources.create_resource_slice(body)

    resources.delete_collection_resource_slice(field_selector="spec.nodeName=node-0")

    assert [item.metadata.name for item in resources.list_resource_slice().items] == ["s1"]


def test_a_pod_is_deleted_with_options(core):
    core.create_namespaced_pod("default", api_objects.pod(nodeName="node-1"))
    core.delete_namespaced_pod("train", "default", grace_period_seconds=7)
    held = core.read_namespaced_pod("train", "default")
    options = kubernetes.client.V1DeleteOptions(
        grace_period_seconds=0, preconditions={"uid": held.metadata.uid}
    )
    core.delete_namespaced_pod("train", "default", body=options)

    assert held.metadata.deletion_grace_period_seconds == 7
    assert core.list_namespaced_pod("default").items == []


def test_the_dynamic_client_finds_its_way(client, tmp_path):
    # Else it believes what another server at this port offered.
    cache = tmp_path / "discovery.json"
    dynamic = kubernetes.dynamic.DynamicClient(client, cache_file=str(cache))
    claims = dynamic.resources.get(api_version="resource.k8s.io/v1", kind="ResourceClaim")

    made = claims.create(body=api_objects.claim(), namespace="default")
    applied = claims.server_side_apply(
        body=api_objects.claim(labels={"a": "b"}), namespace="default", field_manager="me"
    )

    assert made.metadata.name == "mine"
    assert applied.metadata.labels.a == "b"


def test_workloads_are_typed_scaled_and_told_of(client):
    apps = kubernetes.client.AppsV1Api(client)
    made = apps.create_namespaced_deployment("default", workload("Deployment", replicas=2))
    assert made.spec.strategy.rolling_update.max_surge == "25%"
    scale = apps.read_namespaced_deployment_scale("web", "default")
    scale.spec.replicas = 3
    apps.replace_namespaced_deployment_scale("web", "default", scale)
    [found] = apps.list_namespaced_deployment("default").items
    assert found.spec.replicas == 3
    jobs = kubernetes.client.BatchV1Api(client)
    assert jobs.create_namespaced_job("default", job()).spec.backoff_limit == 6
    classes = kubernetes.client.SchedulingV1Api(client).list_priority_class().items
    assert {each.metadata.name: each.value for each in classes}["system-node-critical"] > 2 * 10**9
    kinds = kubernetes.client.AppsV1Api(client).get_api_resources().resources
    assert {"deployments", "deployments/scale", "statefulsets"} <= {kind.name for kind in kinds}


def test_kinds_of_ones_own_are_there_for_the_dynamic_client(client):
    definitions = kubernetes.client.ApiextensionsV1Api(client)
    definitions.create_custom_resource_definition(DEFINITION)
    custom = kubernetes.client.CustomObjectsApi(client)
    shop = {"apiVersion": "example.com/v1", "kind": "Shop", "metadata": {"name": "a"}}
    place = ("example.com", "v1", "default", "shops")
    custom.create_namespaced_custom_object(*place, shop)
    listed = custom.list_namespaced_custom_object(*place)
    assert [item["metadata"]["name"] for item in listed["items"]] == ["a"]


DEFINITION = {
    "metadata": {"name": "shops.example.com"},
    "spec": {
        "group": "example.com",
        "scope": "Namespaced",
        "names": {"plural": "shops", "kind": "Shop"},
        "versions": [{"name": "v1", "served": True, "storage": True}],
    },
}
