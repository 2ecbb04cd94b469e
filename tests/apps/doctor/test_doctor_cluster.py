"""What the doctor says of the API server."""

import itertools

import api_cluster
import pytest

from dra_driver import settings
from dra_driver.apps.doctor import doctor_cluster
from dra_driver.logic.doctor import diagnosis
from dra_driver.sim.api.serving import options

GATE, SHARES_GATE = "DRAPartitionableDevices", "DRAConsumableCapacity"
OWN_POLICY = "dra-driver-kubelet-plugin-slices"


@pytest.fixture
def new_cluster():
    """Makes API servers with the options given."""
    made = []

    def make(**given):
        made.append(api_cluster.Cluster(**given))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture
def ask(own_machine):
    """The findings by check, and what is not fine of them."""

    def asked(kubeconfig, *, partitions=True, **flags):
        config = settings_for(own_machine, kubeconfig, **flags)
        findings = doctor_cluster.findings(
            config, partitions=partitions, user_agent="dra-driver/test doctor"
        )
        return {finding.check: finding for finding in findings}

    return asked


def settings_for(machine, kubeconfig, **flags):
    return settings.KubeletPlugin(
        **{"node_name": api_cluster.NODE, "kubeconfig": kubeconfig, "kubelet_root": machine.kubelet}
        | flags
    )


def refuse(cluster, resource, verb="list"):
    def rule(call):
        if (call.resource, call.verb) == (resource, verb):
            return options.Fault(status=403, reason="Forbidden", message=f"may not {verb}")
        return None

    return cluster.faults.where(rule)


def problems(found):
    return [check for check, finding in found.items() if finding.level == "problem"]


def test_a_server_that_has_all_is_fine(ask, cluster):
    found = ask(cluster.kubeconfig)
    assert {finding.level for finding in found.values()} == {diagnosis.Level.FINE}
    assert {check: finding.cause for check, finding in found.items()} == {
        "API server": "it answers, with v1.36.2-sim",
        "resource.k8s.io": "v1; v1 is used",
        "Node object": f"UID {cluster.node_uid()}",
        "ResourceSlices": "0 with 0 devices",
        "writing slices": "they may be made",
        "counters of partitions": "the API server takes them",
    }


@pytest.mark.parametrize(("defects", "level"), [("avoid", "PROBLEM"), ("ignore", "NOTE")])
def test_a_scheduler_of_a_release_that_panics_costs_partitions_or_is_a_note(
    ask, new_cluster, defects, level
):
    cluster = new_cluster(kubernetes_version="v1.36.1-sim")
    found = ask(cluster.kubeconfig, scheduler_defects=defects)
    told = found["kube-scheduler"]
    assert (told.level, told.looked_at) == (diagnosis.Level[level], "v1.36.1-sim")
    assert "allocationMode: All" in told.cause
    assert told.remedy.startswith("Kubernetes 1.36.2 or newer; ")


def test_settings_that_make_no_instances_lose_nothing_by_it(ask, new_cluster):
    cluster = new_cluster(kubernetes_version="v1.36.1-sim")
    found = ask(cluster.kubeconfig, mig_mode="static")
    assert found["kube-scheduler"].level is diagnosis.Level.NOTE
    rules = [{"selector": "device.attributes['gpu.nvidia.com'].index == 1", "migMode": "dynamic"}]
    found = ask(cluster.kubeconfig, mig_mode="static", gpus=rules)
    assert found["kube-scheduler"].level is diagnosis.Level.PROBLEM


def test_without_counters_it_has_nothing_to_panic_at(ask, new_cluster):
    cluster = new_cluster(kubernetes_version="v1.36.1-sim", disabled_gates=frozenset({GATE}))
    assert "kube-scheduler" not in ask(cluster.kubeconfig)


def test_what_the_plugin_has_published_is_told(ask, own_cluster, own_plugin):
    own_plugin().start()
    own_cluster.wait_devices("gpu-0", "gpu-1")
    assert ask(own_cluster.kubeconfig)["ResourceSlices"].cause == "1 with 2 devices"


def test_a_server_that_does_not_answer_is_a_problem(ask, own_cluster):
    own_cluster.stop()
    found = ask(own_cluster.kubeconfig)
    assert problems(found) == list(found) == ["API server"]
    assert found["API server"].looked_at == str(own_cluster.kubeconfig)
    assert "no answer" in found["API server"].cause


def test_no_credentials_are_a_problem(ask, tmp_path):
    found = ask(tmp_path / "absent")
    assert problems(found) == list(found) == ["API server"]
    assert "--kubeconfig" in found["API server"].remedy


def test_a_server_without_the_api_is_a_problem(ask, new_cluster):
    cluster = new_cluster()
    with cluster.faults.where(
        lambda call: options.Fault(status=404) if call.path == "/apis/resource.k8s.io" else None
    ):
        found = ask(cluster.kubeconfig)
    assert problems(found) == ["resource.k8s.io"]
    assert "the API server offers no version" in found["resource.k8s.io"].cause
    assert "Node object" not in found


def test_a_node_name_that_no_node_has_is_a_problem(ask, cluster):
    found = ask(cluster.kubeconfig, node_name="node-2")
    assert problems(found) == ["Node object"]
    assert found["Node object"].looked_at == "get nodes node-2"
    assert "--node-name" in found["Node object"].remedy


@pytest.mark.parametrize(
    ("resource", "verb", "check"),
    [("nodes", "get", "Node object"), ("resourceslices", "list", "ResourceSlices")],
)
def test_a_right_that_is_missing_is_a_problem(ask, cluster, resource, verb, check):
    with refuse(cluster, resource, verb):
        found = ask(cluster.kubeconfig)
    assert problems(found) == [check]
    assert f"may not {verb}" in found[check].cause
    assert "helm upgrade, or kubectl apply -f deploy/manifests" in found[check].remedy


@pytest.mark.parametrize(("partitions", "level"), [(True, "problem"), (False, "note")])
def test_a_gate_that_is_off_matters_to_cards_that_can_be_cut(ask, new_cluster, partitions, level):
    cluster = new_cluster(disabled_gates=frozenset({GATE}))
    found = ask(cluster.kubeconfig, partitions=partitions)["counters of partitions"]
    assert found.level == level
    assert f"the feature gate {GATE} is off" in found.cause
    assert f"--feature-gates={GATE}=true" in found.remedy
    assert cluster.slices() == []


def test_a_server_that_is_too_old_for_partitions_says_so(ask, new_cluster):
    cluster = new_cluster(kubernetes_version="v1.33.1-sim", resource_versions=("v1beta2",))
    found = ask(cluster.kubeconfig)
    assert found["resource.k8s.io"].cause == "v1beta2; v1beta2 is used"
    assert problems(found) == ["counters of partitions"]
    assert "Kubernetes 1.33 has no counters" in found["counters of partitions"].cause


BY_RULE = [{"selector": "true", "shares": "4"}]
SHARED = [{"shares": "memory"}, {"gpus": BY_RULE}]
NOT_SHARED = [{}, {"gpus": [{"selector": "true", "shares": "off"}]}]


@pytest.mark.parametrize("flags", SHARED, ids=str)
@pytest.mark.parametrize("version", ["v1", "v1beta2", "v1beta1"])
def test_shares_of_the_settings_need_a_gate(ask, new_cluster, flags, version):
    taking = new_cluster(resource_versions=(version,))
    assert ask(taking.kubeconfig, **flags)["shares"].cause == "the API server takes them"
    dropping = new_cluster(resource_versions=(version,), disabled_gates=frozenset({SHARES_GATE}))
    found = ask(dropping.kubeconfig, **flags)["shares"]
    assert found.level == "problem"
    assert f"drops allowMultipleAllocations: the feature gate {SHARES_GATE} is off" in found.cause
    assert f"--feature-gates={SHARES_GATE}=true" in found.remedy
    assert dropping.slices() == []


@pytest.mark.parametrize("flags", NOT_SHARED, ids=str)
def test_without_shares_nobody_asks_for_their_gate(ask, new_cluster, flags):
    cluster = new_cluster(disabled_gates=frozenset({SHARES_GATE}))
    found = ask(cluster.kubeconfig, **flags)
    assert "shares" not in found
    assert problems(found) == []


def test_a_server_that_refuses_shares_tells_why(ask, new_cluster):
    cluster = new_cluster()
    creations = itertools.count()

    def rule(call):
        # Before come those of a slice without devices, and of counters.
        third = (call.resource, call.verb) == ("resourceslices", "create") and next(creations) == 2
        return options.Fault(status=422, reason="Invalid", message="no shares") if third else None

    with cluster.faults.where(rule):
        found = ask(cluster.kubeconfig, shares="2")
    assert problems(found) == ["shares"]
    assert "no shares" in found["shares"].cause


def test_a_server_that_lets_no_slices_be_made_is_a_problem(ask, cluster):
    with refuse(cluster, "resourceslices", "create"):
        found = ask(cluster.kubeconfig)
    assert problems(found) == ["writing slices"]
    assert "may not create" in found["writing slices"].cause
    assert "roles" in found["writing slices"].remedy
    assert "counters of partitions" not in found


def refuses_writes(status, message):
    def rule(call):
        if (call.resource, call.verb) == ("resourceslices", "create"):
            return options.Fault(status=status, reason="Invalid", message=message)
        return None

    return rule


@pytest.mark.parametrize("status", [403, 422])
@pytest.mark.parametrize(
    "reason", ["the token names no node", "the kubelet plugin of node a may not write slices of b"]
)
def test_a_policy_that_refuses_slices_is_about_who_writes_them(ask, cluster, status, reason):
    message = f"ValidatingAdmissionPolicy '{OWN_POLICY}' with binding 'b' denied request: {reason}"
    with cluster.faults.where(refuses_writes(status, message)):
        found = ask(cluster.kubeconfig)["writing slices"]
    assert reason in found.cause
    assert found.remedy.startswith("use the token of the plugin's own pod")
    assert "--node-name" in found.remedy


@pytest.mark.parametrize("status", [403, 422])
def test_another_policy_that_refuses_slices_is_named(ask, cluster, status):
    message = "ValidatingAdmissionPolicy 'labels.example.com' with binding 'b' denied request: no"
    with cluster.faults.where(refuses_writes(status, message)):
        found = ask(cluster.kubeconfig)["writing slices"]
    assert "the policy labels.example.com of the cluster is in the way" in found.remedy
    assert "validatingadmissionpolicy labels.example.com -o yaml" in found.remedy
    assert "token" not in found.remedy


def test_a_webhook_that_refuses_slices_is_to_let_them_pass(ask, cluster):
    message = 'admission webhook "w.example.com" denied the request: no'
    with cluster.faults.where(refuses_writes(400, message)):
        found = ask(cluster.kubeconfig)["writing slices"]
    assert "w.example.com" in found.cause
    assert "let the driver pass" in found.remedy


def test_nothing_is_written(ask, own_cluster):
    ask(own_cluster.kubeconfig)
    assert own_cluster.slice_writes() == []
    assert own_cluster.slices() == []


def test_without_gates_one_write_is_asked_for_and_no_gate_is_a_problem(new_cluster, own_machine):
    cluster = new_cluster(disabled_gates=frozenset({GATE, SHARES_GATE}))
    config = settings_for(own_machine, cluster.kubeconfig, shares="memory")
    findings = doctor_cluster.findings(
        config, partitions=False, gates=False, user_agent="dra-driver/test doctor"
    )
    assert {finding.level for finding in findings} == {diagnosis.Level.FINE}
    assert [call.verb for call in cluster.faults.calls if call.dry_run] == ["create"]
