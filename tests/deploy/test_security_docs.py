"""docs/security.md: processes, paths and rights are those of the chart."""

import re

import chart
import pytest

PAGE = (chart.DEPLOY.parent / "docs" / "security.md").read_text("utf-8")
OBJECTS = chart.objects()
PLUGIN, WEBHOOK, CONTROLLER = "kubelet-plugin", "webhook", "controller"
NAMES = {"plugin": PLUGIN, "webhook": WEBHOOK, "controller": CONTROLLER}


def table(heading):
    """The rows of the first table below a heading, as cells."""
    section = PAGE.split(f"# {heading}\n", 1)[1]
    lines = section.split("\n|", 1)[1].partition("\n\n")[0].splitlines()
    return [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in lines[2:]]


def rights(account):
    """Resource, verbs, and the names that they are limited to."""
    return sorted(
        (resource, ", ".join(rule["verbs"]), bool(rule.get("resourceNames")))
        for body in OBJECTS
        if body["kind"] in ("ClusterRole", "Role") and body["metadata"]["name"].endswith(account)
        for rule in body["rules"]
        for resource in rule["resources"]
    )


@pytest.mark.parametrize("who", NAMES)
def test_the_rights_are_those_of_the_roles(who):
    told = sorted(
        (resource.strip("`"), verbs, "by name" in where or "`gpu.nvidia.com`" in where)
        for name, resource, verbs, where in table("Rights in the cluster")
        if name == who
    )
    assert told == rights(NAMES[who])


def test_everybody_with_rights_is_told_of():
    accounts = {
        subject["name"]
        for body in OBJECTS
        if body["kind"].endswith("RoleBinding")
        for subject in body["subjects"]
    }
    assert {name.removeprefix("dra-driver-") for name in accounts} == set(NAMES.values())


def test_without_pods_of_daemons_the_plugin_has_no_right_to_pods():
    rendered = chart.objects({"settings": {"mpsLauncher": "process"}})
    roles = [body for body in rendered if body["kind"] == "Role"]
    assert not [body for body in roles if body["metadata"]["name"].endswith(PLUGIN)]


def test_with_cert_manager_the_webhook_has_no_rights():
    rendered = chart.objects({"webhook": {"certManager": {"enabled": True}}})
    roles = [body for body in rendered if body["kind"] in ("ClusterRole", "Role")]
    assert not [body for body in roles if body["metadata"]["name"].endswith(WEBHOOK)]


def test_the_paths_are_those_of_the_pod():
    volumes = chart.the(OBJECTS, "DaemonSet")["spec"]["template"]["spec"]["volumes"]
    mounted = {volume["hostPath"]["path"] for volume in volumes if "hostPath" in volume}
    told = {cells[0].split("`")[1] for cells in table("Paths of the host")}
    assert told == mounted


def process(name):
    """User, and what is said of privileges."""
    [row] = [cells for cells in table("What runs") if name in cells[0]]
    return row[1:3]


def test_the_plugin_is_as_privileged_as_its_pod():
    spec = chart.the(OBJECTS, "DaemonSet")["spec"]["template"]["spec"]
    context = chart.container(OBJECTS)["securityContext"]
    assert (context["runAsUser"], context["privileged"], spec["hostPID"]) == (0, True, True)
    assert process("kubelet plugin") == ["0", "yes, with `hostPID`"]
    doctor, hook = spec["initContainers"]
    assert doctor["securityContext"] == context
    assert process("container `doctor`") == process("kubelet plugin")
    assert hook["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert hook["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert process("cdi-hook") == ["0", "no, no capabilities, seccomp `RuntimeDefault`"]


@pytest.mark.parametrize("name", [WEBHOOK, CONTROLLER])
def test_webhook_and_controller_have_no_privileges(name):
    spec = chart.the(OBJECTS, "Deployment", name)["spec"]["template"]["spec"]
    [container] = spec["containers"]
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    user, said = process(name)
    assert user == str(spec["securityContext"]["runAsUser"])
    assert said == "no, no capabilities, seccomp `RuntimeDefault`"
    ports = {str(port["containerPort"]) for port in container["ports"]}
    [row] = [cells for cells in table("What runs") if cells[0].startswith(name)]
    assert ports == set(re.findall(r"\b8\d{3}\b", row[-1]))


def test_every_container_has_a_read_only_root_file_system():
    pods = [
        body["spec"]["template"]["spec"] for body in OBJECTS if "template" in body.get("spec", {})
    ]
    containers = [
        each for pod in pods for each in (*pod.get("initContainers", ()), *pod["containers"])
    ]
    assert len(containers) == 5
    assert all(each["securityContext"]["readOnlyRootFilesystem"] for each in containers)
    assert "All root file systems are read-only." in PAGE


def test_values_and_files_exist():
    docs = chart.DEPLOY.parent / "docs"
    for target in re.findall(r"\]\(([\w./-]+\.md)", PAGE):
        assert (docs / target).exists(), target
    for path in re.findall(r"`(deploy/[\w./-]+)`", PAGE):
        assert (chart.DEPLOY.parent / path).exists(), path
    values = (chart.PATH / "values.yaml").read_text("utf-8")
    for name in ("mpsLauncher", "driverRoot", "metricsFrom", "digest", "nodeSelector"):
        assert f"{name}:" in values
