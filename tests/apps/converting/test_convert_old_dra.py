"""`convert` on DRA's older APIs: classes, claims with parameters, and pods that use them."""

import old_dra
import pytest
import yaml

from dra_driver.logic.parameters import claims

DRIVER = "gpu.nvidia.com"

parameters, claim_spec = old_dra.parameters, old_dra.claim_spec
template, claim, pod = old_dra.template, old_dra.claim, old_dra.pod


def spec_of(kind="GpuClaimParameters", **spec):
    return claims.of(kind, spec, DRIVER).spec


@pytest.mark.parametrize("version", ["v1alpha1", "v1alpha2"])
def test_a_claim_of_the_first_api_is_one_of_today(converted, version):
    found, _ = converted(claim("a", claim_spec(allocationMode="Immediate"), version))
    assert found["ResourceClaim", "a"] == {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "a"},
        "spec": spec_of(),
    }


def test_allocation_modes_are_told_as_left_out(convert, save):
    bodies = [
        claim("a", claim_spec(allocationMode="Immediate")),
        claim("b", claim_spec(allocationMode="WaitForFirstConsumer")),
    ]
    _, out, _ = convert("-f", save(yaml.safe_dump_all(bodies)), "--explain")
    assert "allocationMode Immediate: left out: allocated once a pod uses the claim" in out
    assert "allocationMode WaitForFirstConsumer" in out


def test_parameters_in_the_files_are_resolved_and_left_out(converted):
    given = parameters("t4", count=2, selector={"productName": "*t4*"})
    found, err = converted(given, template("two", claim_spec("t4")))
    wanted = spec_of(count=2, selector={"productName": "*t4*"})
    assert found["ResourceClaimTemplate", "two"]["spec"] == {"spec": wanted}
    assert ("GpuClaimParameters", "t4") not in found
    assert "GpuClaimParameters t4: parameters: spec: left out" in err


def test_parameters_stay_when_it_is_asked_for(converted):
    given = parameters("t4", count=2)
    found, _ = converted(given, claim("a", claim_spec("t4")), arguments=("--keep-parameters",))
    assert found["GpuClaimParameters", "t4"] == given


def test_parameters_that_no_claim_refers_to_stay_and_are_told(converted):
    given = parameters("t4", count=2)
    found, err = converted(given)
    assert found["GpuClaimParameters", "t4"] == given
    assert "no claim in these files refers to it" in err


def test_parameters_for_machines_and_partitions_are_resolved(converted):
    found, _ = converted(
        parameters("m", "MigDeviceClaimParameters", profile="1g.5gb"),
        parameters("v", "VfioGpuClaimParameters"),
        claim("a", claim_spec("m", "MigDeviceClaimParameters")),
        claim("b", claim_spec("v", "VfioGpuClaimParameters")),
    )
    classes = [
        found["ResourceClaim", name]["spec"]["devices"]["requests"][0]["exactly"]["deviceClassName"]
        for name in "ab"
    ]
    assert classes == ["mig.nvidia.com", "vfio.gpu.nvidia.com"]


def test_sharing_of_parameters_is_a_config(converted):
    sharing = {"strategy": "MPS", "mpsConfig": {"defaultActiveThreadPercentage": 50}}
    found, _ = converted(parameters("s", sharing=sharing), claim("a", claim_spec("s")))
    [config] = found["ResourceClaim", "a"]["spec"]["devices"]["config"]
    assert config["opaque"]["parameters"]["sharing"]["strategy"] == "MPS"


@pytest.mark.parametrize("version", ["v1alpha3", "v1beta1"])
def test_requests_get_their_exactly(converted, version):
    selectors = [{"cel": {"expression": "true"}}]
    flat = {"name": "gpu", "deviceClassName": "gpu.nvidia.com", "count": 2, "selectors": selectors}
    first = {"name": "any", "firstAvailable": [{"name": "a", "deviceClassName": "x"}]}
    constraints = [{"requests": ["gpu"], "matchAttribute": "gpu.nvidia.com/numaNode"}]
    devices = {"requests": [flat, first], "constraints": constraints}
    found, _ = converted(template("t", {"devices": devices}, version))
    assert found["ResourceClaimTemplate", "t"]["spec"]["spec"]["devices"] == {
        "requests": [
            {
                "name": "gpu",
                "exactly": {
                    "deviceClassName": "gpu.nvidia.com", "count": 2, "selectors": selectors,
                },
            },
            first,
        ],
        "constraints": constraints,
    }  # fmt: skip


def test_of_v1beta2_only_the_version_changes(convert, save):
    exactly = {"deviceClassName": "gpu.nvidia.com"}
    devices = {"requests": [{"name": "gpu", "exactly": exactly}]}
    text = yaml.safe_dump(claim("a", {"devices": devices}, "v1beta2"))
    _, out, _ = convert("-f", save(text))
    assert out == text.replace("v1beta2", "v1")


def test_classes_become_those_of_today(converted):
    found, err = converted(
        {"apiVersion": "resource.k8s.io/v1alpha2", "kind": "ResourceClass",
         "metadata": {"name": "mine"}, "driverName": old_dra.GROUP},
        {"apiVersion": "resource.k8s.io/v1beta1", "kind": "DeviceClass",
         "metadata": {"name": "big"}, "spec": {"selectors": []}},
        claim("a", {"resourceClassName": "mine"}),
    )  # fmt: skip
    assert ("ResourceClass", "mine") not in found
    assert "left out: DeviceClass gpu.nvidia.com comes with the driver" in err
    assert found["DeviceClass", "big"]["apiVersion"] == "resource.k8s.io/v1"
    assert found["ResourceClaim", "a"]["spec"] == spec_of()


def test_a_class_of_another_driver_stays(converted):
    body = {"apiVersion": "resource.k8s.io/v1alpha2", "kind": "ResourceClass",
            "metadata": {"name": "net"}, "driverName": "net.example.com"}  # fmt: skip
    found, err = converted(body)
    assert found["ResourceClass", "net"] == body
    assert "a class of another driver" in err


def test_a_pod_loses_its_source(convert, save):
    text = """\
apiVersion: v1
kind: Pod
metadata: {name: train}
spec:
  resourceClaims:
  - name: one
    source:
      resourceClaimName: shared   # with others
  - source: {resourceClaimTemplateName: own}
    name: two
  containers:
  - name: main
    resources: {claims: [{name: one}, {name: two}]}
"""
    _, out, _ = convert("-f", save(text))
    assert "source:" not in out
    assert yaml.safe_load(out)["spec"]["resourceClaims"] == [
        {"name": "one", "resourceClaimName": "shared"},
        {"name": "two", "resourceClaimTemplateName": "own"},
    ]


MIG = "MigDeviceClaimParameters"


def partitions(**used):
    """A GPU with MIG mode and two kinds of partitions of it, as the old demo had them."""
    return [
        parameters("whole", selector={"andExpression": [
            {"migEnabled": True}, {"productName": "*a100*"}]}),
        parameters("small", MIG, profile="1g.5gb", gpuClaimName="whole"),
        parameters("large", MIG, profile="3g.20gb", gpuClaimName="whole",
                   sharing={"strategy": "MPS"}),
        template("whole", claim_spec("whole")),
        template("small", claim_spec("small", MIG)),
        template("large", claim_spec("large", MIG)),
        pod({"whole": "whole", "small-0": "small", "small-1": "small", "large": "large"},
            used=used),
    ]  # fmt: skip


def test_partitions_of_the_gpu_of_another_claim_become_requests_of_one_claim(converted):
    found, err = converted(*partitions(a=["whole", "small-0"], b=["small-1", "whole", "large"]))
    spec = found["Pod", "train"]["spec"]
    [entry] = spec["resourceClaims"]
    assert entry["name"] == "whole"
    assert [each["resources"]["claims"] for each in spec["containers"]] == [
        [{"name": "whole", "request": "small-0"}],
        [{"name": "whole", "request": "small-1"}, {"name": "whole", "request": "large"}],
    ]
    kinds = [key for key in found if key[0] == "ResourceClaimTemplate"]
    assert kinds == [("ResourceClaimTemplate", entry["resourceClaimTemplateName"])]
    devices = found[kinds[0]]["spec"]["spec"]["devices"]
    requests = {each["name"]: each["exactly"] for each in devices["requests"]}
    assert list(requests) == ["small-0", "small-1", "large"]
    for each in requests.values():
        assert each["deviceClassName"] == "mig.nvidia.com"
        text = str(each["selectors"])
        assert "a100" in text
    assert "'3g.20gb'" in str(requests["large"]["selectors"])
    assert devices["constraints"] == [
        {"requests": list(requests), "matchAttribute": "gpu.nvidia.com/parentUUID"}
    ]
    [config] = devices["config"]
    assert config["requests"] == ["large"]
    assert "left out: its claim is a part of another one" in err


def test_the_template_of_a_gpu_stays_for_pods_that_use_it_alone(converted):
    bodies = partitions(a=["small-0"], b=["small-1", "large"])
    found, _ = converted(*bodies, pod({"gpu": "whole"}, name="other"))
    assert ("ResourceClaimTemplate", "whole") in found


REFUSED = {
    "parameters that are not there": (
        [claim("a", claim_spec("none"))],
        "ResourceClaim a: claim: parametersRef GpuClaimParameters: 'none': it does not stand in",
    ),
    "parameters of another kind": (
        [claim("a", claim_spec("x", "ComputeInstanceClaimParameters"))],
        "parametersRef ComputeInstanceClaimParameters: 'x': parameters of",
    ),
    "parameters that are wrong": (
        [parameters("p", count=0), claim("a", claim_spec("p"))], "GpuClaimParameters p: ",
    ),
    "a class that is not known": (
        [claim("a", {"resourceClassName": "net"})],
        "resourceClassName: 'net': classes of this driver are known: gpu.nvidia.com",
    ),
    "a claim that a control plane allocates": (
        [claim("a", {"controller": "x", "devices": {}}, "v1alpha3")], "spec.controller: 'x'",
    ),
    "a class with nodes": (
        [{"apiVersion": "resource.k8s.io/v1alpha3", "kind": "DeviceClass",
          "metadata": {"name": "c"}, "spec": {"suitableNodes": {}}}],
        "spec.suitableNodes",
    ),
    "a source with two names": (
        [{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {
            "containers": [], "resourceClaims": [{"name": "x", "source": {
                "resourceClaimName": "a", "resourceClaimTemplateName": "b"}}]}}],
        "resourceClaims x: source: an object: a text in one of resourceClaimName, resource",
    ),
    "partitions whose pod is not there": (
        [each for each in partitions() if each["kind"] != "Pod"],
        "gpuClaimName: 'whole': partitions of the GPU of another claim are converted with the pods",
    ),
    "partitions without the GPU": (
        [*partitions()[1:3], *partitions()[4:6], pod({"small": "small"})],
        "gpuClaimName of small: 'whole': no claim of the pod has a GPU by that name",
    ),
    "a container with the GPU and no partition": (
        partitions(a=["whole"], b=["small-0", "small-1", "large"]),
        "container a: resources.claims: 'whole': it has no partition of that GPU",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_be_converted_is_refused_by_name(refused, what):
    bodies, text = REFUSED[what]
    assert text in refused(*bodies)
