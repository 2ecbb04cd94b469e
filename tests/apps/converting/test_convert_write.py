"""`convert --write`: files are the old ones or the new ones, whatever happens."""

import os
import pathlib
import subprocess
import sys

import converting_files
import pytest

from dra_driver.adapters.console import replacing

PLAIN = converting_files.PLAIN
BAD = PLAIN.replace("3000", "-1")
SERVICE = "apiVersion: v1\nkind: Service\nmetadata: {name: web}\n"


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_files_are_changed_in_place_and_keep_their_mode(convert, save):
    first, second = save(PLAIN, "in/a.yaml"), save(SERVICE, "in/b.yaml")
    wanted = convert("-f", first)[1]
    first.chmod(0o640)
    before = second.stat()
    status, out, _ = convert("-f", first.parent, "--write")
    assert (status, out) == (0, f"{first}: converted\n")
    assert first.read_text() == wanted
    assert first.stat().st_mode & 0o777 == 0o640
    assert second.stat().st_ino == before.st_ino
    assert names(first.parent) == ["a.yaml", "b.yaml"]


def test_nothing_is_changed_if_one_file_has_a_problem(convert, save):
    first, second = save(PLAIN, "in/a.yaml"), save(BAD, "in/b.yaml")
    status, out, _ = convert("-f", first.parent, "--write")
    assert (status, out) == (1, "")
    assert [first.read_text(), second.read_text()] == [PLAIN, BAD]


def test_a_link_that_is_named_stays_one(convert, save, tmp_path):
    real = save(PLAIN, "real.yaml")
    link = tmp_path / "link.yaml"
    link.symlink_to(real.name)
    assert convert("-f", link, "--write")[0] == 0
    assert link.is_symlink()
    assert "resourceClaims" in real.read_text()


def test_a_file_that_cannot_be_written_changes_no_other(monkeypatch, save):
    first, second = save("old", "a.yaml"), save("old", "b.yaml")
    real = os.fsync

    def full(descriptor):
        if pathlib.Path(f"/proc/self/fd/{descriptor}").readlink().name == ".b.yaml.dra-driver":
            raise OSError(28, "No space left on device")
        real(descriptor)

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(replacing.errors.Rejected) as raised:
        replacing.replace({first: b"new", second: b"new"})
    assert str(raised.value).startswith(f"{second} cannot be written: No space left on device")
    assert "Nothing was changed" in str(raised.value)
    assert [first.read_text(), second.read_text()] == ["old", "old"]
    assert names(first.parent) == ["a.yaml", "b.yaml"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_the_owner_of_a_file_stays(convert, save):
    path = save(PLAIN)
    os.chown(path, 65534, 65533)
    path.chmod(0o604)
    assert convert("-f", path, "--write")[0] == 0
    after = path.stat()
    assert (after.st_uid, after.st_gid, after.st_mode & 0o777) == (65534, 65533, 0o604)
    assert "resourceClaims" in path.read_text()


def test_a_file_that_must_not_be_written_is_not_replaced(convert, save, monkeypatch):
    first, second = save(PLAIN, "in/a.yaml"), save(PLAIN, "in/b.yaml")
    # Root may write all files.
    monkeypatch.setattr(os, "access", lambda path, mode, **_: path != second or mode != os.W_OK)
    status, out, err = convert("-f", first.parent, "--write")
    assert (status, out) == (1, "")
    assert f"{second} cannot be written: Permission denied" in err
    assert "Nothing was changed" in err
    assert [first.read_text(), second.read_text()] == [PLAIN, PLAIN]
    assert names(first.parent) == ["a.yaml", "b.yaml"]


VICTIM = """
import os, pathlib, sys
from dra_driver.adapters.console import replacing
left = int(sys.argv[1])
def step(event, _):
    global left
    if event in ("open", "os.rename", "os.remove", "os.chmod"):
        if left == 0:
            os._exit(9)
        left -= 1
folder = pathlib.Path(sys.argv[2])
sys.addaudithook(step)
replacing.replace({folder / "a.yaml": b"new" * 9999, folder / "b.yaml": b"new" * 9999})
os._exit(0)
"""


def test_killed_at_any_step_it_leaves_whole_files(tmp_path):
    new = "new" * 9999
    endings = []
    for step in range(50):
        folder = tmp_path / str(step)
        folder.mkdir()
        for name in ("a.yaml", "b.yaml"):
            (folder / name).write_text("old")
        root = str(pathlib.Path(replacing.__file__).parents[3])
        ended = subprocess.run(
            [sys.executable, "-c", VICTIM, str(step), str(folder)],
            env={**os.environ, "PYTHONPATH": root},
            check=False,
        )
        found = [(folder / name).read_text() for name in ("a.yaml", "b.yaml")]
        assert all(text in ("old", new) for text in found)
        endings.append((ended.returncode, *(text == new for text in found)))
        # What it has left over is in nobody's way.
        replacing.replace({folder / "a.yaml": b"again", folder / "b.yaml": b"again"})
        assert names(folder) == ["a.yaml", "b.yaml"]
        if ended.returncode == 0:
            break
    assert endings[0] == (9, False, False)
    assert (9, True, False) in endings
    assert endings[-1] == (0, True, True)
