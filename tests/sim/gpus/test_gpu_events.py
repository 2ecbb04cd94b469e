"""Event sets of the simulated NVML: who hears what, and what ends the waiting."""

import inspect
import json
import threading

import pynvml
import pytest

from dra_driver.model import health
from dra_driver.sim.gpus import (
    gpu_errors,
    gpu_event_log,
    gpu_events,
    gpu_faults,
    gpu_operations,
    gpu_state,
    gpus,
)

XID, ECC, RECOVERY = 0x8, 0x2, 0x8000
WHOLE = 0xFFFFFFFF
UNKNOWN = gpu_errors.CODES["NVML_ERROR_UNKNOWN"]
LONG = 60_000
"""Milliseconds in which what is awaited comes, on a busy machine too."""
FUNCTIONS = sorted(
    name
    for name, found in vars(gpu_events.EventFunctions).items()
    if name.startswith("nvml") and callable(found)
)


class Machine:
    """A node with two cards, NVML open, and an event set."""

    def __init__(self, directory, spec="h100-80gb-hbm3:2"):
        self.directory = directory
        self.library = gpus.SimulatedNvml(directory, spec=spec)
        self.library.nvmlInit()
        self.uuids = [card.uuid for card in gpu_state.open_file(directory).read().gpus]
        self.set = self.library.nvmlEventSetCreate()

    def handle(self, card=0):
        return self.library.nvmlDeviceGetHandleByUUID(self.uuids[card])

    def register(self, kinds=XID, card=0, event_set=None):
        self.library.nvmlDeviceRegisterEvents(self.handle(card), kinds, event_set or self.set)

    def tell(self, data=79, kind=XID, card=0, **instance):
        told = gpu_event_log.Told(self.uuids[card], kind, data, **instance)
        gpu_event_log.tell(self.directory, told)

    def wait(self, milliseconds=LONG, event_set=None):
        return self.library.nvmlEventSetWait_v2(event_set or self.set, milliseconds)

    def heard(self, event_set=None):
        """The data of all events that are there."""
        found = []
        while True:
            try:
                found.append(self.wait(0, event_set).eventData)
            except self.library.NVMLError_Timeout:
                return found

    def arguments(self, name):
        return {
            "nvmlEventSetCreate": [],
            "nvmlEventSetFree": [self.set],
            "nvmlDeviceGetSupportedEventTypes": [self.handle()],
            "nvmlDeviceRegisterEvents": [self.handle(), XID, self.set],
            "nvmlEventSetWait": [self.set, 0],
            "nvmlEventSetWait_v2": [self.set, 0],
        }[name]


@pytest.fixture
def machine(tmp_path):
    return Machine(tmp_path)


# Functions


@pytest.mark.parametrize("name", FUNCTIONS)
def test_parameters_are_those_of_the_bindings(name):
    _self, *ours = inspect.signature(getattr(gpus.SimulatedNvml, name)).parameters.values()
    real = inspect.signature(getattr(pynvml, name)).parameters.values()
    assert [(one.name, one.default) for one in ours] == [(one.name, one.default) for one in real]


def test_an_event_has_the_fields_of_the_bindings(machine):
    machine.register()
    machine.tell()
    assert vars(machine.wait()).keys() == {name for name, _ in pynvml.c_nvmlEventData_t._fields_}


def test_numbers_are_those_of_the_bindings():
    kinds = [name for name in dir(gpus.SimulatedNvml) if name.startswith("nvmlEventType")]
    assert len(kinds) == 6
    for name in kinds:
        assert getattr(gpus.SimulatedNvml, name) == getattr(pynvml, name), name


@pytest.mark.parametrize("name", FUNCTIONS)
def test_nothing_works_after_nvml_was_closed(machine, name):
    arguments = machine.arguments(name)
    machine.library.nvmlShutdown()
    with pytest.raises(machine.library.NVMLError_Uninitialized):
        getattr(machine.library, name)(*arguments)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_each_function_fails_on_demand_under_its_own_name(machine, tmp_path, name):
    # The older name is one for the newer function, as in the library.
    injected = "nvmlEventSetWait_v2" if name == "nvmlEventSetWait" else name
    arguments = machine.arguments(name)
    gpu_faults.inject(tmp_path, function=injected, error=UNKNOWN, times=1)
    with pytest.raises(machine.library.NVMLError_Unknown):
        getattr(machine.library, name)(*arguments)
    assert json.loads((tmp_path / "faults.json").read_text()) == {"faults": []}


@pytest.mark.parametrize(
    "name",
    [name for name in FUNCTIONS if name != "nvmlEventSetCreate" and "Get" not in name],
)
def test_sets_end_with_their_session_and_when_they_are_freed(machine, name):
    machine.library.nvmlShutdown()
    machine.library.nvmlInit()
    with pytest.raises(machine.library.NVMLError_InvalidArgument):
        getattr(machine.library, name)(*machine.arguments(name))
    machine.set = machine.library.nvmlEventSetCreate()
    machine.library.nvmlEventSetFree(machine.set)
    with pytest.raises(machine.library.NVMLError_InvalidArgument):
        getattr(machine.library, name)(*machine.arguments(name))


# Who hears what


def test_an_event_tells_card_kind_and_data(machine):
    machine.register()
    machine.tell(79)
    event = machine.wait()
    assert (event.device, event.eventType, event.eventData) == (machine.handle(), XID, 79)
    assert (event.gpuInstanceId, event.computeInstanceId) == (WHOLE, WHOLE)


def test_an_event_of_an_instance_names_it(machine):
    machine.register()
    machine.tell(48, gi=3, ci=0)
    event = machine.wait()
    assert (event.gpuInstanceId, event.computeInstanceId) == (3, 0)


def test_events_come_in_their_order_and_once(machine):
    machine.register()
    for number in (13, 79, 13):
        machine.tell(number)
    assert machine.heard() == [13, 79, 13]
    assert machine.heard() == []


def test_what_nobody_registered_for_is_not_heard(machine):
    machine.register(XID)
    machine.tell(1, ECC)
    machine.tell(2, XID, card=1)
    machine.tell(3, XID)
    assert machine.heard() == [3]


def test_registrations_add_up(machine):
    machine.register(XID)
    machine.register(ECC)
    machine.register(ECC, card=1)
    machine.tell(1, XID)
    machine.tell(2, ECC)
    machine.tell(3, ECC, card=1)
    machine.tell(4, XID, card=1)
    assert machine.heard() == [1, 2, 3]


def test_what_was_told_before_the_registration_is_not_heard(machine):
    machine.tell(1)
    machine.register(ECC)
    machine.tell(2)
    machine.register(XID)
    machine.tell(3)
    assert machine.heard() == [3]


def test_what_was_told_before_the_set_was_made_is_not_heard(machine):
    machine.tell(1)
    late = machine.library.nvmlEventSetCreate()
    machine.register(event_set=late)
    machine.tell(2)
    assert machine.heard(late) == [2]


def test_each_of_two_sets_hears_it(machine):
    second = machine.library.nvmlEventSetCreate()
    machine.register()
    machine.register(event_set=second)
    machine.tell(1)
    assert machine.heard() == [1]
    machine.tell(2)
    assert (machine.heard(second), machine.heard()) == ([1, 2], [2])


def test_each_of_two_programs_hears_it(machine, tmp_path):
    other = Machine.__new__(Machine)
    other.__dict__.update(vars(machine), library=gpus.SimulatedNvml(tmp_path))
    other.library.nvmlInit()
    other.set = other.library.nvmlEventSetCreate()
    for one in (machine, other):
        one.register()
    machine.tell(79)
    assert (machine.heard(), other.heard()) == ([79], [79])


# Which cards tell what


@pytest.mark.parametrize(
    ("model", "kinds"),
    [
        ("h100-80gb-hbm3", 65439),
        ("a100-40gb-sxm4", 65439),
        ("l4", 65439),
        ("t4", 31),
        ("v100-16gb-sxm2", 31),
    ],
)
def test_kinds_that_a_card_does_not_tell_cannot_be_registered(tmp_path, model, kinds):
    machine = Machine(tmp_path, f"{model}:1")
    assert machine.library.nvmlDeviceGetSupportedEventTypes(machine.handle()) == kinds
    machine.register(kinds)
    with pytest.raises(machine.library.NVMLError_NotSupported):
        machine.register(kinds | 1 << 20)


def test_all_kinds_of_health_are_told_by_newer_cards():
    for kind in health.EventKind:
        assert kind & 65439


# Waiting


def test_without_an_event_the_wait_ends_by_itself(machine):
    machine.register()
    for milliseconds in (0, 50):
        with pytest.raises(machine.library.NVMLError_Timeout):
            machine.wait(milliseconds)


def waiting(machine):
    """Waits in another thread; `end` gives what came of it."""
    found = []

    def wait():
        try:
            found.append(machine.wait())
        except machine.library.NVMLError as error:
            found.append(error)

    thread = threading.Thread(target=wait)
    thread.start()

    def end():
        thread.join(timeout=60)
        return found[0]

    return end


def test_who_waits_is_woken_by_an_event(machine):
    machine.register()
    end = waiting(machine)
    machine.tell(79)
    assert end().eventData == 79


ENDINGS = {
    "lost": (lambda node: gpu_faults.lose(node.directory, node.uuids[0]), "GpuIsLost"),
    "removed": (lambda node: gpu_faults.remove(node.directory, node.uuids[0]), "GpuIsLost"),
    "taken out": (
        lambda node: gpu_operations.remove_card(node.directory, node.uuids[0]),
        "GpuIsLost",
    ),
    "unloaded": (lambda node: gpu_operations.unload_driver(node.directory), "DriverNotLoaded"),
    "loaded anew": (lambda node: gpu_operations.load_driver(node.directory), "Uninitialized"),
    "failing": (lambda node: gpu_faults.inject(node.directory, error=UNKNOWN), "Unknown"),
}


@pytest.mark.parametrize(("ending", "error"), ENDINGS.values(), ids=ENDINGS)
def test_what_ends_the_waiting_is_told_to_who_waits_and_to_who_comes_later(machine, ending, error):
    machine.register()
    end = waiting(machine)
    ending(machine)
    expected = getattr(machine.library, f"NVMLError_{error}")
    assert isinstance(end(), expected)
    with pytest.raises(expected):
        machine.wait()


def test_what_a_card_told_before_it_was_lost_is_heard_first(machine):
    machine.register()
    machine.tell(79)
    gpu_faults.lose(machine.directory, machine.uuids[0])
    assert machine.wait().eventData == 79
    with pytest.raises(machine.library.NVMLError_GpuIsLost):
        machine.wait()


def test_a_lost_card_that_is_not_in_the_set_ends_no_waiting(machine):
    machine.register(card=1)
    gpu_faults.lose(machine.directory, machine.uuids[0])
    machine.tell(31, card=1)
    assert machine.heard() == [31]


def test_nothing_is_registered_with_a_lost_card(machine):
    handle = machine.handle()
    gpu_faults.lose(machine.directory, machine.uuids[0])
    for ask in (
        lambda: machine.library.nvmlDeviceRegisterEvents(handle, XID, machine.set),
        lambda: machine.library.nvmlDeviceGetSupportedEventTypes(handle),
    ):
        with pytest.raises(machine.library.NVMLError_GpuIsLost):
            ask()


def test_sets_work_again_once_nvml_was_opened_anew(machine):
    machine.register()
    gpu_operations.unload_driver(machine.directory)
    gpu_operations.load_driver(machine.directory)
    with pytest.raises(machine.library.NVMLError_Uninitialized):
        machine.wait()
    machine.library.nvmlShutdown()
    machine.library.nvmlInit()
    machine.set = machine.library.nvmlEventSetCreate()
    machine.register()
    machine.tell(31)
    assert machine.heard() == [31]


def test_faults_that_are_counted_for_all_functions_are_not_for_those_who_wait(machine):
    machine.register()
    gpu_faults.inject(machine.directory, error=UNKNOWN, times=1)
    machine.tell(31)
    assert machine.heard() == [31]
    with pytest.raises(machine.library.NVMLError_Unknown):
        machine.library.nvmlDeviceGetCount()
