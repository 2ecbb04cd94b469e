"""MPS daemons of claims: there before the claim is prepared, gone after it is given back."""

import pytest
import sharing_claims
import sharing_node

from dra_driver.model import ledgers, prepared
from dra_driver.sim.gpus import gpu_faults

pytestmark = pytest.mark.sampled(13)

GPU, PARTITION = sharing_claims.GPU, sharing_claims.PARTITION
DEFAULT, PROHIBITED, EXCLUSIVE = (
    sharing_node.DEFAULT,
    sharing_node.PROHIBITED,
    sharing_node.EXCLUSIVE,
)
LIMITED = sharing_claims.mps_gpu(
    defaultActiveThreadPercentage=30, defaultPinnedDeviceMemoryLimit="4Gi"
)
LIMITED_PARTITION = sharing_claims.mps_mig(
    defaultActiveThreadPercentage=50, defaultPinnedDeviceMemoryLimit="2Gi"
)


def test_a_prepared_claim_has_a_daemon_with_its_limits(host, users):
    ref = users.give(GPU, configs=[LIMITED])
    host.prepare(ref)
    assert host.limits(ref) == (30, 4)
    assert host.described(ref).device == host.uuid()
    assert host.gets(ref) == (30, 4)
    assert host.record(ref).phase is prepared.Phase.COMPLETED


def test_a_client_can_lower_its_limits_and_not_raise_them(host, users):
    ref = users.give(GPU, configs=[LIMITED])
    host.prepare(ref)
    assert host.gets(ref, CUDA_MPS_ACTIVE_THREAD_PERCENTAGE="100") == (30, 4)
    assert host.gets(ref, CUDA_MPS_ACTIVE_THREAD_PERCENTAGE="10") == (10, 4)
    assert host.gets(ref, CUDA_MPS_PINNED_DEVICE_MEM_LIMIT="0=16G") == (30, 4)


def test_containers_find_the_daemon_where_cuda_looks_for_it(host, users):
    ref = users.give(GPU, configs=[LIMITED])
    host.prepare(ref)
    variables, mounts = host.edits(ref)
    assert mounts["/tmp/nvidia-mps"] == host.described(ref).pipe_dir
    assert variables == {
        "CUDA_MPS_PIPE_DIRECTORY": "/tmp/nvidia-mps",
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "30",
        "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": f"{host.uuid()}=4096M",
        **{name: text for name, text in variables.items() if name.startswith("SIMULATED")},
    }


def test_containers_share_the_memory_of_a_daemon_that_has_its_own(host, users, monkeypatch):
    monkeypatch.setattr(type(host.launcher), "private_shm", True)
    ref = users.give(GPU, configs=[LIMITED])
    host.prepare(ref)
    assert host.edits(ref)[1]["/dev/shm"] == host.described(ref).shm_dir


def test_without_limits_there_are_no_variables_for_them(host, users):
    ref = users.give(GPU, configs=[sharing_claims.mps_gpu()])
    host.prepare(ref)
    variables, _ = host.edits(ref)
    assert {name for name in variables if "MPS" in name} == {"CUDA_MPS_PIPE_DIRECTORY"}
    assert host.gets(ref) == (100, None)


def test_the_memory_of_a_claim_is_divided_by_the_clients_that_it_runs(host, users):
    config = sharing_claims.mps_gpu(defaultPinnedDeviceMemoryLimit="12Gi", maxClients=3)
    ref = users.give(GPU, configs=[config])
    host.prepare(ref)
    assert host.gets(ref) == (100, 4)


@pytest.mark.parametrize("before", [DEFAULT, PROHIBITED, EXCLUSIVE])
def test_the_gpu_is_for_the_daemon_alone_meanwhile_and_what_it_was_afterwards(host, users, before):
    host.set_card(compute_mode=before)
    ref = users.give(GPU, configs=[LIMITED])
    host.prepare(ref)
    assert (host.card(0).compute_mode, host.card(1).compute_mode) == (EXCLUSIVE, DEFAULT)
    host.unprepare(ref)
    assert host.card().compute_mode == before
    host.set_card(compute_mode=DEFAULT)
    assert host.is_clean()


def test_nothing_of_a_daemon_is_left_after_the_unprepare(host, users):
    ref = users.give(GPU, configs=[LIMITED])
    host.prepare(ref)
    client = host.connect(ref)
    assert host.files() == [
        f"cdi/gpu.nvidia.com_metadata_{ref.uid}_r0.json",
        f"cdi/k8s.gpu.nvidia.com-claim_{ref.uid}.json",
        f"claims/{ref.uid}.json",
        f"dra-device-metadata/default_{ref.name}",
        f"gpus/{host.uuid()}.{ledgers.tag('boot-1')}.compute-mode-0.json",
        f"mps/{host.daemons()[0]}",
    ]
    host.unprepare(ref)
    assert client.wait_unusable(60)
    client.close()
    assert host.is_clean()


def test_a_claim_prepared_twice_has_the_same_daemon(host, users):
    ref = users.give(GPU, configs=[LIMITED])
    first = host.prepare(ref)
    process = host.daemon(ref)
    assert host.prepare(ref) == first
    assert host.daemon(ref) == process


def test_daemons_of_two_claims_are_apart(host, users):
    one = users.give(GPU, configs=[LIMITED])
    other = users.give(sharing_claims.OTHER_GPU, configs=[sharing_claims.mps_gpu()])
    host.prepare(one)
    host.prepare(other)
    assert host.daemon(one) != host.daemon(other)
    assert (host.described(one).device, host.described(other).device) == (
        host.uuid(0),
        host.uuid(1),
    )
    host.unprepare(one)
    assert host.gets(other) == (100, None)
    assert (host.card(0).compute_mode, host.card(1).compute_mode) == (DEFAULT, EXCLUSIVE)


def test_each_device_of_a_config_is_seen_by_the_daemon(host, users):
    ref = users.give(GPU, sharing_claims.OTHER_GPU, configs=[LIMITED])
    host.prepare(ref)
    assert set(host.described(ref).devices) == {host.uuid(0), host.uuid(1)}
    assert {host.card(number).compute_mode for number in (0, 1)} == {EXCLUSIVE}
    host.unprepare(ref)
    assert host.is_clean()


def test_each_device_of_a_config_leads_containers_to_the_daemon_with_all_limits(host, users):
    ref = users.give(GPU, sharing_claims.OTHER_GPU, configs=[LIMITED])
    host.prepare(ref)
    for key in (GPU, sharing_claims.OTHER_GPU):
        assert host.gets(ref, key) == (30, 4)
        variables, _ = host.edits(ref, key)
        # One for CUDA would take the limit away from a program that hides a card.
        assert "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT" not in variables
        assert variables["DRA_DRIVER_MPS_MEMORY_LIMIT"] == "4096M"


def test_the_limit_of_one_device_is_not_forgotten(host, users):
    config = sharing_claims.mps_gpu(defaultPerDevicePinnedMemoryLimit={"0": "3Gi"})
    ref = users.give(GPU, configs=[config])
    host.prepare(ref)
    assert host.gets(ref) == (100, 3)


def test_in_a_partition_of_the_same_claim_the_daemon_serves_the_instance(host, users):
    ref = users.give(PARTITION, configs=[LIMITED_PARTITION])
    host.prepare(ref)
    [instance] = host.mig_uuids()
    assert host.described(ref).device == instance
    assert host.limits(ref) == (50, 2)
    assert host.gets(ref) == (50, 2)
    assert host.card().compute_mode == DEFAULT
    host.unprepare(ref)
    assert host.is_clean()


def test_in_a_partition_the_instance_comes_first_and_goes_last(host, users, monkeypatch):
    order = []
    note(monkeypatch, order, host.nvml, "create_compute", "destroy_compute", "destroy", "set_mode")
    note(monkeypatch, order, host.launcher, "start", "retire", "remove")
    ref = users.give(PARTITION, configs=[LIMITED_PARTITION])
    host.prepare(ref)
    # An attempt that has to wait for the daemon is repeated from its start.
    assert list(dict.fromkeys(order)) == ["set_mode", "create_compute", "start"]
    order.clear()
    host.unprepare(ref)
    assert list(dict.fromkeys(order)) == [
        *("retire", "remove", "destroy_compute", "destroy", "set_mode")
    ]


def test_a_whole_gpu_is_exclusive_before_its_daemon_starts_and_until_it_has_ended(
    host, users, monkeypatch
):
    order = []
    note(monkeypatch, order, host.modes, "set")
    note(monkeypatch, order, host.launcher, "start", "retire", "remove")
    ref = users.give(GPU, configs=[LIMITED])
    host.prepare(ref)
    assert list(dict.fromkeys(order)) == ["set", "start"]
    order.clear()
    host.unprepare(ref)
    assert list(dict.fromkeys(order)) == ["retire", "remove", "set"]


def test_a_gpu_that_falls_off_the_bus_does_not_hold_up_the_unprepare(host, users):
    ref = users.give(GPU, configs=[LIMITED])
    host.prepare(ref)
    gpu_faults.remove(host.simulation, host.uuid())
    host.unprepare(ref)
    assert host.files() == []
    assert host.runs_nothing()


def test_a_claim_allocated_anew_leaves_nothing_of_its_first_daemon(host, users):
    ref = users.give(GPU, configs=[LIMITED])
    host.prepare(ref)
    first = host.daemon(ref)
    users.give_anew(ref, sharing_claims.OTHER_GPU, configs=[LIMITED])
    host.prepare(ref)
    assert host.daemon(ref) != first
    assert host.described(ref).device == host.uuid(1)
    assert len(host.daemons()) == 1
    assert (host.card(0).compute_mode, host.card(1).compute_mode) == (DEFAULT, EXCLUSIVE)
    host.unprepare(ref)
    assert host.is_clean()


def test_a_partition_that_a_reset_took_is_made_again_with_a_daemon_on_the_new_one(host, users):
    ref = users.give(PARTITION, configs=[LIMITED_PARTITION])
    host.prepare(ref)
    before = host.mig_uuids()
    host.destroy(host.card().gpu_instances[0].id)
    host.prepare(ref)
    [instance] = host.mig_uuids()
    assert instance not in before
    assert host.described(ref).device == instance
    assert host.gets(ref) == (50, 2)


def note(monkeypatch, order, target, *names):
    for name in names:
        original = getattr(target, name)

        def call(*arguments, name=name, original=original):
            order.append(name)
            return original(*arguments)

        monkeypatch.setattr(target, name, call, raising=False)


@pytest.mark.parametrize("gpus", ["t4:2", "a100-40gb-sxm4:2"])
def test_cards_that_cannot_be_cut_at_run_time_have_daemons_too(new_host, users, gpus):
    """Their compute mode is remembered before the daemon is waited for, and MIG is no matter."""
    host = new_host(gpus)
    ref = users.give(GPU, configs=[LIMITED])
    host.prepare(ref)
    assert host.gets(ref) == (30, 4)
    assert host.mode() == EXCLUSIVE
    host.unprepare(ref)
    assert host.is_clean()
