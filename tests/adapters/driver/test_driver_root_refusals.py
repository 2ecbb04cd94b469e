"""What is told of the driver while the operating system refuses to let it be looked at."""

import errno
import itertools
import os

import disk_faults
import elf_objects
import pytest

from dra_driver import errors
from dra_driver.adapters.disk import files
from dra_driver.adapters.driver import driver_root

VERSION = "580.159.04"


@pytest.fixture
def installed(tmp_path):
    libraries = tmp_path / "usr" / "lib64"
    libraries.mkdir(parents=True)
    content = elf_objects.shared_object("libcuda.so.1")
    (libraries / f"libcuda.so.{VERSION}").write_bytes(content)
    return driver_root.DriverRoot(driver_root.Layout(driver_root.Root("/", tmp_path)))


@pytest.mark.parametrize(
    ("code", "kind"), [(errno.EMFILE, files.Exhausted), (errno.EIO, files.Unusable)]
)
def test_it_is_told_whole_or_with_the_path_and_a_remedy(tmp_path, installed, code, kind):
    whole = installed.files(VERSION)
    functions = disk_faults.DESCRIPTORS if code == errno.EMFILE else disk_faults.READS
    disk = disk_faults.Disk(code, functions, [tmp_path], opens="all")
    refusals = []
    for first in itertools.count(1):
        with disk.failing(first):
            try:
                assert installed.files(VERSION) == whole, disk.steps
            except errors.DriverError as error:
                refusals.append(error)
        if not disk.has_failed:
            break
    assert refusals
    assert {type(error) for error in refusals} == {kind}
    for error in refusals:
        assert str(error).startswith(str(tmp_path))
        assert f"cannot be looked through: {os.strerror(code)}. Remedy: " in str(error)
