"""What writes the node's ResourceSlices, without a plugin: when it looks, asks and tells."""

import threading

import api_cluster
import structlog.testing

from dra_driver import errors
from dra_driver.adapters.kube import informer, kube
from dra_driver.apps.node import slice_form
from dra_driver.apps.offering import publishing
from dra_driver.logic.offering import publishing as logic
from dra_driver.model import slices
from dra_driver.sim.api.serving import options


def in_this_process(cluster, wanted, may_publish=lambda: True):
    """A publisher that is not started."""
    return publishing.Publisher(
        cluster.client,
        publishing.Identity(api_cluster.DRIVER, api_cluster.NODE),
        wanted=wanted,
        form=slice_form.SliceForm(cluster.client, avoids=True, shared=False),
        may_publish=may_publish,
        on_error=lambda: None,
    )


def test_a_slice_whose_create_got_no_answer_is_not_made_twice_though_the_watch_is_late(
    own_cluster, monkeypatch
):
    told, apply = threading.Event(), informer.Informer._apply
    monkeypatch.setattr(
        informer.Informer,
        "_apply",
        lambda *event: told.wait(api_cluster.DEADLINE) and apply(*event),
    )
    asked = []

    def rule(call):
        if call.resource != "resourceslices" or call.dry_run:
            return None
        asked.append(call.verb)
        is_first = call.verb == "create" and asked.count("create") == 1
        return options.Fault(drop="after") if is_first else None

    publisher = in_this_process(own_cluster, lambda *_: [logic.Content()])
    with own_cluster.faults.where(rule):
        publisher.start()
        api_cluster.wait_for(lambda: len(asked) > len(["list", "watch", "create"]), "another try")
        told.set()
        assert publisher.wait_published(api_cluster.DEADLINE)
        publisher.stop()
    assert asked.count("create") == 1


def test_an_instance_that_does_not_publish_does_not_work_out_what_it_would(own_cluster):
    worked_out, asked = [], threading.Semaphore(0)
    publishes = threading.Event()

    def may_publish():
        asked.release()
        return publishes.is_set()

    publisher = in_this_process(
        own_cluster, lambda *_: worked_out.append(1) or [logic.Content()], may_publish
    )
    publisher.start()
    try:
        assert asked.acquire(timeout=api_cluster.DEADLINE)
        publisher.changed()
        assert asked.acquire(timeout=api_cluster.DEADLINE)
        assert worked_out == []
        publishes.set()
        publisher.changed()
        assert publisher.wait_published(api_cluster.DEADLINE)
    finally:
        publisher.stop()
    assert worked_out


def test_what_is_wanted_is_looked_at_again_though_nobody_tells_of_a_change(
    own_cluster, monkeypatch
):
    monkeypatch.setattr(publishing, "LOOK_AGAIN", 0.05)
    wanted = []
    publisher = in_this_process(own_cluster, lambda *_: [logic.Content(tuple(wanted))])
    publisher.start()
    assert publisher.wait_published(api_cluster.DEADLINE)
    own_cluster.wait_devices()
    wanted.append(slices.Device("gpu-0", {"index": 0}, {}))
    own_cluster.wait_devices("gpu-0")
    publisher.stop()


def test_what_has_not_changed_is_not_written_out_and_compared_again(own_cluster, monkeypatch):
    asked, compared = [], []
    monkeypatch.setattr(publishing, "LOOK_AGAIN", 0.01)
    monkeypatch.setattr(publishing, "PAUSE", 0.0)
    contents = logic.contents
    monkeypatch.setattr(
        logic, "contents", lambda offered: compared.append(len(asked)) or contents(offered)
    )
    publisher = in_this_process(own_cluster, lambda *_: asked.append(1) or [logic.Content()])
    publisher.start()
    assert publisher.wait_published(api_cluster.DEADLINE)
    api_cluster.wait_for(lambda: compared and len(asked) > compared[-1] + 20, "twenty looks")
    before = len(compared)
    body = own_cluster.wait_devices()[0]
    body["spec"]["pool"]["generation"] += 1
    own_cluster.client.replace(kube.SLICES, body)
    api_cluster.wait_for(lambda: len(compared) > before, "a look at the changed slice")
    publisher.stop()


def test_an_outage_is_told_anew_though_nothing_was_written_since_the_last_one(
    own_cluster, monkeypatch
):
    monkeypatch.setattr(publishing, "LOOK_AGAIN", 0.01)
    away = threading.Event()
    looks = []

    def wanted(*_):
        looks.append(1)
        if away.is_set():
            raise errors.Retryable("no answer")
        return [logic.Content()]

    publisher = in_this_process(own_cluster, wanted)
    with structlog.testing.capture_logs() as lines:
        publisher.start()
        for count in (1, 2):
            before = len(looks)
            api_cluster.wait_for(lambda before=before: len(looks) > before + 5, "looks")
            assert publisher.failure == ""
            away.set()
            api_cluster.wait_for(lambda: publisher.failure == "no answer", "an outage")
            away.clear()
            warnings = [line["reason"] for line in lines if line["log_level"] == "warning"]
            assert warnings == ["no answer"] * count
        publisher.stop()
