"""Logs of containers, as `kubectl logs` asks for them."""

import api_objects
import pytest
from kubectl_program import Kubectl

PODS = "/api/v1/namespaces/default/pods"


def pod(*containers):
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "train", "namespace": "default"},
        "spec": {"containers": [{"name": name, "image": "x"} for name in containers]},
    }


@pytest.fixture
def lines():
    """What containers have written, by name."""
    return {}


@pytest.fixture
def logged(lines):
    def log(uid, container):
        return f"{uid} {lines[container]}\n" if container in lines else None

    with api_objects.Api(pod_log=log) as running:
        yield running


def test_kubectl_shows_the_log_of_the_only_container_or_of_one_that_is_named(
    logged, lines, tmp_path
):
    lines.update(one="hello", two="world")
    uid = logged.create(PODS, pod("one", "two"))["metadata"]["uid"]
    kubectl = Kubectl(logged, tmp_path)
    assert kubectl("logs train -c two") == f"{uid} world\n"
    # It asks for all of them at a time.
    both = kubectl("logs train --all-containers").splitlines()
    assert sorted(both) == [f"{uid} hello", f"{uid} world"]
    logged.send("DELETE", f"{PODS}/train", gracePeriodSeconds=0)
    uid = logged.create(PODS, pod("one"))["metadata"]["uid"]
    assert kubectl("logs train") == f"{uid} hello\n"


@pytest.mark.parametrize(
    ("name", "query", "status", "message"),
    [
        ("train", {}, 400, "choose one of: [one two]"),
        ("train", {"container": "three"}, 400, "container three is not valid for pod train"),
        ("train", {"container": "two"}, 400, 'container "two" in pod "train" is waiting to start'),
        ("other", {"container": "one"}, 404, 'pods "other" not found'),
    ],
)
def test_a_log_that_there_is_not_is_told_so(logged, name, query, status, message):
    logged.create(PODS, pod("one", "two"))
    answer = logged.send("GET", f"{PODS}/{name}/log", **query)
    assert answer.status == status
    assert message in answer.body["message"]


def test_a_log_is_only_read(logged):
    logged.create(PODS, pod("one"))
    answer = logged.send("POST", f"{PODS}/train/log", {})
    assert (answer.status, answer.body["reason"]) == (405, "MethodNotAllowed")
