"""GPUs that cannot be taken for virtual machines: who is in the way, what the kernel refuses."""

import errno

import pytest

from dra_driver import errors
from dra_driver.apps.preparing import preparing
from dra_driver.model import bindings
from dra_driver.sim.gpus import gpu_clients
from dra_driver.sim.pci import changing, faults

SECONDS = 0.3
"""What may work in a moment is tried again for no longer."""


@pytest.fixture
def node(new_node, monkeypatch):
    """An H100 and an L4, which has a sound device in its group, each also for virtual machines."""
    monkeypatch.setattr(preparing, "LOOK_AGAIN", 0.02)
    return new_node(gpus="h100-80gb-hbm3:1,l4:1", vfio="on")


@pytest.fixture
def why_not(node, api):
    """Why a card is not prepared; nothing is left of it."""

    def ask(device="gpu-vfio-0", kind=errors.Retryable):
        ref = api.make(device)
        with pytest.raises(kind) as caught:
            node.prepare(ref, seconds=SECONDS)
        assert node.record(ref) is None
        assert node.files() == []
        return str(caught.value)

    return ask


def address(node, number=0):
    return node.card(number).pci_address


def test_a_process_on_the_card_is_named(node, why_not):
    node.occupy(4711)
    assert why_not() == (
        f"device 'gpu-vfio-0': {node.uuid()} at {address(node)} is used by trainer (pid 4711): end "
        "it, or delete its pod"
    )
    assert node.driver(0) == "nvidia"


def test_a_process_that_only_has_the_card_open_is_named(node, why_not):
    opened = gpu_clients.file(node.simulation, node.uuid())
    held = node.proc / "815" / "fd"
    held.mkdir(parents=True)
    (held.parent / "comm").write_text("dcgm\n")
    (held / "7").symlink_to(opened)
    assert "is held open by dcgm (pid 815)" in why_not()
    assert node.driver(0) == "nvidia"
    assert node.card(0).persistence_mode


def test_a_persistence_daemon_that_was_not_reached_is_named_with_what_to_do(node, why_not):
    held = node.proc / "817" / "fd"
    held.mkdir(parents=True)
    (held.parent / "comm").write_text("nvidia-persiste\n")
    (held / "7").symlink_to(gpu_clients.file(node.simulation, node.uuid()))
    assert why_not().endswith("delete its pod. It lets go after nvidia-smi -pm 0 on the node")


def test_a_display_manager_is_named(node, why_not):
    """It may have the card open by the nodes for drawing alone."""
    drm = node.simulation / "sys/bus/pci/devices" / address(node) / "drm/card1"
    drm.mkdir(parents=True)
    screen = node.pci.seen("/dev/dri/card1")
    screen.parent.mkdir()
    screen.touch()
    held = node.proc / "816" / "fd"
    held.mkdir(parents=True)
    (held.parent / "comm").write_text("Xorg\n")
    (held / "7").symlink_to(screen)
    assert "is held open by Xorg (pid 816)" in why_not()
    assert node.driver(0) == "nvidia"


def test_nobody_does_without_nvml_for_a_card_that_others_have_open(node, why_not):
    opened = gpu_clients.file(node.simulation, node.uuid())
    held = node.proc / "815" / "fd"
    held.mkdir(parents=True)
    (held / "7").symlink_to(opened)
    closings = []
    node.library.held_by(closings.append, lambda: None)
    why_not()
    assert closings == []


def test_that_this_process_has_the_card_open_is_no_reason_before_nvml_is_closed(node, api):
    """It holds it open by NVML, and does not any more once that is closed."""
    opened = gpu_clients.file(node.simulation, node.uuid())
    held = node.proc / "4711" / "fd"
    held.mkdir(parents=True)
    (held / "7").symlink_to(opened)
    (node.proc / "self").symlink_to("4711")
    node.library.held_by(lambda _: (held / "7").unlink(), lambda: None)
    node.prepare(api.make("gpu-vfio-0"), seconds=SECONDS)
    assert node.driver(0) == "vfio-pci"


def test_a_process_that_opens_the_card_while_nvml_is_closed_is_named(node, why_not):
    """It would hold up the kernel for as long as it has it open."""
    held = node.proc / "815" / "fd"
    held.mkdir(parents=True)
    (held.parent / "comm").write_text("dcgm\n")
    opened = gpu_clients.file(node.simulation, node.uuid())

    def let_go(_seconds):
        (held / "7").unlink(missing_ok=True)
        (held / "7").symlink_to(opened)

    node.library.held_by(let_go, (held / "7").unlink)
    assert "is held open by dcgm (pid 815)" in why_not()
    assert node.driver(0) == "nvidia"
    assert node.is_clean()


def test_instances_that_others_made_since_the_last_look_are_named(node, why_not):
    node.set_mig_mode(on=True)
    node.foreign("1g.10gb", 0)
    assert "is in MIG mode with GPU instances" in why_not()


def test_a_mig_mode_that_takes_a_reset_and_was_switched_on_since_the_last_look_is_named(
    new_node, api
):
    node = new_node(gpus="a100-40gb-sxm4:1", vfio="on")
    node.set_mig_mode(on=True)
    with pytest.raises(errors.Retryable, match=r"is in MIG mode.*nvidia-smi -mig 0"):
        node.prepare(api.make("gpu-vfio-0"), seconds=SECONDS)
    assert node.driver(0) == "nvidia"


def test_virtual_functions_are_counted(node, why_not):
    changing.set_virtual_functions(node.simulation, address(node), 4)
    assert "has 4 virtual functions" in why_not()


def test_a_foreign_device_that_came_into_the_group_is_named(node, why_not):
    disk = changing.add_foreign(node.simulation, address(node))
    assert f"has {disk} (" in why_not()


def test_a_bridge_in_the_group_is_no_part_of_it(node, api):
    bridge = changing.add_foreign(node.simulation, address(node), kind=0x060400)
    node.prepare(api.make("gpu-vfio-0"))
    assert node.driver(0) == "vfio-pci"
    assert node.pci.function(bridge).driver is None


def test_a_module_that_the_kernel_does_not_have_is_named(node, why_not):
    faults.lack(node.simulation, "vfio_pci")
    assert "vfio_pci" in why_not()
    assert node.driver(0) == "nvidia"
    assert node.card(0).persistence_mode


@pytest.mark.parametrize(
    ("action", "driver"), [("override", "vfio-pci"), ("unbind", "nvidia"), ("bind", "vfio-pci")]
)
def test_what_the_kernel_refuses_is_told_and_the_card_is_brought_back(
    node, why_not, action, driver
):
    faults.fail(node.simulation, action, errno.EIO, address=address(node), driver=driver)
    assert "Input/output error" in why_not()
    assert node.is_clean()
    assert node.override(address(node)) is None
    assert node.card(0).persistence_mode


def test_a_card_that_is_pulled_out_meanwhile_leaves_nothing_to_bring_back(node, why_not):
    faults.vanish(node.simulation, "unbind", address=address(node))
    why_not()
    assert node.books.handed_over() == {}


# What hangs


def test_a_kernel_that_does_not_come_back_is_told_and_the_card_is_not_touched(node, api):
    faults.hang(node.simulation, "unbind", address=address(node))
    ref = api.make("gpu-vfio-0")
    with pytest.raises(errors.Retryable):
        node.prepare(ref, seconds=SECONDS)
    with pytest.raises(errors.Retryable, match=f"the kernel is at work on {address(node)} still"):
        node.prepare(ref, seconds=SECONDS)
    # It is remembered until it is known what became of it.
    assert bindings.of(node.record(ref))
    assert node.preparer.leaving() == [ref.uid]
    with pytest.raises(errors.Retryable, match=f"the kernel is at work on {address(node)} still"):
        node.unprepare(ref, seconds=SECONDS)
    faults.clear(node.simulation)
    node.unprepare(ref)
    assert node.is_clean()


def test_other_cards_go_on_meanwhile(node, api):
    faults.hang(node.simulation, "unbind", address=address(node))
    with pytest.raises(errors.Retryable):
        node.prepare(api.make("gpu-vfio-0"), seconds=SECONDS)
    other = api.make("gpu-vfio-1")
    node.prepare(other)
    assert node.driver(1) == "vfio-pci"


def test_what_hung_and_was_done_after_all_is_gone_on_with(node, api):
    faults.hang(node.simulation, "unbind", address=address(node))
    ref = api.make("gpu-vfio-0")
    with pytest.raises(errors.Retryable):
        node.prepare(ref, seconds=SECONDS)
    faults.clear(node.simulation)
    node.prepare(ref)
    assert node.driver(0) == "vfio-pci"
    node.unprepare(ref)
    assert node.is_clean()
