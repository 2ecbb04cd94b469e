"""What one API server refuses of a node's slices keeps nothing else from being published."""

import api_cluster
import plugin_process
import pytest
import structlog.testing

from dra_driver.adapters.kube import kube
from dra_driver.apps.node import slice_form
from dra_driver.apps.offering import publishing, slice_writer
from dra_driver.logic.offering import publishing as logic
from dra_driver.logic.offering import refusals
from dra_driver.model import slices
from dra_driver.sim.api.kinds import problems
from dra_driver.sim.api.serving import options

pytestmark = pytest.mark.sampled(7)

TOO_LONG = "x" * 65
"""Of a string attribute."""
LEFT_OUT = "the API server refuses what is in ResourceSlices; going on without it"
NOT_PUBLISHED = "ResourceSlices not published"


class Scene:
    """A publisher in this process, and what it is to publish: slices of devices."""

    def __init__(self, monkeypatch):
        monkeypatch.setattr(publishing, "PAUSE", 0.0)
        monkeypatch.setattr(publishing, "LOOK_AGAIN", 0.02)
        self.denied = set()
        self.cluster = api_cluster.Cluster(webhook=self.webhook)
        self.offered = [[device("gpu-0")], [device("gpu-1")], [device("gpu-2")]]
        self.looks = 0
        kubeconfig = self.cluster.kubeconfig
        self.client = kube.Client(kubeconfig=kubeconfig, user_agent="dra-driver/test")
        self.publisher = publishing.Publisher(
            self.client,
            publishing.Identity(api_cluster.DRIVER, api_cluster.NODE),
            wanted=self.wanted,
            form=slice_form.SliceForm(self.client, avoids=True, shared=False),
            may_publish=lambda: True,
            on_error=lambda: None,
        )

    def webhook(self, body):
        if body["kind"] != "ResourceSlice":
            return None
        there = {one["name"] for one in body["spec"].get("devices") or ()}
        found = sorted(there & self.denied)
        return problems.Denial(f"not {found}") if found else None

    def wanted(self, _published, _layout, refused):
        self.looks += 1
        return [
            logic.Content(
                tuple(
                    one for one in chunk if refusals.mark(slices.format_device(one)) not in refused
                )
            )
            for chunk in self.offered
        ]

    def pools(self):
        """Generation, count and devices of each slice, in order."""
        found = sorted(self.cluster.slices(), key=lambda body: body["metadata"]["name"])
        return [
            (
                body["spec"]["pool"]["generation"],
                body["spec"]["pool"]["resourceSliceCount"],
                [one["name"] for one in body["spec"].get("devices") or ()],
            )
            for body in found
        ]

    def wait_pool(self, *chunks):
        """Wait for a whole pool with just these devices, and for ten looks at it."""

        def is_there():
            pools = self.pools()
            alike = {(generation, count) for generation, count, _ in pools}
            return [names for _, _, names in pools] == list(chunks) and len(alike) == 1

        api_cluster.wait_for(is_there, lambda: f"{chunks}; there is {self.pools()}")
        self.wait_looks(10)

    def wait_looks(self, count):
        before = self.looks
        api_cluster.wait_for(lambda: self.looks >= before + count, f"{count} looks")

    def versions(self):
        return {body["metadata"]["name"]: body["metadata"] for body in self.cluster.slices()}


def device(name, **attributes):
    return slices.Device(name, attributes, {})


@pytest.fixture
def scene(monkeypatch):
    made = Scene(monkeypatch)
    made.publisher.start()
    made.wait_pool(["gpu-0"], ["gpu-1"], ["gpu-2"])
    yield made
    made.publisher.stop()
    made.client.close()
    made.cluster.close()


@pytest.fixture
def log():
    with structlog.testing.capture_logs() as lines:
        yield lines


def events(log, event):
    return [line for line in log if line["event"] == event]


def test_a_device_that_is_refused_is_left_out_and_all_others_are_published_at_once(scene, log):
    writes = len(scene.cluster.slice_writes())
    bad = device("gpu-3", model=TOO_LONG)
    scene.offered = [*scene.offered, [bad, device("gpu-4")], [device("gpu-5")]]
    scene.wait_pool(["gpu-0"], ["gpu-1"], ["gpu-2"], ["gpu-4"], ["gpu-5"])
    # One write for each slice of the new pool, and none that came to nothing.
    assert scene.cluster.slice_writes()[writes:] == ["update"] * 3 + ["create"] * 2
    assert scene.publisher.failure == ""
    [line] = events(log, LEFT_OUT)
    assert line["refused"] == ["gpu-3"]
    assert "spec.devices[0].attributes[model].string: Too long" in line["reason"]
    assert scene.publisher.left_out == {"gpu-3": line["reason"]}


def test_a_refusal_in_one_slice_that_changes_alone_leaves_the_others_as_they_are(scene):
    before = scene.versions()
    scene.offered[1] = [device("gpu-1"), device("gpu-6", model=TOO_LONG), device("gpu-7")]
    scene.wait_pool(["gpu-0"], ["gpu-1", "gpu-7"], ["gpu-2"])
    after = scene.versions()
    changed = [name for name in before if before[name] != after[name]]
    assert [name[:5] for name in changed] == ["00001"]


def test_what_is_refused_is_published_once_it_is_right(scene):
    scene.offered[0] = [device("gpu-0"), device("gpu-3", model=TOO_LONG)]
    scene.wait_looks(10)
    scene.offered[0] = [device("gpu-0"), device("gpu-3", model="right")]
    scene.wait_pool(["gpu-0", "gpu-3"], ["gpu-1"], ["gpu-2"])


def test_a_denial_that_names_no_device_is_about_its_slice_and_waited_for_first(
    scene, log, monkeypatch
):
    scene.denied.add("gpu-4")
    scene.offered = [*scene.offered, [device("gpu-3"), device("gpu-4")], [device("gpu-5")]]
    before = scene.versions()
    api_cluster.wait_for(lambda: len(events(log, NOT_PUBLISHED)) == 1, "a failure")
    scene.wait_looks(2)
    # Nothing is torn while it may pass.
    assert scene.versions() == before
    assert "denied the request: not ['gpu-4']" in scene.publisher.failure
    assert scene.publisher.refusal == scene.publisher.failure
    monkeypatch.setattr(slice_writer, "PASSING", 0.0)
    scene.wait_pool(["gpu-0"], ["gpu-1"], ["gpu-2"], [], ["gpu-5"])
    assert events(log, LEFT_OUT)[0]["refused"] == ["gpu-3", "gpu-4"]


def test_a_denial_that_passes_changes_nothing(scene, log):
    scene.denied.add("gpu-1")
    scene.offered[1] = [device("gpu-1"), device("gpu-3")]
    before = scene.versions()
    api_cluster.wait_for(lambda: events(log, NOT_PUBLISHED), "a failure")
    assert scene.versions() == before
    scene.denied.clear()
    scene.wait_pool(["gpu-0"], ["gpu-1", "gpu-3"], ["gpu-2"])
    assert events(log, LEFT_OUT) == []
    assert scene.publisher.refusal is None


def test_where_everything_is_refused_what_is_published_stays(scene, log, monkeypatch):
    monkeypatch.setattr(slice_writer, "PASSING", 0.0)
    before, writes = scene.versions(), len(scene.cluster.slice_writes())
    scene.denied |= {"gpu-0", "gpu-1", "gpu-2"}
    scene.offered = [[device(f"gpu-{n}", other=True)] for n in range(3)]
    api_cluster.wait_for(lambda: events(log, NOT_PUBLISHED), "a failure")
    assert "denied the request" in scene.publisher.refusal
    assert scene.versions() == before
    assert scene.cluster.slice_writes()[writes:] == []
    scene.denied.clear()
    api_cluster.wait_for(
        lambda: all(
            one.get("attributes") == {"other": {"bool": True}}
            for body in scene.cluster.slices()
            for one in body["spec"]["devices"]
        ),
        "the other devices",
    )


def test_a_server_that_takes_it_by_now_is_asked_again_after_a_while(scene, monkeypatch):
    monkeypatch.setattr(slice_writer, "PASSING", 0.0)
    scene.denied.add("gpu-3")
    scene.offered[2] = [device("gpu-3")]
    scene.wait_pool(["gpu-0"], ["gpu-1"], [])
    scene.denied.clear()
    scene.wait_looks(10)
    assert scene.publisher.left_out.keys() == {"gpu-3"}
    monkeypatch.setattr(slice_writer, "ASK_AGAIN", 0.0)
    scene.wait_pool(["gpu-0"], ["gpu-1"], ["gpu-3"])
    assert scene.publisher.left_out == {}


def test_a_webhook_that_takes_no_dry_runs_is_no_refusal(scene):
    def rule(call):
        if call.resource == "resourceslices" and call.dry_run:
            message = 'admission webhook "x.example.com" does not support dry run'
            return options.Fault(status=400, reason="BadRequest", message=message)
        return None

    with scene.cluster.faults.where(rule) as happened:
        scene.offered = [*scene.offered, [device("gpu-3")]]
        scene.wait_pool(["gpu-0"], ["gpu-1"], ["gpu-2"], ["gpu-3"])
    assert len(happened) == 1


def deny_the_second_gpu(body):
    if body["kind"] != "ResourceSlice":
        return None
    names = [one["name"] for one in body["spec"].get("devices") or ()]
    if "gpu-1" not in names:
        return None
    return problems.Denial("no", (f"spec.devices[{names.index('gpu-1')}].name",))


def test_a_gpu_that_is_refused_makes_the_plugin_say_so_and_keeps_no_other_from_being_offered(
    own_machine,
):
    cluster = api_cluster.Cluster(webhook=deny_the_second_gpu)
    plugin = plugin_process.Plugin(own_machine, cluster)
    try:
        plugin.start()
        cluster.wait_devices("gpu-0")
        told = plugin.wait_log("not ready")[0]["reason"]
        assert told.startswith("the API server refuses gpu-1, so it is not offered: POST ")
        assert told.endswith("denied the request: no")
        ref = cluster.claim("gpu-0")
        assert plugin.kubelet.prepare(ref) == [plugin_process.device(ref, "gpu-0")]
        cluster.client.delete_collection(kube.SLICES, field_selector="spec.nodeName=node-1")
        cluster.wait_devices("gpu-0")
        assert plugin.complaints() == []
    finally:
        plugin.kill()
        cluster.close()
