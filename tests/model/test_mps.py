"""What an MPS daemon is described by."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dra_driver import errors
from dra_driver.model import mps

DAEMON = mps.daemon(
    root="/state/mps/",
    daemon_id="0123456789abcdef",
    device="MIG-11111111-2222-3333-4444-555555555555",
    shm_bytes=64 * mps.MIB,
    limits=mps.Limits(30, 4096 * mps.MIB),
)


def test_its_directories_are_below_the_one_with_its_id():
    assert DAEMON.directory == "/state/mps/0123456789abcdef"
    assert DAEMON.pipe_dir == "/state/mps/0123456789abcdef/pipe"
    assert DAEMON.control_dir == "/state/mps/0123456789abcdef/daemon"
    assert DAEMON.log_dir == "/state/mps/0123456789abcdef/log"
    assert DAEMON.shm_dir == "/state/mps/0123456789abcdef/shm"


@given(
    percentage=st.none() | st.integers(1, 100),
    memory=st.none() | st.integers(mps.MIB, 2**48),
    shm=st.integers(0, 2**40),
)
def test_what_is_written_is_read_again(percentage, memory, shm):
    daemon = mps.Daemon("f" * 16, "GPU-1", "/somewhere/mps/x", shm, mps.Limits(percentage, memory))

    assert mps.decode(mps.encode(daemon)) == daemon


def test_a_directory_may_be_as_long_as_its_sockets_can_have_paths():
    longest = "/" + 80 * "x"

    daemon = mps.Daemon("f" * 16, "GPU-1", longest, 0, mps.Limits())

    assert len(f"{daemon.control_dir}/control_privileged") == 107


def test_the_file_has_a_version_and_plain_fields():
    assert json.loads(mps.encode(DAEMON)) == {
        "version": 1,
        "daemon": {
            "id": "0123456789abcdef",
            "device": "MIG-11111111-2222-3333-4444-555555555555",
            "directory": "/state/mps/0123456789abcdef",
            "shm_bytes": 67108864,
            "limits": {"thread_percentage": 30, "memory_bytes": 4294967296},
        },
    }


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"version": 2}, "version"),
        ({"more": 1}, "more"),
        ({"daemon": {}}, "daemon.id"),
        ({"daemon": {"id": "../../etc"}}, "../../etc"),
        ({"daemon": {"id": "0123456789ABCDEF"}}, "16 hexadecimal digits"),
        ({"daemon": {"device": "0"}}, "expected the UUID"),
        ({"daemon": {"directory": "relative"}}, "absolute"),
        ({"daemon": {"directory": "/" + 81 * "x"}}, "too long for sockets"),
        ({"daemon": {"shm_bytes": -1}}, "shm_bytes"),
        ({"daemon": {"shm_bytes": "64M"}}, "shm_bytes"),
        ({"daemon": {"limits": {"thread_percentage": 0, "memory_bytes": None}}}, "1 to 100"),
        ({"daemon": {"limits": {"thread_percentage": "30", "memory_bytes": None}}}, "thread"),
        ({"daemon": {"limits": {"thread_percentage": 30}}}, "memory_bytes"),
    ],
)
def test_a_file_that_is_not_as_it_should_be_is_rejected(change, complaint):
    document = json.loads(mps.encode(DAEMON))
    daemon = change.get("daemon", {})
    changed = document | change | {"daemon": daemon and document["daemon"] | daemon}
    if "daemon" not in change:
        changed["daemon"] = document["daemon"]

    with pytest.raises(errors.Rejected) as caught:
        mps.decode(json.dumps(changed))

    assert complaint in str(caught.value)


def test_text_that_is_no_json_is_rejected():
    with pytest.raises(errors.Rejected, match="not the description of an MPS daemon"):
        mps.decode('{"version": 1, "dae')


@pytest.mark.parametrize("percentage", [-1, 0, 101])
def test_a_percentage_out_of_range_is_rejected(percentage):
    with pytest.raises(errors.Rejected, match=f"percentage {percentage}: .* from 1 to 100"):
        mps.Limits(thread_percentage=percentage)


def test_memory_of_less_than_the_unit_is_rejected():
    with pytest.raises(errors.Rejected, match="1048575 bytes: expected at least 1Mi"):
        mps.Limits(memory_bytes=mps.MIB - 1)


@pytest.mark.parametrize(
    ("size", "mib"), [(None, None), (10**9, 953), (10**7, 9), (10 * 1024**3, 10240)]
)
def test_memory_is_rounded_down_to_mib(size, mib):
    assert mps.Limits(memory_bytes=size).memory_mib == mib


def test_a_daemon_may_have_several_gpus():
    several = mps.daemon(
        root="/mps", daemon_id="0123456789abcdef", device="GPU-2,GPU-1", shm_bytes=0
    )
    assert several.devices == ("GPU-2", "GPU-1")
    assert mps.decode(mps.encode(several)) == several


@pytest.mark.parametrize(
    ("by_device", "most"),
    [([], 4 * 2**30), ([2**30, 3 * 2**30], 3 * 2**30), ([2**30, None], None)],
    ids=["one for all", "one for each", "none for one of them"],
)
def test_of_an_earlier_form_with_a_limit_for_each_device_the_largest_counts(by_device, most):
    document = json.loads(mps.encode(DAEMON))
    document["daemon"]["limits"]["memory_by_device"] = by_device
    ready = mps.Ready(pid=1, start_time=2, thread_percentage=30, memory_bytes=4 * 2**30)
    told = {**ready.model_dump(), "memory_by_device": by_device}

    assert mps.decode(json.dumps(document)).limits == mps.Limits(30, most)
    assert mps.Ready.model_validate_json(json.dumps(told)).limits == mps.Limits(30, most)
    assert "memory_by_device" not in ready.model_dump_json()


@pytest.mark.parametrize(
    "device", ["GPU-1,MIG-2", "MIG-1,MIG-2", "GPU-1,", ",GPU-1", "GPU-1, GPU-2"]
)
def test_only_whole_gpus_have_a_daemon_together(device):
    with pytest.raises(errors.Rejected, match="expected the UUID"):
        mps.daemon(root="/mps", daemon_id="0123456789abcdef", device=device, shm_bytes=0)
