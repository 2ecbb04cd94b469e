from dra_driver.model import devices, pci

AT = devices.PciAddress("0000:41:00.0")
GPU = pci.Function(AT, 0x10DE, 0x2330, 0x030200, "pci:v000010DEd00002330", "nvidia", group=12)
AUDIO = pci.Function(devices.PciAddress("0000:41:00.1"), 0x10DE, 0x1AEF, 0x040300, "pci:", group=12)


def test_the_uuid_is_the_peer_s_of_the_address():
    # Version 5 of RFC 9562, as every library makes it.
    assert pci.uuid_of(AT) == "c6d656ef-bc10-58ab-8b52-b6bd2b19e909"


def test_a_function_says_what_it_is():
    assert str(GPU) == "0000:41:00.0 (10de:2330, nvidia)"
    assert str(AUDIO) == "0000:41:00.1 (10de:1aef, no driver)"
    assert (GPU.is_gpu, AUDIO.is_gpu) == (True, False)
    assert GPU.slot == AUDIO.slot == "0000:41:00"


def test_a_bus_tells_its_gpus_and_who_is_in_a_group():
    bus = pci.Bus({one.address: one for one in (AUDIO, GPU)})
    assert bus.gpus == (GPU,)
    assert bus.members(12) == (GPU, AUDIO)
    assert bus.members(13) == ()


def test_what_stands_for_an_unknown_uuid_is_no_uuid_of_a_gpu():
    assert pci.is_unseen(pci.unseen_gpu(AT, 0x10DE, 0x2330))
    assert pci.unseen_gpu(AT, 0x10DE, 0x2330) != pci.unseen_gpu(AT, 0x10DE, 0x2331)
    assert not pci.is_unseen("GPU-8a9a3e42-7a3b-5f0d-8c0e-0d7d7e2ad8f5")
