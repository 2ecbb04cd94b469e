"""What the controller keeps beside parameter objects, in an API server."""

import api_cluster
import gpu_slices
import parameter_scene
import pytest
import structlog

from dra_driver.adapters.kube import kube
from dra_driver.logic.parameters import standing
from dra_driver.sim.api.serving import options

GPU, MIG, MIG_DEVICE, VFIO = (
    parameter_scene.GPU,
    parameter_scene.MIG,
    parameter_scene.MIG_DEVICE,
    parameter_scene.VFIO,
)
T4S, H100S = parameter_scene.T4S, parameter_scene.H100S


@pytest.fixture
def scene(own_cluster):
    return parameter_scene.Scene(own_cluster).install()


@pytest.fixture
def client(scene):
    made = kube.Client(kubeconfig=scene.cluster.kubeconfig, user_agent="keeper")
    yield made
    made.close()


@pytest.mark.parametrize(
    ("kind", "spec", "device_class"),
    [
        (GPU, T4S, "gpu.nvidia.com"),
        (GPU, None, "gpu.nvidia.com"),
        (MIG, {"profile": "1g.10gb"}, "mig.nvidia.com"),
        (MIG_DEVICE, {"profile": "1g.10gb"}, "mig.nvidia.com"),
        (VFIO, {"selector": {"productName": "*"}}, "vfio.gpu.nvidia.com"),
    ],
)
def test_a_template_of_the_same_name_is_there_and_the_status_says_so(
    scene, client, kind, spec, device_class
):
    made = scene.put(kind, spec)
    scene.look(scene.keeper(client))
    assert scene.request()["deviceClassName"] == device_class
    [owner] = scene.template()["metadata"]["ownerReferences"]
    assert (owner["uid"], owner["controller"]) == (made["metadata"]["uid"], True)
    ready = scene.condition(kind)
    assert (ready["status"], ready["reason"]) == ("True", "TemplateWritten")
    assert (
        ready["message"] == f"ResourceClaimTemplate mine asks for 1 device of class {device_class}"
    )
    status = scene.get(kind)["status"]
    assert status["expressions"] == [
        each["cel"]["expression"] for each in scene.request().get("selectors", ())
    ]
    assert status["observedGeneration"] == made["metadata"]["generation"]


def test_nothing_is_written_where_nothing_changes(scene, client):
    scene.put(GPU, T4S)
    scene.foreign_template("theirs")
    scene.put(GPU, T4S, "theirs")
    scene.put(MIG, {"profile": "1g.10gb"} | parameter_scene.WRONG, "wrong")
    keeper = scene.keeper(client)
    scene.look(keeper)
    before = scene.writes()
    assert before > 0
    scene.look(keeper, times=2)
    scene.look(scene.keeper(client))
    assert scene.writes() == before


def test_a_change_makes_the_template_anew_and_the_status_follows(scene, client):
    scene.put(GPU, T4S)
    keeper = scene.keeper(client)
    scene.look(keeper)
    old = scene.template()["metadata"]["uid"]
    scene.change(GPU, H100S)
    scene.look(keeper)
    assert scene.request()["count"] == 2
    assert scene.template()["metadata"]["uid"] != old
    assert any("h100" in each for each in scene.get(GPU)["status"]["expressions"])


def test_parameters_that_are_wrong_now_have_no_template_that_says_what_they_were(scene, client):
    scene.put(GPU, T4S)
    keeper = scene.keeper(client)
    scene.look(keeper)
    since = scene.condition(GPU)["lastTransitionTime"]
    scene.change(GPU, parameter_scene.WRONG)
    scene.look(keeper)
    ready = scene.condition(GPU)
    assert (ready["status"], ready["reason"]) == ("False", "InvalidParameters")
    assert ready["message"].startswith("spec.selector: longer than the 10240 bytes that are allo")
    assert scene.template() is None
    status = scene.get(GPU)["status"]
    assert (status["expressions"], "matching" in status) == ([], False)
    scene.change(GPU, T4S)
    scene.look(keeper)
    assert scene.condition(GPU)["status"] == "True"
    assert scene.condition(GPU)["lastTransitionTime"] >= since


def test_the_template_goes_with_its_parameters(scene, client):
    scene.put(GPU, T4S)
    scene.look(scene.keeper(client))
    scene.client.delete(parameter_scene.resource(GPU), "mine", "default")
    api_cluster.wait_for(lambda: scene.template() is None, "the garbage collector takes it")


def test_parameters_that_are_made_anew_get_a_template_of_their_own(scene, client):
    """As where the garbage collector has not come round yet."""
    first = scene.put(GPU, T4S)
    keeper = scene.keeper(client)
    scene.look(keeper)
    body = scene.template()
    body["metadata"]["ownerReferences"][0]["uid"] = "uid-of-one-that-is-gone"
    scene.cluster._api.store.put("resourceclaimtemplates.resource.k8s.io", body)
    scene.look(keeper)
    [owner] = scene.template()["metadata"]["ownerReferences"]
    assert owner["uid"] == first["metadata"]["uid"]


def test_a_template_that_is_not_ours_is_left_alone_and_told(scene, client):
    theirs = scene.foreign_template()
    scene.put(GPU, T4S)
    keeper = scene.keeper(client)
    scene.look(keeper)
    assert scene.template() == theirs
    ready = scene.condition(GPU)
    assert (ready["status"], ready["reason"]) == ("False", "TemplateNotOurs")
    assert "delete that one, or give this object another name" in ready["message"]
    scene.client.delete(kube.TEMPLATES, "mine", "default")
    scene.look(keeper)
    assert scene.condition(GPU)["reason"] == "TemplateWritten"


def test_our_label_alone_makes_no_template_ours(scene, client):
    body = scene.foreign_template()
    body["metadata"]["labels"] = {standing.LABEL: str(GPU)}
    theirs = scene.client.replace(kube.TEMPLATES, body, "default")
    scene.put(GPU, T4S)
    scene.look(scene.keeper(client))
    assert scene.template() == theirs
    assert scene.condition(GPU)["reason"] == "TemplateNotOurs"


@pytest.mark.parametrize("first", [GPU, MIG])
def test_of_two_kinds_with_one_name_the_one_that_has_the_template_keeps_it(scene, client, first):
    specs = {GPU: T4S, MIG: {"profile": "1g.10gb"}}
    second = MIG if first is GPU else GPU
    scene.put(first, specs[first])
    keeper = scene.keeper(client)
    scene.look(keeper)
    scene.put(second, specs[second])
    scene.look(keeper)
    assert scene.condition(first)["status"] == "True"
    ready = scene.condition(second)
    assert (ready["status"], ready["reason"]) == ("False", "NameTaken")
    assert f"is that of {first} default/mine" in ready["message"]
    scene.client.delete(parameter_scene.resource(first), "mine", "default")
    api_cluster.wait_for(lambda: scene.template() is None, "the first one's template goes")
    scene.look(keeper)
    assert scene.condition(second)["status"] == "True"


def test_a_partition_of_another_claim_s_gpu_needs_its_pod(scene, client):
    scene.put(MIG_DEVICE, {"profile": "1g.5gb", "gpuClaimName": "mig-enabled-gpu"})
    scene.look(scene.keeper(client))
    ready = scene.condition(MIG_DEVICE)
    assert (ready["status"], ready["reason"]) == ("False", "GpuClaimNameNeedsPod")
    assert "dra-driver convert -f" in ready["message"]
    assert scene.template() is None


def test_the_status_tells_how_many_devices_match_and_why_not_more(scene, client):
    scene.put(GPU, T4S, "t4s")
    scene.put(GPU, H100S, "h100s")
    scene.put(GPU, {"selector": {"productName": "t4"}}, "exact")
    keeper = scene.keeper(client)
    scene.look(keeper)
    matching = scene.condition(GPU, "t4s", "Matching")
    assert (matching["status"], scene.get(GPU, "t4s")["status"]["matching"]) == ("False", 0)
    assert matching["message"].startswith("no device of class gpu.nvidia.com is published")
    scene.publish("node-1", gpu_slices.T4, gpu_slices.H100)
    scene.publish("node-2", gpu_slices.T4, gpu_slices.H100)
    scene.look(keeper)
    assert scene.get(GPU, "t4s")["status"]["matching"] == 2
    matching = scene.condition(GPU, "t4s", "Matching")
    assert (matching["status"], matching["reason"]) == ("True", "EnoughDevices")
    assert matching["message"] == "2 of 4 devices of the class match"
    matching = scene.condition(GPU, "h100s", "Matching")
    assert matching["message"] == (
        "2 devices match, but no more than 1 on one node, and 2 are asked for"
    )
    matching = scene.condition(GPU, "exact", "Matching")
    assert matching["message"] == (
        "of 4 devices of class gpu.nvidia.com none has productName t4 (there are NVIDIA H100 80GB "
        "HBM3, Tesla T4); *t4* is found anywhere in it"
    )


def slice_lists(scene):
    return sum(
        (call.resource, call.verb) == ("resourceslices", "list")
        for call in scene.cluster.faults.calls
    )


def test_slices_are_read_no_more_often_than_is_set_but_sooner_for_what_is_new(scene, client):
    keeper = scene.keeper(client, parameters_seconds=1, matching_seconds=60)
    keeper.keep(0.0, lambda: True)
    assert slice_lists(scene) == 0
    scene.put(GPU, T4S)
    for now in (1.0, 5.0, 59.0):
        keeper.keep(now, lambda: True)
    assert slice_lists(scene) == 1
    scene.put(GPU, H100S, "new")
    keeper.keep(60.5, lambda: True)
    assert slice_lists(scene) == 2
    scene.put(MIG, {"profile": "1g.10gb"}, "newer")
    keeper.keep(65.0, lambda: True)
    assert slice_lists(scene) == 2
    assert scene.condition(MIG, "newer", "Matching")["reason"] == "NotCounted"
    keeper.keep(70.5, lambda: True)
    assert slice_lists(scene) == 3
    assert scene.condition(MIG, "newer", "Matching")["reason"] == "TooFewDevices"


def test_slices_that_cannot_be_read_keep_no_template_from_being_made(scene, client):
    scene.put(GPU, T4S)
    with scene.cluster.faults.where(
        lambda call: options.Fault(status=503) if call.resource == "resourceslices" else None
    ):
        scene.look(scene.keeper(client))
    assert scene.condition(GPU)["status"] == "True"
    assert scene.condition(GPU, of_type="Matching")["status"] == "Unknown"


def test_where_the_kinds_are_not_installed_that_is_said_once_and_nothing_is_wrong(own_cluster):
    scene = parameter_scene.Scene(own_cluster)
    own_cluster.faults.calls.clear()
    with structlog.testing.capture_logs() as lines:
        keeper = scene.keeper()
        scene.look(keeper, times=3)
    [line] = lines
    assert line["event"].startswith("gpu.resource.nvidia.com/v1alpha1 is not installed")
    assert [call.path for call in own_cluster.faults.calls] == ["/apis/gpu.resource.nvidia.com"] * 3
    scene.install()
    scene.put(GPU, T4S)
    scene.look(keeper)
    assert scene.condition(GPU)["status"] == "True"


def test_a_kind_that_is_missing_keeps_no_other_from_being_served(scene, client):
    scene.put(GPU, T4S)
    for kind in (MIG, VFIO):
        name = f"{kind.plural}.gpu.resource.nvidia.com"
        scene.client.delete(parameter_scene.DEFINITIONS, name)
    scene.look(scene.keeper(client))
    assert scene.condition(GPU)["status"] == "True"


def test_it_can_be_switched_off(scene, client):
    scene.put(GPU, T4S)
    scene.look(scene.keeper(client, parameters=False))
    assert "status" not in scene.get(GPU)


def test_a_template_that_the_api_server_refuses_is_told_and_is_in_no_other_s_way(scene, client):
    scene.put(GPU, T4S, "first")
    scene.put(GPU, T4S, "second")

    def rule(call):
        if (call.resource, call.verb) == ("resourceclaimtemplates", "create"):
            fault, kept[0] = kept[0], None
            return fault
        return None

    kept = [options.Fault(status=403, reason="Forbidden", message="exceeded quota: templates")]
    keeper = scene.keeper(client)
    with scene.cluster.faults.where(rule):
        scene.look(keeper)
    ready = scene.condition(GPU, "first")
    assert (ready["status"], ready["reason"]) == ("False", "TemplateRefused")
    assert "exceeded quota: templates" in ready["message"]
    assert scene.condition(GPU, "second")["status"] == "True"
    scene.look(keeper)
    assert scene.condition(GPU, "first")["status"] == "True"


@pytest.mark.parametrize("version", ["v1", "v1beta2", "v1beta1"])
def test_templates_are_written_in_the_version_that_is_served(version):
    cluster = api_cluster.Cluster(resource_versions=(version,))
    try:
        scene = parameter_scene.Scene(cluster).install()
        scene.put(GPU, H100S)
        keeper = scene.keeper()
        scene.look(keeper, times=2)
        resource = kube.Resource("resource.k8s.io", version, "resourceclaimtemplates")
        [body] = cluster.client.list(resource)[0]
        [request] = body["spec"]["spec"]["devices"]["requests"]
        assert request.get("exactly", request)["count"] == 2
        assert scene.condition(GPU)["status"] == "True"
    finally:
        cluster.close()
