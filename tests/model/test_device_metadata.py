"""What a record tells of the files that containers read."""

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
    return RECORD.model_copy(update={"parts": {device_metadata.PART: part}})


def test_what_a_record_is_given_is_read_from_its_file():
    read = prepared.decode(prepared.encode(device_metadata.into(RECORD, CONTENT)))
    assert device_metadata.of(read) == CONTENT
    assert device_metadata.into(read, device_metadata.of(read)) == read


def test_without_content_there_is_no_part_and_parts_of_others_stay():
    other = {"vfio": prepared.Part(version=1, content={})}
    both = device_metadata.into(RECORD.model_copy(update={"parts": other}), CONTENT)
    assert both.parts.keys() == {"vfio", "metadata"}
    assert device_metadata.into(both, None).parts == other
    assert device_metadata.of(RECORD) is None


def test_the_part_of_a_newer_driver_tells_nothing_and_a_damaged_one_is_refused():
    content = CONTENT.model_dump(mode="json")
    assert device_metadata.of(with_part(device_metadata.VERSION + 1, content)) is None
    with pytest.raises(errors.Rejected, match=r"train .0a1b.: part 'metadata' of its record"):
        device_metadata.of(with_part(device_metadata.VERSION, {"requests": 1}))
