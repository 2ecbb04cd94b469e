"""What is read of the health of GPUs: by model, what is not told, and what fails."""

import dataclasses
import types

import pytest

from dra_driver import errors
from dra_driver.adapters.nvml import nvml, nvml_health
from dra_driver.model import health
from dra_driver.sim.gpus import (
    gpu_errors,
    gpu_faults,
    gpu_health,
    gpu_health_state,
    gpu_operations,
    gpu_state,
    gpus,
)

CODES = gpu_errors.CODES
COMMON = {
    "uncorrectable_ecc": 0,
    "thermal_slowdown": False,
    "power_brake": False,
    "temperature": 33,
}
ASKED = {"recovery": 0, "reset_wanted": False, "drain_and_reset_wanted": False}
ROWS = {"remap_pending": False, "remap_failed": False}
PAGES = {"retired_pages": 0, "retirement_pending": False}
FACTS = {
    "h100-80gb-hbm3": ASKED
    | ROWS
    | {"links_down": (), "fabric": health.Fabric(state=3, status=0, health=0x1AA)},
    "a100-40gb-sxm4": ASKED | ROWS | {"links_down": ()},
    "l4": ASKED | ROWS,
    "t4": PAGES,
    "v100-16gb-sxm2": PAGES | {"links_down": ()},
}
"""What each model tells; all else is None."""
H100, T4 = "h100-80gb-hbm3", "t4"
OF_FUNCTIONS = {
    "nvmlDeviceGetRemappedRows": (H100, ("remap_pending", "remap_failed")),
    "nvmlDeviceGetRetiredPages": (T4, ("retired_pages",)),
    "nvmlDeviceGetRetiredPagesPendingStatus": (T4, ("retirement_pending",)),
    "nvmlDeviceGetTotalEccErrors": (H100, ("uncorrectable_ecc",)),
    "nvmlDeviceGetCurrentClocksEventReasons": (H100, ("thermal_slowdown", "power_brake")),
    "nvmlDeviceGetTemperature": (H100, ("temperature",)),
    "nvmlDeviceGetGpuFabricInfoV": (H100, ("fabric",)),
    "nvmlDeviceGetFieldValues": (H100, ("recovery", "reset_wanted", "drain_and_reset_wanted")),
}
"""A model that has the function, and the facts that it is asked for."""
RAISED = (*OF_FUNCTIONS, "nvmlDeviceGetNvLinkState")


class Node:
    """Simulated GPUs, and the reader that looks at them."""

    def __init__(self, directory, spec):
        self.directory = directory
        self.library = gpus.SimulatedNvml(directory, spec=spec)
        self.reader = nvml_health.HealthReader(nvml.Nvml(self.library))
        self.uuids = [card.uuid for card in gpu_state.open_file(directory).read().gpus]

    def facts(self, card=0):
        return self.reader.facts(self.uuids)[self.uuids[card]]

    def is_(self, **facts):
        """From now on these facts of `gpu_health_state.Health` are the first card's."""
        with gpu_health_state.open_file(self.directory).edit() as cards:
            for name, value in facts.items():
                setattr(cards.of(self.uuids[0]), name, value)

    def fail(self, function, error, **options):
        code = CODES[f"NVML_ERROR_{error}"]
        gpu_faults.inject(
            self.directory, function=function, uuid=self.uuids[0], error=code, **options
        )


@pytest.fixture
def new_node(tmp_path):
    return lambda model, count=1: Node(tmp_path, f"{model}:{count}")


# What is told


@pytest.mark.parametrize("model", FACTS)
def test_a_card_tells_what_its_model_has_and_nothing_else(new_node, model):
    assert new_node(model).facts() == health.Facts(**COMMON, **FACTS[model])


CHANGES = {
    "reset": ({"recovery": 1}, {"recovery": 1, "reset_wanted": True}),
    "reboot": ({"recovery": 2}, {"recovery": 2}),
    "drain": ({"recovery": 3}, {"recovery": 3}),
    "both": ({"recovery": 4}, {"recovery": 4, "drain_and_reset_wanted": True}),
    "not known": ({"recovery": 77}, {"recovery": 77}),
    "pending": ({"remap_pending": True}, {"remap_pending": True}),
    "failed": ({"remap_failed": True}, {"remap_failed": True}),
    "errors": ({"uncorrectable": 3, "uncorrectable_ever": 9}, {"uncorrectable_ecc": 3}),
    "heat": ({"thermal": True}, {"thermal_slowdown": True, "temperature": 92}),
    "power": ({"power_brake": True}, {"power_brake": True}),
    "routes": ({"bad_fabric": True}, {"fabric": health.Fabric(3, 0, 0x19A)}),
    "links": ({"links_down": [0, 17]}, {"links_down": (0, 17)}),
}


@pytest.mark.parametrize(("state", "seen"), CHANGES.values(), ids=CHANGES)
def test_each_fact_is_read_for_itself(new_node, state, seen):
    node = new_node(H100, 2)
    before = node.facts()
    node.is_(**state)
    assert node.facts() == dataclasses.replace(before, **seen)
    assert node.facts(1) == before


def test_pages_of_both_causes_are_counted(new_node, monkeypatch):
    node = new_node(T4)
    node.is_(retired_pages=2, retirement_pending=True)
    real = node.library.nvmlDeviceGetRetiredPages
    monkeypatch.setattr(
        node.library,
        "nvmlDeviceGetRetiredPages",
        lambda device, cause: [*real(device, cause), *([0x9000] if cause == 0 else [])],
    )
    assert (node.facts().retired_pages, node.facts().retirement_pending) == (3, True)


def test_with_mig_mode_on_no_link_is_looked_at(new_node):
    node = new_node(H100)
    node.is_(links_down=[3])
    gpu_operations.create_instance(node.directory, node.uuids[0], "1g.10gb", 0)
    assert node.facts().links_down is None
    assert node.facts().unread == {}


def test_a_mig_mode_that_is_to_come_leaves_the_links_as_they_are(new_node):
    node = new_node("a100-40gb-sxm4")
    with gpu_state.open_file(node.directory).edit() as state:
        state.gpus[0].mig_pending = True
    assert node.facts().links_down == ()


def test_a_card_in_no_fabric_whose_links_are_all_down_has_no_bridge(new_node):
    bridgeless = new_node("a100-40gb-sxm4")
    bridgeless.is_(links_down=list(range(12)))
    assert bridgeless.facts().links_down is None
    bridgeless.is_(links_down=list(range(11)))
    assert bridgeless.facts().links_down == tuple(range(11))


def test_links_of_a_card_in_a_fabric_are_told_also_where_all_are_down(new_node):
    node = new_node(H100)
    node.is_(links_down=list(range(18)))
    assert node.facts().links_down == tuple(range(18))


def test_a_gpu_that_cannot_be_found_for_want_of_a_reset_wants_one(new_node):
    node = new_node(H100)
    node.fail("nvmlDeviceGetHandleByUUID", "RESET_REQUIRED")
    found = node.facts()
    assert (found.reset_wanted, found.unread.keys()) == (True, {"is_lost"})


def test_all_cards_are_looked_at_with_nvml_opened_once_and_closed_again(new_node):
    node = new_node(H100, 3)
    opened, real = [], node.library.nvmlInitWithFlags
    node.library.nvmlInitWithFlags = lambda flags: (opened.append(flags), real(flags))
    assert list(node.reader.facts(node.uuids)) == node.uuids
    assert len(opened) == 1
    with pytest.raises(node.library.NVMLError_Uninitialized):
        node.library.nvmlDeviceGetCount()


# What is not told


@pytest.mark.parametrize("error", ["NOT_SUPPORTED", "FUNCTION_NOT_FOUND", "NO_PERMISSION"])
@pytest.mark.parametrize("function", OF_FUNCTIONS)
def test_what_a_card_does_not_support_is_none_and_no_error(new_node, function, error):
    model, lacking = OF_FUNCTIONS[function]
    node = new_node(model)
    before = node.facts()
    node.fail(function, error)
    found = node.facts()
    assert {name: getattr(found, name) for name in lacking} == dict.fromkeys(lacking)
    assert found.unread == {}
    kept = COMMON.keys() - set(lacking)
    assert {name: getattr(found, name) for name in kept} == {
        name: getattr(before, name) for name in kept
    }


@pytest.mark.parametrize("function", OF_FUNCTIONS)
def test_what_an_older_binding_lacks_is_none_and_no_error(new_node, function):
    model, lacking = OF_FUNCTIONS[function]
    node = new_node(model)

    class Older:
        def __getattr__(self, name):
            if name == function:
                raise AttributeError(name)
            return getattr(node.library, name)

    reader = nvml_health.HealthReader(nvml.Nvml(Older()))
    found = reader.facts(node.uuids)[node.uuids[0]]
    assert {name: getattr(found, name) for name in lacking} == dict.fromkeys(lacking)
    assert found.unread == {}
    assert found.temperature == (None if function == "nvmlDeviceGetTemperature" else 33)


def test_a_binding_without_the_fabrics_structure_tells_of_none(new_node, monkeypatch):
    node = new_node(H100)
    monkeypatch.delattr(gpu_health.HealthFunctions, "c_nvmlGpuFabricInfoV_t")
    assert (node.facts().fabric, node.facts().recovery) == (None, 0)


# What fails


UNREAD = {
    "nvmlDeviceGetRemappedRows": "remap_pending",
    "nvmlDeviceGetRetiredPages": "retired_pages",
    "nvmlDeviceGetRetiredPagesPendingStatus": "retirement_pending",
    "nvmlDeviceGetTotalEccErrors": "uncorrectable_ecc",
    "nvmlDeviceGetCurrentClocksEventReasons": "thermal_slowdown",
    "nvmlDeviceGetTemperature": "temperature",
    "nvmlDeviceGetGpuFabricInfoV": "fabric",
    "nvmlDeviceGetFieldValues": "recovery",
    "nvmlDeviceGetNvLinkState": "links_down",
}


@pytest.mark.parametrize("function", UNREAD)
def test_what_could_not_be_read_is_told_with_nvmls_words_and_costs_no_other_fact(
    new_node, function
):
    node = new_node(OF_FUNCTIONS.get(function, (H100,))[0])
    before = node.facts()
    node.fail(function, "UNKNOWN", times=1)
    found = node.facts()
    assert found.unread[UNREAD[function]] == "NVML error 999 (Unknown Error)"
    others = {"links_down"} if UNREAD[function] == "recovery" else set()
    assert found.unread.keys() == {UNREAD[function]} | others
    left = COMMON.keys() - set(OF_FUNCTIONS.get(function, ("", ()))[1])
    assert {name: getattr(found, name) for name in left} == {
        name: getattr(before, name) for name in left
    }
    assert node.facts() == before, "the next look reads it"


def test_pages_are_not_asked_for_where_rows_could_not_be_read(new_node):
    node = new_node(T4)
    node.fail("nvmlDeviceGetRemappedRows", "UNKNOWN")
    found = node.facts()
    assert found.unread.keys() == {"remap_pending"}
    assert (found.retired_pages, found.retirement_pending) == (None, None)


FIELDS = ["recovery", "reset_wanted", "drain_and_reset_wanted", "links_down"]


@pytest.mark.parametrize("fact", FIELDS)
def test_a_field_that_failed_alone_is_told_for_itself(new_node, monkeypatch, fact):
    node = new_node(H100)
    before, real = node.facts(), node.library.nvmlDeviceGetFieldValues

    def ask(handle, ids):
        values = real(handle, ids)
        values[FIELDS.index(fact)].nvmlReturn = CODES["NVML_ERROR_UNKNOWN"]
        return values

    monkeypatch.setattr(node.library, "nvmlDeviceGetFieldValues", ask)
    unread = {fact: "NVML error 999 (Unknown Error)"}
    assert node.facts() == dataclasses.replace(before, **{fact: None}, unread=unread)


def test_a_card_that_has_no_link_tells_of_none(new_node, monkeypatch):
    node, real = new_node(H100), gpu_health.HealthFunctions.nvmlDeviceGetFieldValues

    def ask(handle, ids):
        values = real(node.library, handle, ids)
        values[FIELDS.index("links_down")].value.uiVal = 0
        return values

    monkeypatch.setattr(node.library, "nvmlDeviceGetFieldValues", ask)
    assert node.facts().links_down is None


def test_a_link_that_could_not_be_read_is_not_down(new_node):
    node = new_node(H100)
    node.is_(links_down=[5])
    node.fail("nvmlDeviceGetNvLinkState", "UNKNOWN", times=2)
    found = node.facts()
    assert (found.links_down, found.unread.keys()) == ((5,), {"links_down"})


def test_a_fabric_that_has_failed_says_how(new_node, monkeypatch):
    node, real = new_node(H100), gpu_health.HealthFunctions.nvmlDeviceGetGpuFabricInfoV

    def ask(handle, reference):
        answer = real(node.library, handle, reference)
        reference._obj.status = CODES["NVML_ERROR_TIMEOUT"]
        return answer

    monkeypatch.setattr(node.library, "nvmlDeviceGetGpuFabricInfoV", ask)
    assert node.facts().fabric == health.Fabric(3, CODES["NVML_ERROR_TIMEOUT"], 0x1AA)


@pytest.mark.parametrize(
    ("kind", "member"), [(1, "uiVal"), (2, "ulVal"), (3, "ullVal"), (4, "sllVal"), (5, "siVal")]
)
def test_a_field_is_read_in_the_type_that_it_comes_in(new_node, monkeypatch, kind, member):
    node = new_node(H100)

    def ask(_handle, ids):
        value = types.SimpleNamespace(**{member: 2})
        return [
            types.SimpleNamespace(fieldId=one, nvmlReturn=0, valueType=kind, value=value)
            for one in ids
        ]

    monkeypatch.setattr(node.library, "nvmlDeviceGetFieldValues", ask)
    assert node.facts().recovery == 2


@pytest.mark.parametrize("function", RAISED)
def test_a_function_that_asks_for_a_reset_says_what_the_driver_wants(new_node, function):
    node = new_node(OF_FUNCTIONS.get(function, (H100,))[0])
    node.fail(function, "RESET_REQUIRED")
    assert node.facts().reset_wanted is True


# Cards and drivers that are gone


@pytest.mark.parametrize("lose", [gpu_faults.lose, gpu_faults.remove])
def test_a_lost_card_is_lost_and_nothing_else_and_the_others_are_read(new_node, lose):
    node = new_node(H100, 2)
    fine = node.facts(1)
    lose(node.directory, node.uuids[0])
    assert node.facts() == health.Facts(is_lost=True)
    assert node.facts(1) == fine
    gpu_faults.bring_back(node.directory, node.uuids[0])
    assert node.facts() == fine


@pytest.mark.parametrize("function", RAISED)
def test_a_card_that_is_lost_in_the_middle_of_a_look_is_lost(new_node, function):
    node = new_node(OF_FUNCTIONS.get(function, (H100,))[0])
    node.fail(function, "GPU_IS_LOST")
    assert node.facts() == health.Facts(is_lost=True)


def test_a_card_that_nvml_does_not_know_is_lost(new_node):
    node = new_node(H100)
    assert node.reader.facts(["GPU-0"]) == {"GPU-0": health.Facts(is_lost=True)}


def test_a_card_that_cannot_be_asked_for_is_no_lost_one(new_node):
    node = new_node(H100)
    node.fail("nvmlDeviceGetHandleByUUID", "UNKNOWN")
    found = node.facts()
    assert not found.is_lost
    assert found.unread == {"is_lost": "NVML error 999 (Unknown Error)"}


@pytest.mark.parametrize("function", ["nvmlDeviceGetHandleByUUID", *RAISED])
@pytest.mark.parametrize("error", ["UNINITIALIZED", "DRIVER_NOT_LOADED"])
def test_a_driver_that_goes_in_the_middle_of_a_look_is_no_fact_of_a_card(new_node, function, error):
    node = new_node(OF_FUNCTIONS.get(function, (H100,))[0])
    node.fail(function, error)
    with pytest.raises(errors.Retryable, match=r"no answer from the NVIDIA driver: NVML error"):
        node.facts()
    with pytest.raises(node.library.NVMLError_Uninitialized):
        node.library.nvmlDeviceGetCount()


def test_a_driver_that_is_gone_is_said_so_until_it_is_back(new_node):
    node = new_node(H100)
    fine = node.facts()
    gpu_operations.unload_driver(node.directory)
    with pytest.raises(errors.Retryable, match=r"NVML error 9 .*modprobe nvidia"):
        node.facts()
    gpu_operations.load_driver(node.directory)
    assert node.facts() == fine
