"""The plugin does what its roles allow, and they allow no more."""

import api_cluster
import chart
import plugin_process
import pod_kubelet
import pytest
import sharing_node

from dra_driver.adapters import kube

BY_THE_API_SERVER = {("", "resource.k8s.io", "resourceclaims/driver", "associated-node:patch")}
"""Rights that the API server looks for itself, when a status is patched; source: Kubernetes 1.36,
`DRAResourceClaimGranularStatusAuthorization`."""


@pytest.fixture(scope="module")
def calls():
    """What the plugin asks of the API server in a life with all that can happen in one."""
    machine, cluster = plugin_process.Machine(), api_cluster.Cluster()
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": chart.NAMESPACE}}
    cluster.client.create(kube.NAMESPACES, namespace)
    pods = pod_kubelet.Kubelet(cluster.client, api_cluster.NODE, chart.NAMESPACE)
    plugin = plugin_process.Plugin(
        machine,
        cluster,
        mig_mode="dynamic",
        shares="memory",
        mps_launcher="pod",
        mps_image="driver:1",
        pod_namespace=chart.NAMESPACE,
    )
    try:
        _live(plugin, machine, cluster)
        yield [call for call in cluster.faults.calls if call.user_agent.startswith("dra-driver/")]
    finally:
        plugin.kill()
        pods.close()
        cluster.close()
        machine.close()


def _live(plugin, machine, cluster):
    plugin.start()
    share = sharing_node.share("gpu-0", memory=10) | {"request": "gpu"}
    ref = cluster.claim(share)
    plugin.kubelet.prepare(ref)
    api_cluster.wait_for(
        lambda: (cluster.get_claim(ref).get("status") or {}).get("devices"), "status.devices"
    )
    plugin.kubelet.unprepare(ref)

    # GPUs come and go, and their slices with them.
    def names():
        return set(api_cluster.device_names(cluster.slices()))

    everything = names()
    machine.lose_gpus("gpu-0")
    api_cluster.wait_for(lambda: names() == {"gpu-1"}, "slices without the first GPU")
    machine.heal_gpus()
    api_cluster.wait_for(lambda: names() == everything, "slices with both GPUs")

    # A record that is lost is looked for among all claims.
    plugin.kubelet.prepare(ref)
    plugin.kill()
    machine.record_path(ref).write_text("damaged")
    machine.spec_path(ref).unlink()
    plugin.start().kubelet.unprepare(ref)


def rules(*kinds):
    """Rights of the roles of these kinds: namespace or empty, group, resource, verb."""
    return {
        (body["metadata"].get("namespace", ""), group, resource, verb)
        for body in chart.objects()
        if body["kind"] in kinds
        for rule in body["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def needed(calls):
    """Rights that calls need. Those to objects of the cluster are for all namespaces."""
    return {
        (
            chart.NAMESPACE if call.resource == "pods" else "",
            call.group,
            "/".join(filter(None, (call.resource, call.subresource))),
            call.verb,
        )
        for call in calls
        if call.resource
    }


def test_what_the_plugin_asks_for_is_allowed_and_nothing_else_is(calls):
    assert rules("Role", "ClusterRole") == needed(calls) | BY_THE_API_SERVER


def test_pods_are_touched_in_the_driver_s_own_namespace_alone(calls):
    assert {call.namespace for call in calls if call.resource == "pods"} == {chart.NAMESPACE}


def test_other_paths_than_those_of_objects_are_open_to_every_account(calls):
    """By the ClusterRole system:discovery."""
    paths = {call.path for call in calls if not call.resource}
    assert paths <= {"/version", "/apis", "/apis/resource.k8s.io"}


def test_status_entries_of_other_drivers_may_not_be_written():
    [rule] = [
        rule
        for rule in chart.the(chart.objects(), "ClusterRole")["rules"]
        if rule["resources"] == ["resourceclaims/driver"]
    ]
    assert rule["resourceNames"] == ["gpu.nvidia.com"]


def test_without_pods_for_mps_daemons_there_is_no_right_to_pods():
    bodies = chart.objects({"settings": {"mpsLauncher": "process"}})
    assert not [body for body in bodies if body["kind"] in ("Role", "RoleBinding")]
