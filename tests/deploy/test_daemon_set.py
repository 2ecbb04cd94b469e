"""The pods of the kubelet plugin, as the chart makes them."""

import subprocess

import chart
import pytest

from dra_driver import cli, settings


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


def test_the_hook_is_where_the_driver_is_told_it_is():
    [init] = pod()["initContainers"]
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
    [init] = pod()["initContainers"]
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


def test_the_service_finds_the_pods_and_their_port():
    bodies = chart.objects(
        {"metrics": {"serviceMonitor": {"enabled": True}}, "networkPolicy": {"enabled": True}}
    )
    labels = chart.the(bodies, "DaemonSet")["spec"]["template"]["metadata"]["labels"]
    service = chart.the(bodies, "Service")["spec"]
    monitor = chart.the(bodies, "ServiceMonitor")["spec"]
    policy = chart.the(bodies, "NetworkPolicy")["spec"]
    for selector in (
        service["selector"],
        monitor["selector"]["matchLabels"],
        policy["podSelector"]["matchLabels"],
    ):
        assert selector.items() <= labels.items()
    [port] = chart.container(bodies)["ports"]
    assert service["ports"][0]["targetPort"] == port["name"] == "metrics"
    assert policy["ingress"][0]["ports"][0]["port"] == "metrics"
    assert monitor["endpoints"][0]["port"] == service["ports"][0]["name"]
