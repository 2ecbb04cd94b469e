"""What a record tells of the files that containers read."""

import json

import pytest

from dra_driver import errors
from dra_driver.model import device_metadata, prepared

RECORD = prepared.Record(
    uid="0a1b", namespace="team-a", name="train", phase=prepared.Phase.COMPLETED,
    boot_id="boot-1", devices=(),
)  # fmt: skip
CONTENT = device_metadata.Content(
    requests={"gpu": device_metadata.Described(name="gpu/small", generation=3, digest="ab")},
    pod_claim_name="mine",
)


def with_part(version, content):
    part = prepared.Part(version=version, content=content)
    return RECORD.model_copy(update={"described": part})


def test_what_a_record_is_given_is_read_from_its_file():
    read = prepared.decode(prepared.encode(device_metadata.into(RECORD, CONTENT)))
    assert device_metadata.of(read) == CONTENT
    assert device_metadata.into(read, device_metadata.of(read)) == read


def test_a_driver_from_before_there_was_any_can_still_undo_the_rest():
    told = json.loads(prepared.encode(device_metadata.into(RECORD, CONTENT)))
    plain = json.loads(prepared.encode(RECORD))
    # What it does not look at stands beside the record, whose checksum is the same.
    assert told.pop("more").keys() == {"described", "checksum"}
    assert told == plain


def test_without_content_a_record_tells_of_nothing():
    both = device_metadata.into(RECORD, CONTENT)
    assert device_metadata.into(both, None) == RECORD
    assert device_metadata.of(RECORD) is None


def test_the_content_of_a_newer_driver_tells_nothing_and_a_damaged_one_is_refused():
    content = CONTENT.model_dump(mode="json")
    assert device_metadata.of(with_part(device_metadata.VERSION + 1, content)) is None
    with pytest.raises(errors.Rejected, match=r"train .0a1b.: `described` of its record"):
        device_metadata.of(with_part(device_metadata.VERSION, {"requests": 1}))
