"""What the simulated NVML tells of the health of cards, by model, and how its functions fail."""

import ctypes
import inspect
import json

import pynvml
import pytest

from dra_driver.sim.gpus import (
    gpu_errors,
    gpu_faults,
    gpu_health,
    gpu_health_state,
    gpu_state,
    gpus,
)

LOST = gpu_errors.CODES["NVML_ERROR_GPU_IS_LOST"]
UNKNOWN = gpu_errors.CODES["NVML_ERROR_UNKNOWN"]
NOT_SUPPORTED = gpu_errors.CODES["NVML_ERROR_NOT_SUPPORTED"]
MODELS = ("h100-80gb-hbm3", "a100-40gb-sxm4", "l4", "t4", "v100-16gb-sxm2")
RECOVERY, RESET, DRAIN, LINKS = 230, 226, 227, 91
OF_PAGES = ("nvmlDeviceGetRetiredPages", "nvmlDeviceGetRetiredPagesPendingStatus")
FUNCTIONS = sorted(
    name
    for name, found in vars(gpu_health.HealthFunctions).items()
    if name.startswith("nvml") and callable(found)
)


class Card:
    """One card on a node of its own, NVML open."""

    def __init__(self, directory, model="h100-80gb-hbm3", count=1):
        self.directory = directory
        self.library = gpus.SimulatedNvml(directory, spec=f"{model}:{count}")
        self.library.nvmlInit()
        self.uuid = gpu_state.open_file(directory).read().gpus[0].uuid
        self.handle = self.library.nvmlDeviceGetHandleByUUID(self.uuid)

    def is_(self, **facts):
        """From now on these facts of `gpu_health_state.Health` are the card's."""
        with gpu_health_state.open_file(self.directory).edit() as cards:
            for name, value in facts.items():
                setattr(cards.of(self.uuid), name, value)

    def link(self, *uuids):
        with gpu_state.open_file(self.directory).edit() as state:
            state.gpus[0].linked = list(uuids)

    def ask(self, name, *arguments):
        return getattr(self.library, name)(self.handle, *arguments)

    def fields(self, *ids):
        """What each field says, `None` where it is not supported."""
        values = self.ask("nvmlDeviceGetFieldValues", list(ids))
        assert [value.fieldId for value in values] == list(ids)
        assert {value.nvmlReturn for value in values} <= {0, NOT_SUPPORTED}
        return [None if value.nvmlReturn else value.value.uiVal for value in values]

    def fabric(self):
        """State, status and mask."""
        info = self.library.c_nvmlGpuFabricInfoV_t()
        assert self.ask("nvmlDeviceGetGpuFabricInfoV", ctypes.byref(info)) == 0
        return info.state, info.status, info.healthMask

    def arguments(self, name):
        """Such with which a function works on a card that has it."""
        return {
            "nvmlDeviceGetFieldValues": [[RECOVERY]],
            "nvmlDeviceGetRetiredPages": [0],
            "nvmlDeviceGetTotalEccErrors": [1, 0],
            "nvmlDeviceGetTemperature": [0],
            "nvmlDeviceGetGpuFabricInfoV": [ctypes.byref(self.library.c_nvmlGpuFabricInfoV_t())],
            "nvmlDeviceGetNvLinkState": [0],
            "nvmlDeviceGetNvLinkRemotePciInfo": [0],
        }.get(name, [])


@pytest.fixture
def new_card(tmp_path):
    return lambda model="h100-80gb-hbm3": Card(tmp_path, model)


@pytest.fixture
def able(tmp_path):
    """Makes the card that has a function."""

    def make(name):
        card = Card(tmp_path, "t4" if name in OF_PAGES else "h100-80gb-hbm3", 2)
        other = gpu_state.open_file(tmp_path).read().gpus[1].uuid
        card.link(other)
        return card

    return make


# Functions


def test_the_functions_are_found():
    assert len(FUNCTIONS) >= 9


@pytest.mark.parametrize("name", FUNCTIONS)
def test_nothing_works_after_nvml_was_closed(able, name):
    card = able(name)
    arguments = card.arguments(name)
    card.ask(name, *arguments)
    card.library.nvmlShutdown()
    with pytest.raises(card.library.NVMLError_Uninitialized):
        card.ask(name, *arguments)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_handles_end_with_their_session(able, name):
    card = able(name)
    arguments = card.arguments(name)
    card.library.nvmlShutdown()
    card.library.nvmlInit()
    for bad in (card.handle, None):
        with pytest.raises(card.library.NVMLError_InvalidArgument):
            getattr(card.library, name)(bad, *arguments)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_each_function_fails_on_demand_under_its_own_name(able, tmp_path, name):
    card = able(name)
    gpu_faults.inject(tmp_path, function=name, uuid=card.uuid, error=UNKNOWN, times=1)
    with pytest.raises(card.library.NVMLError_Unknown):
        card.ask(name, *card.arguments(name))
    assert json.loads((tmp_path / "faults.json").read_text()) == {"faults": []}
    card.ask(name, *card.arguments(name))


@pytest.mark.parametrize("lose", [gpu_faults.lose, gpu_faults.remove])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_lost_card_fails_in_every_function(able, tmp_path, name, lose):
    card = able(name)
    lose(tmp_path, card.uuid)
    with pytest.raises(card.library.NVMLError_GpuIsLost):
        card.ask(name, *card.arguments(name))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_parameters_are_those_of_the_bindings(name):
    _self, *ours = inspect.signature(getattr(gpus.SimulatedNvml, name)).parameters.values()
    real = inspect.signature(getattr(pynvml, name)).parameters.values()
    assert [(one.name, one.default) for one in ours] == [(one.name, one.default) for one in real]


@pytest.mark.parametrize(
    ("ours", "real"),
    [
        (gpu_health.c_nvmlFieldValue_t, pynvml.c_nvmlFieldValue_t),
        (gpu_health.c_nvmlGpuFabricInfo_v2_t, pynvml.c_nvmlGpuFabricInfo_v2_t),
    ],
)
def test_structures_are_those_of_the_bindings(ours, real):
    def shape(kind):
        return [
            (name, getattr(kind, name).offset, getattr(kind, name).size)
            for name, _ in kind._fields_
        ]

    assert shape(ours) == shape(real)
    assert ctypes.sizeof(ours) == ctypes.sizeof(real)


def test_the_version_of_the_fabrics_structure_is_that_of_the_bindings(new_card):
    card = new_card()
    assert (
        card.library.c_nvmlGpuFabricInfoV_t().version == pynvml.c_nvmlGpuFabricInfo_v2_t().version
    )
    info = card.library.c_nvmlGpuFabricInfoV_t()
    info.version = 1
    with pytest.raises(card.library.NVMLError_ArgumentVersionMismatch):
        card.ask("nvmlDeviceGetGpuFabricInfoV", ctypes.byref(info))


def test_numbers_are_those_of_the_bindings():
    assert (RECOVERY, RESET, DRAIN, LINKS) == (
        pynvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION,
        pynvml.NVML_FI_DEV_RESET_STATUS,
        pynvml.NVML_FI_DEV_DRAIN_AND_RESET_STATUS,
        pynvml.NVML_FI_DEV_NVLINK_LINK_COUNT,
    )


# Which card has what


@pytest.mark.parametrize(
    ("model", "fields"),
    [
        ("h100-80gb-hbm3", [0, 0, 0, 18]),
        ("a100-40gb-sxm4", [0, 0, 0, 12]),
        ("l4", [0, 0, 0, None]),
        ("t4", [None, None, None, None]),
        ("v100-16gb-sxm2", [None, None, None, 6]),
    ],
)
def test_fields_are_told_by_cards_that_have_them(new_card, model, fields):
    assert new_card(model).fields(RECOVERY, RESET, DRAIN, LINKS) == fields


def test_each_field_fails_for_itself_and_may_come_with_a_scope(new_card):
    card = new_card()
    assert card.fields(LINKS, 9999, RECOVERY) == [18, None, 0]
    [value] = card.ask("nvmlDeviceGetFieldValues", [(RECOVERY, 3)])
    assert (value.fieldId, value.scopeId, value.nvmlReturn) == (RECOVERY, 3, 0)


@pytest.mark.parametrize(
    ("wanted", "fields"),
    [(1, [1, 1, 0]), (2, [2, 0, 0]), (3, [3, 0, 0]), (4, [4, 0, 1])],
)
def test_what_the_driver_wants_is_in_the_older_fields_too(new_card, wanted, fields):
    card = new_card()
    card.is_(recovery=wanted)
    assert card.fields(RECOVERY, RESET, DRAIN) == fields


@pytest.mark.parametrize("model", MODELS)
def test_rows_are_remapped_from_ampere_on_and_pages_retired_before(new_card, model):
    card = new_card(model)
    rows = ["nvmlDeviceGetRemappedRows"], [0, 0, 0, 0]
    lacking = OF_PAGES
    if model in ("t4", "v100-16gb-sxm2"):
        rows, lacking = ([], []), ["nvmlDeviceGetRemappedRows"]
        assert [card.ask(name, *card.arguments(name)) for name in OF_PAGES] == [[], 0]
    for name in rows[0]:
        assert list(card.ask(name)) == rows[1]
    for name in lacking:
        with pytest.raises(card.library.NVMLError_NotSupported):
            card.ask(name, *card.arguments(name))


def test_rows_are_pending_or_failed(new_card):
    card = new_card()
    card.is_(remap_pending=True)
    assert list(card.ask("nvmlDeviceGetRemappedRows")) == [0, 0, 1, 0]
    card.is_(remap_pending=False, remap_failed=True)
    assert list(card.ask("nvmlDeviceGetRemappedRows")) == [0, 0, 0, 1]


def test_pages_are_retired_and_more_are_pending(new_card):
    card = new_card("t4")
    card.is_(retired_pages=3, retirement_pending=True)
    by_cause = [card.ask("nvmlDeviceGetRetiredPages", cause) for cause in (0, 1)]
    assert [len(pages) for pages in by_cause] == [0, 3]
    assert len(set(by_cause[1])) == 3
    assert card.ask("nvmlDeviceGetRetiredPagesPendingStatus") == 1
    with pytest.raises(card.library.NVMLError_InvalidArgument):
        card.ask("nvmlDeviceGetRetiredPages", 2)


def test_errors_are_counted_since_the_reset_and_ever_and_corrected_ones_apart(new_card):
    card = new_card()
    card.is_(uncorrectable=2, uncorrectable_ever=5)
    counts = [
        card.ask("nvmlDeviceGetTotalEccErrors", kind, counter)
        for kind, counter in ((1, 0), (1, 1), (0, 0), (0, 1))
    ]
    assert counts == [2, 5, 0, 0]
    for wrong in ((2, 0), (0, 2)):
        with pytest.raises(card.library.NVMLError_InvalidArgument):
            card.ask("nvmlDeviceGetTotalEccErrors", *wrong)


@pytest.mark.parametrize(
    ("facts", "reasons", "temperature"),
    [
        ({}, 0x1, 33),
        ({"thermal": True}, 0x1 | 0x8 | 0x40, 92),
        ({"power_brake": True}, 0x1 | 0x8 | 0x80, 33),
        ({"thermal": True, "power_brake": True}, 0x1 | 0x8 | 0x40 | 0x80, 92),
    ],
)
def test_slow_cards_say_why(new_card, facts, reasons, temperature):
    card = new_card()
    card.is_(**facts)
    assert card.ask("nvmlDeviceGetCurrentClocksEventReasons") == reasons
    assert card.ask("nvmlDeviceGetTemperature", 0) == temperature
    with pytest.raises(card.library.NVMLError_InvalidArgument):
        card.ask("nvmlDeviceGetTemperature", 1)


@pytest.mark.parametrize("model", MODELS)
def test_the_fabric_is_that_of_hopper(new_card, model):
    is_hopper = model == "h100-80gb-hbm3"
    assert new_card(model).fabric() == ((3, 0, 0x1AA) if is_hopper else (0, 0, 0))


def test_bad_routes_are_in_the_mask_of_the_fabric(new_card):
    card = new_card()
    card.is_(bad_fabric=True)
    _state, _status, mask = card.fabric()
    shift = pynvml.NVML_GPU_FABRIC_HEALTH_MASK_SHIFT_ROUTE_UNHEALTHY
    assert mask >> shift & 3 == pynvml.NVML_GPU_FABRIC_HEALTH_MASK_ROUTE_UNHEALTHY_TRUE
    assert mask & ~(3 << shift) == 0x1AA & ~(3 << shift)


@pytest.mark.parametrize(
    ("model", "links"), [("h100-80gb-hbm3", 18), ("a100-40gb-sxm4", 12), ("v100-16gb-sxm2", 6)]
)
def test_links_are_active_unless_they_are_down(new_card, model, links):
    card = new_card(model)
    card.is_(links_down=[2])
    states = [card.ask("nvmlDeviceGetNvLinkState", link) for link in range(links)]
    assert states == [int(link != 2) for link in range(links)]
    for wrong in (-1, links):
        with pytest.raises(card.library.NVMLError_InvalidArgument):
            card.ask("nvmlDeviceGetNvLinkState", wrong)


@pytest.mark.parametrize("model", ["l4", "t4"])
def test_cards_without_nvlink_have_no_state_of_one(new_card, model):
    card = new_card(model)
    with pytest.raises(card.library.NVMLError_NotSupported):
        card.ask("nvmlDeviceGetNvLinkState", 0)


def test_links_lead_to_the_cards_at_their_other_ends_and_there_are_no_more(tmp_path):
    card = Card(tmp_path, count=2)
    peer = gpu_state.open_file(tmp_path).read().gpus[1]
    with pytest.raises(card.library.NVMLError_NotSupported):
        card.ask("nvmlDeviceGetNvLinkRemotePciInfo", 0)
    card.link(peer.uuid)
    found = card.ask("nvmlDeviceGetNvLinkRemotePciInfo", 0)
    assert found.busId.lower() == f"0000{peer.pci_address}"
    for wrong in (-1, 1):
        with pytest.raises(card.library.NVMLError_InvalidArgument):
            card.ask("nvmlDeviceGetNvLinkRemotePciInfo", wrong)


def test_facts_are_those_of_their_card_alone_and_outlive_the_process(tmp_path):
    card = Card(tmp_path, count=2)
    card.is_(recovery=1)
    other = gpus.SimulatedNvml(tmp_path)
    other.nvmlInit()
    wanted = [
        other.nvmlDeviceGetFieldValues(other.nvmlDeviceGetHandleByIndex(index), [RECOVERY])[0]
        for index in (0, 1)
    ]
    assert [value.value.uiVal for value in wanted] == [1, 0]
