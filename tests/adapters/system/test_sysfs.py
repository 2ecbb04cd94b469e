import pytest

from dra_driver.adapters.system import sysfs
from dra_driver.model import devices
from dra_driver.sim.gpus import gpus

ADDRESS = devices.PciAddress("0000:3b:00.0")


@pytest.fixture
def device(tmp_path):
    """The directory of a device behind two bridges, as the kernel lays it out."""
    path = tmp_path / "devices" / "pci0000:3a" / "0000:3a:00.0" / "0000:3b:00.0"
    path.mkdir(parents=True)
    links = tmp_path / "bus" / "pci" / "devices"
    links.mkdir(parents=True)
    (links / ADDRESS).symlink_to("../../../devices/pci0000:3a/0000:3a:00.0/0000:3b:00.0")
    return path


def test_the_pcie_root_is_the_first_element_of_the_path(device, tmp_path):
    assert sysfs.Sysfs(tmp_path).pcie_root(ADDRESS) == "pci0000:3a"


def test_a_device_of_another_bridge_driver_has_its_root_further_down(tmp_path):
    links = tmp_path / "bus" / "pci" / "devices"
    links.mkdir(parents=True)
    (links / ADDRESS).symlink_to("../../../devices/LNXSYSTM:00/pci10000:00/0000:3b:00.0")

    assert sysfs.Sysfs(tmp_path).pcie_root(ADDRESS) == "pci10000:00"


def test_without_sysfs_nothing_is_known(tmp_path):
    tree = sysfs.Sysfs(tmp_path)

    assert tree.pcie_root(ADDRESS) is None
    assert tree.numa_node(ADDRESS) is None


def test_a_path_without_a_root_bus_has_no_pcie_root(tmp_path):
    links = tmp_path / "bus" / "pci" / "devices"
    links.mkdir(parents=True)
    (links / ADDRESS).symlink_to("../../../devices/platform/0000:3b:00.0")

    assert sysfs.Sysfs(tmp_path).pcie_root(ADDRESS) is None


@pytest.mark.parametrize(
    ("content", "node"), [("0\n", 0), ("3\n", 3), ("-1\n", None), ("", None), ("none\n", None)]
)
def test_the_numa_node_is_known_if_it_is_a_node(device, tmp_path, content, node):
    (device / "numa_node").write_text(content)

    assert sysfs.Sysfs(tmp_path).numa_node(ADDRESS) == node


def numa(root, distances, sockets):
    """Nodes with these rows of distances, whose CPU is on that socket; None: it has no CPU."""
    for node, (row, socket) in enumerate(zip(distances, sockets, strict=True)):
        path = root / "devices" / "system" / "node" / f"node{node}"
        path.mkdir(parents=True)
        (path / "distance").write_text(row + "\n")
        if socket is not None:
            topology = path / f"cpu{node}" / "topology"
            topology.mkdir(parents=True)
            (topology / "physical_package_id").write_text(f"{socket}\n")
    (root / "devices" / "system" / "node" / "possible").write_text("0-3\n")


NPS2 = ("10 12 32 32", "12 10 32 32", "32 32 10 12", "32 32 12 10")
SNC3 = ("10 11 13 40", "11 10 11 40", "13 11 10 40", "40 40 40 10")


@pytest.mark.parametrize(
    ("distances", "sockets", "node", "near"),
    [
        (NPS2, (0, 0, 1, 1), 2, (3,)),
        (SNC3, (0, 0, 0, 1), 1, (0, 2)),
        # The farthest of three is left out.
        (SNC3, (0, 0, 0, 1), 0, (1,)),
        # One node for a socket.
        (("10 21", "21 10"), (0, 1), 0, ()),
        # Memory without CPUs is on no socket, however near.
        (("10 14 21", "14 10 28", "21 28 10"), (0, None, 1), 0, ()),
        # A table that is not that of these nodes tells nothing.
        (("10 12 32", *NPS2[1:]), (0, 0, 1, 1), 0, ()),
        (NPS2, (0, 0, 1, 1), 7, ()),
        # A machine that does not tell sockets apart.
        (NPS2, (-1, -1, -1, -1), 0, ()),
    ],
)
def test_nodes_of_the_same_socket_are_near_by_the_kernel_s_distances(
    tmp_path, distances, sockets, node, near
):
    numa(tmp_path, distances, sockets)
    assert sysfs.Sysfs(tmp_path).nearest(node) == near


def test_a_gpu_knows_the_nodes_near_its_own(device, tmp_path):
    (device / "numa_node").write_text("3\n")
    numa(tmp_path, NPS2, (0, 0, 1, 1))
    gpu = devices.Gpu(0, 0, devices.GpuUuid("GPU-0"), "Tesla T4", ADDRESS)
    located = sysfs.Sysfs(tmp_path).located(gpu)
    assert (located.numa_node, located.numa_near) == (3, (2,))


def test_a_gpu_is_located(device, tmp_path):
    (device / "numa_node").write_text("1\n")
    gpu = devices.Gpu(
        index=0,
        minor=0,
        uuid=devices.GpuUuid("GPU-0"),
        product_name="Tesla T4",
        pci_address=ADDRESS,
        brand="Nvidia",
    )

    located = sysfs.Sysfs(tmp_path).located(gpu)

    assert (located.pcie_root, located.numa_node) == ("pci0000:3a", 1)
    assert (located.uuid, located.brand) == ("GPU-0", "Nvidia")


def test_simulated_gpus_have_a_place(tmp_path):
    machine = gpus.SimulatedNvml(tmp_path, spec="h100-80gb-hbm3:8")

    tree = sysfs.Sysfs(machine.write_sysfs())

    machine.nvmlInit()
    addresses = [
        machine.nvmlDeviceGetPciInfo(machine.nvmlDeviceGetHandleByIndex(index)).busId.lower()[4:]
        for index in range(8)
    ]
    assert [tree.numa_node(address) for address in addresses] == [0, 0, 0, 0, 1, 1, 1, 1]
    roots = [tree.pcie_root(address) for address in addresses]
    assert roots[0::2] == roots[1::2]
    assert len(set(roots)) == 4
    assert None not in roots
