import pytest

from dra_driver.logic.scheduling import placing
from dra_driver.model import nodes, taints


def pod(*, status=None, metadata=None, **spec):
    return {
        "metadata": {"namespace": "ns", "name": "p", "uid": "u", **(metadata or {})},
        "spec": spec,
        "status": status or {},
    }


def obstacle(body, **node):
    return placing.obstacle(placing.parse(body), nodes.Node("n", **node))


def test_the_claims_of_a_pod_are_named_or_made_from_templates():
    body = pod(
        resourceClaims=[
            {"name": "a", "resourceClaimName": "mine"},
            {"name": "b", "resourceClaimTemplateName": "t"},
            {"name": "c", "resourceClaimTemplateName": "t"},
            {"name": "d", "resourceClaimTemplateName": "t"},
        ],
        status={"resourceClaimStatuses": [{"name": "b", "resourceClaimName": "p-b-x"},
                                          {"name": "d"}]},
    )  # fmt: skip
    assert placing.parse(body).claims == (
        placing.PodClaim("a", "mine"),
        placing.PodClaim("b", "p-b-x", "t"),
        placing.PodClaim("c", None, "t"),
    )


@pytest.mark.parametrize(
    ("body", "pending"),
    [
        (pod(), True),
        (pod(schedulerName="default-scheduler"), True),
        (pod(schedulerName="other"), False),
        (pod(nodeName="n"), False),
        (pod(schedulingGates=[{"name": "g"}]), False),
        (pod(metadata={"deletionTimestamp": "t"}), False),
        (pod(status={"phase": "Succeeded"}), False),
    ],
)
def test_a_pod_waits_for_the_scheduler(body, pending):
    assert placing.is_pending(body) is pending


@pytest.mark.parametrize(
    ("body", "done"),
    [
        (pod(nodeName="n"), False),
        (pod(nodeName="n", status={"phase": "Running"}), False),
        (pod(nodeName="n", status={"phase": "Failed"}), True),
        (pod(nodeName="n", metadata={"deletionTimestamp": "t"}), False),
        (pod(metadata={"deletionTimestamp": "t"}), True),
    ],
)
def test_a_pod_has_no_more_use_for_its_claims(body, done):
    assert placing.is_done(body) is done


def test_an_open_node_takes_a_pod():
    assert obstacle(pod()) is None


def test_labels_and_required_affinity_must_match():
    wanted = "node(s) didn't match Pod's node affinity/selector"
    assert obstacle(pod(nodeSelector={"a": "b"})) == wanted
    assert obstacle(pod(nodeSelector={"a": "b"}), labels={"a": "b"}) is None
    term = {"matchExpressions": [{"key": "a", "operator": "Exists"}]}
    affinity = {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}
        }
    }
    assert obstacle(pod(affinity=affinity)) == wanted
    assert obstacle(pod(affinity=affinity), labels={"a": "b"}) is None


def test_taints_keep_a_pod_away_unless_it_tolerates_them():
    tainted = {"taints": (taints.Taint("k", "v", "NoExecute"),)}
    assert obstacle(pod(), **tainted) == "node(s) had untolerated taint {k: v}"
    assert obstacle(pod(tolerations=[{"key": "k", "operator": "Exists"}]), **tainted) is None
    assert obstacle(pod(), taints=(taints.Taint("k", "", "PreferNoSchedule"),)) is None


def test_a_closed_node_takes_only_pods_that_tolerate_that():
    assert obstacle(pod(), unschedulable=True) == "node(s) were unschedulable"
    tolerations = [{"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}]
    assert obstacle(pod(tolerations=tolerations), unschedulable=True) is None


@pytest.mark.parametrize(
    ("resources", "found"),
    [
        ({"requests": {"cpu": "1", "memory": "1Gi", "hugepages-2Mi": "2Mi"}}, ()),
        ({"limits": {"nvidia.com/gpu": "1"}}, ("nvidia.com/gpu",)),
        ({"limits": {"nvidia.com/gpu": 0}}, ()),
        ({"requests": {"example.com/b": 2}, "limits": {"example.com/a": 1}},
         ("example.com/a", "example.com/b")),
        ({"requests": {"deviceclass.resource.kubernetes.io/gpu": 1}},
         ("deviceclass.resource.kubernetes.io/gpu",)),
        ({"requests": {"kubernetes.io/batteries": 1}}, ()),
    ],
)  # fmt: skip
@pytest.mark.parametrize("kind", ["containers", "initContainers"])
def test_extended_resources_are_found_in_all_containers(kind, resources, found):
    body = pod(**{kind: [{"name": "c", "resources": resources}]})
    assert placing.parse(body).extended_resources == found
