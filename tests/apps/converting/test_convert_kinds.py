"""`convert` on everything that has pods in it, alone and in lists."""

import copy
import json

import pytest
import yaml

ASK = {"limits": {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 3000}}


def pod(resources):
    container = {"name": "main", "resources": copy.deepcopy(resources)}
    return {"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [container]}}


def workload(kind, version, *path):
    """An object of the kind with a pod template there; a number stands for a list of so many."""

    def body(resources):
        inside = pod(resources)
        for step in reversed(path):
            if isinstance(step, int):
                inside = [{"name": f"n{place}", **copy.deepcopy(inside)} for place in range(step)]
            else:
                inside = {step: inside}
        head = {"apiVersion": version, "kind": kind, "metadata": {"name": "w"}}
        return {**head, **{key: value for key, value in inside.items() if key != "metadata"}}

    return body


KINDS = {
    "Pod": workload("Pod", "v1"),
    "PodTemplate": workload("PodTemplate", "v1", "template"),
    "ReplicationController": workload("ReplicationController", "v1", "spec", "template"),
    "Deployment": workload("Deployment", "apps/v1", "spec", "template"),
    "StatefulSet": workload("StatefulSet", "apps/v1", "spec", "template"),
    "DaemonSet": workload("DaemonSet", "apps/v1", "spec", "template"),
    "ReplicaSet": workload("ReplicaSet", "apps/v1", "spec", "template"),
    "Job": workload("Job", "batch/v1", "spec", "template"),
    "CronJob": workload("CronJob", "batch/v1", "spec", "jobTemplate", "spec", "template"),
    "JobSet": workload("JobSet", "jobset.x-k8s.io/v1alpha2", "spec", "replicatedJobs", 2,
                       "template", "spec", "template"),
    "Job of Volcano": workload("Job", "batch.volcano.sh/v1alpha1", "spec", "tasks", 2, "template"),
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_pods_are_converted_wherever_they_are(convert, save, kind):
    status, out, err = convert("-f", save(yaml.safe_dump(KINDS[kind](ASK), sort_keys=False)))
    assert status == 0, err
    template, body = yaml.safe_load_all(out)
    assert template["kind"] == "ResourceClaimTemplate"
    wanted = KINDS[kind]({"claims": [{"name": "gpu-main"}]})
    entry = {"name": "gpu-main", "resourceClaimTemplateName": template["metadata"]["name"]}
    for spec in specs(wanted):
        spec["resourceClaims"] = [entry]
    assert body == wanted


def specs(body):
    """The specs of pods in an object."""
    waiting, found = [body], []
    while waiting:
        each = waiting.pop()
        if isinstance(each, dict):
            found += [each] if "containers" in each else []
            waiting += each.values()
        elif isinstance(each, list):
            waiting += each
    return found


def test_of_several_pod_templates_in_an_object_each_is_told_by_its_name(convert, save):
    path = save(yaml.safe_dump(KINDS["Job of Volcano"](ASK)))
    _, out, _ = convert("-f", path, "--explain", "--output", "json")
    told = json.loads(out)
    places = [line["template"] for line in told["lines"]]
    assert places == ["spec.tasks[n0].template", "spec.tasks[n1].template"]
    assert [line["template"] for line in told["warnings"]] == places
    _, out, _ = convert("-f", path, "--explain")
    assert "Job w: spec.tasks[n0].template   main " in out
    body = KINDS["Job of Volcano"](ASK)
    del body["spec"]["tasks"][1]["name"]
    specs(body["spec"]["tasks"][1])[0]["containers"][0]["resources"]["limits"][
        "nvidia.com/gpumem"
    ] = 0
    _, _, err = convert("-f", save(yaml.safe_dump(body)))
    assert "Job w: spec.tasks[1].template: container main: nvidia.com/gpumem: 0: " in err


def test_the_rows_of_a_container_are_together_in_the_table(convert, save):
    body = KINDS["Pod"](ASK)
    body["metadata"]["annotations"] = {"nvidia.com/use-gputype": "A100"}
    body["spec"]["runtimeClassName"] = "nvidia"
    _, out, _ = convert("-f", save(yaml.safe_dump(body)), "--explain")
    _, head, _, *rows = out.split("\n\n")[0].splitlines()
    column = slice(head.index("container"), head.index("asked"))
    assert [row[column].strip() for row in rows if row[column].strip()] == ["pod", "main"]
    assert [row.split("   ")[0] for row in rows if not row.startswith(" ")] == ["Pod w"]


@pytest.mark.parametrize("write", [yaml.safe_dump, json.dumps])
@pytest.mark.parametrize("typed", [False, True])
def test_the_items_of_a_list_are_converted_in_it(convert, save, write, typed):
    items = [KINDS["Pod"](ASK), KINDS["Pod"]({}), KINDS["Pod"](ASK)]
    items[2]["metadata"] = {"name": "far", "namespace": "far"}
    kind = "PodList" if typed else "List"
    if typed:
        items = [{k: v for k, v in each.items() if k not in ("kind", "apiVersion")}
                 for each in items]  # fmt: skip
    text = write({"apiVersion": "v1", "kind": kind, "items": items})
    status, out, err = convert("-f", save(text))
    assert status == 0, err
    body = yaml.safe_load(out)
    assert (body["kind"], body["apiVersion"]) == (kind, "v1")
    found = [(each.get("kind"), each["metadata"].get("namespace")) for each in body["items"]]
    own = None if typed else "Pod"
    template = "ResourceClaimTemplate"
    assert found == [(template, None), (own, None), (own, None), (template, "far"), (own, "far")]
    assert body["items"][2] == items[1]
    assert convert("-f", save(out), "--check")[0] == 0


def test_a_list_in_a_list_is_gone_through(convert, save):
    inner = {"apiVersion": "v1", "kind": "List", "items": [KINDS["Deployment"](ASK)]}
    _, out, _ = convert("-f", save(yaml.safe_dump({**inner, "items": [inner]})))
    [within] = yaml.safe_load(out)["items"]
    assert [each["kind"] for each in within["items"]] == ["ResourceClaimTemplate", "Deployment"]


def test_parameters_of_a_list_that_are_left_out_leave_it(convert, save):
    group = "gpu.resource.nvidia.com"
    items = [
        {
            "apiVersion": f"{group}/v1alpha1",
            "kind": "GpuClaimParameters",
            "metadata": {"name": "p"},
        },
        {
            "apiVersion": "resource.k8s.io/v1alpha2",
            "kind": "ResourceClaim",
            "metadata": {"name": "c"},
            "spec": {
                "resourceClassName": "gpu.nvidia.com",
                "parametersRef": {"apiGroup": group, "kind": "GpuClaimParameters", "name": "p"},
            },
        },
    ]
    _, out, _ = convert("-f", save(yaml.safe_dump({"kind": "List", "items": items})))
    assert [each["kind"] for each in yaml.safe_load(out)["items"]] == ["ResourceClaim"]


def test_templates_at_a_path_through_lists_are_converted(convert, save):
    body = workload("Training", "example.com/v1", "spec", "roles", 2, "pod")(ASK)
    _, out, _ = convert("-f", save(yaml.safe_dump(body)), "--template-path", "spec.roles.pod")
    *_, found = yaml.safe_load_all(out)
    assert all(spec["resourceClaims"] for spec in specs(found))


EXISTING = "a template of that name that asks for something else: give it another name there"


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
def test_a_template_under_the_name_that_is_needed_has_to_ask_for_the_same(convert, save, version):
    path = save(yaml.safe_dump(KINDS["Pod"](ASK)))
    template, _ = yaml.safe_load_all(convert("-f", path)[1])
    template["apiVersion"] = f"resource.k8s.io/{version}"
    [request] = template["spec"]["spec"]["devices"]["requests"]
    exactly = request["exactly"]
    if version == "v1beta1":
        request |= request.pop("exactly")
    other = save(yaml.safe_dump(template), "template.yaml")
    status, out, _ = convert("-f", path, "-f", other)
    assert (status, out.count("kind: ResourceClaimTemplate")) == (0, 1)
    exactly["capacity"] = {"requests": {"memory": "4Gi"}}
    other = save(yaml.safe_dump(template | {"spec": {"spec": {"devices": {"requests": [
        {"name": "gpu", "exactly": exactly}]}}}, "apiVersion": "resource.k8s.io/v1"}))  # fmt: skip
    path = save(yaml.safe_dump(KINDS["Pod"](ASK)), "again.yaml")
    status, out, err = convert("-f", path, "-f", other)
    assert (status, out) == (1, "")
    name = template["metadata"]["name"]
    assert f"{path}: Pod w: template: metadata.name: '{name}': {other} has {EXISTING}" in err
