"""A look at the GPUs that fails anywhere changes nothing of what is offered; a second one does."""

import types

import api_cluster
import pytest

from dra_driver import errors
from dra_driver.adapters.disk import ledgers
from dra_driver.adapters.nvml import nvml
from dra_driver.adapters.system import sysfs
from dra_driver.apps.offering import inventory
from dra_driver.logic.offering import offering, publishing
from dra_driver.model import mig
from dra_driver.sim.gpus import gpu_errors, gpu_faults, gpu_operations, gpu_state, gpus

pytestmark = pytest.mark.sampled(9)

CODES = {name.removeprefix("NVML_ERROR_"): code for name, code in gpu_errors.CODES.items()}
LOST = CODES["GPU_IS_LOST"]
KINDS = ("NOT_SUPPORTED", "NOT_FOUND", "INVALID_ARGUMENT", "UNKNOWN", "DRIVER_NOT_LOADED")
"""One of each that the driver takes for something else."""
ODD = ("UNKNOWN", "TIMEOUT", "DRIVER_NOT_LOADED")
AGAIN = "a GPU was not seen as before; looking again"


class Library:
    """Simulated GPUs of which one call fails."""

    def __init__(self, simulated):
        self.simulated = simulated
        self.calls = []
        self.fault = None

    def let_fail(self, number=None, code=None):
        """Call `number`, from 0, of the next look fails; without a number none does."""
        self.calls, self.fault = [], None if number is None else (number, code)

    def __getattr__(self, name):
        found = getattr(self.simulated, name)
        if not name.startswith("nvml") or not callable(found):
            return found

        def call(*arguments):
            self.calls.append(name)
            if self.fault and len(self.calls) == self.fault[0] + 1:
                raise self.simulated.NVMLError(self.fault[1])
            return found(*arguments)

        return call


class Node:
    """A node whose inventory looks when it is told to, at a time that it is told."""

    def __init__(self, root, monkeypatch, spec="h100-80gb-hbm3:1,t4:1", mode="dynamic"):
        self.root, self.mode = root, mig.Mode(mode)
        self.simulation = root / "simulation"
        self.library = Library(gpus.SimulatedNvml(self.simulation, spec=spec))
        self.place = sysfs.Sysfs(self.library.simulated.write_sysfs())
        self.busy = set()
        self.selected = ()
        self.now = 0.0
        clock = types.SimpleNamespace(monotonic=lambda: self.now)
        monkeypatch.setattr(inventory, "time", clock)
        self.changes = 0
        self.start()

    def start(self):
        """The inventory of a new process."""
        looking = inventory.Looking(
            nvml.Nvml(self.library),
            self.place,
            ledgers.Ledgers(self.root / "gpus", boot_id="boot-1"),
            self.mode_of,
            is_busy=lambda name: name in self.busy,
        )
        self.gpus = inventory.Inventory(looking, interval=10, on_change=self.changed)

    def mode_of(self, gpu):
        """What the settings have for it, by selectors over any of these facts."""
        for fact in self.selected:
            if getattr(gpu, fact) is None:
                raise errors.Rejected(f"selector: no answer to {fact}")
        return self.mode

    def changed(self):
        self.changes += 1

    def look(self, after=0.0):
        """What would be published after a look, so many seconds after the last."""
        self.now += after
        self.gpus.look()
        return self.published()

    def published(self):
        cards = self.gpus.snapshot.cards
        listed = offering.listing(cards)
        return publishing.contents(
            offering.offer(listed, offering.State(), offering.Policy(api_cluster.DRIVER))
        )

    def names(self):
        return sorted(self.gpus.snapshot.offered)

    def uuid(self, number=0):
        return gpu_state.open_file(self.simulation).read().gpus[number].uuid

    def cut(self, profile="1g.10gb", start=6):
        return gpu_operations.create_instance(self.simulation, self.uuid(), profile, start)

    def let(self, error, function=None, number=0):
        uuid = None if function == "nvmlInitWithFlags" else self.uuid(number)
        gpu_faults.inject(self.simulation, error=CODES[error], function=function, uuid=uuid)

    def heal(self):
        gpu_faults.clear(self.simulation)

    def set_pending(self, *, on):
        with gpu_state.open_file(self.simulation).edit() as state:
            state.gpus[0].mig_pending = on


@pytest.fixture
def new_node(tmp_path, monkeypatch):
    return lambda **options: Node(tmp_path, monkeypatch, **options)


@pytest.fixture
def node(new_node):
    made = new_node()
    made.look()
    return made


def firsts(calls):
    """Where each function is called for the first time."""
    return [calls.index(name) for name in dict.fromkeys(calls)]


@pytest.mark.parametrize("mode", ["dynamic", "static"])
def test_no_call_of_a_look_that_fails_once_changes_what_is_published(new_node, mode):
    node = new_node(spec="h100-80gb-hbm3:1", mode=mode)
    node.cut()
    before = node.look()
    node.library.let_fail()
    node.look()
    calls = list(node.library.calls)
    assert len(set(calls)) > 20
    wrong = []
    for error in KINDS:
        for number, name in enumerate(calls):
            node.library.let_fail(number, CODES[error])
            # At the same moment: each look is the first one that fails.
            if node.look() != before:
                wrong.append((error, number, name))
    assert wrong == []


def test_no_call_that_fails_once_withdraws_a_card_that_settings_select_by_what_it_tells(new_node):
    node = new_node(spec="h100-80gb-hbm3:1")
    node.selected = ("brand", "architecture", "driver_version", "addressing_mode")
    before = node.look()
    node.library.let_fail()
    node.look()
    calls = list(node.library.calls)
    wrong = []
    for number in firsts(calls):
        node.library.let_fail(number, CODES["UNKNOWN"])
        if node.look() != before:
            wrong.append(calls[number])
    assert wrong == []


def test_a_card_that_settings_cannot_judge_for_long_is_not_offered(new_node):
    node = new_node(spec="h100-80gb-hbm3:1")
    node.selected = ("brand",)
    assert node.look()
    node.let("UNKNOWN", "nvmlDeviceGetBrand")
    assert "gpu-0" in (node.look(), node.names())[1]
    node.look(after=1.0)
    assert node.names() == []
    assert any("no answer to brand" in text for text in node.gpus.snapshot.failures)


def test_no_error_of_nvml_changes_what_is_published_when_it_is_met_once(node):
    before = node.published()
    node.library.let_fail()
    node.look()
    calls = list(node.library.calls)
    wrong = []
    for turn, error in enumerate(sorted(CODES.keys() - {*KINDS, "GPU_IS_LOST"})):
        # Each at some of the functions, and each of these meets several.
        for number in firsts(calls)[turn % 5 :: 5]:
            node.library.let_fail(number, CODES[error])
            if node.look() != before:
                wrong.append((error, calls[number]))
    assert wrong == []


def test_a_first_look_at_which_something_fails_is_none(node):
    """What is published is from an earlier process, and would be withdrawn."""
    before = node.published()
    calls = list(node.library.calls)
    wrong = []
    for error in ODD:
        for number in firsts(calls):
            node.library.let_fail(number, CODES[error])
            node.start()
            node.look()
            if node.gpus.wait_first(0) and node.published() != before:
                wrong.append((error, calls[number]))
            node.library.let_fail()
            assert node.look() == before
            assert node.gpus.wait_first(0)
    assert wrong == []


def test_a_first_look_that_fails_counts_once_it_is_confirmed(node):
    node.let("DRIVER_NOT_LOADED", "nvmlInitWithFlags")
    node.start()
    node.look()
    node.look(after=0.9)
    assert not node.gpus.wait_first(0)
    node.look(after=0.1)
    assert node.gpus.wait_first(0)
    assert "Driver Not Loaded" in node.gpus.snapshot.problem


@pytest.mark.parametrize(
    ("error", "function"),
    [
        ("UNKNOWN", "nvmlDeviceGetCudaComputeCapability"),
        ("UNKNOWN", "nvmlDeviceGetMigMode"),
        ("TIMEOUT", "nvmlDeviceGetMemoryInfo"),
        ("RESET_REQUIRED", "nvmlDeviceGetUUID"),
        ("UNKNOWN", "nvmlDeviceGetHandleByIndex"),
    ],
)
def test_a_gpu_that_fails_at_a_second_look_a_second_later_is_not_offered(node, error, function):
    before = node.names()
    node.let(error, function)
    assert (node.look(), node.names()) == (node.published(), before)
    [doubt] = node.gpus.snapshot.doubts
    assert f"NVML error {CODES[error]}" in doubt
    assert node.gpus.snapshot.failures == ()
    node.look(after=0.9)
    assert node.names() == before
    node.look(after=0.1)
    assert node.names() == ["gpu-1"]
    assert node.gpus.snapshot.doubts == ()
    assert f"NVML error {CODES[error]}" in node.gpus.snapshot.failures[0]
    assert "gpu-0" in node.gpus.snapshot.lost
    node.heal()
    node.look()
    assert node.names() == before


def test_looks_that_fail_with_one_that_does_not_in_between_withdraw_nothing(node):
    before = node.names()
    for _ in range(3):
        node.let("UNKNOWN", "nvmlDeviceGetName")
        node.look(after=5)
        node.heal()
        node.look(after=5)
        assert node.names() == before


def test_a_driver_that_does_not_answer_at_a_second_look_offers_nothing(node):
    before = node.names()
    node.let("DRIVER_NOT_LOADED", "nvmlInitWithFlags")
    node.look()
    assert node.names() == before
    assert node.gpus.snapshot.problem is None
    assert len(node.gpus.snapshot.doubts) == 1
    node.look(after=1)
    assert node.names() == []
    assert "Driver Not Loaded" in node.gpus.snapshot.problem
    assert sorted(node.gpus.snapshot.lost) == before
    node.heal()
    node.look()
    assert (node.names(), node.gpus.snapshot.problem) == (before, None)


def test_a_gpu_that_is_lost_is_told_of_at_once(node):
    node.library.let_fail()
    node.let("GPU_IS_LOST")
    node.look()
    assert node.names() == ["gpu-1"]
    assert "gpu-0" in node.gpus.snapshot.lost
    node.heal()
    node.look()
    gpu_faults.remove(node.simulation, node.uuid())
    node.look()
    assert node.names() == ["gpu-1"]


def test_a_failure_of_a_nameless_gpu_does_not_keep_those_that_answer_from_counting(node):
    node.let("UNKNOWN", "nvmlDeviceGetHandleByIndex", number=1)
    gpu_faults.remove(node.simulation, node.uuid(0))
    node.look()
    # It may be either that fails, since the driver numbers those that are there.
    assert {"gpu-0", "gpu-1"} <= set(node.names())
    node.heal()
    gpu_faults.remove(node.simulation, node.uuid(0))
    node.look()
    assert node.names() == ["gpu-1"]


def test_a_fact_that_is_only_told_is_left_out_after_a_second_look_and_the_gpu_is_offered(node):
    before = node.names()
    node.let("UNKNOWN", "nvmlDeviceGetBrand")
    first = node.look()
    assert node.gpus.snapshot.cards[0].gpu.brand == "Nvidia"
    assert node.look(after=1) != first
    assert node.gpus.snapshot.cards[0].gpu.brand is None
    assert node.names() == before


def test_a_card_that_a_claim_is_at_work_on_counts_as_it_was_seen_before_that(node):
    before = node.names()
    node.busy = {"gpu-0"}
    node.set_pending(on=True)
    for _ in range(3):
        node.look(after=10)
        assert node.names() == before
    assert "at work" in node.gpus.snapshot.doubts[0]
    node.busy = set()
    node.set_pending(on=False)
    node.look()
    assert (node.names(), node.gpus.snapshot.doubts) == (before, ())


def test_a_mode_that_is_half_way_is_looked_at_again_before_the_card_is_withdrawn(node):
    before = node.names()
    node.set_pending(on=True)
    node.look()
    assert node.names() == before
    node.look(after=1)
    assert node.names() == ["gpu-1"]


def test_a_busy_card_that_is_lost_is_told_of_at_once(node):
    node.busy = {"gpu-0"}
    node.let("GPU_IS_LOST")
    node.look()
    assert node.names() == ["gpu-1"]


def test_what_others_cut_out_of_a_card_is_seen_at_once(node):
    before = set(node.names())
    node.cut()
    node.look()
    assert before - set(node.names()) >= {"gpu-0", "gpu-0-mig-1g10gb-19-6"}
    assert node.gpus.snapshot.doubts == ()


def test_a_device_that_is_not_known_while_there_are_doubts_is_to_be_asked_for_again(node):
    node.let("DRIVER_NOT_LOADED", "nvmlInitWithFlags")
    node.look()
    assert "Driver Not Loaded" in node.gpus.snapshot.why_missing("gpu-7")
    assert node.gpus.snapshot.why_missing("gpu-0") is None


def test_a_plugin_that_meets_an_error_once_looks_again_and_writes_nothing(
    own_plugin, own_machine, own_cluster
):
    plugin = own_plugin(mig_mode="dynamic").start()
    plugin.wait_log("ResourceSlices written")
    writes = len(own_cluster.slice_writes())
    gpu_faults.inject(
        own_machine.simulation,
        error=CODES["UNKNOWN"],
        function="nvmlDeviceGetCudaComputeCapability",
        times=1,
    )
    [line] = plugin.wait_log(AGAIN)
    assert (
        "nvmlDeviceGetCudaComputeCapability"
        not in gpu_faults.FaultFile(own_machine.simulation).read().model_dump_json()
    )
    assert "NVML error 999" in line["reason"]
    # What is published is looked at again after this.
    own_machine.lose_gpus("gpu-1")
    api_cluster.wait_for(
        lambda: "gpu-1" not in api_cluster.device_names(own_cluster.slices()), "one GPU less"
    )
    assert own_cluster.slice_writes()[writes:] == ["update"]
