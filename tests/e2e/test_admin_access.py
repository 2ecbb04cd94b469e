"""Claims of administrators: devices that others have, in namespaces with a label."""

import pytest
from e2e_site import DAEMON_SETS, TEMPLATES, exactly

from dra_driver.adapters.kube import kube

LABEL = {"resource.kubernetes.io/admin-access": "true"}


@pytest.mark.covers("e2e/dra: admin access validation of template and claim")
def test_admin_access_needs_a_namespace_with_the_label(scratch):
    for kind in (scratch.template, scratch.claim):
        with pytest.raises(kube.ApiError, match="admin"):
            kind("admin", exactly("gpus", adminAccess=True, allocationMode="All"))
    assert scratch.claims() == scratch.site.client.list(TEMPLATES, scratch.namespace)[0] == []


class TestInANamespaceWithTheLabel:
    @pytest.fixture
    def labels(self):
        return LABEL

    @pytest.mark.covers(
        "e2e/dra: DaemonSet with admin access", "GPU Operator: validator's DaemonSet"
    )
    def test_a_daemon_set_sees_all_cards_while_others_have_them(self, scratch):
        site = scratch.site
        card = "device.attributes['gpu.nvidia.com'].type == 'gpu'"
        asked = exactly("gpus", "gpu.nvidia.com", card, adminAccess=True, allocationMode="All")
        scratch.template("admin", asked)
        scratch.template("one", exactly("gpu", "gpu.nvidia.com", card))
        scratch.pod("user", {"gpu": "template/one"})
        scratch.wait_running("user")
        spec = scratch.pod_spec({"gpus": "template/admin"}, restartPolicy="Always")
        labels = {"app": "watcher"}
        selector = {site.options.label: "true"}
        scratch.create(
            DAEMON_SETS, "DaemonSet", "watcher",
            spec={
                "selector": {"matchLabels": labels},
                "template": {
                    "metadata": {"labels": labels}, "spec": spec | {"nodeSelector": selector},
                },
            },
        )  # fmt: skip

        def ready():
            body = site.client.get(DAEMON_SETS, "watcher", scratch.namespace)
            return (body.get("status") or {}).get("numberReady") == len(site.nodes)

        site.wait(ready, "a pod on each node")
        pods, _ = site.client.list(kube.PODS, scratch.namespace, label_selector="app=watcher")
        seen = {pod["spec"]["nodeName"]: scratch.sees(pod["metadata"]["name"]) for pod in pods}
        published = [
            device["attributes"]["uuid"]["string"]
            for device in site.devices().values()
            if device["attributes"]["type"] == {"string": "gpu"}
        ]
        assert sorted(uuid for found in seen.values() for uuid in found) == sorted(published)
