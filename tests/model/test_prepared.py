import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dra_driver import errors
from dra_driver.model import claims, mig, prepared, stored

DEVICE = prepared.PreparedDevice(
    requests=("gpu",), pool="node-1", device="gpu-0",
    cdi_ids=("k8s.gpu.nvidia.com/claim=0a1b-gpu-0",),
)  # fmt: skip
RECORD = prepared.Record(
    uid="0a1b", namespace="team-a", name="train", phase=prepared.Phase.STARTED, boot_id="boot-1",
    devices=(DEVICE,),
)  # fmt: skip

CHECKSUM = "sha256:15c283985b57b1122d2691175365af08b72dafa2ce48e9a92e5af01ab0b46bb0"
TEXT = """{
 "checksum": "%s",
 "record": {
  "boot_id": "boot-1",
  "devices": [{"admin_access": false, "cdi_ids": ["k8s.gpu.nvidia.com/claim=0a1b-gpu-0"], \
"device": "gpu-0", "kind": "gpu", "pool": "node-1", "requests": ["gpu"], "share_id": null}],
  "name": "train",
  "namespace": "team-a",
  "phase": "started",
  "rebuilt": false,
  "uid": "0a1b"
 },
 "version": 1
}
""".replace("%s", CHECKSUM)


def test_the_file_of_a_record_is_stable():
    assert prepared.encode(RECORD) == TEXT


def test_a_file_of_an_older_driver_without_later_fields_is_read():
    body = json.loads(TEXT)["record"]
    for field in ("rebuilt",):
        del body[field]
    assert prepared.decode(_document(body)) == RECORD


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "not a record (JSONDecodeError: Expecting value: line 1 column 1 (char 0))"),
        (TEXT[:100], "not a record (JSONDecodeError: "),
        ("null", "not a record (TypeError: "),
        ("[]", "not a record (TypeError: "),
        ("{}", "not a record (KeyError: 'version')"),
        ("[" * 100_000, "not a record (RecursionError: "),
        ('{"version": 1, "checksum": ""}', "not a record (KeyError: 'record')"),
        (
            TEXT.replace('"version": 1', '"version": 4'),
            "version 4 is not one that this driver reads (3 or less): was it written by a newer",
        ),
        (
            TEXT.replace("gpu-0", "gpu-1"),
            f"checksum {CHECKSUM!r} does not match the content",
        ),
    ],
)
def test_a_damaged_file_is_refused_with_the_reason(text, reason):
    with pytest.raises(errors.Rejected) as caught:
        prepared.decode(text)
    assert str(caught.value).startswith(reason)


@pytest.mark.parametrize(
    "change", [{"phase": "half"}, {"surprise": 1}, {"uid": None}, {"devices": [{"pool": "p"}]}]
)
def test_content_that_is_no_record_is_refused_though_its_checksum_is_right(change):
    body = json.loads(TEXT)["record"] | change
    with pytest.raises(errors.Rejected, match="content is not a record: "):
        prepared.decode(_document(body))


@pytest.mark.parametrize("body", [None, [], "text", 1])
def test_content_that_is_no_object_is_refused(body):
    with pytest.raises(errors.Rejected, match="content is not a record: "):
        prepared.decode(_document(body))


def _document(body):
    return json.dumps({"version": 1, "checksum": stored.checksum(body), "record": body})


def test_a_record_names_its_claim():
    assert RECORD.ref == claims.ClaimRef("team-a", "train", claims.ClaimUid("0a1b"))


# Partitions

PARTITION = prepared.Partition(
    device="gpu-0-mig-3g40gb-9-4", gpu="GPU-0", minor=0, profile="3g.40gb", profile_id=9, start=4,
    size=4, gi=2, ci=0, uuid="MIG-0",
)  # fmt: skip


def test_a_record_without_partitions_can_be_read_by_a_driver_from_before_there_were_any():
    document = json.loads(prepared.encode(RECORD))
    assert document["version"] == 1
    assert "partitions" not in document["record"]


def test_a_record_with_partitions_is_refused_by_a_driver_that_could_not_undo_them():
    record = RECORD.model_copy(update={"partitions": (PARTITION,)})
    document = json.loads(prepared.encode(record))
    assert document["version"] == 2
    assert document["record"]["partitions"] == [
        {
            "device": "gpu-0-mig-3g40gb-9-4", "gpu": "GPU-0", "minor": 0, "profile": "3g.40gb",
            "profile_id": 9, "start": 4, "size": 4, "made": True, "gi": 2, "ci": 0,
            "uuid": "MIG-0",
        }
    ]  # fmt: skip
    assert prepared.decode(prepared.encode(record)) == record


def test_a_record_of_a_gpu_for_virtual_machines_is_refused_by_a_driver_that_would_leave_it_bound():
    device = prepared.PreparedDevice(
        requests=("gpu",), pool="node-1", device="gpu-vfio-0", cdi_ids=("id",), kind="vfio"
    )
    record = RECORD.model_copy(update={"devices": (device,)})
    document = json.loads(prepared.encode(record))
    assert document["version"] == prepared.VERSION == 3
    assert prepared.decode(prepared.encode(record)) == record


def test_what_an_older_driver_makes_of_such_a_record_is_refused():
    entry = RECORD.devices[0].model_copy(update={"device": "gpu-vfio-0", "kind": "gpu"})
    text = prepared.encode(RECORD.model_copy(update={"devices": (entry,)}))
    with pytest.raises(errors.Rejected, match="'gpu-vfio-0' is said to be of kind 'gpu': an older"):
        prepared.decode(text)


def test_a_file_of_version_1_is_read_without_partitions():
    assert prepared.decode(TEXT) == RECORD
    assert prepared.decode(TEXT).partitions == ()


def test_the_checksum_covers_partitions():
    record = RECORD.model_copy(update={"partitions": (PARTITION,)})
    with pytest.raises(errors.Rejected, match="does not match the content"):
        prepared.decode(prepared.encode(record).replace('"gi": 2', '"gi": 3'))


def test_a_partition_has_a_place_from_the_start_and_an_instance_once_all_of_it_is_known():
    assert PARTITION.spot == mig.Spot(9, mig.Placement(4, 4))
    assert PARTITION.instance == mig.Instance(2, PARTITION.spot, 0, mig.MigUuid("MIG-0"))
    for field in ("gi", "ci", "uuid"):
        assert PARTITION.model_copy(update={field: None}).instance is None
    assert PARTITION.model_copy(update={"gi": 0}).instance is not None


# Sharing

USE = prepared.MpsUse(
    domain="d", keys=("gpu-0",), devices=("gpu-0",), percent=30, memory_bytes=2**30,
    exclusive=True, gpus=("GPU-0",),
)  # fmt: skip
SLICE = prepared.TimeSlice(device="gpu-0", gpu="GPU-0", number=3)
SHARE = DEVICE.model_copy(update={"share_id": "s", "consumed": {"memory": "10Gi"}})


@pytest.mark.parametrize(
    "change",
    [
        {"sharing": prepared.Sharing(mps=(USE,))},
        {"sharing": prepared.Sharing(time_slices=(SLICE,))},
        {"devices": (DEVICE, SHARE)},
    ],
)
def test_a_record_of_sharing_is_refused_by_a_driver_that_could_not_undo_it(change):
    record = RECORD.model_copy(update=change)
    text = prepared.encode(record)
    assert json.loads(text)["version"] == 2
    assert prepared.decode(text) == record


def test_what_is_shared_is_written_out():
    sharing = prepared.Sharing(mps=(USE,), time_slices=(SLICE,))
    record = RECORD.model_copy(update={"sharing": sharing, "devices": (DEVICE, SHARE)})
    body = json.loads(prepared.encode(record))["record"]
    assert body["sharing"] == {
        "mps": [
            {
                "domain": "d", "keys": ["gpu-0"], "devices": ["gpu-0"], "percent": 30,
                "memory_bytes": 2**30, "exclusive": True, "gpus": ["GPU-0"],
            }
        ],
        "time_slices": [{"device": "gpu-0", "gpu": "GPU-0", "number": 3}],
    }  # fmt: skip
    assert ["consumed" in device for device in body["devices"]] == [False, True]


def test_a_record_that_shares_nothing_is_what_it_was_before():
    assert not RECORD.sharing
    named = RECORD.model_copy(update={"devices": (SHARE.model_copy(update={"consumed": {}}),)})
    for record in (RECORD, named):
        document = json.loads(prepared.encode(record))
        assert document["version"] == 1
        assert "sharing" not in document["record"]
        assert "consumed" not in document["record"]["devices"][0]


def test_the_checksum_covers_what_is_shared():
    record = RECORD.model_copy(update={"sharing": prepared.Sharing(time_slices=(SLICE,))})
    with pytest.raises(errors.Rejected, match="does not match the content"):
        prepared.decode(prepared.encode(record).replace('"number": 3', '"number": 2'))


# The cards that devices are on

NAMED = RECORD.model_copy(update={"gpus": {"gpu-0": "GPU-0", "gpu-3": "GPU-3"}})


def test_the_cards_of_a_record_stand_where_an_older_driver_does_not_look():
    document = json.loads(prepared.encode(NAMED))
    more = document.pop("more")
    assert document == json.loads(TEXT)
    assert more.pop("checksum") == stored.checksum(more)
    assert more == {"gpus": {"gpu-0": "GPU-0", "gpu-3": "GPU-3"}}
    assert prepared.decode(prepared.encode(NAMED)) == NAMED


def test_the_parts_of_effects_stand_there_too_and_are_kept():
    parts = {"vfio": prepared.Part(version=3, content={"bound": ["0000:3b:00.0"]})}
    record = RECORD.model_copy(update={"parts": parts})
    document = json.loads(prepared.encode(record))
    assert document["more"]["parts"] == {
        "vfio": {"version": 3, "content": {"bound": ["0000:3b:00.0"]}}
    }
    assert {key: document[key] for key in json.loads(TEXT)} == json.loads(TEXT)
    assert prepared.decode(prepared.encode(record)) == record


def test_a_record_of_an_older_driver_tells_of_no_cards():
    assert prepared.decode(TEXT).gpus == {}


@pytest.mark.parametrize(
    ("old", "new"),
    [('"GPU-3"', '"GPU-4"'), ('"gpu-3"', '"gpu-4"'), ('"gpus": {', '"cards": {')],
)
def test_a_change_of_what_stands_beside_a_record_is_noticed(old, new):
    with pytest.raises(errors.Rejected, match="does not match what stands beside the content"):
        prepared.decode(prepared.encode(NAMED).replace(old, new))


@pytest.mark.parametrize("more", [None, [], "text"])
def test_what_stands_beside_a_record_and_is_no_object_is_refused(more):
    document = json.loads(prepared.encode(NAMED)) | {"more": more}
    with pytest.raises(errors.Rejected, match="'more' is no object"):
        prepared.decode(json.dumps(document))


def test_what_a_later_driver_puts_beside_a_record_is_left_alone():
    document = json.loads(prepared.encode(NAMED))
    more = {"gpus": {"gpu-0": "GPU-0"}, "later": [1]}
    document["more"] = more | {"checksum": stored.checksum(more)}
    assert prepared.decode(json.dumps(document)).gpus == {"gpu-0": "GPU-0"}


def test_a_record_of_an_older_driver_tells_of_cards_where_it_had_to_for_its_undo():
    part = PARTITION.model_copy(update={"device": "gpu-4-mig-3g40gb-9-4", "gpu": "GPU-4"})
    record = RECORD.model_copy(
        update={"partitions": (part,), "sharing": prepared.Sharing(time_slices=(SLICE,))}
    )
    assert record.cards == {"gpu-4": "GPU-4", "gpu-0": "GPU-0"}
    told = record.model_copy(update={"gpus": {"gpu-0": "GPU-x", "gpu-1": "GPU-1"}})
    assert told.cards == {"gpu-4": "GPU-4", "gpu-0": "GPU-x", "gpu-1": "GPU-1"}


NAMES = st.text(min_size=1, max_size=8)
NUMBERS = st.integers(0, 99)
RECORDS = st.builds(
    prepared.Record,
    uid=NAMES, namespace=NAMES, name=NAMES, phase=st.sampled_from(prepared.Phase), boot_id=NAMES,
    rebuilt=st.booleans(),
    devices=st.lists(
        st.builds(
            prepared.PreparedDevice,
            requests=st.lists(NAMES, max_size=3).map(tuple), pool=NAMES, device=NAMES,
            cdi_ids=st.lists(NAMES, max_size=2).map(tuple),
            share_id=st.one_of(st.none(), NAMES), admin_access=st.booleans(),
            kind=st.sampled_from(["gpu", "mig"]),
            consumed=st.dictionaries(NAMES, NAMES, max_size=2),
        ),
        max_size=3,
    ).map(tuple),
    gpus=st.dictionaries(NAMES, NAMES, max_size=2),
    minors=st.dictionaries(NAMES, NUMBERS, max_size=2),
    parts=st.dictionaries(
        NAMES, st.builds(prepared.Part, version=NUMBERS, content=st.dictionaries(NAMES, NAMES))
    ),
    partitions=st.lists(
        st.builds(
            prepared.Partition,
            device=NAMES, gpu=NAMES, minor=NUMBERS, profile=NAMES, profile_id=NUMBERS,
            start=NUMBERS, size=NUMBERS, made=st.booleans(), gi=st.one_of(st.none(), NUMBERS),
            ci=st.one_of(st.none(), NUMBERS), uuid=st.one_of(st.none(), NAMES),
        ),
        max_size=2,
    ).map(tuple),
    sharing=st.builds(
        prepared.Sharing,
        mps=st.lists(
            st.builds(
                prepared.MpsUse,
                domain=NAMES, keys=st.lists(NAMES, max_size=2).map(tuple),
                devices=st.lists(NAMES, max_size=2).map(tuple),
                percent=st.one_of(st.none(), NUMBERS), memory_bytes=st.one_of(st.none(), NUMBERS),
                exclusive=st.booleans(), gpus=st.lists(NAMES, max_size=2).map(tuple),
            ),
            max_size=2,
        ).map(tuple),
        time_slices=st.lists(
            st.builds(prepared.TimeSlice, device=NAMES, gpu=NAMES, number=NUMBERS), max_size=2
        ).map(tuple),
    ),
)  # fmt: skip


@given(RECORDS)
def test_any_record_is_read_back_equal(record):
    assert prepared.decode(prepared.encode(record)) == record


@given(st.integers(0, len(TEXT) - 1), st.characters(codec="ascii", exclude_categories=["Cc"]))
def test_no_single_changed_character_goes_unnoticed(position, character):
    changed = TEXT[:position] + character + TEXT[position + 1 :]
    try:
        record = prepared.decode(changed)
    except errors.Rejected:
        return
    # White space between tokens means nothing.
    assert record == RECORD
