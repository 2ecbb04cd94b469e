"""Events of GPUs as they are listened to: which, of whom, and what ends the listening."""

import ctypes
import threading
import types

import pytest

from dra_driver import errors
from dra_driver.adapters.nvml import nvml, nvml_events
from dra_driver.model import health
from dra_driver.sim.gpus import (
    gpu_errors,
    gpu_event_log,
    gpu_faults,
    gpu_operations,
    gpu_state,
    gpus,
)

CODES = gpu_errors.CODES
XID = health.EventKind.XID
PSTATE, CLOCK, SINGLE_BIT, POWER = 0x4, 0x10, 0x1, 0x80
LONG = 60_000
"""Milliseconds in which what is awaited comes, on a busy machine too."""


class Node:
    """Simulated GPUs, and event sets of them."""

    def __init__(self, directory, spec="h100-80gb-hbm3:2"):
        self.directory = directory
        self.library = gpus.SimulatedNvml(directory, spec=spec)
        self.nvml = nvml.Nvml(self.library)
        self.uuids = [card.uuid for card in gpu_state.open_file(directory).read().gpus]
        self.sets = []

    def listen(self, *uuids):
        """To these GPUs, or all."""
        self.sets.append(nvml_events.EventSet(self.nvml, uuids or self.uuids))
        return self.sets[-1]

    def tell(self, data=79, kind=XID, card=0, **instance):
        told = gpu_event_log.Told(self.uuids[card], kind, data, **instance)
        gpu_event_log.tell(self.directory, told)

    def fail(self, function, error, card=0):
        uuid = None if card is None else self.uuids[card]
        code = CODES[f"NVML_ERROR_{error}"]
        gpu_faults.inject(self.directory, function=function, uuid=uuid, error=code)

    def is_closed(self):
        """Whether nobody holds NVML open."""
        try:
            self.library.nvmlDeviceGetCount()
        except self.library.NVMLError_Uninitialized:
            return True
        return False


@pytest.fixture
def node(tmp_path):
    made = Node(tmp_path)
    yield made
    gpu_faults.clear(tmp_path)
    for one in made.sets:
        one.close()


def heard(events):
    """All that is there."""
    return list(iter(lambda: events.wait(0), None))


# What is listened to


def test_states_clocks_power_and_single_bits_are_not_listened_to(node, monkeypatch):
    registered, real = [], node.library.nvmlDeviceRegisterEvents
    monkeypatch.setattr(
        node.library,
        "nvmlDeviceRegisterEvents",
        lambda handle, kinds, event_set: (registered.append(kinds), real(handle, kinds, event_set)),
    )
    events = node.listen()
    assert registered == [sum(health.EventKind)] * 2
    assert not registered[0] & (PSTATE | CLOCK | SINGLE_BIT | POWER)
    for kind in (PSTATE, CLOCK, SINGLE_BIT, POWER):
        node.tell(kind=kind)
    assert heard(events) == []


@pytest.mark.parametrize("model", ["t4", "v100-16gb-sxm2"])
def test_of_older_cards_what_they_tell_is_listened_to(tmp_path, model):
    node = Node(tmp_path, f"{model}:1")
    events = node.listen()
    assert events.unwatched == {}
    node.tell(31)
    node.tell(kind=health.EventKind.RECOVERY_ACTION)
    node.tell(0, health.EventKind.DOUBLE_BIT_ECC)
    assert [event.kind for event in heard(events)] == [XID, health.EventKind.DOUBLE_BIT_ECC]
    events.close()


@pytest.mark.parametrize("kind", health.EventKind)
def test_each_kind_is_heard_with_card_and_data(node, kind):
    events = node.listen()
    node.tell(7, kind, card=1)
    assert heard(events) == [health.Event(kind, node.uuids[1], 7)]


def test_an_event_of_an_instance_names_it_and_one_of_the_card_none(node):
    events = node.listen()
    node.tell(48, gi=0, ci=0)
    node.tell(48, gi=5)
    node.tell(48)
    assert [event.gi for event in heard(events)] == [0, 5, None]


def test_several_bits_of_one_event_are_several_events(node):
    events = node.listen()
    node.tell(1, XID | health.EventKind.DOUBLE_BIT_ECC | CLOCK)
    node.tell(2)
    assert [(event.kind, event.data) for event in heard(events)] == [
        (health.EventKind.DOUBLE_BIT_ECC, 1),
        (XID, 1),
        (XID, 2),
    ]


@pytest.mark.parametrize("strange", [{"eventType": 1 << 40}, {"device": object()}])
def test_an_event_of_an_unknown_kind_or_card_is_ignored(node, monkeypatch, strange):
    events, real = node.listen(), node.library.nvmlEventSetWait_v2

    def wait(event_set, milliseconds):
        event = real(event_set, milliseconds)
        vars(event).update(strange if event.eventData == 1 else {})
        return event

    monkeypatch.setattr(node.library, "nvmlEventSetWait_v2", wait)
    node.tell(1)
    node.tell(2)
    assert events.wait(LONG) is None
    assert events.wait(LONG).data == 2


def test_only_the_cards_that_are_named_are_heard(node):
    events = node.listen(node.uuids[1])
    node.tell(1)
    node.tell(2, card=1)
    assert heard(events) == [health.Event(XID, node.uuids[1], 2)]


def test_what_was_told_before_is_not_heard(node):
    node.tell(1)
    events = node.listen()
    node.tell(2)
    assert [event.data for event in heard(events)] == [2]


def test_each_of_two_sets_hears_it(node):
    first, second = node.listen(), node.listen()
    node.tell(79)
    assert [len(heard(events)) for events in (first, second)] == [1, 1]
    first.close()
    node.tell(31)
    assert [event.data for event in heard(second)] == [31]


def test_handles_of_the_binding_are_told_apart_by_what_they_point_to(node):
    """Pointers of ctypes are never equal, and an event comes with one of its own."""
    targets = [ctypes.create_string_buffer(1) for _ in node.uuids]

    def pointer(number):
        return ctypes.cast(targets[number], ctypes.POINTER(ctypes.c_char))

    told = [
        types.SimpleNamespace(
            device=types.SimpleNamespace(contents=pointer(1).contents),
            eventType=XID,
            eventData=79,
            gpuInstanceId=health.WHOLE,
        )
    ]
    library = types.SimpleNamespace(
        NVML_INIT_FLAG_NO_GPUS=1,
        NVMLError=node.library.NVMLError,
        nvmlInitWithFlags=lambda _: None,
        nvmlShutdown=lambda: None,
        nvmlEventSetCreate=object,
        nvmlEventSetFree=lambda _: None,
        nvmlDeviceGetHandleByUUID=lambda uuid: types.SimpleNamespace(
            contents=pointer(node.uuids.index(uuid)).contents
        ),
        nvmlDeviceGetSupportedEventTypes=lambda _: 65439,
        nvmlDeviceRegisterEvents=lambda *_: None,
        nvmlEventSetWait_v2=lambda *_: told.pop(),
    )
    events = nvml_events.EventSet(nvml.Nvml(library), node.uuids)
    assert events.wait(0) == health.Event(XID, node.uuids[1], 79)


# Who cannot be listened to


@pytest.mark.parametrize(
    ("function", "error", "reason"),
    [
        ("nvmlDeviceRegisterEvents", "NOT_SUPPORTED", "NVML error 3 "),
        ("nvmlDeviceRegisterEvents", "UNKNOWN", "NVML error 999 "),
        ("nvmlDeviceGetSupportedEventTypes", "NOT_SUPPORTED", "NVML error 3 "),
        ("nvmlDeviceGetSupportedEventTypes", "GPU_IS_LOST", "NVML error 15 "),
        ("nvmlDeviceGetHandleByUUID", "GPU_IS_LOST", "NVML error 15 "),
    ],
)
def test_a_card_that_cannot_be_heard_is_told_and_the_others_are(node, function, error, reason):
    node.fail(function, error)
    events = node.listen()
    assert events.unwatched.keys() == {node.uuids[0]}
    told = events.unwatched[node.uuids[0]]
    assert told.startswith(f"its events cannot be heard: {reason}")
    node.tell(31, card=1)
    assert [event.data for event in heard(events)] == [31]


def test_a_card_that_is_not_there_is_told(node):
    events = node.listen("GPU-0", *node.uuids)
    assert "NVML error 6 " in events.unwatched["GPU-0"]
    assert len(events.unwatched) == 1


def test_a_card_that_tells_nothing_of_health_is_told_and_not_registered(node, monkeypatch):
    monkeypatch.setattr(
        node.library, "nvmlDeviceGetSupportedEventTypes", lambda _: PSTATE | CLOCK | SINGLE_BIT
    )
    # A registration would have another reason here.
    node.fail("nvmlDeviceRegisterEvents", "INVALID_ARGUMENT", None)
    assert node.listen().unwatched == dict.fromkeys(
        node.uuids, "this GPU tells no events of health: look at it with nvidia-smi -q"
    )


# Waiting


def test_without_an_event_there_is_none(node):
    events = node.listen()
    assert [events.wait(0), events.wait(30)] == [None, None]


def test_who_waits_is_woken_by_an_event(node):
    events, found = node.listen(), []
    thread = threading.Thread(target=lambda: found.append(events.wait(LONG)))
    thread.start()
    node.tell(79)
    thread.join(timeout=60)
    assert found == [health.Event(XID, node.uuids[0], 79)]


@pytest.mark.parametrize("lose", [gpu_faults.lose, gpu_faults.remove])
def test_a_card_that_is_lost_is_told_apart_after_what_it_told_last(node, lose):
    events = node.listen()
    node.tell(79)
    lose(node.directory, node.uuids[0])
    assert events.wait(LONG).data == 79
    for _ in range(2):
        with pytest.raises(nvml_events.GpuLost, match=r"waiting for events of GPUs: NVML error 15"):
            events.wait(LONG)


ENDINGS = {
    "unloaded": (lambda node: gpu_operations.unload_driver(node.directory), "NVML error 9 "),
    "loaded anew": (lambda node: gpu_operations.load_driver(node.directory), "NVML error 1 "),
    "failing": (lambda node: node.fail("nvmlEventSetWait_v2", "UNKNOWN", None), "NVML error 999 "),
}


@pytest.mark.parametrize(("ending", "text"), ENDINGS.values(), ids=ENDINGS)
def test_a_set_that_hears_no_more_says_so(node, ending, text):
    events = node.listen()
    ending(node)
    with pytest.raises(nvml_events.Ended, match=text) as caught:
        events.wait(LONG)
    assert isinstance(caught.value, errors.Retryable)
    assert not isinstance(caught.value, nvml_events.GpuLost)


def test_after_a_reload_a_new_set_hears(node):
    node.listen()
    gpu_operations.load_driver(node.directory)
    node.sets.pop().close()
    events = node.listen()
    node.tell(31)
    assert [event.data for event in heard(events)] == [31]


# Opening and closing


def test_nvml_is_held_open_until_the_set_is_closed(node):
    events = node.listen()
    assert not node.is_closed()
    events.close()
    assert node.is_closed()


@pytest.mark.parametrize("function", ["nvmlEventSetCreate", "nvmlDeviceRegisterEvents"])
@pytest.mark.parametrize("error", ["UNINITIALIZED", "DRIVER_NOT_LOADED"])
def test_a_set_that_cannot_be_opened_holds_nothing(node, function, error):
    node.fail(function, error, None)
    with pytest.raises(nvml_events.Ended, match="listening to GPUs: NVML error "):
        node.listen()
    assert node.is_closed()


def test_without_a_driver_no_set_is_opened(node):
    gpu_operations.unload_driver(node.directory)
    with pytest.raises(errors.Retryable, match="NVML error 9 "):
        node.listen()
    gpu_operations.load_driver(node.directory)
    assert node.is_closed()
    assert node.listen().unwatched == {}


@pytest.mark.parametrize("function", ["nvmlEventSetFree", None])
def test_a_set_is_closed_whatever_the_driver_says(node, function):
    events = node.listen()
    if function is None:
        gpu_operations.unload_driver(node.directory)
    else:
        node.fail(function, "UNKNOWN", None)
    events.close()
    assert node.is_closed()


def test_a_set_is_freed_once_when_it_is_closed(node, monkeypatch):
    freed, real = [], node.library.nvmlEventSetFree
    monkeypatch.setattr(
        node.library, "nvmlEventSetFree", lambda one: (freed.append(one), real(one))
    )
    events = node.listen()
    assert freed == []
    events.close()
    assert [one.is_free for one in freed] == [True]


def test_a_driver_that_does_not_close_is_no_error_of_who_closes_the_set(node):
    events = node.listen()
    node.fail("nvmlShutdown", "UNKNOWN", None)
    events.close()
    gpu_faults.clear(node.directory)
    assert not node.is_closed()
