"""NVML, nvidia-smi and files that fail while a claim's sharing is set up or taken down."""

import pathlib

import pytest
import sharing_claims
import sharing_node

from dra_driver import errors
from dra_driver.adapters.disk import files
from dra_driver.adapters.mps import mps_domain
from dra_driver.apps.preparing import preparing
from dra_driver.model import mps, prepared
from dra_driver.sim.gpus import gpu_faults

pytestmark = pytest.mark.sampled(9)

GPU, PARTITION = sharing_claims.GPU, sharing_claims.PARTITION
UNKNOWN, NO_PERMISSION = 999, 4
LIMITED = sharing_claims.mps_gpu(
    defaultActiveThreadPercentage=30, defaultPinnedDeviceMemoryLimit="4Gi"
)
LIMITED_PARTITION = sharing_claims.mps_mig(defaultActiveThreadPercentage=50)
LONG = sharing_claims.time_slicing("Long")


@pytest.fixture
def faults(host):
    """Lets calls of NVML fail."""
    return lambda **fields: gpu_faults.inject(host.simulation, **fields)


def break_smi(host, script):
    """Put a script before the stand-in for nvidia-smi, `$real`."""
    path = host.root / "nvidia-smi"
    real = path.with_name("real-smi")
    real.write_text(path.read_text(encoding="utf-8"), encoding="utf-8")
    real.chmod(0o755)
    path.write_text(f'#!/bin/sh\nreal="{real}"\n{script}\n', encoding="utf-8")
    return real


def repair_smi(host):
    path = host.root / "nvidia-smi"
    path.write_text(path.with_name("real-smi").read_text(encoding="utf-8"), encoding="utf-8")


SETTING_FAILS = (
    'case "$*" in *--set-timeslice*)\n'
    'echo "Failed to set timeslice : {text}"; exit {status};; esac\nexec "$real" "$@"'
)


def test_a_compute_mode_that_is_not_set_at_first_is_tried_again_inside_the_call(
    host, users, faults
):
    faults(error=UNKNOWN, function="nvmlDeviceSetComputeMode", times=2)
    ref = users.give(GPU, configs=[LIMITED])
    host.prepare(ref)
    assert host.card().compute_mode == sharing_node.EXCLUSIVE
    assert host.gets(ref) == (30, 4)


def test_a_compute_mode_that_may_not_be_set_says_what_to_do_and_leaves_nothing(host, users, faults):
    faults(error=NO_PERMISSION, function="nvmlDeviceSetComputeMode")
    with pytest.raises(errors.Rejected, match="run the plugin as root"):
        host.prepare(users.give(GPU, configs=[LIMITED]))
    assert host.is_clean()


@pytest.mark.parametrize("function", ["nvmlDeviceGetComputeMode", "nvmlDeviceSetComputeMode"])
def test_a_compute_mode_that_cannot_be_had_in_time_leaves_nothing(host, users, faults, function):
    faults(error=UNKNOWN, function=function)
    with pytest.raises(errors.Retryable, match=host.uuid()):
        host.prepare(users.give(GPU, configs=[LIMITED]), seconds=0.1)
    gpu_faults.clear(host.simulation)
    assert host.is_clean()


def test_a_second_card_whose_mode_cannot_be_set_gives_the_first_back(host, users, faults):
    host.set_card(0, compute_mode=sharing_node.PROHIBITED)
    faults(error=NO_PERMISSION, function="nvmlDeviceSetComputeMode", uuid=host.uuid(1))
    with pytest.raises(errors.Rejected):
        host.prepare(users.give(GPU, sharing_claims.OTHER_GPU, configs=[LIMITED]))
    assert (host.card(0).compute_mode, host.card(1).compute_mode) == (sharing_node.PROHIBITED, 0)
    assert host.files() == []


def test_a_time_slice_that_is_not_set_at_first_is_tried_again_inside_the_call(host, users):
    mark = host.root / "failed"
    break_smi(
        host, f'test -e {mark} || {{ touch {mark}; echo "Unknown Error"; exit 231; }}\n'
        'exec "$real" "$@"'
    )  # fmt: skip
    ref = users.give(GPU, configs=[LONG])
    host.prepare(ref)
    assert mark.exists()
    assert host.card().time_slice == sharing_node.LONG


def test_a_time_slice_that_may_not_be_set_says_what_to_do_and_leaves_nothing(host, users):
    break_smi(host, SETTING_FAILS.format(text="Insufficient Permissions", status=4))
    with pytest.raises(errors.Rejected, match="run the plugin as root"):
        host.prepare(users.give(GPU, configs=[LONG]))
    repair_smi(host)
    assert host.files() == []
    assert host.is_clean()


def test_a_second_card_whose_time_slice_cannot_be_set_gives_the_first_back(host, users):
    host.set_card(0, time_slice=sharing_node.SHORT)
    host.set_card(1, time_slice_supported=False)
    with pytest.raises(errors.Rejected, match="gpu-1"):
        host.prepare(users.give(GPU, sharing_claims.OTHER_GPU, configs=[LONG]))
    assert host.card(0).time_slice == sharing_node.SHORT
    assert host.files() == []


def test_without_nvidia_smi_the_claim_waits_and_leaves_nothing(host, users):
    (host.root / "nvidia-smi").unlink()
    with pytest.raises(errors.Retryable, match="nvidia-smi cannot be run"):
        host.prepare(users.give(GPU, configs=[LONG]), seconds=0.1)
    assert host.is_clean()


def test_a_time_slice_that_cannot_be_put_back_is_put_back_by_the_next_unprepare(host, users):
    host.set_card(time_slice=sharing_node.SHORT)
    ref = users.give(GPU, configs=[LONG])
    host.prepare(ref)
    break_smi(host, SETTING_FAILS.format(text="Unknown Error", status=231))
    with pytest.raises(errors.Retryable):
        host.unprepare(ref, seconds=0.1)
    assert host.record(ref) is not None
    repair_smi(host)
    host.unprepare(ref)
    assert host.card().time_slice == sharing_node.SHORT
    assert host.files() == []


def test_a_compute_mode_that_cannot_be_put_back_is_put_back_by_the_next_unprepare(
    host, users, faults
):
    ref = users.give(GPU, configs=[LIMITED])
    host.prepare(ref)
    faults(error=UNKNOWN, function="nvmlDeviceSetComputeMode")
    with pytest.raises(errors.Retryable):
        host.unprepare(ref, seconds=0.1)
    assert host.record(ref) is not None
    gpu_faults.clear(host.simulation)
    host.unprepare(ref)
    assert host.is_clean()


def test_a_half_undone_claim_can_be_prepared_again(host, users, faults):
    ref = users.give(GPU, configs=[LIMITED])
    host.prepare(ref)
    faults(error=UNKNOWN, function="nvmlDeviceSetComputeMode")
    with pytest.raises(errors.Retryable):
        host.unprepare(ref, seconds=0.1)
    gpu_faults.clear(host.simulation)
    host.prepare(ref)
    assert host.gets(ref) == (30, 4)
    host.unprepare(ref)
    assert host.is_clean()


@pytest.mark.parametrize("method", ["start", "wait_ready"])
@pytest.mark.parametrize("failure", [errors.Rejected, errors.Retryable, OSError, KeyboardInterrupt])
def test_whatever_the_launcher_fails_with_all_is_undone(host, users, failing_call, method, failure):
    failing_call(host.launcher, method, failure("mounting is not allowed"), 0)
    ref = users.give(GPU, configs=[LIMITED])
    if failure is errors.Retryable:
        host.prepare(ref)
        assert host.gets(ref) == (30, 4)
        host.unprepare(ref)
    else:
        with pytest.raises(failure, match="mounting is not allowed"):
            host.prepare(ref)
    assert host.is_clean()


def test_what_fails_is_undone_in_reverse(host, users, monkeypatch, failing_call):
    order = []

    def noting(target, *names):
        for name in names:
            original = getattr(target, name)

            def call(*arguments, name=name, original=original):
                devices = [one.device[:3] for one in arguments if isinstance(one, mps.Daemon)]
                numbers = [int(one) for one in arguments if isinstance(one, int)]
                order.append((name, *devices, *numbers))
                return original(*arguments)

            monkeypatch.setattr(target, name, call, raising=False)

    noting(host.nvml, "create", "destroy")
    noting(host.modes, "set")
    noting(host.launcher, "start")
    stopped = []
    retire = host.launcher.retire

    def retiring(daemon):
        described = mps_domain.Domain(pathlib.Path(daemon.directory)).read()
        # The second time it has ended.
        stopped.extend([described.device[:3]] if described else [])
        return retire(daemon)

    monkeypatch.setattr(host.launcher, "retire", retiring, raising=False)
    failing_call(host.preparer._attempts._injector, "injection", errors.Rejected("no"), 0)
    card = "gpu-1-mig-2g20gb-14-2"
    ref = users.give(GPU, card, configs=[LIMITED, LIMITED_PARTITION])
    with pytest.raises(errors.Rejected, match="no"):
        host.prepare(ref)
    # What an attempt has done already is done once more by the next one, to no effect.
    assert list(dict.fromkeys(order)) == [
        ("create",),
        *(("set", sharing_node.EXCLUSIVE), ("start", "GPU"), ("start", "MIG")),
        *(("set", sharing_node.DEFAULT), ("destroy", 0)),
    ]
    assert stopped == ["MIG", "GPU"]
    assert host.is_clean()


def test_a_spec_that_cannot_be_written_takes_the_daemon_back(host, users, monkeypatch):
    monkeypatch.setattr(preparing, "LAST_SECONDS", 60.0)
    ref = users.give(GPU, configs=[LIMITED])
    write = files.write

    def failing(path, *arguments, **options):
        if path.parent == host.cdi:
            raise files.explained(OSError(30, "Read-only file system"), "written", path)
        return write(path, *arguments, **options)

    with monkeypatch.context() as context:
        context.setattr(files, "write", failing)
        with pytest.raises(files.Unusable, match="Read-only file system"):
            host.prepare(ref)
    assert host.is_clean()


def test_what_cannot_be_undone_after_a_failure_is_undone_by_the_unprepare(
    host, users, faults, failing_call
):
    ref = users.give(GPU, configs=[LIMITED])
    failing_call(host.launcher, "wait_ready", errors.Rejected("no"), 0)
    failing_call(host.launcher, "retire", errors.Rejected("nor this"), 0)
    with pytest.raises(errors.Rejected, match="no"):
        host.prepare(ref)
    assert host.record(ref).phase is prepared.Phase.STARTED
    host.unprepare(ref)
    assert host.is_clean()
