"""The plugin does what its roles allow, and they allow no more."""

import api_cluster
import chart
import plugin_process
import pod_kubelet
import pytest
import rbac_rules
import sharing_claims
import yaml

from dra_driver import settings
from dra_driver.adapters.kube import kube

pytestmark = pytest.mark.sampled(9)

BY_THE_API_SERVER = {
    rbac_rules.Right(
        "", "resource.k8s.io", "resourceclaims/driver", "gpu.nvidia.com", "associated-node:patch"
    )
}
"""Rights that the API server looks for itself, when a status is patched; source: Kubernetes 1.36,
`DRAResourceClaimGranularStatusAuthorization`."""

CONDITION = "GPUNeedsReboot"
WITH_CONDITION = {"settings": {"rebootCondition": CONDITION}}


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
        reboot_condition=CONDITION,
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
    share = sharing_claims.share("gpu-0", memory=10) | {"request": "gpu"}
    ref = cluster.claim(share)
    plugin.kubelet.prepare(ref)
    api_cluster.wait_for(
        lambda: (cluster.get_claim(ref).get("status") or {}).get("devices"), "status.devices"
    )
    plugin.kubelet.unprepare(ref)
    cluster.delete_claim(ref)

    # GPUs come and go, and their slices with them.
    def names():
        return set(api_cluster.device_names(cluster.slices()))

    everything = names()
    machine.lose_gpus("gpu-0")
    api_cluster.wait_for(lambda: names() == {"gpu-1"}, "slices without the first GPU")
    api_cluster.wait_for(lambda: cluster.client.list(kube.EVENTS, "default")[0], "an event")
    machine.heal_gpus()
    api_cluster.wait_for(lambda: names() == everything, "slices with both GPUs")

    # A record that is lost is looked for among all claims.
    ref = cluster.claim(share)
    plugin.kubelet.prepare(ref)
    plugin.kill()
    machine.record_path(ref).write_text("damaged")
    machine.spec_path(ref).unlink()
    plugin.start().kubelet.unprepare(ref)


def rights(values=None):
    return rbac_rules.granted(chart.part(chart.objects(values), "kubelet-plugin"))


def test_what_the_plugin_asks_for_is_allowed_and_nothing_else_is(calls):
    assert rbac_rules.refused(rights(WITH_CONDITION), calls) == []
    assert rbac_rules.unused(rights(WITH_CONDITION), calls) == BY_THE_API_SERVER


def test_the_status_of_nodes_is_open_only_where_a_condition_is_written():
    more = rights(WITH_CONDITION) - rights()
    assert more == {rbac_rules.Right("", "", "nodes/status", "", "patch")}
    assert rights() <= rights(WITH_CONDITION)


def test_who_patches_the_status_of_a_claim_has_the_right_that_is_looked_for_besides(calls):
    patched = [call for call in calls if call.subresource == "status" and call.resource != "nodes"]
    assert {(call.resource, call.verb) for call in patched} == {("resourceclaims", "patch")}
    [right] = BY_THE_API_SERVER
    assert right.verb == f"associated-node:{patched[0].verb}"


def test_pods_are_touched_in_the_driver_s_own_namespace_alone(calls):
    assert {call.namespace for call in calls if call.resource == "pods"} == {chart.NAMESPACE}


def test_other_paths_than_those_of_objects_are_open_to_every_account(calls):
    """By the ClusterRole system:discovery."""
    paths = {call.path for call in calls if not call.resource}
    assert paths <= {"/version", "/apis", "/apis/resource.k8s.io"}


@pytest.mark.parametrize("driver", ["gpu.nvidia.com", "gpu.example.com"])
def test_status_entries_of_other_drivers_may_not_be_written(driver):
    named = rights({"settings": {"driverName": driver}})
    [name] = [right.name for right in named if right.resource == "resourceclaims/driver"]
    assert name == driver


def test_without_pods_for_mps_daemons_there_is_no_right_to_pods():
    assert "pods" in {right.resource for right in rights()}
    values = {"settings": {"mpsLauncher": "process"}}
    assert "pods" not in {right.resource for right in rights(values)}


def test_the_roles_for_hosts_without_the_chart_are_those_of_the_chart_without_pods():
    """Who gets at a token on such a host can make no pod with it."""
    process = {"settings": {"mpsLauncher": "process"}}
    bodies = list(yaml.safe_load_all((chart.DEPLOY / "rbac.yaml").read_text("utf-8")))
    assert rbac_rules.granted(bodies) == rights(process)
    assert "pods" not in {right.resource for right in rights(process)}
    assert rbac_rules.bound(bodies) == {
        account: roles
        for account, roles in rbac_rules.bound(chart.objects(process)).items()
        if account.endswith("/dra-driver-kubelet-plugin")
    }
    default = settings.KubeletPlugin.model_fields["mps_launcher"].default
    assert default == "process"
