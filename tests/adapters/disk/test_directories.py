import errno
import os
import pathlib
import subprocess
import sys
import types

import pytest

from dra_driver.adapters.disk import directories


@pytest.fixture(params=["with files without names", "without them"])
def kind(request, monkeypatch):
    """Of file system."""
    if request.param == "without them":
        without(monkeypatch)


def without(monkeypatch, error=errno.EOPNOTSUPP):
    """As overlay and network file systems of some kernels are."""
    really = os.open

    def refusing(path, flags, *rest, **options):
        if flags & os.O_TMPFILE == os.O_TMPFILE:
            raise OSError(error, os.strerror(error), str(path))
        return really(path, flags, *rest, **options)

    monkeypatch.setattr(os, "open", refusing)


def test_a_directory_that_takes_files_is_left_as_it_was(tmp_path, kind):
    before = tmp_path.stat()
    assert directories.look(tmp_path) == directories.State(exists=True, failure=None)
    assert list(tmp_path.iterdir()) == []
    assert (tmp_path.stat().st_mtime_ns, tmp_path.stat().st_ctime_ns) == (
        before.st_mtime_ns,
        before.st_ctime_ns,
    )


def test_what_the_file_system_says_is_told(tmp_path, monkeypatch):
    without(monkeypatch, errno.ENOSPC)
    assert directories.look(tmp_path).failure == f"{tmp_path}: No space left on device"


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"f_bfree": 0}, "No space left on device"),
        ({"f_blocks": 0}, "its file system takes no files"),
    ],
)
def test_a_full_disk_is_seen_without_a_try(tmp_path, monkeypatch, fields, told):
    without(monkeypatch)
    room = {"f_blocks": 10, "f_bfree": 1, "f_flag": 0} | fields
    monkeypatch.setattr(os, "statvfs", lambda _: types.SimpleNamespace(**room))
    assert directories.look(tmp_path).failure == f"{tmp_path}: {told}"


@pytest.mark.parametrize(
    ("flag", "told"), [(0, "Permission denied"), (os.ST_RDONLY, "Read-only file system")]
)
def test_why_it_may_not_be_written_to_is_told_without_a_try(tmp_path, monkeypatch, flag, told):
    without(monkeypatch)
    monkeypatch.setattr(os, "access", lambda *_, **__: False)
    monkeypatch.setattr(os, "statvfs", lambda _: types.SimpleNamespace(f_flag=flag))
    assert directories.look(tmp_path).failure == f"{tmp_path}: {told}"


def test_an_absent_directory_can_be_made_if_the_nearest_one_above_takes_files(tmp_path):
    state = directories.look(tmp_path / "a" / "b" / "c")
    assert state == directories.State(exists=False, failure=None)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("below", ["", "a/b"])
def test_a_file_in_the_way_is_named(tmp_path, below):
    file = tmp_path / "file"
    file.touch()
    state = directories.look(file / below)
    assert not state.exists
    assert state.failure == f"{file}: not a directory"


@pytest.mark.parametrize(("path", "exists"), [("/proc", True), ("/proc/absent/below", False)])
def test_a_directory_that_takes_no_files_says_why(path, exists):
    """Nobody can make files in procfs; what root may do elsewhere, others may not."""
    state = directories.look(pathlib.Path(path))
    assert state.exists is exists
    assert state.failure == "/proc: its file system takes no files"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")
@pytest.mark.parametrize(("mode", "exists"), [(0o755, True), (0o700, False)])
def test_a_directory_of_somebody_else_takes_no_files(tmp_path, mode, exists):
    shut = tmp_path / "shut"
    inside = shut / "inside"
    inside.mkdir(parents=True)
    shut.chmod(mode)
    for above in (tmp_path, *tmp_path.parents[:-2]):
        above.chmod(0o755)
    script = (
        "import os, pathlib, sys\n"
        "from dra_driver.adapters.disk import directories\n"
        "os.setuid(65534)\n"
        "state = directories.look(pathlib.Path(sys.argv[1]))\n"
        "print(state.exists, state.failure)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(inside)], capture_output=True, text=True, check=True
    )
    assert done.stdout == f"{exists} {inside}: Permission denied\n"
