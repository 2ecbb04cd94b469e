"""The plugin manager finds and registers plugins on real sockets, and notices when they go."""

import socket

import pytest
import scripted_plugin
from polling import until

from dra_driver import errors
from dra_driver.model import claims
from dra_driver.sim.cluster import plugins

DRIVER = scripted_plugin.DRIVER
CLAIM = claims.ClaimRef("default", "one", claims.ClaimUid("uid-1"))


# Discovery


def test_a_plugin_is_registered_when_its_socket_appears(manager, new_plugin):
    plugin = new_plugin().start()
    assert manager.wait_registered(DRIVER, 60)
    scripted_plugin.wait_registered(plugin)


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
    scripted_plugin.wait_registered(seen)
    # One look at the directory has passed over the hidden one.
    assert plugin.statuses == []
    plugin.socket.rename(visible)
    scripted_plugin.wait_registered(plugin)


def test_a_socket_in_a_folder_is_found(registry, manager, new_plugin):
    plugin = new_plugin()
    plugin.socket = registry / "vendor" / "deep" / "any-name-at-all"
    plugin.start()
    scripted_plugin.wait_registered(plugin)


def test_a_link_to_a_socket_is_found(registry, manager, new_plugin):
    plugin = new_plugin()
    visible, plugin.socket = plugin.socket, registry.parent / "elsewhere.sock"
    plugin.start()
    visible.symlink_to(plugin.socket)
    scripted_plugin.wait_registered(plugin)


def test_what_is_no_socket_is_passed_over(registry, manager, new_plugin):
    (registry / "file.sock").write_text("")
    (registry / "folder.sock").mkdir()
    (registry / "dangling.sock").symlink_to(registry / "nothing")
    scripted_plugin.wait_registered(new_plugin().start())


def test_a_socket_on_which_nobody_answers_does_not_keep_others_from_it(
    registry, manager, new_plugin
):
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(registry / "a-dead-one.sock"))
        scripted_plugin.wait_registered(new_plugin().start())


def test_a_socket_that_is_made_anew_is_registered_again(manager, new_plugin):
    first = new_plugin().start()
    scripted_plugin.wait_registered(first)
    first.stop()
    second = new_plugin().start()
    scripted_plugin.wait_registered(second)
    manager.prepare(DRIVER, [CLAIM])
    assert (first.calls, second.calls) == ([], [("prepare", ["one"])])


def test_a_registration_without_an_endpoint_means_the_same_socket(manager, new_plugin):
    plugin = new_plugin(endpoint="")
    plugin.start_registration()
    scripted_plugin.wait_registered(plugin)
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
    scripted_plugin.wait_registered(first)
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
        scripted_plugin.wait_registered(plugin)
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
