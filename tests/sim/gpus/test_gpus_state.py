import re

import effort
import hypothesis
import pytest
from hypothesis import strategies

from dra_driver import errors
from dra_driver.adapters.system import sysfs
from dra_driver.sim.gpus import gpu_models, gpu_state, gpu_sysfs, gpus

MODELS = (
    "a100-40gb-sxm4",
    "a100-80gb-sxm4",
    "h100-80gb-hbm3",
    "h200-141gb",
    "l4",
    "t4",
    "v100-16gb-sxm2",
)


def read(directory):
    return gpu_state.open_file(directory).read()


def install(directory, spec, node="node-a"):
    gpu_state.install(directory, gpu_state.parse_spec(spec), node=node)
    return read(directory).gpus


def test_all_models_are_there():
    assert gpu_models.names() == MODELS
    assert [gpu_models.load(name).name for name in MODELS] == list(MODELS)


@pytest.mark.parametrize(
    ("spec", "models"),
    [
        ("t4:1", ("t4",)),
        ("h100-80gb-hbm3:2,t4:1", ("h100-80gb-hbm3", "h100-80gb-hbm3", "t4")),
        (" t4:1 , l4:1 ", ("t4", "l4")),
        ("t4:1,l4:1,t4:1", ("t4", "l4", "t4")),
        ("a100-40gb-sxm4:2:mig,t4:1", ("a100-40gb-sxm4:mig", "a100-40gb-sxm4:mig", "t4")),
        ("none", ()),
    ],
)
def test_a_spec_lists_models_and_counts(spec, models):
    assert gpu_state.parse_spec(spec) == models


def test_a_node_can_have_64_gpus():
    assert gpu_state.parse_spec("t4:64") == ("t4",) * 64


@pytest.mark.parametrize("spec", ["", "t4", "t4:", "t4:0", "t4:65", "t4:-1", "t4:x", "t4:1,", ":1"])
def test_a_spec_that_is_none_is_refused_with_an_example(spec):
    with pytest.raises(errors.Rejected) as caught:
        gpu_state.parse_spec(spec)

    assert "h100-80gb-hbm3:8,t4:1" in str(caught.value)
    assert ", ".join(MODELS) in str(caught.value)


def test_a_model_that_is_not_known_is_refused_with_those_that_are():
    with pytest.raises(errors.Rejected) as caught:
        gpu_state.parse_spec("t4:1,h300:2")

    assert str(caught.value) == f"GPU model 'h300' is not known; known are: {', '.join(MODELS)}"


def test_mig_mode_may_be_on_from_the_start_and_the_card_is_the_same(tmp_path):
    [on] = install(tmp_path / "on", "a100-40gb-sxm4:1:mig")
    [off] = install(tmp_path / "off", "a100-40gb-sxm4:1")
    assert (on.mig_enabled, on.mig_pending) == (True, True)
    assert (off.mig_enabled, off.mig_pending) == (False, False)
    assert (on.uuid, on.model) == (off.uuid, off.model)


def test_mig_mode_of_a_card_that_has_none_is_refused():
    with pytest.raises(errors.Rejected, match="'t4:1:mig': t4 has no MIG; write it without :mig"):
        gpu_state.parse_spec("t4:1:mig")


def test_more_gpus_than_a_node_holds_are_refused():
    with pytest.raises(errors.Rejected, match="65 GPUs in one node, at most 64"):
        gpu_state.parse_spec("t4:64,l4:1")


def test_gpus_have_identities_of_their_own(tmp_path):
    found = install(tmp_path, "t4:32,l4:32")

    assert [gpu.minor for gpu in found] == list(range(64))
    for identities in (
        {gpu.uuid for gpu in found},
        {gpu.serial for gpu in found},
        {gpu.pci_address for gpu in found},
    ):
        assert len(identities) == 64
    for gpu in found:
        assert re.fullmatch(r"GPU-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", gpu.uuid)
        assert re.fullmatch(r"0000:[0-9a-f]{2}:00\.0", gpu.pci_address)


def test_the_same_node_has_the_same_gpus_wherever_it_is_built(tmp_path):
    first, second, other = (tmp_path / name for name in ("first", "second", "other"))

    assert install(first, "t4:4") == install(second, "t4:4")
    uuids = {gpu.uuid for gpu in install(first, "t4:4")}
    assert uuids.isdisjoint(gpu.uuid for gpu in install(other, "t4:4", node="node-b"))


def test_the_identity_does_not_change_between_versions(tmp_path):
    assert install(tmp_path, "t4:1")[0].uuid == "GPU-afb73edd-c01c-5150-a9b9-d4c813af4f57"


def test_cards_that_stay_keep_their_state_and_new_ones_are_fresh(tmp_path):
    before = install(tmp_path, "h100-80gb-hbm3:2,t4:1")
    with gpu_state.open_file(tmp_path).edit() as state:
        for gpu in state.gpus:
            gpu.compute_mode = 3

    after = install(tmp_path, "h100-80gb-hbm3:1,l4:1,t4:1,t4:1")

    assert [(gpu.model, gpu.compute_mode) for gpu in after] == [
        ("h100-80gb-hbm3", 3),
        ("l4", 0),
        ("t4", 3),
        ("t4", 0),
    ]
    assert [gpu.minor for gpu in after] == [0, 1, 2, 3]
    assert (after[0].uuid, after[2].uuid) == (before[0].uuid, before[2].uuid)


def test_cards_do_not_move_to_another_node(tmp_path):
    install(tmp_path, "t4:1")
    with gpu_state.open_file(tmp_path).edit() as state:
        state.gpus[0].compute_mode = 3

    (gpu,) = install(tmp_path, "t4:1", node="node-b")

    assert gpu.compute_mode == 0
    assert read(tmp_path).node == "node-b"


def test_the_same_hardware_is_not_written_again(tmp_path):
    install(tmp_path, "t4:2")
    before = (tmp_path / "gpus.json").stat()

    install(tmp_path, "t4:2")

    after = (tmp_path / "gpus.json").stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_gpu_instances_find_room_in_the_state(tmp_path):
    install(tmp_path, "h100-80gb-hbm3:1")
    instance = gpu_state.GpuInstance(
        id=1,
        profile_id=9,
        start=4,
        size=4,
        compute_instances=[gpu_state.ComputeInstance(id=0, profile_id=2, uuid="MIG-1")],
    )
    with gpu_state.open_file(tmp_path).edit() as state:
        state.gpus[0].gpu_instances.append(instance)

    (gpu,) = install(tmp_path, "h100-80gb-hbm3:1")

    assert gpu.gpu_instances == [instance]


def test_an_edit_that_fails_changes_nothing(tmp_path):
    install(tmp_path, "t4:1")
    file = gpu_state.open_file(tmp_path)

    with pytest.raises(ZeroDivisionError), file.edit() as state:
        state.gpus[0].compute_mode = 1 // 0

    assert file.read().gpus[0].compute_mode == 0


@hypothesis.given(count=strategies.integers(min_value=1, max_value=64))
@hypothesis.settings(max_examples=effort.examples(12), deadline=None)
def test_the_place_of_each_gpu_is_that_of_a_real_board(tmp_path_factory, count):
    directory = tmp_path_factory.mktemp("node")
    found = install(directory, f"t4:{count}")

    tree = sysfs.Sysfs(gpu_sysfs.write(directory, read(directory)))

    nodes = [tree.numa_node(gpu.pci_address) for gpu in found]
    roots = [tree.pcie_root(gpu.pci_address) for gpu in found]
    assert nodes == sorted(nodes)
    assert set(nodes) == ({0, 1} if count > 1 else {0})
    assert abs(nodes.count(0) - nodes.count(1)) <= 1
    assert all(1 <= roots.count(root) <= 2 for root in roots)
    assert len(set(roots)) <= count // 2 + 2
    assert {(root, node) for root, node in zip(roots, nodes, strict=True)} == {
        (root, nodes[roots.index(root)]) for root in roots
    }
    buses = {gpu.pci_address.split(":")[1] for gpu in found}
    assert buses.isdisjoint(root.split(":")[1] for root in roots)
    for gpu in found:
        device = directory / "sys/bus/pci/devices" / gpu.pci_address
        assert (device / "vendor").read_text() == "0x10de\n"
        assert (device / "device").read_text() == "0x1eb8\n"


def test_sysfs_follows_the_hardware(tmp_path):
    library = gpus.SimulatedNvml(tmp_path, spec="t4:4")
    library.write_sysfs()

    library = gpus.SimulatedNvml(tmp_path, spec="t4:1")
    root = library.write_sysfs()

    assert [path.name for path in (root / "bus/pci/devices").iterdir()] == ["0000:04:00.0"]
    assert sorted(path.name for path in tmp_path.iterdir() if "sys" in path.name) == ["sys"]
