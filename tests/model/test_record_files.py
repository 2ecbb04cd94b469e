"""Records as version 0.1.0 wrote them: they are read, and what is written instead it reads, too."""

import json
import pathlib

import pytest

from dra_driver.model import prepared

FOLDER = pathlib.Path(__file__).with_name("records")
FILES = sorted(path.stem for path in FOLDER.glob("*.json"))
GPU = "GPU-5b6e3f0a-0000-4000-8000-000000000000"


def read(name):
    return prepared.decode((FOLDER / f"{name}.json").read_text(encoding="utf-8"))


def test_there_is_a_file_for_each_thing_that_is_done_for_a_claim():
    assert FILES == ["before-cards", "mps", "partition", "share", "time-slice", "whole-card"]


@pytest.mark.parametrize("name", FILES)
def test_all_fields_of_an_older_driver_are_written_as_it_wrote_them(name):
    written = prepared.encode(read(name))
    assert json.loads(written) == json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))


def test_what_has_to_be_undone_is_read():
    [partition] = read("partition").partitions
    assert (partition.gpu, partition.spot.profile_id, partition.spot.placement.start) == (
        GPU,
        19,
        3,
    )
    assert (partition.gi, partition.ci, partition.made) == (7, 0, True)
    [time_slice] = read("time-slice").sharing.time_slices
    assert (time_slice.gpu, time_slice.number) == (GPU, 2)
    [use] = read("mps").sharing.mps
    assert (use.domain, use.exclusive, use.gpus) == ("0123456789abcdef", True, (GPU,))
    assert (use.percent, use.memory_bytes) == (30, 2**30)
    [share] = read("share").devices
    assert (share.share_id, share.consumed) == (
        "11111111-2222-4333-8444-555555555555",
        {"memory": "10Gi"},
    )


def test_the_cards_are_read_where_they_were_written():
    assert read("whole-card").cards == {"gpu-0": GPU}
    assert read("before-cards").cards == {}
