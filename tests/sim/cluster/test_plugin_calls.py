"""The plugin manager calls plugins on real sockets; of several instances, the newest."""

import threading

import pytest
import scripted_plugin
from polling import until

from dra_driver import errors
from dra_driver.adapters.kubelet import dra_grpc
from dra_driver.model import claims

DRIVER = scripted_plugin.DRIVER
CLAIM = claims.ClaimRef("default", "one", claims.ClaimUid("uid-1"))
OTHER = claims.ClaimRef("default", "two", claims.ClaimUid("uid-2"))


# Calls


@pytest.mark.parametrize(
    ("versions", "used"),
    [
        (("v1.DRAPlugin", "v1beta1.DRAPlugin"), "share-1"),
        (("v1beta1.DRAPlugin", "v1.DRAPlugin"), None),
        (("v9.DRAPlugin", "v1beta1.DRAPlugin"), None),
    ],
)
def test_of_the_services_the_first_that_is_known_is_called(manager, new_plugin, versions, used):
    plugin = new_plugin(versions=versions).start()
    shared = scripted_plugin.device(CLAIM).model_copy(update={"share_id": "share-1"})
    plugin.on_prepare = lambda _ref: dra_grpc.Answer((shared,))
    scripted_plugin.wait_registered(plugin)
    # v1beta1 has no field for it.
    assert manager.prepare(DRIVER, [CLAIM])["uid-1"].devices[0].share_id == used


def test_a_call_has_all_claims_and_gives_what_is_answered(manager, new_plugin):
    plugin = new_plugin().start()
    plugin.on_unprepare = lambda ref: dra_grpc.Answer(error=f"no {ref.name}")
    scripted_plugin.wait_registered(plugin)
    answers = manager.prepare(DRIVER, [CLAIM, OTHER])
    assert answers == {
        "uid-1": dra_grpc.Answer((scripted_plugin.device(CLAIM),)),
        "uid-2": dra_grpc.Answer((scripted_plugin.device(OTHER),)),
    }
    assert manager.unprepare(DRIVER, [CLAIM])["uid-1"].error == "no one"
    assert plugin.calls == [("prepare", ["one", "two"]), ("unprepare", ["one"])]


def test_a_driver_that_is_not_registered_cannot_be_called(manager, new_plugin):
    scripted_plugin.wait_registered(new_plugin().start())
    with pytest.raises(errors.Retryable) as refused:
        manager.prepare("other.example.com", [CLAIM])
    assert str(refused.value) == "DRA driver other.example.com is not registered"


@pytest.mark.parametrize(
    ("extra", "missing", "told"),
    [
        (("uid-9",), (), "answered for claims ['uid-1', 'uid-2', 'uid-9']"),
        ((), ("uid-2",), "answered for claims ['uid-1'], asked were ['uid-1', 'uid-2']"),
    ],
)
def test_an_answer_for_other_claims_than_were_asked_for_is_refused(
    manager, new_plugin, monkeypatch, extra, missing, told
):
    plugin = new_plugin().start()
    scripted_plugin.wait_registered(plugin)
    honest = plugin.prepare
    monkeypatch.setattr(
        plugin,
        "prepare",
        lambda refs, seconds: (
            {uid: answer for uid, answer in honest(refs, seconds).items() if uid not in missing}
            | dict.fromkeys(extra, dra_grpc.Answer())
        ),
    )
    with pytest.raises(errors.Rejected) as refused:
        manager.prepare(DRIVER, [CLAIM, OTHER])
    assert told in str(refused.value)


def test_a_call_that_is_under_way_when_its_plugin_goes_fails_as_one_that_can_be_repeated(
    manager, new_plugin
):
    plugin = new_plugin().start()
    scripted_plugin.wait_registered(plugin)
    failures = []

    def call():
        try:
            manager.prepare(DRIVER, [CLAIM])
        except errors.Retryable as error:
            failures.append(str(error))

    caller = threading.Thread(target=call)
    with plugin.holding():
        caller.start()
        until(lambda: plugin.calls, what="the call has begun")
        plugin.socket.unlink()
        caller.join(60)
    assert len(failures) == 1


# Two instances of a driver


def test_the_instance_that_registered_last_gets_the_calls(manager, new_plugin):
    # By name the older one would be the last.
    old = new_plugin(instance="-z").start()
    scripted_plugin.wait_registered(old)
    new = new_plugin(instance="-a").start()
    scripted_plugin.wait_registered(new)
    manager.prepare(DRIVER, [CLAIM])
    manager.unprepare(DRIVER, [CLAIM])
    assert (old.calls, len(new.calls)) == ([], 2)


def test_when_the_newest_instance_does_not_answer_the_older_one_is_asked(manager, new_plugin):
    old = new_plugin(instance="-old").start()
    scripted_plugin.wait_registered(old)
    new = new_plugin(instance="-new")
    new.start_registration()  # Its service never comes.
    scripted_plugin.wait_registered(new)
    assert manager.prepare(DRIVER, [CLAIM])["uid-1"].error == ""
    assert old.calls == [("prepare", ["one"])]


def test_when_the_newest_instance_goes_the_older_one_is_called(manager, new_plugin, gone):
    old = new_plugin(instance="-old").start()
    scripted_plugin.wait_registered(old)
    new = new_plugin(instance="-new").start()
    scripted_plugin.wait_registered(new)
    new.stop()
    until(lambda: manager.prepare(DRIVER, [CLAIM]) and old.calls, what="a call to the old one")
    assert gone == []
