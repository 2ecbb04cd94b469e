import elf_objects
import pytest

from dra_driver.adapters.driver import elf


def test_the_soname_is_read(tmp_path):
    path = tmp_path / "libcuda.so.580.159.04"
    path.write_bytes(elf_objects.shared_object("libcuda.so.1"))

    assert elf.read(path) == elf.SharedObject(bits=64, soname="libcuda.so.1")


def test_an_object_may_have_no_soname(tmp_path):
    path = tmp_path / "plugin.so"
    path.write_bytes(elf_objects.shared_object(None))

    assert elf.read(path) == elf.SharedObject(bits=64, soname=None)


def test_a_32_bit_object_is_told_apart(tmp_path):
    path = tmp_path / "libcuda.so"
    path.write_bytes(b"\x7fELF\x01\x01\x01".ljust(52, b"\0"))

    assert elf.read(path) == elf.SharedObject(bits=32, soname=None)


@pytest.mark.parametrize(
    "content", [b"", b"\x7fEL", b"INPUT(-lcuda)\n", b"\x7fELF\x02\x02\x01".ljust(64, b"\0")]
)
def test_what_is_no_elf_file_of_this_kind_is_nothing(tmp_path, content):
    path = tmp_path / "libcuda.so"
    path.write_bytes(content)

    assert elf.read(path) is None


def test_a_file_that_is_not_there_is_nothing(tmp_path):
    assert elf.read(tmp_path / "libcuda.so") is None
    assert elf.read(tmp_path) is None


def test_a_file_that_was_cut_off_anywhere_is_no_error(tmp_path):
    whole = elf_objects.shared_object("libcuda.so.1")
    path = tmp_path / "libcuda.so"
    for length in range(len(whole) - 1):
        path.write_bytes(whole[:length])

        facts = elf.read(path)

        assert facts is None or facts.soname is None
