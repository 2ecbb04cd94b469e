import dataclasses

from dra_driver.logic.passthrough import leftovers
from dra_driver.model import bindings, devices, pci

AT, AUDIO_AT, NET_AT = (
    devices.PciAddress(text) for text in ("0000:41:00.0", "0000:41:00.1", "0000:41:00.2")
)
GPU = pci.Function(AT, 0x10DE, 0x2330, 0x030200, "", "vfio-pci", group=12)
AUDIO = dataclasses.replace(GPU, address=AUDIO_AT, kind=0x040300)
USB = dataclasses.replace(GPU, address=NET_AT, kind=0x0C0330, driver="xhci_hcd")


def test_of_a_card_that_no_record_tells_of_all_goes_back_that_vfio_has():
    bus = pci.Bus({one.address: one for one in (GPU, AUDIO, USB)})
    found = leftovers.binding(bus, "GPU-1", AT, "gpu-vfio-0")
    assert found == bindings.Binding(
        device="gpu-vfio-0",
        gpu="GPU-1",
        address=AT,
        group=12,
        functions=(
            bindings.Function(address=AT, driver="nvidia"),
            bindings.Function(address=AUDIO_AT),
        ),
    )


def test_of_a_card_that_is_gone_there_is_still_something_to_forget():
    found = leftovers.binding(pci.Bus(), "GPU-1", AT, None)
    assert (found.device, found.functions[0].driver) == ("", "nvidia")
