"""Stores of records, by the example of those of claims."""

import dataclasses
import errno
import os
import pathlib
import shutil
import stat
import subprocess
import sys

import pytest

from dra_driver import errors
from dra_driver.adapters.disk import files, records, stores
from dra_driver.model import prepared

UID = "0a1b2c3d-0000-4000-8000-000000000000"


def record(uid=UID, **facts):
    made = prepared.Record(
        uid=uid, namespace="team-a", name="train", phase=prepared.Phase.STARTED, boot_id="boot-1",
        devices=(
            prepared.PreparedDevice(
                requests=("gpu",), pool="node-1", device="gpu-0", cdi_ids=("a/b=c",)
            ),
        ),
    )  # fmt: skip
    return made.model_copy(update=facts)


@pytest.fixture
def directory(tmp_path):
    return tmp_path / "claims"


@pytest.fixture
def store(directory):
    return records.Records(directory)


def names(directory):
    return sorted(path.name for path in directory.iterdir())


def test_a_directory_of_claims_is_made_for_us_alone(directory, store):
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert store.contents() == records.Contents({}, {})
    records.Records(directory)


def test_a_record_is_remembered_by_uid_and_forgotten(directory, store):
    store.write(record())
    assert names(directory) == [f"{UID}.json"]
    assert store.get(UID) == record()
    assert store.contents() == records.Contents({UID: record()}, {})
    store.remove(UID)
    store.remove(UID)
    assert store.get(UID) is None
    assert store.contents() == records.Contents({}, {})
    assert names(directory) == []


def test_a_later_write_replaces_the_record(store):
    store.write(record())
    completed = record(phase=prepared.Phase.COMPLETED)
    store.write(completed)
    assert store.get(UID) == completed
    assert store.contents().records == {UID: completed}


def test_what_another_process_writes_and_removes_is_seen(directory, store):
    store.write(record("one"))
    assert store.contents().records.keys() == {"one"}
    script = (
        "import pathlib, sys\n"
        "from dra_driver.adapters.disk import records\n"
        "store = records.Records(pathlib.Path(sys.argv[1]))\n"
        "one = store.get('one')\n"
        "store.write(one.model_copy(update={'uid': 'two'}))\n"
        "store.write(one.model_copy(update={'uid': 'three'}))\n"
        "store.remove('one')\n"
    )
    subprocess.run([sys.executable, "-c", script, str(directory)], check=True, timeout=60)
    assert store.contents() == records.Contents(
        {"two": record("two"), "three": record("three")}, {}
    )


def test_a_record_that_another_instance_changes_is_seen(directory, store):
    store.write(record())
    assert store.contents().records == {UID: record()}
    changed = record(phase=prepared.Phase.COMPLETED)
    records.Records(directory).write(changed)
    assert store.contents().records == {UID: changed}


def test_files_that_have_not_changed_for_a_while_are_not_read_again(store, monkeypatch):
    read = []

    def noted(path):
        read.append(pathlib.Path(path).name)
        return pathlib.Path(path).read_text()

    monkeypatch.setattr(files, "read", noted)
    for uid in ("one", "two"):
        store.write(record(uid))
        os.utime(store.path(uid), ns=(0, 0))
    first = store.contents()
    assert read == ["one.json", "two.json"]
    assert store.contents() == first
    assert len(read) == 2
    store.write(record("two", name="other"))
    assert store.contents().records["two"].name == "other"
    assert read[2:] == ["two.json"]


def test_a_text_that_was_written_or_read_once_is_not_parsed_again(directory, monkeypatch):
    parsed = []

    def noted(text):
        parsed.append(text)
        return prepared.decode(text)

    kind = dataclasses.replace(records._CLAIM, decode=noted)
    writer, reader = stores.Store(directory, kind), stores.Store(directory, kind)
    writer.write(record())
    for _ in range(2):
        assert writer.get(UID) == record()
        assert writer.contents().records == {UID: record()}
    assert parsed == []
    for _ in range(2):
        assert reader.contents().records == {UID: record()}
        assert reader.get(UID) == record()
    assert len(parsed) == 1


DAMAGE = {
    "empty": (b"", "not a record (JSONDecodeError: "),
    "truncated": (prepared.encode(record()).encode()[:200], "not a record (JSONDecodeError: "),
    "not JSON": (b"hello\n", "not a record (JSONDecodeError: "),
    "no object": (b"[1]", "not a record (TypeError: "),
    "nothing in it": (b"{}", "not a record (KeyError: 'version')"),
    "not text": (b"\xff\xfe\x00", "not a record (UnicodeDecodeError: "),
    "of another version": (
        prepared.encode(record()).replace('"version": 1', '"version": 7').encode(),
        "version 7 is not one that this driver reads",
    ),
    "with a wrong checksum": (
        prepared.encode(record()).replace("gpu-0", "gpu-1").encode(),
        "checksum 'sha256:",
    ),
}


@pytest.mark.parametrize(("content", "reason"), DAMAGE.values(), ids=DAMAGE)
def test_damage_is_told_and_stays_with_its_record(directory, store, content, reason):
    store.write(record("well"))
    (directory / f"{UID}.json").write_bytes(content)
    for _ in range(2):
        contents = store.contents()
        assert contents.records == {"well": record("well")}
        assert contents.damaged.keys() == {UID}
        assert contents.damaged[UID].startswith(reason)
    with pytest.raises(stores.Damaged) as caught:
        store.get(UID)
    assert str(caught.value) == contents.damaged[UID]


def test_the_record_of_another_claim_is_damage(directory, store):
    other = "0a1b2c3d-0000-4000-8000-00000000000f"
    (directory / f"{UID}.json").write_text(prepared.encode(record(uid=other)))
    assert store.contents().damaged == {UID: f"it is the record of {other}: was the file copied?"}


def test_a_damaged_record_can_be_written_anew(directory, store):
    (directory / f"{UID}.json").write_text("hello")
    assert store.contents().damaged.keys() == {UID}
    store.write(record())
    assert store.contents() == records.Contents({UID: record()}, {})


def test_a_damaged_file_that_is_kept_stays_in_place_and_is_kept_once(directory, store):
    (directory / f"{UID}.json").write_text("damage")
    aside = store.keep_aside(UID)
    assert store.keep_aside(UID) == aside
    assert names(directory) == [f"{UID}.json", f"{UID}.json.damaged-0"]
    store.write(record())
    assert aside.read_text() == "damage"
    assert store.get(UID) == record()


def test_what_killed_processes_left_is_told_and_is_no_record(directory, store):
    store.write(record("one"))
    for uid in ("two", "one"):
        (directory / f".{uid}.json.new").write_text("half")
    (directory / "notes.txt").write_text("not ours")
    assert store.leftovers() == ["one", "two"]
    for uid in store.leftovers():
        store.clear(uid)
    assert names(directory) == ["notes.txt", "one.json"]
    assert store.contents() == records.Contents({"one": record("one")}, {})


def test_a_file_that_goes_while_it_is_looked_at_is_gone(directory, store, monkeypatch):
    store.write(record("one"))
    store.write(record("two"))
    read = files.read

    def vanishing(path):
        (directory / "one.json").unlink(missing_ok=True)
        (directory / "two.json").unlink(missing_ok=True)
        return read(path)

    monkeypatch.setattr(files, "read", vanishing)
    assert store.contents() == records.Contents({}, {})


def test_a_record_is_durable_before_it_counts_as_written(store, monkeypatch):
    synced = []
    fsync = os.fsync

    def noted(descriptor):
        synced.append(stat.S_ISDIR(os.fstat(descriptor).st_mode))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", noted)
    store.write(record())
    assert synced == [False, True]
    store.remove(UID)
    assert synced == [False, True]


@pytest.mark.parametrize("code", [errno.EIO, errno.EUCLEAN, errno.EBADMSG], ids=errno.errorcode.get)
def test_a_file_on_a_block_that_is_lost_is_damaged_and_the_others_are_read(
    store, monkeypatch, code
):
    store.write(record())
    store.write(record("other"))
    refused_when_read(monkeypatch, code, "other.json")
    contents = store.contents()
    assert contents.records == {UID: record()}
    assert contents.damaged.keys() == {"other"}
    assert contents.damaged["other"].startswith("its file cannot be read: ")
    assert os.strerror(code) in contents.damaged["other"]
    with pytest.raises(stores.Damaged):
        store.get("other")


@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENOMEM], ids=errno.errorcode.get)
def test_a_shortage_of_the_process_is_no_damage_of_the_file(store, monkeypatch, code):
    store.write(record())
    refused_when_read(monkeypatch, code, f"{UID}.json")
    with pytest.raises(files.Exhausted, match=os.strerror(code)):
        store.contents()
    with pytest.raises(files.Exhausted, match=os.strerror(code)):
        store.get(UID)


def refused_when_read(monkeypatch, code, name):
    read = files.read

    def failing(path):
        if pathlib.Path(path).name == name:
            raise files.explained(OSError(code, os.strerror(code)), "read", path)
        return read(path)

    monkeypatch.setattr(files, "read", failing)


def test_a_copy_that_has_no_room_is_no_reason_to_do_nothing(directory, store, monkeypatch):
    (directory / f"{UID}.json").write_text("damage")

    def full(*_arguments, **_options):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "link", full)
    assert store.keep_aside(UID) is None
    assert names(directory) == [f"{UID}.json"]


def test_files_of_others_are_no_damage(directory, store):
    for name in ("notes.txt", f"{UID}.json.damaged-0", ".hidden.json", "what is this.json"):
        (directory / name).write_text("not ours")
    (directory / "folder").mkdir()
    assert store.contents() == records.Contents({}, {})
    assert store.leftovers() == []


@pytest.mark.parametrize("key", ["", "../claims", "a/b", ".", "-a", "a" * 64])
def test_what_is_no_key_is_no_path(store, key):
    for method in (store.get, store.remove, store.path, store.keep_aside):
        with pytest.raises(errors.Rejected, match="is not what a record can be of"):
            method(key)


def test_a_directory_that_vanished_is_empty_and_comes_back_with_the_next_record(directory, store):
    store.write(record())
    shutil.rmtree(directory)
    assert store.contents() == records.Contents({}, {})
    assert store.get(UID) is None
    assert store.leftovers() == []
    store.remove(UID)
    store.write(record())
    assert store.contents() == records.Contents({UID: record()}, {})
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700


def test_records_are_told_in_the_order_of_their_keys_and_those_that_begin_alike_alone(store):
    for uid in ("b-2", "a-1", "b-1"):
        store.write(record(uid))
    assert list(store.contents().records) == ["a-1", "b-1", "b-2"]
    assert list(store.contents("b-").records) == ["b-1", "b-2"]
    assert list(store.contents().records) == ["a-1", "b-1", "b-2"]


def test_what_another_process_writes_within_one_tick_of_the_clock_is_seen(store):
    store.write(record(name="abcdef"))
    path = store.path(UID)
    for name in ("ghijkl", "mnopqr", "stuvwx"):
        assert store.contents().records.keys() == {UID}
        status = path.stat()
        # As when the inode of a file that was replaced is used again: all is as it was.
        path.write_text(prepared.encode(record(name=name)))
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
        assert path.stat().st_size == status.st_size
        assert store.contents().records[UID].name == name


def test_each_record_may_have_a_directory_of_its_own(tmp_path):
    store = stores.Store(tmp_path / "all", records._CLAIM, within="record.json")
    assert store.contents() == records.Contents({}, {})
    (tmp_path / "all" / "one").mkdir(parents=True)
    store.write(record("one"))
    (tmp_path / "all" / "two").mkdir()
    (tmp_path / "all" / "three").mkdir()
    (tmp_path / "all" / "three" / "record.json").write_text("damage")
    assert store.path("one") == tmp_path / "all" / "one" / "record.json"
    assert store.contents().records == {"one": record("one")}
    assert store.contents().damaged.keys() == {"three"}
    store.remove("one")
    assert store.get("one") is None


@pytest.mark.parametrize("code", [errno.ENOMEM, errno.EACCES], ids=errno.errorcode.get)
def test_trouble_with_a_look_at_a_file_is_no_damage_of_it(store, monkeypatch, code):
    store.write(record())
    look = os.stat

    def refused(path, *arguments, **options):
        if str(path).endswith(f"{UID}.json"):
            raise OSError(code, os.strerror(code))
        return look(path, *arguments, **options)

    monkeypatch.setattr(os, "stat", refused)
    for action in (store.contents, lambda: store.get(UID)):
        with pytest.raises(files.TROUBLE, match=os.strerror(code)):
            action()


def test_a_directory_of_records_that_is_a_file_has_none(directory, store):
    directory.rmdir()
    directory.write_text("no directory")
    assert store.get(UID) is None
