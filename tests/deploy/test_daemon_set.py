"""The pods of the kubelet plugin, as the chart makes them."""

import subprocess

import chart
import pytest

from dra_driver import cli, settings

pytestmark = pytest.mark.sampled(9)

HOST = {
    "hostPID": "allowHostPID",
    "hostIPC": "allowHostIPC",
    "hostNetwork": "allowHostNetwork",
}
OF_A_TOKEN = {"configMap", "downwardAPI", "secret"}
"""Kinds of volumes that may be parts of a projected one."""


def pod(values=None):
    return chart.the(chart.objects(values), "DaemonSet")["spec"]["template"]["spec"]


def mounts(values=None):
    """Host path of each mount of the plugin's container, by its path there."""
    volumes = {v["name"]: v.get("hostPath", {}).get("path") for v in pod(values)["volumes"]}
    [container] = pod(values)["containers"]
    return {
        m["mountPath"]: (volumes[m["name"]], m.get("mountPropagation"))
        for m in container["volumeMounts"]
    }


@pytest.mark.parametrize("root", ["/", "/run/nvidia/driver"])
def test_what_the_kubelet_and_the_runtime_are_told_is_where_the_container_has_it(root):
    values = {"settings": {"driverRoot": root, "kubeletRoot": "/var/lib/k0s/kubelet"}}
    config = chart.plugin_settings(values)
    found = mounts(values)
    for path in (config.registry, config.plugin, config.cdi_dir):
        assert found[str(path)][0] == str(path)
    assert found[str(config.plugin)] == (str(config.plugin), "Bidirectional")
    assert found[str(config.driver_root_seen)] == (root, "HostToContainer")
    assert found["/dev"] == ("/dev", "HostToContainer")


def test_what_the_kubelet_makes_is_waited_for_and_the_rest_is_made():
    """A registration directory of our making would be one that the kubelet does not look into."""
    volumes = {v["name"]: v["hostPath"]["type"] for v in pod()["volumes"] if "hostPath" in v}
    assert volumes == {
        "plugins-registry": "Directory",
        "plugin-dir": "DirectoryOrCreate",
        "cdi": "DirectoryOrCreate",
        "driver-root": "DirectoryOrCreate",
        "dev": "Directory",
    }


def test_no_container_is_given_gpus_by_nvidia_s_runtime():
    spec = pod()
    for container in (*spec["initContainers"], *spec["containers"]):
        [variable] = [v for v in container["env"] if v["name"] == "NVIDIA_VISIBLE_DEVICES"]
        assert variable["value"] == "void", container["name"]


def test_it_goes_to_nodes_with_gpus_whatever_taint_these_usually_have_and_before_other_pods():
    spec = pod()
    assert spec["tolerations"] == [
        {"key": "nvidia.com/gpu", "operator": "Exists"},
        {"key": "CriticalAddonsOnly", "operator": "Exists"},
    ]
    assert spec["priorityClassName"] == "system-node-critical"
    assert spec["nodeSelector"] == {"kubernetes.io/os": "linux"}


def test_where_it_goes_are_values():
    given = {
        "tolerations": [{"operator": "Exists"}],
        "nodeSelector": {"kubernetes.io/os": "linux", "a": "b"},
        "affinity": {"podAntiAffinity": {}},
    }
    values = {
        "kubeletPlugin": given | {"affinity": {"nodeAffinity": None, "podAntiAffinity": {}}},
        "priorityClass": {"name": "gpu-node"},
    }
    spec = pod(values)
    assert {name: spec[name] for name in given} == given
    assert spec["priorityClassName"] == "gpu-node"


# Updates


def update(values):
    """The strategy of an update, and whether the sockets of each pod have names of their own."""
    body = chart.the(chart.objects({"kubeletPlugin": values}), "DaemonSet")["spec"]
    [container] = body["template"]["spec"]["containers"]
    names = {variable["name"] for variable in container["env"]}
    assert body["updateStrategy"]["type"] == "RollingUpdate"
    return body["updateStrategy"]["rollingUpdate"], "DRA_DRIVER_ROLLING_UPDATE_UID" in names


def test_the_old_pod_goes_when_the_new_one_is_ready():
    assert update({}) == ({"maxSurge": "10%", "maxUnavailable": 0}, True)
    assert update({"surge": True, "updateAtOnce": 3}) == (
        {"maxSurge": 3, "maxUnavailable": 0},
        True,
    )


def test_or_first_where_kubelets_know_one_instance_of_a_driver_only():
    assert update({"surge": False, "updateAtOnce": 3}) == ({"maxUnavailable": 3}, False)


# OpenShift


def test_openshift_admits_the_pods_and_nothing_that_asks_for_more():
    bodies = chart.objects({"openshift": {"scc": True}})
    scc = chart.the(bodies, "SecurityContextConstraints", "-kubelet-plugin")
    spec = chart.the(bodies, "DaemonSet")["spec"]["template"]["spec"]
    containers = [*spec["initContainers"], *spec["containers"]]
    contexts = [container["securityContext"] for container in containers]
    for field, rule in HOST.items():
        assert scc[rule] is spec.get(field, False), field
    ports = [port for container in containers for port in container.get("ports", ())]
    assert scc["allowHostPorts"] is any("hostPort" in port for port in ports)
    used = {kind for volume in spec["volumes"] for kind in volume if kind != "name"}
    assert set(scc["volumes"]) == used | {"projected", *OF_A_TOKEN}
    assert scc["allowHostDirVolumePlugin"] is ("hostPath" in used)
    assert scc["allowPrivilegedContainer"] is any(c.get("privileged") for c in contexts) is True
    # A privileged container has that by itself.
    assert scc["allowPrivilegeEscalation"] is True
    assert scc["readOnlyRootFilesystem"] is all(c["readOnlyRootFilesystem"] for c in contexts)
    assert {c["runAsUser"] for c in contexts} == {scc["runAsUser"]["uid"]}
    assert scc["runAsUser"]["type"] == "MustRunAs"
    # The kubelet's directory is of another label than containers'.
    assert any("seLinuxOptions" in c for c in contexts)
    assert scc["seLinuxContext"] == {"type": "RunAsAny"}
    assert scc["allowedCapabilities"] == scc["defaultAddCapabilities"] == []
    assert "securityContext" not in spec


@pytest.mark.parametrize("account", ["dra-driver-kubelet-plugin", "own"])
def test_the_constraints_are_for_the_pods_account_alone(account):
    own = {"serviceAccount": {"create": False, "name": account}} if account == "own" else {}
    bodies = chart.objects(own | {"openshift": {"scc": True}})
    scc = chart.the(bodies, "SecurityContextConstraints", "-kubelet-plugin")
    spec = chart.the(bodies, "DaemonSet")["spec"]["template"]["spec"]
    assert spec["serviceAccountName"] == account
    assert scc["users"] == [f"system:serviceaccount:{chart.NAMESPACE}:{account}"]
    assert scc["groups"] == []


def init_container(name, values=None):
    [found] = [each for each in pod(values).get("initContainers", ()) if each["name"] == name]
    return found


def test_the_doctor_looks_at_what_the_plugin_will_use():
    values = {"kubeletPlugin": {"env": [{"name": "A", "value": "b"}]}, "settings": {"shares": "2"}}
    doctor, [plugin] = init_container("doctor", values), pod(values)["containers"]
    alike = ("image", "imagePullPolicy", "args", "env", "securityContext", "resources")
    for field in (*alike, "volumeMounts", "terminationMessagePath"):
        assert doctor[field] == plugin[field], field


def test_the_doctor_lets_the_pod_start_whatever_it_finds():
    doctor = init_container("doctor")
    program, *rest = [*doctor["command"], *doctor["args"]]
    assert program == "dra-driver"
    options = cli._parser().parse_args(rest)
    assert options.run == cli._doctor
    assert options.exit_zero
    assert options.timeout <= 20
    assert str(options.termination_message) == doctor["terminationMessagePath"]


def test_the_doctor_comes_first_and_can_be_left_out():
    assert [each["name"] for each in pod()["initContainers"]] == ["doctor", "cdi-hook"]
    without = {"doctor": False}
    assert [each["name"] for each in pod({"kubeletPlugin": without})["initContainers"]] == [
        "cdi-hook"
    ]
    without["cdiHook"] = False
    assert "initContainers" not in pod({"kubeletPlugin": without})


def test_the_hook_is_where_the_driver_is_told_it_is():
    init = init_container("cdi-hook")
    assert init["args"][-1] == str(chart.plugin_settings().cdi_hook.parent)
    assert {m["mountPath"] for m in init["volumeMounts"]} == {init["args"][-1]}
    assert chart.plugin_settings({"kubeletPlugin": {"cdiHook": False}}).cdi_hook is None
    given = chart.plugin_settings({"settings": {"cdiHook": "/usr/bin/nvidia-cdi-hook"}})
    assert str(given.cdi_hook) == "/usr/bin/nvidia-cdi-hook"


def test_a_hook_that_is_in_use_is_replaced_and_not_written_to(tmp_path):
    new, place = tmp_path / "of-the-image", tmp_path / "plugins"
    new.write_text("new")
    place.mkdir()
    old = place / "nvidia-cdi-hook"
    old.write_text("old")
    init = init_container("cdi-hook")
    script, *arguments = init["args"]
    script = script.replace("/usr/bin/nvidia-cdi-hook", str(new))
    with old.open() as in_use:
        subprocess.run([*init["command"], script, arguments[0], str(place)], check=True)
        assert in_use.read() == "old"
    assert [(path.name, path.read_text()) for path in place.iterdir()] == [(old.name, "new")]
    assert old.stat().st_mode & 0o777 == 0o755


def test_the_probes_look_at_the_sockets_that_the_plugin_opens():
    values = {"settings": {"kubeletRoot": "/k", "driverName": "gpu.example.com"}}
    [container] = pod(values)["containers"]
    plugin = chart.plugin_settings(values)
    for name, starting in (("startup", True), ("liveness", True), ("readiness", False)):
        program, *rest = container[f"{name}Probe"]["exec"]["command"]
        assert program == "dra-driver"
        options = cli._parser().parse_args([*rest, "--node-name", "node-1"])
        assert options.allow_starting is starting
        probed = settings.resolve(
            settings.KubeletPlugin,
            environment={},
            flags={n: getattr(options, n) for n in settings.KubeletPlugin.model_fields},
        )
        assert probed.registration_socket == plugin.registration_socket
        assert probed.service_socket == plugin.service_socket


def test_mps_daemons_run_the_driver_s_own_image_unless_another_is_given():
    digest = "sha256:" + "0" * 64
    for image, text in (
        ({"repository": "r/d", "tag": "2"}, "r/d:2"),
        ({"repository": "r/d", "tag": "2", "digest": digest}, f"r/d@{digest}"),
    ):
        assert chart.plugin_settings({"image": image}).mps_image == text
        assert chart.container(chart.objects({"image": image}))["image"] == text
    assert chart.plugin_settings({"settings": {"mpsImage": "other:1"}}).mps_image == "other:1"


def test_pods_of_mps_daemons_are_not_taken_for_pods_of_the_daemon_set():
    selector = chart.the(chart.objects(), "DaemonSet")["spec"]["selector"]["matchLabels"]
    assert selector["app.kubernetes.io/component"] == "kubelet-plugin"
