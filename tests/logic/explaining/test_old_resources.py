"""What is told of pods that ask as the device plugin, HAMi and others had it."""

import explain_scene as scene
import pytest

from dra_driver import errors
from dra_driver.logic.converting import conversion, converting
from dra_driver.logic.explaining import explaining, targets
from dra_driver.logic.offering import classes
from dra_driver.logic.picturing import snapshots

DRIVER = "gpu.nvidia.com"
SHARES = {
    "allowMultipleAllocations": True,
    "capacity": {
        "memory": {
            "value": "80Gi",
            "requestPolicy": {
                "default": "80Gi",
                "validRange": {"min": "1Mi", "max": "80Gi", "step": "1Mi"},
            },
        },
        "cores": {
            "value": "100",
            "requestPolicy": {
                "default": "100",
                "validRange": {"min": "1", "max": "100", "step": "1"},
            },
        },
    },
}


def card(name, *, shared=True, **attributes):
    known = {"type": "gpu", "uuid": f"GPU-{name}", "productName": "NVIDIA H100 80GB HBM3"}
    known |= {"enforcement": "MPS"} if shared else {}
    extra = SHARES if shared else {"capacity": {"memory": {"value": "80Gi"}}}
    return scene.gpu(name, extra=extra, **(known | attributes))


def pod(limits, *, name="old", annotations=None, **spec):
    container = {"name": "cuda", "image": "none", "resources": {"limits": limits}}
    body = scene.pod(name, containers=[container], **spec)
    del body["spec"]["resourceClaims"]
    body["metadata"]["annotations"] = annotations or {}
    return body


def cluster(*bodies, whole_gpus=None, cards=None):
    own = classes.device_classes(DRIVER, whole_gpus=whole_gpus)
    devices = cards if cards is not None else [card("gpu-0"), card("gpu-1")]
    pool = scene.pool("hopper", *devices, driver=DRIVER)
    listed = [snapshots.normalized(body, "default") for body in (pool, *own, *bodies)]
    return snapshots.of([*listed, snapshots.normalized(scene.node("hopper"), "default")])


def explain(body, **more):
    seen = cluster(body, **more)
    return explaining.explain(
        targets.named(seen, f"pod/{body['metadata']['name']}", "default"), seen
    )


POLICY = conversion.Policy(DRIVER, conversion.Door.WEBHOOK, f"shared-mps.{DRIVER}")
HAMI = {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 10240, "nvidia.com/gpucores": 30}


def test_a_pod_that_waits_in_vain_is_converted_and_explained_again():
    told = explain(pod(HAMI))
    assert told.verdict == explaining.DOES_NOT_FIT
    assert "no DeviceClass serves nvidia.com/gpu, nvidia.com/gpucores" in told.blocked[0]
    assert told.notes == ()
    assert any("memory 10Gi, cores 30" in line for line in told.conversion.lines)
    then = told.conversion.then
    assert (then.target, then.verdict) == ("pod default/old, converted", explaining.FITS)
    assert then.options[0].picks[0].device == f"{DRIVER}/hopper/gpu-0"
    assert then.conversion is None


def test_what_became_of_it_counts_what_others_have():
    full = scene.claim("full", scene.request(of_class=f"shared-mps.{DRIVER}"))
    taken = [
        {"request": "gpu", "driver": DRIVER, "pool": "hopper", "device": f"gpu-{number}",
         "shareID": f"00000000-0000-4000-8000-00000000000{number}",
         "consumedCapacity": {"memory": "79Gi", "cores": "100"}}
        for number in range(2)
    ]  # fmt: skip
    full["status"] = {"allocation": {"devices": {"results": taken}}}
    seen = cluster(pod(HAMI), full)
    told = explaining.explain(targets.named(seen, "pod/old", "default"), seen)
    assert told.conversion.then.verdict == explaining.DOES_NOT_FIT
    assert told.conversion.then.reports


def test_percentages_are_of_the_cards_that_the_cluster_has():
    told = explain(pod({"nvidia.com/gpu": 1, "nvidia.com/gpumem-percentage": 25}))
    assert told.conversion.problems == ()
    assert "memory 20Gi" in told.conversion.lines[0]
    assert told.conversion.then.verdict == explaining.FITS


def test_how_to_convert_is_told():
    command, label = explain(pod(HAMI)).conversion.how
    assert command.startswith("`dra-driver convert -f FILE`")
    assert "kubectl label namespace default dra-driver.dev/convert=enabled" in label
    stored = pod(HAMI)
    stored["metadata"]["uid"] = "3f0c"
    assert "make the pod again" in explain(stored).conversion.how[0]


def test_a_pod_that_the_webhook_leaves_alone_has_to_say_so_no_more():
    body = pod(HAMI)
    body["metadata"]["labels"] = {"hami.io/webhook": "ignore"}
    _, label = explain(body).conversion.how
    assert "take the label hami.io/webhook=ignore from the pod, and have the pod made" in label


def test_what_cannot_be_converted_is_told_with_the_rule():
    told = explain(pod({"nvidia.com/gpu": 1, "nvidia.com/gpumem": "-1"}))
    assert told.verdict == explaining.DOES_NOT_FIT
    assert told.conversion.then is None
    assert told.conversion.how == ()
    (problem,) = told.conversion.problems
    assert problem.startswith("container cuda: nvidia.com/gpumem")


def test_a_gpu_alone_is_left_to_the_class_that_serves_it():
    told = explain(
        pod({"nvidia.com/gpu": 1}),
        whole_gpus="nvidia.com/gpu",
        cards=[card("gpu-0", shared=False)],
    )
    assert (told.verdict, told.conversion) == (explaining.FITS, None)


def test_a_gpu_alone_is_converted_where_nothing_serves_it():
    told = explain(pod({"nvidia.com/gpu": 1}), cards=[card("gpu-0", shared=False)])
    assert told.conversion.then.verdict == explaining.FITS


def test_a_gpu_alone_is_left_to_a_device_plugin_that_serves_it():
    body = pod({"nvidia.com/gpu": 1})
    own = classes.device_classes(DRIVER)
    offering = scene.node("old") | {"status": {"allocatable": {"nvidia.com/gpu": "1"}}}
    listed = [scene.pool("hopper", card("gpu-0"), driver=DRIVER), *own, offering, body]
    seen = snapshots.of([snapshots.normalized(each, "default") for each in listed])
    with pytest.raises(errors.Rejected, match="there is nothing to explain"):
        targets.named(seen, "pod/old", "default")


def test_a_pod_for_which_the_scheduler_has_made_a_claim_is_not_converted():
    body = pod(HAMI)
    body["metadata"]["uid"] = "3f0c"
    made = scene.claim("old-extended-resources", scene.request(of_class=DRIVER))
    made["metadata"] |= {
        "annotations": {"resource.kubernetes.io/extended-resource-claim": "true"},
        "ownerReferences": [{"kind": "Pod", "name": "old", "uid": "3f0c"}],
    }
    seen = cluster(body, made, whole_gpus="nvidia.com/gpu")
    told = explaining.explain(targets.named(seen, "pod/old", "default"), seen)
    assert told.conversion is None


def test_companions_of_a_gpu_that_a_class_serves_are_converted():
    told = explain(pod(HAMI), whole_gpus="nvidia.com/gpu")
    assert told.verdict == explaining.FITS
    assert any("memory 10Gi, cores 30" in line for line in told.conversion.lines)


def test_a_node_that_its_labels_name_is_a_card_after_that():
    label = {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}
    assert explain(pod(HAMI, nodeSelector=label)).conversion.then.verdict == explaining.FITS
    other = {"nvidia.com/gpu.product": "Tesla-T4"}
    told = explain(pod(HAMI, nodeSelector=other)).conversion.then
    assert told.verdict == explaining.DOES_NOT_FIT


def test_a_pod_that_runs_is_not_converted():
    body = pod({"nvidia.com/gpu": 1}, nodeName="hopper")
    assert explain(body).conversion is None


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_pod_that_has_ended_is_not_converted(phase):
    ended = pod(HAMI) | {"status": {"phase": phase}}
    with pytest.raises(errors.Rejected, match="there is nothing to explain"):
        explain(ended)


def test_a_pod_that_is_converted_is_explained_by_its_claims_alone():
    asking = pod(HAMI)
    made = converting.convert(asking, POLICY)
    (template,) = made.templates
    stored = scene.template(template.name) | {"spec": {"spec": template.spec}}
    seen = cluster({**asking, **made.pod}, stored)
    told = explaining.explain(targets.named(seen, "pod/old", "default"), seen)
    assert (told.verdict, told.conversion) == (explaining.FITS, None)


def test_a_template_of_a_conversion_that_is_gone_is_told_where_to_find():
    made = converting.convert(pod(HAMI), POLICY)
    with pytest.raises(errors.Rejected, match="conversion made it: it is in what `dra-driver conv"):
        explain({**pod(HAMI), **made.pod})


def test_a_resource_of_nobody_is_not_explained():
    with pytest.raises(errors.Rejected, match=r"no DeviceClass serves example\.com/fpga"):
        explain(pod({"example.com/fpga": 1}))


def test_a_workload_in_a_manifest_is_converted_too():
    spec = pod(HAMI)["spec"]
    elsewhere = {"nvidia.com/nouse-gpuuuid": "GPU-gpu-0"}
    body = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web"},
        "spec": {"replicas": 2, "template": {"metadata": {"annotations": elsewhere}, "spec": spec}},
    }
    given = snapshots.normalized(body, "default")
    seen = cluster(given)
    (target,) = targets.in_manifest(seen, [given])
    told = explaining.explain(target, seen)
    assert told.target == "deployment default/web"
    then = told.conversion.then
    assert then.options[0].picks[0].device == f"{DRIVER}/hopper/gpu-1"
