import errno
import itertools
import os
import pathlib
import stat
import threading

import pytest

from dra_driver.adapters.disk import files


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


def test_a_path_may_begin_where_the_process_is(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = pathlib.Path("record.json")
    files.write(path, "x")
    assert names(tmp_path) == ["record.json"]
    files.remove(path)
    assert names(tmp_path) == []


def test_an_absent_file_reads_as_none(path):
    assert files.read(path) is None


def test_a_directory_is_not_an_absent_file(tmp_path):
    with pytest.raises(files.Unusable, match="cannot be read: Is a directory"):
        files.read(tmp_path)


@pytest.mark.parametrize("step", ["fchmod", "fsync"])
def test_a_write_that_fails_leaves_the_old_content_and_nothing_else(path, monkeypatch, step):
    files.write(path, "old")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, step, full)
    with pytest.raises(files.Exhausted, match="No space left on device"):
        files.write(path, "new")
    assert files.read(path) == "old"
    assert names(path.parent) == ["record.json"]


def test_a_rename_that_fails_leaves_the_old_content_and_nothing_else(path, monkeypatch):
    files.write(path, "old")

    def fail(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "rename", fail)
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
    with pytest.raises(files.Unusable, match="restart the driver's pod: it makes its directories"):
        files.write(tmp_path / "absent" / "x", "text")


def test_content_is_on_disk_before_the_name_points_to_it(path, monkeypatch):
    steps = []
    fsync, rename = os.fsync, os.rename

    def noted_fsync(descriptor):
        kind = "directory" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file"
        steps.append(f"fsync {kind}")
        fsync(descriptor)

    def noted_rename(source, target):
        steps.append("rename")
        rename(source, target)

    monkeypatch.setattr(os, "fsync", noted_fsync)
    monkeypatch.setattr(os, "rename", noted_rename)
    files.write(path, "x")
    assert steps == ["fsync file", "rename", "fsync directory"]
    files.remove(path)
    assert steps[3:] == []
    files.write(path, "x", durable=False)
    assert steps[3:] == ["rename"]


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


def test_clearing_takes_what_a_killed_writer_left_and_not_the_file(path):
    files.write(path, "x")
    (path.parent / ".record.json.new").write_text("half")
    files.clear(path)
    files.clear(path)
    assert names(path.parent) == ["record.json"]


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
def test_a_leftover_tells_what_was_being_written(name, target):
    assert files.target_of_leftover(name) == target


ANSWERS = {
    errno.ENOSPC: (files.Exhausted, "free space on its file system (df "),
    errno.EDQUOT: (files.Exhausted, "raise the quota, or free space"),
    errno.EMFILE: (files.Exhausted, "close what holds files open"),
    errno.ENOMEM: (files.Exhausted, "free memory on the node"),
    errno.EIO: (files.Unusable, "look at dmesg, check the file system, and replace the disk"),
    errno.EROFS: (files.Unusable, "its file system is read-only"),
    errno.EACCES: (files.Unusable, "run the driver as root"),
    errno.EXDEV: (files.Unusable, "look at dmesg on the node, and at "),
}


@pytest.mark.parametrize(("code", "answer"), ANSWERS.items(), ids=errno.errorcode.get)
@pytest.mark.parametrize(
    ("doing", "step", "action"),
    [
        ("written", "open", lambda path: files.write(path, "x")),
        ("written", "fsync", lambda path: files.write(path, "x")),
        ("removed", "unlink", files.remove),
        ("read", "open", files.read),
        ("read", "read", files.read),
        ("listed", "listdir", files.names),
        ("made", "mkdir", lambda path: files.make_directory(path / "new", 0o700)),
        ("set aside", "link", lambda path: files.keep_copy(path, "damaged")),
    ],
)
def test_what_the_disk_refuses_is_told_with_the_path_and_what_to_do(
    tmp_path, monkeypatch, doing, step, action, code, answer
):
    path = tmp_path / "record.json"
    path.write_text("x")

    def refused(*_arguments, **_options):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, step, refused)
    kind, remedy = answer
    with pytest.raises(kind) as caught:
        action(path)
    assert str(tmp_path) in str(caught.value)
    assert f"cannot be {doing}: {os.strerror(code)}. Remedy: " in str(caught.value)
    assert remedy in str(caught.value)
    assert caught.value.code == code


def test_the_names_in_a_directory_are_told_in_order_and_none_where_there_is_none(tmp_path):
    for name in ("b", "a", ".c"):
        (tmp_path / name).touch()
    assert files.names(tmp_path) == [".c", "a", "b"]
    assert files.names(tmp_path / "absent") == []


def test_a_copy_that_is_kept_outlives_what_replaces_the_file_and_no_earlier_copy_is_lost(path):
    for number, text in enumerate(["first", "second"]):
        files.write(path, text)
        kept = files.keep_copy(path, "damaged")
        assert kept == path.with_name(f"record.json.damaged-{number}")
        assert files.keep_copy(path, "damaged") == kept
    files.remove(path)
    assert names(path.parent) == ["record.json.damaged-0", "record.json.damaged-1"]
    assert [files.read(path.with_name(name)) for name in names(path.parent)] == ["first", "second"]


@pytest.mark.parametrize("text", ["", "new", "new, and longer than before"])
def test_a_file_that_is_rewritten_stays_the_same_file(tmp_path, text):
    path = tmp_path / "file"
    path.write_text("as it was")
    path.chmod(0o640)
    before = path.stat()
    with path.open() as reader:
        assert files.rewrite(path, text)
        assert reader.read() == text
    now = path.stat()
    assert (now.st_ino, now.st_mode) == (before.st_ino, before.st_mode)


def test_what_is_not_there_is_not_rewritten_nor_made_and_no_link_is_followed(tmp_path):
    assert not files.rewrite(tmp_path / "file", "new")
    assert not files.rewrite(tmp_path / "folder" / "file", "new")
    (tmp_path / "other").write_text("somebody's")
    (tmp_path / "link").symlink_to(tmp_path / "other")
    with pytest.raises(files.Unusable, match=r"link cannot be written"):
        files.rewrite(tmp_path / "link", "new")
    assert (tmp_path / "other").read_text() == "somebody's"


def test_a_directory_has_its_mode_whatever_the_process_masks(tmp_path):
    before = os.umask(0o077)
    try:
        files.have_directory(tmp_path / "folder", 0o755)
        assert (tmp_path / "folder").stat().st_mode & 0o777 == 0o755
        (tmp_path / "folder").chmod(0o700)
        files.have_directory(tmp_path / "folder", 0o755)
    finally:
        os.umask(before)
    assert (tmp_path / "folder").stat().st_mode & 0o777 == 0o755


def test_only_an_empty_directory_is_removed(tmp_path):
    folder = tmp_path / "folder"
    files.remove_directory(folder)
    folder.mkdir()
    (folder / "file").touch()
    with pytest.raises(files.Unusable, match="folder cannot be removed"):
        files.remove_directory(folder)
    (folder / "file").unlink()
    files.remove_directory(folder)
    assert not folder.exists()
