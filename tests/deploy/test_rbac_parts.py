"""Webhook, controller and people do what their roles allow, and these allow no more."""

import contextlib
import pathlib

import api_cluster
import chart
import gpu_slices
import parameter_scene
import pytest
import rbac_rules
import served_api

from dra_driver import cli, settings
from dra_driver.adapters.kube import kube
from dra_driver.apps.controller import controller, leading
from dra_driver.apps.doctor import doctor_cluster
from dra_driver.apps.webhook import webhook_certificates
from dra_driver.logic.preparing import mps_pod
from dra_driver.model import parameters
from dra_driver.settings import controller as controller_settings
from dra_driver.settings import webhook as webhook_settings

pytestmark = pytest.mark.sampled(9)

GONE = "node-2"
LABELS = {mps_pod.MANAGED_BY: mps_pod.MANAGER, mps_pod.DOMAIN: "1234"}


def rights(component):
    return rbac_rules.granted(chart.part(chart.objects(), component))


# The webhook


def of_the_webhook(directory):
    """The calls of webhooks whose Secret is empty, then good."""
    served = served_api.ServedApi(directory)
    with contextlib.closing(served):
        served.client.create(kube.NAMESPACES, {"metadata": {"name": chart.NAMESPACE}})
        bodies = chart.part(chart.objects(), "webhook")
        served.client.create(
            webhook_certificates.SECRETS, chart.the(bodies, "Secret"), chart.NAMESPACE
        )
        served.client.create(
            webhook_certificates.CONFIGURATIONS, chart.the(bodies, "ValidatingWebhookConfiguration")
        )
        served.calls.clear()
        config = chart.deployed_settings("webhook", webhook_settings.Webhook)
        for _ in range(2):
            webhook_certificates.SelfManaged(config, served.client).get()
        return list(served.calls)


def test_what_the_webhook_asks_for_is_allowed_and_nothing_else_is(tmp_path):
    calls = of_the_webhook(tmp_path)
    assert rbac_rules.refused(rights("webhook"), calls) == []
    assert rbac_rules.unused(rights("webhook"), calls) == set()


def test_the_webhook_may_touch_one_secret_and_one_configuration():
    assert {(right.resource, right.name) for right in rights("webhook")} == {
        ("secrets", "dra-driver-webhook-certificate"),
        ("validatingwebhookconfigurations", "dra-driver-webhook"),
    }


# The controller


@pytest.fixture(scope="module")
def of_the_controller():
    """The calls of a controller that finds each kind of leftover, and of one that follows it."""
    cluster = api_cluster.Cluster()
    with contextlib.closing(cluster):
        cluster.client.create(kube.NAMESPACES, {"metadata": {"name": chart.NAMESPACE}})
        lease = chart.the(chart.part(chart.objects(), "controller"), "Lease")
        cluster.client.create(leading.LEASES, lease, chart.NAMESPACE)
        _leave(cluster)
        cluster.claim({"device": "gpu-0", "pool": GONE})
        scene = parameter_scene.Scene(cluster).install()
        for kind in parameters.Kind:
            name = str(kind.device_type) if kind is not parameters.Kind.MIG else "old"
            scene.put(kind, {"profile": "1g.5gb"} if "mig" in kind.lower() else {}, name)
        for identity in ("first", "second"):
            with contextlib.closing(_controller(cluster, identity)) as running:
                api_cluster.wait_for(
                    lambda running=running: running.round() or _is_clean(cluster), "all is settled"
                )
                scene.change(parameter_scene.GPU, {"count": 2}, "gpu")
                running.round()
        yield [call for call in cluster.faults.calls if call.user_agent == "dra-driver/controller"]


class _Rounds:
    """A controller whose rounds are made here, so that nothing waits."""

    def __init__(self, config, client):
        self._controller = controller.Controller(config, client)
        self._controller.start()

    def round(self):
        self._controller.round()

    def close(self):
        self._controller.stop()


def _controller(cluster, identity):
    config = chart.deployed_settings(
        "controller",
        controller_settings.Controller,
        {"controller": {"graceSeconds": 0, "sweepSeconds": 0.001, "parametersSeconds": 0.001}},
        environment={
            "DRA_DRIVER_IDENTITY": identity,
            "DRA_DRIVER_STATUS_ADDRESS": "127.0.0.1:0",
        },
    )
    client = kube.Client(kubeconfig=cluster.kubeconfig, user_agent="dra-driver/controller")
    return _Rounds(config, client)


def _leave(cluster):
    pod = {
        "metadata": {"name": "mps", "namespace": chart.NAMESPACE, "labels": LABELS},
        "spec": {"nodeName": GONE, "containers": [{"name": "c", "image": "i"}]},
    }
    cluster.client.create(kube.PODS, pod, chart.NAMESPACE)
    pool = {"name": GONE, "generation": 1, "resourceSliceCount": 1}
    devices = [{"name": "gpu-0"}]
    spec = {"driver": api_cluster.DRIVER, "nodeName": GONE, "pool": pool, "devices": devices}
    cluster.client.create(kube.SLICES, {"metadata": {"name": GONE}, "spec": spec})


def _is_clean(cluster):
    events, _ = cluster.client.list(kube.EVENTS, "default")
    pods, _ = cluster.client.list(kube.PODS, chart.NAMESPACE)
    slices, _ = cluster.client.list(kube.SLICES)
    return bool(events) and not pods and not slices


def test_what_the_controller_asks_for_is_allowed_and_nothing_else_is(of_the_controller):
    assert rbac_rules.refused(rights("controller"), of_the_controller) == []
    assert rbac_rules.unused(rights("controller"), of_the_controller) == set()


def test_the_controller_s_right_to_a_lease_is_to_the_one_that_it_is_told_to_take():
    values = {"fullnameOverride": "gpus"}
    config = chart.deployed_settings(
        "controller",
        controller_settings.Controller,
        values,
        environment={"DRA_DRIVER_IDENTITY": "one"},
    )
    bodies = chart.part(chart.objects(values), "controller")
    names = {
        right.verb: right.name
        for right in rbac_rules.granted(bodies)
        if right.resource == leading.LEASES.plural
    }
    assert names == {"get": config.lease, "update": config.lease}


# People


def viewer(values=None):
    return [
        body
        for body in chart.objects(values)
        if body["kind"] == "ClusterRole" and body["metadata"]["name"].endswith("-viewer")
    ]


@pytest.fixture
def of_people(monkeypatch):
    """The calls of the commands that only look."""
    monkeypatch.delenv("KUBECONFIG", raising=False)
    cluster = api_cluster.Cluster()
    with contextlib.closing(cluster):
        for body in gpu_slices.on_demand("hopper", 1):
            if body["kind"] == "ResourceSlice":
                cluster.client.create(kube.SLICES, body)
        ref = cluster.claim(allocate=False)
        kubeconfig = str(cluster.kubeconfig)
        before = len(cluster.faults.calls)
        for line in (["status"], ["explain", f"claim/{ref.name}"]):
            with pytest.raises(SystemExit):
                cli.main([*line, "--kubeconfig", kubeconfig])
        _examine(cluster.kubeconfig)
        yield cluster.faults.calls[before:]


def _examine(kubeconfig: pathlib.Path):
    config = settings.KubeletPlugin(node_name=api_cluster.NODE, kubeconfig=kubeconfig)
    doctor_cluster.findings(config, partitions=True, user_agent="dra-driver/test doctor")


def test_what_the_commands_read_is_allowed_and_nothing_else_is(of_people):
    allowed = rbac_rules.granted(viewer())
    # Whether counters are taken is asked with a write that is not carried out.
    asked = [call for call in of_people if not call.dry_run]
    assert rbac_rules.refused(allowed, asked) == []
    assert rbac_rules.unused(allowed, asked) == set()
    refused = rbac_rules.refused(allowed, of_people)
    assert {(call.verb, call.resource) for call in refused} == {("create", "resourceslices")}


def test_nobody_has_the_role_for_people_and_it_can_be_left_out():
    [role] = viewer()
    roles = set().union(*rbac_rules.bound(chart.objects()).values())
    assert f"ClusterRole/{role['metadata']['name']}" not in roles
    assert viewer({"rbac": {"viewer": False}}) == []


# The doctor, before the plugin and as its account


def test_the_doctor_in_the_plugin_s_pod_may_ask_all_that_it_asks():
    cluster = api_cluster.Cluster()
    with contextlib.closing(cluster):
        before = len(cluster.faults.calls)
        _examine(cluster.kubeconfig)
        asked = cluster.faults.calls[before:]
    assert {(call.verb, call.resource) for call in asked if call.dry_run} == {
        ("create", "resourceslices")
    }
    assert rbac_rules.refused(rights("kubelet-plugin"), asked) == []


# All


def test_each_account_has_the_roles_of_its_part_alone():
    bodies = chart.objects()
    assert rbac_rules.bound(bodies) == {
        f"{chart.NAMESPACE}/dra-driver-{name}": {
            f"ClusterRole/dra-driver-{name}",
            f"Role/dra-driver-{name}",
        }
        for name in ("kubelet-plugin", "webhook", "controller")
    }


def test_roles_that_others_make_are_left_to_them():
    bodies = chart.objects({"rbac": {"create": False}})
    kinds = {body["kind"] for body in bodies}
    assert kinds.isdisjoint({"Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"})
    assert len([body for body in bodies if body["kind"] == "ServiceAccount"]) >= 3
