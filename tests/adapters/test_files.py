import itertools
import os
import pathlib
import stat
import threading

import pytest

from dra_driver.adapters import files


@pytest.fixture
def path(tmp_path):
    return tmp_path / "record.json"


def names(directory):
    return sorted(entry.name for entry in directory.iterdir())


@pytest.mark.parametrize("durable", [True, False])
def test_a_file_is_written_replaced_and_read(path, durable):
    files.write(path, "one\n", durable=durable)
    files.write(path, "zwei: ä\n", durable=durable)
    assert files.read(path) == "zwei: ä\n"
    assert path.read_bytes() == "zwei: ä\n".encode()
    assert names(path.parent) == ["record.json"]


@pytest.mark.parametrize("mode", [0o600, 0o644, 0o755])
def test_a_file_has_the_mode_that_was_asked_for_whatever_the_umask(path, mode):
    before = os.umask(0o077)
    try:
        files.write(path, "x", mode=mode)
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == mode


def test_a_file_is_for_its_owner_alone_by_default(path):
    files.write(path, "x")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_an_absent_file_reads_as_none(path):
    assert files.read(path) is None


def test_a_directory_is_not_an_absent_file(tmp_path):
    with pytest.raises(IsADirectoryError):
        files.read(tmp_path)


@pytest.mark.parametrize("step", ["fchmod", "fsync"])
def test_a_write_that_fails_leaves_the_old_content_and_nothing_else(path, monkeypatch, step):
    files.write(path, "old")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, step, full)
    with pytest.raises(OSError, match="No space left on device"):
        files.write(path, "new")
    assert files.read(path) == "old"
    assert names(path.parent) == ["record.json"]


def test_a_rename_that_fails_leaves_the_old_content_and_nothing_else(path, monkeypatch):
    files.write(path, "old")

    def fail(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(pathlib.Path, "rename", fail)
    with pytest.raises(KeyboardInterrupt):
        files.write(path, "new")
    monkeypatch.undo()
    assert files.read(path) == "old"
    assert names(path.parent) == ["record.json"]


def test_text_that_cannot_be_encoded_leaves_the_old_content(path):
    files.write(path, "old")
    with pytest.raises(UnicodeEncodeError):
        files.write(path, "new \ud800")
    assert files.read(path) == "old"
    assert names(path.parent) == ["record.json"]


def test_the_directory_must_exist(tmp_path):
    with pytest.raises(FileNotFoundError):
        files.write(tmp_path / "absent" / "x", "text")


def test_content_is_on_disk_before_the_name_points_to_it(path, monkeypatch):
    steps = []
    fsync, rename = os.fsync, pathlib.Path.rename

    def noted_fsync(descriptor):
        kind = "directory" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file"
        steps.append(f"fsync {kind}")
        fsync(descriptor)

    def noted_rename(self, target):
        steps.append("rename")
        return rename(self, target)

    monkeypatch.setattr(os, "fsync", noted_fsync)
    monkeypatch.setattr(pathlib.Path, "rename", noted_rename)
    files.write(path, "x")
    assert steps == ["fsync file", "rename", "fsync directory"]
    files.remove(path)
    assert steps[3:] == ["fsync directory"]
    files.write(path, "x", durable=False)
    assert steps[4:] == ["rename"]


def test_a_reader_sees_the_old_content_or_the_new_and_nothing_between(path):
    contents = {letter * 50_000 for letter in "ab"}
    files.write(path, "a" * 50_000)
    seen, done = set(), threading.Event()

    def read():
        while not done.is_set():
            seen.add(files.read(path))

    reader = threading.Thread(target=read)
    reader.start()
    letters = itertools.cycle("ba")
    for _ in range(100):
        files.write(path, next(letters) * 50_000, durable=False)
    while len(seen) < 2 and reader.is_alive():
        files.write(path, next(letters) * 50_000, durable=False)
    done.set()
    reader.join()
    assert seen == contents


def test_removing_takes_the_file_and_what_a_killed_writer_left(path):
    files.write(path, "x")
    (path.parent / ".record.json.new").write_text("half")
    (path.parent / "other.json").write_text("stays")
    files.remove(path)
    assert names(path.parent) == ["other.json"]
    files.remove(path)
    assert names(path.parent) == ["other.json"]


def test_the_next_write_replaces_what_a_killed_writer_left(path):
    (path.parent / ".record.json.new").write_text("half of something longer")
    files.write(path, "x")
    assert files.read(path) == "x"
    assert names(path.parent) == ["record.json"]


@pytest.mark.parametrize(
    ("name", "target"),
    [(".record.json.new", "record.json"), ("record.json", None), (".record.json", None),
     ("record.json.new", None)],
)  # fmt: skip
def test_a_leftover_tells_what_was_being_written(tmp_path, name, target):
    assert files.target_of_leftover(tmp_path / name) == target
