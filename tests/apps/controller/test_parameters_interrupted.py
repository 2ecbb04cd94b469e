"""Looks at parameter objects that are cut short, race each other, or lose the lease."""

import api_cluster
import effort
import parameter_scene
import pytest

from dra_driver import errors
from dra_driver.adapters.kube import kube
from dra_driver.sim.api.serving import options

GPU = parameter_scene.GPU
T4S = parameter_scene.T4S
H100S = parameter_scene.H100S


@pytest.fixture
def scene(own_cluster):
    return parameter_scene.Scene(own_cluster).install()


@pytest.fixture
def client(scene):
    made = kube.Client(kubeconfig=scene.cluster.kubeconfig, user_agent="keeper")
    yield made
    made.close()


def settled(scene, spec_count):
    """Whether template and status are those of the parameters."""
    template = scene.template()
    status = scene.get(GPU).get("status") or {}
    return (
        template is not None
        and scene.request()["count"] == spec_count
        and status.get("conditions", [{}])[0].get("status") == "True"
        and len(status["expressions"]) == len(scene.request()["selectors"])
    )


@pytest.mark.parametrize("drop", ["before", "after"])
@pytest.mark.parametrize("changed", [False, True], ids=["new", "changed"])
def test_wherever_a_look_ends_the_next_one_puts_all_in_order(scene, client, drop, changed):
    scene.put(GPU, T4S)
    if changed:
        scene.look(scene.keeper(client))
        scene.change(GPU, H100S)
    steps = 0
    for step in effort.steps():
        left = [step]

        def rule(call, left=left):
            if call.verb not in parameter_scene.WRITES or call.user_agent != "keeper":
                return None
            left[0] -= 1
            return options.Fault(drop=drop) if left[0] == 0 else None

        with scene.cluster.faults.where(rule) as happened:
            try:
                scene.look(scene.keeper(client))
            except errors.Retryable:
                assert happened
        steps += 1
        # A process that is killed leaves what is there; another one comes.
        scene.look(scene.keeper(client), times=2)
        assert settled(scene, 2 if changed else 1)
        if not happened:
            break
        scene.client.delete(parameter_scene.resource(GPU), "mine", "default")
        api_cluster.wait_for(lambda: scene.template() is None, "the template goes")
        scene.put(GPU, T4S)
        if changed:
            scene.look(scene.keeper(client))
            scene.change(GPU, H100S)
    assert steps >= 1


class Racing(kube.Client):
    """Before each of its writes another one has a whole look."""

    other = None

    def _call(self, method, path, **given):
        if method in {"POST", "DELETE", "PATCH"} and self.other is not None:
            other, self.other = self.other, None
            other()
            self.other = other
        return super()._call(method, path, **given)


@pytest.mark.parametrize("changed", [False, True], ids=["new", "changed"])
def test_two_controllers_at_once_do_no_harm(scene, client, changed):
    scene.put(GPU, T4S)
    if changed:
        scene.look(scene.keeper(client))
        scene.change(GPU, H100S)
    racing = Racing(kubeconfig=scene.cluster.kubeconfig, user_agent="racing")
    other = scene.keeper(client)
    made = []

    def first():
        scene.look(other)
        made.append(scene.template()["metadata"]["uid"])

    racing.other = first
    one = scene.keeper(racing)
    scene.look(one, times=3)
    racing.close()
    assert settled(scene, 2 if changed else 1)
    # The slower one took nothing of the faster one's away.
    assert {scene.template()["metadata"]["uid"]} == {*made}


def test_an_object_that_cannot_be_kept_now_is_in_no_other_s_way(scene, client):
    scene.put(GPU, T4S, "first")
    scene.put(GPU, T4S, "second")

    def rule(call):
        is_first = call.verb == "get" and call.name == "first"
        return options.Fault(status=503) if is_first else None

    keeper = scene.keeper(client)
    with scene.cluster.faults.where(rule), pytest.raises(errors.Retryable, match="1 objects are"):
        scene.look(keeper)
    assert scene.condition(GPU, "second")["status"] == "True"
    scene.look(keeper)
    assert scene.condition(GPU, "first")["status"] == "True"


def test_parameters_that_are_on_their_way_out_get_no_template(scene, client):
    body = scene.put(GPU, T4S)
    body["metadata"]["finalizers"] = ["example.com/wait"]
    scene.client.replace(parameter_scene.resource(GPU), body, "default")
    scene.client.delete(parameter_scene.resource(GPU), "mine", "default")
    assert "deletionTimestamp" in scene.get(GPU)["metadata"]
    scene.look(scene.keeper(client))
    assert scene.template() is None


def test_who_loses_the_lease_changes_nothing_more(scene, client):
    scene.put(GPU, T4S)
    keeper = scene.keeper(client)
    keeper.keep(1000.0, lambda: False)
    assert scene.template() is None
    assert "status" not in scene.get(GPU)
