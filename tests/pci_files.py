"""A `/sys` as Linux has it, made by hand: of an H200 what a machine with one told (Linux 6.18)."""

import os
import pathlib

H200 = "0000:41:00.0"
FACTS = {
    "vendor": "0x10de",
    "class": "0x030200",
    "device": "0x2335",
    "modalias": "pci:v000010DEd00002335sv000010DEsd000018BFbc03sc02i00",
    "numa_node": "-1",
    "driver_override": "(null)",
    "resource": """\
0x0000104002000000 0x0000104002ffffff 0x000000000014220c
0x0000000000000000 0x0000000000000000 0x0000000000000000
0x0000100000000000 0x0000103fffffffff 0x000000000014220c
0x0000000000000000 0x0000000000000000 0x0000000000000000
0x0000104000000000 0x0000104001ffffff 0x000000000014220c
0x0000000000000000 0x0000000000000000 0x0000000000000000
0x0000000000000000 0x0000000000000000 0x0000000000000000""",
}


class PciFiles:
    """Writes functions into a directory."""

    def __init__(self, root: pathlib.Path) -> None:
        self.sys = root / "sys"
        for name in ("bus/pci/devices", "bus/pci/drivers", "kernel/iommu_groups", "module"):
            (self.sys / name).mkdir(parents=True)

    def add(
        self, address=H200, *, driver=None, group=None, above="pci0000:40/0000:40:01.0", **facts
    ):
        """A function; its directory."""
        device = self.sys / "devices" / above / address
        device.mkdir(parents=True)
        for name, value in (FACTS | facts).items():
            if value is not None:
                (device / name).write_text(f"{value}\n")
        self.link(self.sys / "bus/pci/devices" / address, device)
        if driver is not None:
            self.link(device / "driver", self.driver(driver))
        if group is not None:
            folder = self.sys / "kernel/iommu_groups" / str(group)
            (folder / "devices").mkdir(parents=True, exist_ok=True)
            self.link(folder / "devices" / address, device)
            self.link(device / "iommu_group", folder)
        return device

    def driver(self, name):
        """The directory of a driver."""
        folder = self.sys / "bus/pci/drivers" / name
        folder.mkdir(exist_ok=True)
        for door in ("bind", "unbind"):
            (folder / door).touch()
        return folder

    def link(self, path, target):
        """A relative link, as the kernel makes them."""
        path.symlink_to(os.path.relpath(target, path.parent))
