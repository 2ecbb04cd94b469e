"""Mounts need root: as somebody else only the refusal is seen."""

import os
import pathlib
import subprocess
import sys

import pytest

from dra_driver import errors
from dra_driver.adapters.system import mounts

MIB = 1024**2
MS_SHARED_REC = (1 << 20) | 0x4000


def may_mount():
    """Containers may be root without the capability."""
    if os.geteuid() != 0:
        return False
    tried = subprocess.run(
        [
            sys.executable,
            "-c",
            "from dra_driver.adapters.system import mounts; mounts.leave_namespace()",
        ],
        capture_output=True,
        check=False,
    )
    return tried.returncode == 0


needs_root = pytest.mark.skipif(not may_mount(), reason="root with CAP_SYS_ADMIN is needed")


@pytest.fixture
def place(tmp_path):
    path = tmp_path / "shm with a space"
    path.mkdir()
    yield path
    mounts.unmount(path)


def options(path):
    lines = pathlib.Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines()
    return [line for line in lines if str(path).replace(" ", r"\040") in line]


@needs_root
def test_a_tmpfs_of_that_size_is_there_for_everybody(place):
    assert not mounts.is_mounted(place)

    mounts.mount_tmpfs(place, 3 * MIB)

    assert mounts.is_mounted(place)
    facts = os.statvfs(place)
    assert facts.f_blocks * facts.f_frsize == 3 * MIB
    assert place.stat().st_mode & 0o7777 == 0o1777
    [line] = options(place)
    assert {"nosuid", "nodev", "noexec"} <= set(line.split(" ")[5].split(","))
    with pytest.raises(OSError, match="No space"):
        (place / "big").write_bytes(b"x" * 4 * MIB)


@needs_root
@pytest.mark.parametrize(("size", "most"), [(3 * MIB, 1024), (64 * MIB, 4096)])
def test_files_in_a_tmpfs_are_bounded_too(place, size, most):
    mounts.mount_tmpfs(place, size)

    # The directory itself is one.
    for number in range(most - 1):
        (place / f"{number}").touch()
    with pytest.raises(OSError, match="No space"):
        (place / "more").touch()


@needs_root
def test_one_that_has_more_files_keeps_them_and_gets_its_size(place):
    mounts.mount_tmpfs(place, 64 * MIB)
    for number in range(2000):
        (place / f"{number}").touch()

    mounts.mount_tmpfs(place, 3 * MIB)

    assert len(list(place.iterdir())) == 2000
    facts = os.statvfs(place)
    assert facts.f_blocks * facts.f_frsize == 3 * MIB


@needs_root
def test_mounting_again_keeps_what_is_there_and_changes_the_size(place):
    mounts.mount_tmpfs(place, 3 * MIB)
    (place / "kept").write_text("yes", encoding="utf-8")

    mounts.mount_tmpfs(place, 5 * MIB)

    assert (place / "kept").read_text(encoding="utf-8") == "yes"
    facts = os.statvfs(place)
    assert facts.f_blocks * facts.f_frsize == 5 * MIB
    assert len(options(place)) == 1


@needs_root
def test_unmounting_takes_away_all_that_lie_on_each_other_even_in_use(place):
    mounts.mount_tmpfs(place, MIB)
    mounts.bind(place, place)
    assert len(options(place)) == 2
    with (place / "open").open("w", encoding="utf-8"):
        mounts.unmount(place)

    assert not mounts.is_mounted(place)
    assert list(place.iterdir()) == []
    mounts.unmount(place)


def test_nothing_mounted_is_fine_to_unmount(place):
    mounts.unmount(place)
    mounts.unmount(place / "absent")


def test_what_somebody_else_has_unmounted_meanwhile_is_fine(place, monkeypatch):
    seen = [True]
    is_mounted = mounts.is_mounted
    monkeypatch.setattr(mounts, "is_mounted", lambda path: seen.pop() if seen else is_mounted(path))

    mounts.unmount(place)

    assert seen == []


@needs_root
def test_what_may_not_be_unmounted_is_told(place):
    mounts.mount_tmpfs(place, MIB)
    program = (
        "import os, pathlib, sys\n"
        "from dra_driver import errors\n"
        "from dra_driver.adapters.system import mounts\n"
        "os.setuid(65534)\n"
        "mounts.is_mounted = lambda _path: True\n"
        "try:\n"
        "    mounts.unmount(pathlib.Path(sys.argv[1]))\n"
        "except errors.Rejected as error:\n"
        "    print(error)\n"
    )
    said = subprocess.run(
        [sys.executable, "-c", program, place], capture_output=True, text=True, check=True
    ).stdout

    assert said.startswith(f"cannot unmount {place}: ")


@needs_root
def test_a_process_with_mounts_of_its_own_shows_them_to_nobody(place):
    mounts.mount_tmpfs(place, MIB)
    (place / "seen").touch()
    program = (
        "import pathlib, sys\n"
        "from dra_driver.adapters.system import mounts\n"
        "mounts.leave_namespace()\n"
        "mounts.bind(pathlib.Path(sys.argv[1]), pathlib.Path('/dev/shm'))\n"
        "print(sorted(p.name for p in pathlib.Path('/dev/shm').iterdir()), flush=True)\n"
        "sys.stdin.readline()\n"
        "print(sorted(p.name for p in pathlib.Path('/dev/shm').iterdir()), flush=True)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, place],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout.readline() == "['seen']\n"
        assert not pathlib.Path("/dev/shm/seen").exists()
        mounts.unmount(place)
        place.rmdir()
        said, _ = process.communicate("\n")
    # It keeps what it has, and nobody is kept from taking the directory away.
    assert said == "['seen']\n"


@needs_root
def test_mounts_of_its_own_are_not_shown_even_where_mounts_are_shared(place):
    (place / "seen").touch()
    program = (
        "import os, pathlib, sys\n"
        "from dra_driver.adapters.system import mounts\n"
        "mounts.leave_namespace()\n"
        f"mounts._mount(None, pathlib.Path('/'), None, {MS_SHARED_REC}, None)\n"
        "if os.fork() == 0:\n"
        "    mounts.leave_namespace()\n"
        "    mounts.bind(pathlib.Path(sys.argv[1]), pathlib.Path('/dev/shm'))\n"
        "    os._exit(0 if pathlib.Path('/dev/shm/seen').exists() else 1)\n"
        "print(os.wait()[1], pathlib.Path('/dev/shm/seen').exists())\n"
    )

    done = subprocess.run(
        [sys.executable, "-c", program, place], capture_output=True, text=True, check=True
    )

    assert done.stdout == "0 False\n"


def test_who_may_not_mount_is_told_what_is_needed(place):
    program = (
        "import os, pathlib, sys\n"
        "from dra_driver import errors\n"
        "from dra_driver.adapters.system import mounts\n"
        "os.geteuid() == 0 and os.setuid(65534)\n"
        "try:\n"
        "    mounts.mount_tmpfs(pathlib.Path('/tmp'), 4096)\n"
        "except errors.Rejected as error:\n"
        "    print(error)\n"
    )
    said = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout

    assert said == (
        "cannot mount /tmp: Operation not permitted; the process needs to be root, with "
        "CAP_SYS_ADMIN\n"
    )


def test_what_the_kernel_refuses_is_an_error(tmp_path):
    with pytest.raises(errors.Rejected, match=r"cannot mount .*absent"):
        mounts.mount_tmpfs(tmp_path / "absent", MIB)
