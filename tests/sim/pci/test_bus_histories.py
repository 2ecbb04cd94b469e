"""Whatever is done to a simulated bus, in whatever order, it is one that a machine can have."""

import errno
import pathlib
import tempfile

import effort
import pci_scene
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from dra_driver.adapters.pci import pci_kernel
from dra_driver.sim.gpus import gpu_operations
from dra_driver.sim.pci import changing, faults, pci_state

SPEC = "h100-80gb-hbm3:1,l4:1"
H100, L4, SOUND = "0000:04:00.0", "0000:07:00.0", "0000:07:00.1"
GPUS = (H100, L4)
ADDRESSES = st.sampled_from((*GPUS, SOUND))
DRIVERS = st.sampled_from(pci_state.KNOWN)


class Histories(RuleBasedStateMachine):
    """A node on which people, the driver, faults and reboots do what they like."""

    def __init__(self):
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        # Nobody waits for what hangs here.
        self.scene = pci_scene.Scene(pathlib.Path(self.folder.name), SPEC, seconds=0)
        self.is_open = False

    def state(self):
        """The bus as its kernel knows it."""
        return pci_state.open_file(self.scene.directory).read()

    def changes(self, address, change, expected):
        """Done wholly, or refused and nothing done, or held up and found so."""
        # What hung and hangs no more is done with this look.
        self.scene.bus.hanging(address)
        before = self.scene.bus.scan()
        try:
            change()
        except pci_kernel.Hung:
            assert self.scene.bus.hanging(address)
        except pci_kernel.Refused:
            assert self.scene.bus.scan() == before
        else:
            assert expected(self.scene.bus.function(address))

    @rule(driver=DRIVERS)
    def load(self, driver):
        assert self.scene.bus.load(driver) == driver

    @rule(address=ADDRESSES, driver=st.none() | DRIVERS)
    def allow(self, address, driver):
        self.changes(
            address,
            lambda: self.scene.bus.allow(address, driver),
            lambda _: self.scene.override(address) == driver,
        )

    @rule(address=ADDRESSES)
    def unbind(self, address):
        self.changes(
            address,
            lambda: self.scene.bus.unbind(address),
            lambda found: not found or not found.driver,
        )

    @rule(address=ADDRESSES, driver=DRIVERS)
    def bind(self, address, driver):
        self.changes(
            address,
            lambda: self.scene.bus.bind(address, driver),
            lambda found: found.driver == driver,
        )

    @rule(address=st.sampled_from(GPUS), driver=st.sampled_from(("vfio-pci", "nvidia")))
    def hand_over(self, address, driver):
        def change():
            self.scene.bus.load(driver)
            self.scene.bus.unbind(address)
            self.scene.bus.allow(address, driver)
            self.scene.bus.bind(address, driver)

        try:
            change()
        except pci_kernel.Hung:
            assert self.scene.bus.hanging(address)
        except pci_kernel.Refused:
            pass
        else:
            assert self.scene.bus.function(address).driver == driver

    @precondition(lambda self: not self.is_open)
    @rule()
    def open_nvml(self):
        self.scene.library.nvmlInitWithFlags(self.scene.library.NVML_INIT_FLAG_NO_GPUS)
        self.is_open = True

    @precondition(lambda self: self.is_open)
    @rule()
    def close_nvml(self):
        self.scene.library.nvmlShutdown()
        self.is_open = False

    @rule(address=st.sampled_from(GPUS), on=st.booleans())
    def keep(self, address, on):
        self.scene.edit(address, persistence_mode=on)

    @rule(
        action=st.sampled_from(("override", "unbind", "bind")),
        address=st.none() | ADDRESSES,
        code=st.sampled_from((errno.EIO, errno.ENODEV, errno.EBUSY)),
    )
    def fail(self, action, address, code):
        faults.fail(self.scene.directory, action, code, address=address, times=1)

    @rule(action=st.sampled_from(("unbind", "bind")), address=ADDRESSES)
    def hang(self, action, address):
        faults.hang(self.scene.directory, action, address=address)

    @rule()
    def works_again(self):
        faults.clear(self.scene.directory)

    @rule(address=ADDRESSES)
    def pull(self, address):
        if self.state().find(address):
            changing.pull(self.scene.directory, address)
        else:
            changing.put_back(self.scene.directory, address)

    @rule()
    def restart(self):
        before = self.scene.bus.scan()
        library = self.scene.library
        self.scene.install(SPEC)
        self.scene.library = library
        assert self.scene.bus.scan() == before

    @precondition(lambda self: not self.is_open)
    @rule()
    def reboot(self):
        gpu_operations.reboot(self.scene.directory)
        assert {one.driver for one in self.scene.bus.scan().functions.values()} == {
            "nvidia",
            "snd_hda_intel",
        }
        assert not self.scene.bus.hanging(H100)

    @invariant()
    def a_function_has_one_driver_at_most_and_all_agree_on_it(self):
        found = self.scene.bus.scan().functions
        for address in (*GPUS, SOUND):
            known = self.state().find(address)
            if known is None:
                assert self.scene.bus.function(address) is None
                assert self.scene.links(address) == set()
                continue
            driver, is_at_work = self.told(address)
            assert self.scene.links(address) == ({driver} - {None})
            assert self.scene.bus.function(address).driver == driver
            assert is_at_work or self.scene.override(address) == known.override
            assert address not in found or found[address].driver == driver

    def told(self, address):
        """The driver that `/sys` tells of, and whether the kernel is at work on it.

        Links go before a driver lets go, and come before it has the function.
        """
        state = self.state()
        pending = state.waiting(address)
        if pending is None:
            return state.find(address).driver, False
        return (pending.driver if pending.action == "bind" else None), True

    @invariant()
    def nvml_tells_of_what_the_driver_has_and_does_not_give_up(self):
        leaving = {one.address for one in self.state().pending if one.action == "unbind"}
        served = {
            address
            for address in GPUS
            if (one := self.state().find(address)) and one.driver == "nvidia"
        }
        assert self.scene.library.present() == served - leaving

    @invariant()
    def the_nodes_are_those_of_what_vfio_has(self):
        passed = [one for one in self.state().present if pci_state.is_vfio(one.driver)]
        names = {f"vfio/devices/{self.scene.bus.function(one.address).cdev}" for one in passed}
        assert len(names) == len(passed)
        groups = {f"vfio/{one.group}" for one in passed}
        assert self.scene.devices == {"iommu", "vfio/vfio"} | names | groups

    def teardown(self):
        # What was written bit by bit is what is written at once.
        identity = self.scene.sys.stat().st_ino
        self.scene.library.write_sysfs()
        assert self.scene.sys.stat().st_ino == identity
        if self.is_open:
            self.scene.library.nvmlShutdown()
        self.folder.cleanup()


def test_any_history():
    run_state_machine_as_test(
        Histories,
        settings=settings(max_examples=effort.examples(60), stateful_step_count=25, deadline=None),
    )
