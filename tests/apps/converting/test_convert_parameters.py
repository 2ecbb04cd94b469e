"""`convert` on what stands beside claims of DRA's older APIs: parameters that pods name, and what
nobody writes any more.
"""

import old_dra
import pytest
import yaml

from dra_driver.logic.parameters import claims

MIG = "MigDeviceClaimParameters"
SERVED = "resource.k8s.io/v1"


def using(*templates, name="train"):
    """A pod of today that uses templates by their names."""
    body = old_dra.pod({f"c{place}": each for place, each in enumerate(templates)}, name=name)
    listed = body["spec"]["resourceClaims"]
    body["spec"]["resourceClaims"] = [{"name": one["name"], **one["source"]} for one in listed]
    return body


def test_parameters_that_a_pod_names_become_the_template_of_that_name(converted):
    given = old_dra.parameters("t4", selector={"productName": "*t4*"})
    given["metadata"]["labels"] = {"team": "a"}
    found, _ = converted(given, using("t4"))
    assert found["ResourceClaimTemplate", "t4"] == {
        "apiVersion": SERVED,
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": "t4", "labels": {"team": "a"}},
        "spec": {
            "spec": claims.of(
                "GpuClaimParameters", {"selector": {"productName": "*t4*"}}, "gpu.nvidia.com"
            ).spec
        },
    }
    assert ("GpuClaimParameters", "t4") not in found
    assert found["Pod", "train"] == using("t4")


def test_the_template_stands_where_the_parameters_stood_with_their_comments(convert, save):
    text = (
        "# small ones\napiVersion: gpu.resource.nvidia.com/v1alpha1\nkind: GpuClaimParameters\n"
        "metadata:\n  name: t4   # a T4\nspec:\n  count: 1\n---\n"
        + yaml.safe_dump(using("t4"), sort_keys=False)
    )
    _, out, _ = convert("-f", save(text))
    assert out.startswith(
        "# small ones\napiVersion: resource.k8s.io/v1\nkind: ResourceClaimTemplate\n"
        "metadata:\n  name: t4   # a T4\nspec:\n"
    )


def test_parameters_that_a_pod_names_stay_when_it_is_asked_for(convert, save):
    text = yaml.safe_dump_all([old_dra.parameters("t4"), using("t4")])
    assert convert("-f", save(text), "--keep-parameters")[:2] == (0, text)


def test_a_template_in_the_files_is_what_a_pod_names_and_not_the_parameters(converted):
    given = old_dra.parameters("t4")
    there = old_dra.template("t4", {"devices": {}}, "v1")
    found, err = converted(given, there, using("t4"))
    assert found["GpuClaimParameters", "t4"] == given
    assert found["ResourceClaimTemplate", "t4"] == there
    assert "no claim in these files refers to it" in err


def test_parameters_of_another_namespace_are_not_what_a_pod_names(converted):
    given = old_dra.parameters("t4")
    given["metadata"]["namespace"] = "far"
    found, _ = converted(given, using("t4"))
    assert found["GpuClaimParameters", "t4"] == given


def test_partitions_of_the_gpu_of_parameters_that_a_pod_names_are_of_one_claim(converted):
    found, _ = converted(
        old_dra.parameters("whole", selector={"migEnabled": True}),
        old_dra.parameters("part", MIG, profile="1g.5gb", gpuClaimName="whole"),
        using("whole", "part"),
    )
    assert sorted(kind for kind, _ in found) == ["Pod", "ResourceClaimTemplate"]
    [entry] = found["Pod", "train"]["spec"]["resourceClaims"]
    made = found["ResourceClaimTemplate", entry["resourceClaimTemplateName"]]
    [request] = made["spec"]["spec"]["devices"]["requests"]
    assert request["exactly"]["deviceClassName"] == "mig.nvidia.com"


def test_a_class_with_parameters_goes_with_them(converted):
    shared = {
        "apiVersion": f"{old_dra.GROUP}/v1alpha1",
        "kind": "DeviceClassParameters",
        "metadata": {"name": "p"},
        "spec": {"shareable": True},
    }
    old = {
        "apiVersion": "resource.k8s.io/v1alpha2",
        "kind": "ResourceClass",
        "metadata": {"name": "shared-gpu"},
        "driverName": old_dra.GROUP,
        "parametersRef": {
            "apiGroup": old_dra.GROUP,
            "kind": "DeviceClassParameters",
            "name": "p",
        },
    }
    found, err = converted(old, shared, {"kind": "Namespace", "metadata": {"name": "a"}})
    assert list(found) == [("Namespace", "a")]
    assert "parametersRef DeviceClassParameters p: left out: classes of today have no" in err


@pytest.mark.parametrize("kind", ["PodSchedulingContext", "ResourceSlice"])
def test_what_nobody_writes_stays_and_is_told(converted, kind):
    body = {
        "apiVersion": "resource.k8s.io/v1alpha2",
        "kind": kind,
        "metadata": {"name": "x"},
    }
    found, err = converted(body)
    assert found[kind, "x"] == body
    assert f"{kind} x: object: {kind} of v1alpha2: left as it is: " in err


def test_a_pod_template_elsewhere_with_sources_is_told(convert, save):
    body = {
        "apiVersion": "example.com/v1",
        "kind": "Training",
        "metadata": {"name": "t"},
        "spec": {"worker": {"spec": old_dra.pod({"gpu": "a"})["spec"]}},
    }
    text = yaml.safe_dump(body)
    status, out, err = convert("-f", save(text))
    assert (status, out) == (0, text)
    assert "give --template-path spec.worker if it is one" in err
    _, out, _ = convert("-f", save(text), "--template-path", "spec.worker")
    assert "source:" not in out


def source(value, **beside):
    """A pod with an entry that has this source."""
    entry = {"name": "x", "source": value, **beside}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p"},
        "spec": {"containers": [], "resourceClaims": [entry]},
    }


REFUSED = {
    "a source that is nothing": ([source(None)], "resourceClaims x: source: null: a text in one"),
    "a source that is a text": ([source("a")], "resourceClaims x: source: 'a': a text in one of"),
    "a source without a name": ([source({})], "resourceClaims x: source: an object: a text in one"),
    "a name in a source that is no text": (
        [source({"resourceClaimName": 5})], "resourceClaims x: source: an object: a text in one of",
    ),
    "a name beside a source": (
        [source({"resourceClaimName": "a"}, resourceClaimName="b")],
        "none of them beside it",
    ),
    "parameters of two kinds with the name that a pod names": (
        [old_dra.parameters("x"), old_dra.parameters("x", MIG, profile="1g.5gb"), using("x")],
        "claim c0: resourceClaimTemplateName: 'x': GpuClaimParameters and MigDeviceClaimParameters",
    ),
    "parameters that are wrong and that a pod names": (
        [old_dra.parameters("x", count=0), using("x")], "GpuClaimParameters x: parameters: ",
    ),
    "a partition whose GPU no claim of the pod has": (
        [old_dra.parameters("x", MIG, profile="1g.5gb", gpuClaimName="whole"), using("x")],
        "gpuClaimName of c0: 'whole': no claim of the pod has a GPU by that name",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_be_converted_is_refused_by_name(refused, what):
    bodies, text = REFUSED[what]
    assert text in refused(*bodies)
