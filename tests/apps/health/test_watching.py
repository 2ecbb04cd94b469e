"""The thread that listens to GPUs."""

import threading

import api_cluster
import pytest

from dra_driver import errors
from dra_driver.adapters.nvml import nvml, nvml_mig
from dra_driver.apps.health import watching
from dra_driver.model import health
from dra_driver.sim.gpus import gpu_event_log, gpu_faults, gpu_operations, gpu_state, gpus
from dra_driver.sim.pci import changing

XID = health.EventKind.XID
UNKNOWN = 999


class Node:
    """Simulated GPUs, and what a watch of them hears."""

    def __init__(self, directory, spec="h100-80gb-hbm3:2"):
        self.directory = directory
        self.library = gpus.SimulatedNvml(directory, spec=spec)
        self.nvml = nvml.Nvml(self.library)
        self.events, self.deaf, self.looks = [], [], 0
        self.wanted = []
        self.broken = threading.Event()
        self.look()
        self.looks = 0
        self.watch = watching.EventWatch(
            self.nvml,
            lambda: self.wanted,
            self,
            bus=self.library.present,
            look=self.look,
            first_pause=0.01,
        )

    def look(self):
        self.looks += 1
        self.wanted = [gpu.uuid for gpu in self.nvml.discover().gpus]

    def heard(self, event):
        if self.broken.is_set():
            self.broken.clear()
            raise RuntimeError("an ear that is broken")
        self.events.append(event)

    def unwatched(self, found):
        self.deaf.append(dict(found))

    def tell(self, number=79, kind=XID, card=0, gi=None):
        uuid = gpu_state.open_file(self.directory).read().gpus[card].uuid
        gpu_event_log.tell(self.directory, gpu_event_log.Told(uuid, kind, number, gi))
        return uuid

    def wait_heard(self, number, card=0):
        """Tell it until it is heard: what is told while nobody listens is lost."""
        wanted = health.Event(
            XID, gpu_state.open_file(self.directory).read().gpus[card].uuid, number
        )

        def is_heard():
            self.tell(number, card=card)
            return wanted in self.events

        api_cluster.wait_for(is_heard, f"XID {number} of card {card}")


@pytest.fixture
def node(tmp_path):
    made = Node(tmp_path)
    made.watch.start()
    api_cluster.wait_for(lambda: made.deaf, "it listens")
    yield made
    made.watch.stop()


def test_what_a_gpu_tells_is_heard_with_its_number_and_its_instance(node):
    uuid = node.tell(94, gi=3)
    api_cluster.wait_for(lambda: node.events, "the event")
    assert node.events == [health.Event(XID, uuid, 94, 3)]
    assert node.deaf == [{}]


def test_states_and_clocks_are_not_listened_to(node):
    for kind in (0x4, 0x10):
        node.tell(1, kind=kind)
    node.tell(79)
    api_cluster.wait_for(lambda: node.events, "the event")
    assert [event.data for event in node.events] == [79]


def test_a_driver_that_is_loaded_anew_is_heard_again(node):
    gpu_operations.unload_driver(node.directory)
    api_cluster.wait_for(lambda: len(node.deaf) > 1, "that nobody listens")
    assert set(node.deaf[1]) == set(node.wanted)
    gpu_operations.load_driver(node.directory)
    node.wait_heard(48)
    assert node.deaf[-1] == {}


def test_a_gpu_that_comes_is_seen_and_heard_though_nvml_is_held_open(node):
    state = gpu_state.open_file(node.directory)
    with state.edit() as content:
        card = gpu_state.new_card("t4", content.gpus[1])
        card.pci_address, card.minor = "0000:f0:00.0", 7
        content.gpus.append(card)
    api_cluster.wait_for(lambda: card.uuid in node.wanted, "the card")
    node.wait_heard(31, card=2)


def test_a_gpu_that_is_lost_leaves_the_others_heard(node):
    lost = node.wanted[1]
    gpu_faults.remove(node.directory, lost)
    api_cluster.wait_for(lambda: node.wanted == [node.wanted[0]], "it is seen to be gone")
    node.wait_heard(31)
    gpu_faults.clear(node.directory)
    api_cluster.wait_for(lambda: lost in node.wanted, "it is seen to be back")
    node.wait_heard(31, card=1)


def test_a_gpu_that_cannot_be_registered_is_told_with_the_reason(tmp_path):
    node = Node(tmp_path)
    deaf = node.wanted[1]
    gpu_faults.inject(tmp_path, error=3, function="nvmlDeviceRegisterEvents", uuid=deaf)
    node.watch.start()
    try:
        node.wait_heard(31)
        assert list(node.deaf[0]) == [deaf]
        assert "Not Supported" in node.deaf[0][deaf]
    finally:
        node.watch.stop()


def test_a_set_that_fails_again_and_again_is_told_once_and_tried_with_pauses(node, monkeypatch):
    said = []
    monkeypatch.setattr(node.watch._log, "warning", lambda *_, **fields: said.append(fields))
    pauses = []
    pause = node.watch._worker.pause
    monkeypatch.setattr(
        node.watch._worker, "pause", lambda seconds: pauses.append(seconds) or pause(0.0)
    )
    gpu_faults.inject(node.directory, error=UNKNOWN, function="nvmlEventSetWait_v2")
    api_cluster.wait_for(lambda: len(pauses) > 30, "many tries")
    assert len(said) == 1
    assert "Unknown Error" in said[0]["reason"]
    assert max(pauses[:31]) > 1.0
    gpu_faults.clear(node.directory)
    node.wait_heard(31)


def test_an_ear_that_breaks_ends_nothing(node):
    node.broken.set()
    node.wait_heard(31)
    assert not node.broken.is_set()


def test_a_gpu_that_is_lost_and_still_listed_is_told_and_the_others_are_heard(node):
    node.watch._look = lambda: None
    gpu_faults.lose(node.directory, node.wanted[1])
    api_cluster.wait_for(lambda: set(node.deaf[-1]) == {node.wanted[1]}, "the lost one is told")
    assert "GPU is lost" in node.deaf[-1][node.wanted[1]]
    node.wait_heard(31)
    assert not any(node.wanted[0] in deaf for deaf in node.deaf)


def test_nvml_is_not_held_where_no_gpu_can_be_listened_to(tmp_path):
    node = Node(tmp_path)
    gpu_faults.inject(tmp_path, error=3, function="nvmlDeviceGetSupportedEventTypes")
    node.watch.start()
    try:
        api_cluster.wait_for(lambda: node.deaf, "an attempt")
        assert set(node.deaf[0]) == set(node.wanted)
        api_cluster.wait_for(lambda: node.library._opened == 0, "NVML is closed")
    finally:
        node.watch.stop()


@pytest.mark.parametrize("error", [errors.Retryable("no driver"), OSError("no sysfs")])
def test_neither_a_bus_nor_a_look_nor_an_ear_that_fails_ends_anything(tmp_path, error):
    node = Node(tmp_path)
    failing = {"bus", "look", "ear"}
    bus, look, unwatched = node.watch._bus, node.watch._look, node.unwatched

    def fails_once(what, do):
        def done(*arguments):
            if what in failing:
                failing.remove(what)
                raise error
            return do(*arguments)

        return done

    node.watch._bus = fails_once("bus", bus)
    node.watch._look = fails_once("look", look)
    node.unwatched = fails_once("ear", unwatched)
    node.watch.start()
    try:
        node.wait_heard(31)
        assert not failing
        assert node.deaf[-1] == {}
    finally:
        node.watch.stop()


def test_a_pause_that_is_late_says_so_and_is_one_all_the_same(node):
    inside, go_on = threading.Event(), threading.Event()
    node.heard = lambda _event: (inside.set(), go_on.wait(60))
    node.tell(79)
    assert inside.wait(60)
    assert not node.watch.pause(0)
    go_on.set()
    api_cluster.wait_for(lambda: node.library._opened == 0, "NVML is closed")
    node.watch.resume()


def test_a_pause_closes_nvml_until_it_is_resumed(node):
    assert node.watch.pause(60)
    assert node.library._opened == 0
    node.tell(95)
    node.watch.resume()
    node.wait_heard(31)
    assert {event.data for event in node.events} == {31}


def test_pauses_are_counted(node):
    assert node.watch.pause(60)
    assert node.watch.pause(60)
    node.watch.resume()
    assert node.library._opened == 0
    node.watch.resume()
    node.wait_heard(31)


def test_without_a_gpu_nothing_is_held_open(tmp_path):
    node = Node(tmp_path, spec="none")
    node.watch.start()
    try:
        api_cluster.wait_for(lambda: node.deaf, "a look")
        assert node.library._opened == 0
    finally:
        node.watch.stop()


def test_a_mig_mode_is_switched_while_the_gpus_are_listened_to(node):
    node.library.write_sysfs()
    node.nvml.held_by(node.watch.pause, node.watch.resume)
    held = []
    change = node.library.nvmlDeviceSetMigMode

    def changed(handle, mode):
        held.append(node.watch._is_open)
        return change(handle, mode)

    node.library.nvmlDeviceSetMigMode = changed
    mig = nvml_mig.MigNvml(node.nvml)
    mig.set_mode(node.wanted[0], enabled=True)
    assert mig.state(node.wanted[0]).enabled is True
    assert held == [False]
    node.wait_heard(31)


def test_a_gpu_goes_to_a_virtual_machine_and_comes_back_and_is_listened_to_again(node):
    """NVML is closed for both, and what was known of the GPU before is known to nobody then."""
    node.library.write_sysfs()
    node.nvml.held_by(node.watch.pause, node.watch.resume)
    first, second = gpu_state.open_file(node.directory).read().gpus
    with node.nvml.closed(5):
        changing.bind(node.directory, first.pci_address, "vfio-pci")
    api_cluster.wait_for(lambda: node.wanted == [second.uuid], "the one that is left")
    node.wait_heard(13, card=1)
    assert not node.broken.is_set()
    with node.nvml.closed(5):
        changing.bind(node.directory, first.pci_address, "nvidia")
    api_cluster.wait_for(lambda: node.wanted == [first.uuid, second.uuid], "both")
    node.wait_heard(79, card=0)
    node.wait_heard(79, card=1)
    assert node.deaf[-1] == {}
