"""Programs below a driver root, some of them run."""

import pathlib
import shutil
import subprocess
import sys

import pytest

from dra_driver import errors
from dra_driver.adapters.driver import driver_programs, driver_root

LIBRARY = "libnvidia-ml.so.1"


@pytest.fixture
def root(tmp_path):
    return driver_root.Root("/run/nvidia/driver", tmp_path / "root")


def put(root, path, text="#!/bin/sh\n"):
    place = root.at(path)
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(text)
    place.chmod(0o755)
    return place


def find(root, **options):
    layout = driver_root.Layout(root, options.pop("library_dirs", ()))
    return driver_programs.find(layout, "nvidia-smi", library=LIBRARY, **options)


def test_the_directory_of_the_driver_alone_comes_before_those_of_distributions(root):
    put(root, "/usr/bin/nvidia-smi")
    first = put(root, "/usr/local/nvidia/bin/nvidia-smi")

    assert find(root).path == first


@pytest.mark.parametrize("target", ["/opt/driver/nvidia-smi", "../../opt/driver/nvidia-smi"])
def test_a_link_ends_inside_the_root(root, target):
    real = put(root, "/opt/driver/nvidia-smi")
    root.at("/usr/bin").mkdir(parents=True)
    root.at("/usr/bin/nvidia-smi").symlink_to(target)

    assert find(root).path == real


def test_a_link_to_nowhere_and_a_directory_are_no_programs(root):
    root.at("/opt/bin").mkdir(parents=True)
    root.at("/opt/bin/nvidia-smi").symlink_to("/absent")
    root.at("/usr/bin/nvidia-smi").mkdir(parents=True)
    program = put(root, "/sbin/nvidia-smi")

    assert find(root).path == program


def test_a_root_without_the_program_may_get_it_and_is_named_as_both_know_it(root):
    with pytest.raises(errors.Retryable) as caught:
        find(root)

    text = str(caught.value)
    assert "driver root '/run/nvidia/driver': no nvidia-smi in /usr/local/nvidia/bin, " in text
    assert f"below '{root.seen}'" in text


def test_libraries_of_the_driver_alone_are_a_search_path(root):
    put(root, "/usr/bin/nvidia-smi")
    mine = put(root, f"/opt/libs/{LIBRARY}").parent
    common = put(root, f"/usr/local/nvidia/lib64/{LIBRARY}").parent

    found = find(root, library_dirs=["/opt/libs"]).environment

    assert found == {"LD_LIBRARY_PATH": f"{mine}:{common}"}


def test_a_directory_that_links_lead_to_twice_is_searched_once(root):
    put(root, "/usr/bin/nvidia-smi")
    real = put(root, f"/usr/lib64/{LIBRARY}").parent
    root.at("/lib64").symlink_to("/usr/lib64")

    assert find(root).environment == {"LD_LIBRARY_PATH": str(real)}


def test_a_directory_with_a_c_library_is_no_search_path(root):
    put(root, "/usr/bin/nvidia-smi")
    put(root, "/usr/lib/x86_64-linux-gnu/libc.so.6")
    put(root, "/etc/alternatives/ml")
    root.at(f"/usr/lib/x86_64-linux-gnu/{LIBRARY}").symlink_to("/etc/alternatives/ml")

    found = find(root).environment

    assert found == {"LD_PRELOAD": str(root.at("/etc/alternatives/ml"))}


def test_without_its_library_the_program_is_found_all_the_same(root):
    program = put(root, "/usr/bin/nvidia-smi")

    assert find(root) == driver_programs.Program(program, {})


def test_the_root_of_this_process_needs_no_variables():
    here = driver_root.Layout(driver_root.Root("/", pathlib.Path("/")))

    found = driver_programs.find(here, "env", library="libc.so.6")

    assert found.path.samefile(shutil.which("env"))
    assert found.environment == {}


@pytest.mark.parametrize("with_c_library", [False, True])
def test_the_library_of_the_root_is_the_one_that_a_program_gets(root, tmp_path, with_c_library):
    name = "libdriver-test.so.1"
    lib = root.at("/usr/lib64")
    lib.mkdir(parents=True)
    compile_library(tmp_path, lib / name)
    if with_c_library:
        # Of another distribution, for which the loader of this one is wrong.
        (lib / "libc.so.6").write_text("no library at all")
    body = f"import ctypes\nprint(ctypes.CDLL({name!r}).answer())\n"
    put(root, "/usr/bin/program", f"#!{sys.executable}\n{body}")

    found = driver_programs.find(driver_root.Layout(root), "program", library=name)
    done = subprocess.run(
        [found.path],
        env=found.environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert (done.stdout, done.stderr) == ("42\n", "")


def compile_library(directory, path):
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler")
    source = directory / "source.c"
    source.write_text("int answer(void) { return 42; }\n")
    subprocess.run(
        [compiler, "-shared", "-fPIC", f"-Wl,-soname,{path.name}", "-o", path, source], check=True
    )
