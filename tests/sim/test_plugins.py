"""The plugin manager, with plugins on real sockets."""

import pathlib
import socket
import tempfile
import threading

import pytest
import scripted_plugin
from polling import until

from dra_driver import errors
from dra_driver.adapters import dra_grpc
from dra_driver.model import claims
from dra_driver.sim import plugins

DRIVER = scripted_plugin.DRIVER
CLAIM = claims.ClaimRef("default", "one", claims.ClaimUid("uid-1"))
OTHER = claims.ClaimRef("default", "two", claims.ClaimUid("uid-2"))


@pytest.fixture
def registry(monkeypatch):
    """At a short path: that of a socket may have 107 bytes."""
    monkeypatch.setattr(plugins, "RETRY_SECONDS", 0.05)
    monkeypatch.setattr(plugins, "LOOK_SECONDS", 0.02)
    with tempfile.TemporaryDirectory(prefix="dra-", dir="/tmp") as directory:
        yield pathlib.Path(directory) / "plugins_registry"


@pytest.fixture
def gone():
    """The drivers that had no plugin for too long."""
    return []


@pytest.fixture
def new_manager(registry, gone):
    made = []

    def new_manager(**options):
        made.append(plugins.Plugins(registry, on_gone=gone.append, **options))
        made[-1].start()
        return made[-1]

    yield new_manager
    for manager in made:
        manager.stop()


@pytest.fixture
def manager(new_manager):
    return new_manager()


@pytest.fixture
def new_plugin(registry, manager):
    made = []

    def new_plugin(**options):
        made.append(scripted_plugin.ScriptedPlugin(registry, **options))
        return made[-1]

    yield new_plugin
    for plugin in made:
        plugin.stop()


def registered(plugin, count=1):
    """Wait until the kubelet has told the plugin so many times that it is registered."""
    until(lambda: plugin.statuses == [(True, "")] * count, what=f"{plugin.statuses}")


# Discovery


def test_a_plugin_is_registered_when_its_socket_appears(manager, new_plugin):
    plugin = new_plugin().start()
    assert manager.wait_registered(DRIVER, 60)
    registered(plugin)


def test_a_plugin_that_was_there_before_is_registered(registry, new_manager):
    registry.mkdir()
    plugin = scripted_plugin.ScriptedPlugin(registry).start()
    assert new_manager().wait_registered(DRIVER, 60)
    plugin.stop()


def test_a_driver_that_is_not_there_is_not_waited_for_longer_than_asked(manager, new_plugin):
    new_plugin().start()
    assert not manager.wait_registered("other.example.com", 0.05)


def test_a_socket_that_is_renamed_into_place_is_found_and_hidden_ones_are_not(
    registry, manager, new_plugin
):
    plugin = new_plugin()
    visible, plugin.socket = plugin.socket, registry / f".{plugin.socket.name}"
    plugin.start()
    seen = new_plugin(name="seen.example.com").start()
    registered(seen)  # One look at the directory has passed over the hidden one.
    assert plugin.statuses == []
    plugin.socket.rename(visible)
    registered(plugin)


def test_a_socket_in_a_folder_is_found(registry, manager, new_plugin):
    plugin = new_plugin()
    plugin.socket = registry / "vendor" / "deep" / "any-name-at-all"
    plugin.start()
    registered(plugin)


def test_a_link_to_a_socket_is_found(registry, manager, new_plugin):
    plugin = new_plugin()
    visible, plugin.socket = plugin.socket, registry.parent / "elsewhere.sock"
    plugin.start()
    visible.symlink_to(plugin.socket)
    registered(plugin)


def test_what_is_no_socket_is_passed_over(registry, manager, new_plugin):
    (registry / "file.sock").write_text("")
    (registry / "folder.sock").mkdir()
    (registry / "dangling.sock").symlink_to(registry / "nothing")
    registered(new_plugin().start())


def test_a_socket_on_which_nobody_answers_does_not_keep_others_from_it(
    registry, manager, new_plugin
):
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(registry / "a-dead-one.sock"))
        registered(new_plugin().start())


def test_a_socket_that_is_made_anew_is_registered_again(manager, new_plugin):
    first = new_plugin().start()
    registered(first)
    first.stop()
    second = new_plugin().start()
    registered(second)
    manager.prepare(DRIVER, [CLAIM])
    assert (first.calls, second.calls) == ([], [("prepare", ["one"])])


def test_a_registration_without_an_endpoint_means_the_same_socket(manager, new_plugin):
    plugin = new_plugin(endpoint="")
    plugin.start_registration()
    registered(plugin)
    with pytest.raises(errors.Retryable, match="UNIMPLEMENTED"):
        manager.prepare(DRIVER, [CLAIM])


# Refused registrations


def refusal(plugin):
    return until(lambda: plugin.statuses, what="a status")[0]


def test_a_plugin_without_a_known_service_is_told_so(manager, new_plugin):
    plugin = new_plugin(versions=("v1alpha1.DRAPlugin", "v9.DRAPlugin")).start()
    told = (
        "none of the services v1alpha1.DRAPlugin, v9.DRAPlugin is supported; "
        "supported are v1.DRAPlugin, v1beta1.DRAPlugin"
    )
    assert refusal(plugin) == (False, told)
    assert not manager.wait_registered(DRIVER, 0)


def test_a_plugin_of_another_type_is_told_so(manager, new_plugin):
    plugin = new_plugin(type="CSIPlugin").start()
    assert refusal(plugin) == (
        False,
        "plugin type 'CSIPlugin' is not supported; DRAPlugin is",
    )
    assert not manager.wait_registered(DRIVER, 0)


def test_a_second_registration_of_an_endpoint_is_refused(manager, new_plugin):
    first = new_plugin().start()
    registered(first)
    second = new_plugin()
    second.socket = second.socket.with_name("again.sock")
    second.start_registration()
    endpoint = first.socket.parent.parent / f"{DRIVER}.sock"
    assert refusal(second) == (False, f"endpoint {endpoint} of {DRIVER} is already registered")


def test_a_plugin_that_refuses_to_be_told_is_not_registered_until_it_listens(manager, new_plugin):
    plugin = new_plugin()
    answers = [RuntimeError("not now"), None]
    heard = []

    def on_status(*status):
        heard.append(status)
        if (error := answers.pop(0)) is not None:
            raise error

    plugin.statuses = type("Listener", (), {"append": lambda _, status: on_status(*status)})()
    plugin.start()
    until(lambda: heard == [(True, ""), (True, "")], what="it is told again")
    assert manager.prepare(DRIVER, [CLAIM])["uid-1"].error == ""


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
    registered(plugin)
    # v1beta1 has no field for it.
    assert manager.prepare(DRIVER, [CLAIM])["uid-1"].devices[0].share_id == used


def test_a_call_has_all_claims_and_gives_what_is_answered(manager, new_plugin):
    plugin = new_plugin().start()
    plugin.on_unprepare = lambda ref: dra_grpc.Answer(error=f"no {ref.name}")
    registered(plugin)
    answers = manager.prepare(DRIVER, [CLAIM, OTHER])
    assert answers == {
        "uid-1": dra_grpc.Answer((scripted_plugin.device(CLAIM),)),
        "uid-2": dra_grpc.Answer((scripted_plugin.device(OTHER),)),
    }
    assert manager.unprepare(DRIVER, [CLAIM])["uid-1"].error == "no one"
    assert plugin.calls == [("prepare", ["one", "two"]), ("unprepare", ["one"])]


def test_a_driver_that_is_not_registered_cannot_be_called(manager, new_plugin):
    registered(new_plugin().start())
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
    registered(plugin)
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
    registered(plugin)
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
    registered(old)
    new = new_plugin(instance="-a").start()
    registered(new)
    manager.prepare(DRIVER, [CLAIM])
    manager.unprepare(DRIVER, [CLAIM])
    assert (old.calls, len(new.calls)) == ([], 2)


def test_when_the_newest_instance_does_not_answer_the_older_one_is_asked(manager, new_plugin):
    old = new_plugin(instance="-old").start()
    registered(old)
    new = new_plugin(instance="-new")
    new.start_registration()  # Its service never comes.
    registered(new)
    assert manager.prepare(DRIVER, [CLAIM])["uid-1"].error == ""
    assert old.calls == [("prepare", ["one"])]


def test_when_the_newest_instance_goes_the_older_one_is_called(manager, new_plugin, gone):
    old = new_plugin(instance="-old").start()
    registered(old)
    new = new_plugin(instance="-new").start()
    registered(new)
    new.stop()
    until(lambda: manager.prepare(DRIVER, [CLAIM]) and old.calls, what="a call to the old one")
    assert gone == []


# A driver that goes


class Clock:
    """Stands in for `time` in the manager."""

    def __init__(self):
        self.now = 1000.0

    def monotonic(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    """Stands still: what failed is tried again all the same."""
    made = Clock()
    monkeypatch.setattr(plugins, "RETRY_SECONDS", -1.0)
    monkeypatch.setattr(plugins, "time", made)
    return made


@pytest.fixture
def come(clock, manager, new_plugin):
    """Starts a plugin that is registered when it returns."""

    def come(**options):
        plugin = new_plugin(**options).start()
        registered(plugin)
        return plugin

    return come


@pytest.fixture
def go(manager):
    """Stops a plugin; the manager has noticed when it returns."""

    def left(name):
        with manager._lock:  # By then it is also noted since when.
            return len(manager._of(name))

    def go(plugin, *, others=0):
        plugin.stop()
        until(lambda: left(plugin.name) == others, what="it is noticed")

    return go


def test_a_driver_without_a_plugin_is_told_of_once_the_time_is_up(clock, come, go, gone):
    go(come())
    clock.now += plugins.WIPE_SECONDS - 1
    go(come(name="later.example.com"))  # By then it has been looked at more than once.
    assert gone == []
    clock.now += 1
    until(lambda: gone == [DRIVER], what="the driver is gone")
    clock.now += plugins.WIPE_SECONDS
    until(lambda: gone == [DRIVER, "later.example.com"], what="the other driver is gone")


def test_a_driver_that_is_back_in_time_is_not_told_of(clock, come, go, gone):
    go(come())
    clock.now += plugins.WIPE_SECONDS - 1
    come()
    go(come(name="later.example.com"))
    clock.now += plugins.WIPE_SECONDS
    until(lambda: gone, what="the other driver is gone")
    assert gone == ["later.example.com"]


def test_a_driver_with_another_instance_is_not_gone(clock, come, go, gone):
    go(come(instance="-a"))
    come(instance="-b")
    go(come(name="later.example.com"))
    clock.now += plugins.WIPE_SECONDS
    until(lambda: gone, what="the other driver is gone")
    assert gone == ["later.example.com"]


def test_an_instance_that_stays_keeps_the_driver(clock, come, go, gone):
    one, _other = come(instance="-a"), come(instance="-b")
    go(one, others=1)
    go(come(name="later.example.com"))
    clock.now += plugins.WIPE_SECONDS
    until(lambda: gone, what="the other driver is gone")
    assert gone == ["later.example.com"]


def test_a_manager_that_was_never_started_can_be_stopped(registry):
    plugins.Plugins(registry, on_gone=print).stop()
