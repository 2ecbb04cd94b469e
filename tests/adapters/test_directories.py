import os
import pathlib
import subprocess
import sys

import pytest

from dra_driver.adapters import directories


def test_a_directory_that_takes_files_is_left_as_it_was(tmp_path):
    assert directories.look(tmp_path) == directories.State(exists=True, failure=None)
    assert list(tmp_path.iterdir()) == []


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
    assert state.failure is not None
    assert state.failure.startswith("/proc: ")


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
        "from dra_driver.adapters import directories\n"
        "os.setuid(65534)\n"
        "state = directories.look(pathlib.Path(sys.argv[1]))\n"
        "print(state.exists, state.failure)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(inside)], capture_output=True, text=True, check=True
    )
    assert done.stdout == f"{exists} {inside}: Permission denied\n"
