"""Who is on the devices of a claim that nobody gives back."""

import threading

import mig_node
import pytest

from dra_driver import errors
from dra_driver.apps.upkeep import device_users, reconciling
from dra_driver.sim.gpus import gpu_operations

GRACE = 60.0
FIRST, SECOND = mig_node.FIRST, mig_node.SECOND


def users_of(node, ref, *others):
    return node.users.of_claim(node.record(ref), [node.record(other) for other in others])


def test_a_device_that_no_process_is_on_has_no_users(node, api):
    ref = api.make("gpu-0", FIRST.replace("gpu-0", "gpu-1"))
    node.prepare(ref)
    assert users_of(node, ref) is None


def test_a_process_on_a_whole_gpu_is_named(node, api):
    ref, other = api.make("gpu-0"), api.make("gpu-1")
    for each in (ref, other):
        node.prepare(each)
    node.occupy(4711)
    assert users_of(node, ref) == "trainer (pid 4711)"
    assert users_of(node, other) is None
    node.end(4711)
    assert users_of(node, ref) is None


def test_a_process_in_a_partition_is_that_of_its_claim(node, api):
    first, second = api.make(FIRST), api.make(SECOND)
    node.prepare(second)
    node.use(4711)
    node.prepare(first)
    assert users_of(node, second) == "trainer (pid 4711)"
    assert users_of(node, first) is None


def test_a_server_of_mps_is_no_user_and_its_clients_are(node, api):
    ref = api.make("gpu-0")
    node.prepare(ref)
    # As the kernel cuts the name short.
    node.occupy(4711, command="nvidia-cuda-mps")
    assert users_of(node, ref) is None
    node.occupy(4712, command="python3")
    assert users_of(node, ref) == "python3 (pid 4712)"


def test_who_only_looks_at_a_device_does_not_use_it(node, api):
    ref = api.make("gpu-0", admin=True)
    node.prepare(ref)
    node.occupy(4711)
    assert users_of(node, ref) is None


def test_a_share_has_no_users_while_others_have_one_of_the_same_device(shared_host, users):
    first, second = users.share(memory=10, cores=20), users.share(memory=10, cores=20)
    for ref in (first, second):
        shared_host.prepare(ref)
    gpu_operations.start_process(shared_host.simulation, shared_host.uuid(), 4711)
    assert users_of(shared_host, first, second) is None
    assert users_of(shared_host, first) == "pid 4711"


def test_a_gpu_that_is_gone_has_no_users(node, api, lose):
    ref = api.make("gpu-1", FIRST)
    node.prepare(ref)
    lose(1)
    assert users_of(node, ref) is None
    node.gpus.look()
    assert users_of(node, ref) is None


def test_a_device_that_was_never_seen_may_be_in_use(node, new_node, api, lose):
    ref = api.make("gpu-1")
    node.prepare(ref)
    lose(1)
    again = new_node()
    with pytest.raises(errors.Retryable, match="'gpu-1': it was not seen since the driver started"):
        users_of(again, ref)


@pytest.mark.parametrize("error", [3, 4, 9, 10, 18, 999])
def test_an_error_of_nvml_is_no_answer(node, api, faults, error):
    ref = api.make("gpu-0")
    node.prepare(ref)
    faults(error=error, function="nvmlDeviceGetComputeRunningProcesses")
    with pytest.raises(errors.DriverError, match="listing its processes"):
        users_of(node, ref)


def test_nvml_that_hangs_is_waited_for_once(node, api, monkeypatch):
    monkeypatch.setattr(device_users, "SECONDS", 0.05)
    ref = api.make("gpu-0")
    node.prepare(ref)
    asked, go_on = [], threading.Event()
    usual = node.nvml.users

    def hanging(gpu, **options):
        asked.append(gpu)
        go_on.wait(60)
        return usual(gpu, **options)

    monkeypatch.setattr(node.nvml, "users", hanging)
    for _ in range(3):
        with pytest.raises(errors.Retryable, match="NVML does not come back"):
            users_of(node, ref)
    assert len(asked) == 1
    go_on.set()
    node.users._asking.join(60)
    monkeypatch.setattr(device_users, "SECONDS", 60.0)
    assert users_of(node, ref) is None


def test_devices_are_looked_up_by_their_uuids(node, api):
    ref = api.make(FIRST)
    node.prepare(ref)
    node.use(4711)
    node.gpus.look()
    [mig_uuid] = node.mig_uuids()
    assert node.users.of_devices([mig_uuid]) == "trainer (pid 4711)"
    assert node.users.of_devices([node.uuid(1), "MIG-gone", "GPU-gone"]) is None


def test_a_forgotten_claim_keeps_its_gpu_until_its_process_has_ended(node, api):
    """A pod was deleted by force, and its process hangs on the GPU."""
    time = [1000.0]
    reconciler = reconciling.Reconciler(
        node.identity,
        node.store.records,
        api,
        node.sweep,
        node.orphans,
        node.users,
        boot_id="boot-1",
        pace=reconciling.Pace(600, GRACE, lambda: time[0]),
    )
    ref, partition = api.make("gpu-1"), api.make(FIRST)
    for each in (ref, partition):
        node.prepare(each)
    node.occupy(4711, 1)
    node.use(4712)
    kept = node.files()
    for each in (ref, partition):
        api.delete(each)
    for _ in range(4):
        reconciler.look()
        time[0] += GRACE
    assert node.files() == kept
    assert reconciler.kept == 2
    rival = api.make("gpu-1")
    with pytest.raises(errors.Retryable, match="still prepared for"):
        node.prepare(rival, seconds=0.0)
    node.end(4711, 1)
    reconciler.look()
    assert node.record(ref) is None
    assert reconciler.kept == 1
    node.end(4712)
    reconciler.look()
    assert node.is_clean()
