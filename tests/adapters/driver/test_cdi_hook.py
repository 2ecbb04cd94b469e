"""What is found out about `nvidia-cdi-hook`, with programs that are run."""

import pathlib
import subprocess

import hook_programs
import polling
import pytest

from dra_driver.adapters.driver import cdi_hook
from dra_driver.model import driver

GUESS = driver.NEEDED_HOOK_COMMANDS


@pytest.fixture
def path(tmp_path):
    return tmp_path / "nvidia-cdi-hook"


@pytest.mark.parametrize(
    ("release", "lacking"),
    [
        (hook_programs.V1_16, {"enable-cuda-compat", "disable-device-node-modification"}),
        (hook_programs.V1_17_5, {"disable-device-node-modification"}),
        (hook_programs.V1_18, set()),
        ((*hook_programs.V1_18, "one-to-come"), set()),
        (("help-me",), set(hook_programs.ALL)),
    ],
)
def test_it_is_asked_which_commands_it_has(path, release, lacking):
    hook_programs.put(path, release)

    assert cdi_hook.CdiHook().ask(path) == cdi_hook.Answer(hook_programs.ALL - lacking)


def test_a_command_may_have_other_names_too(path):
    commands = ("u, update-ldcache", "create-symlinks, c", "not-create-symlinks-at-all")
    hook_programs.put(path, commands)

    assert cdi_hook.CdiHook().ask(path).commands == {"update-ldcache", "create-symlinks"}


def test_a_command_that_is_only_spoken_of_is_none(path):
    """The text of the program has one in a sentence."""
    hook_programs.put(path, ["chmod"])

    assert cdi_hook.CdiHook().ask(path).commands == frozenset()


def test_it_is_asked_once_and_again_when_another_is_in_its_place(path):
    hook_programs.put(path, hook_programs.V1_16)
    hook = cdi_hook.CdiHook()

    before = [hook.ask(path).commands for _ in range(3)]
    assert hook_programs.calls(path) == ["--help"]
    hook_programs.put(path, hook_programs.V1_18)

    assert [*map(len, before)] == [2, 2, 2]
    assert hook.ask(path).commands == hook_programs.ALL
    assert hook_programs.calls(path) == ["--help", "--help"]


def test_one_that_cannot_be_asked_is_taken_for_the_oldest_and_asked_again(path):
    hook = cdi_hook.CdiHook()

    absent = hook.ask(path)
    hook_programs.put(path, before="echo no such device >&2; exit 1")
    failing = hook.ask(path)
    again = hook.ask(path)

    assert (absent.commands, failing.commands) == (GUESS, GUESS)
    assert absent.problem == f"{path}: No such file or directory"
    assert failing.problem == f"{path} --help ended with 1: no such device"
    assert again == failing
    assert len(hook_programs.calls(path)) == 2


def test_one_that_is_no_program_for_this_machine_is_taken_for_the_oldest(path):
    path.write_bytes(b"\x7fELF" + bytes(60))
    path.chmod(0o755)

    answer = cdi_hook.CdiHook().ask(path)

    assert answer.commands == GUESS
    assert answer.problem == f"{path} cannot be run: Exec format error"


def test_one_that_is_not_seen_is_taken_for_the_oldest():
    assert cdi_hook.CdiHook().ask(None) == cdi_hook.Answer(GUESS, "this process does not see it")


def test_one_that_does_not_end_is_not_waited_for(path):
    hook_programs.put(path, before="exec sleep 600")

    answer = cdi_hook.CdiHook(seconds=0.2).ask(path)

    assert answer == cdi_hook.Answer(GUESS, f"{path} --help did not end within 0.2 s")


def test_nothing_is_left_of_one_that_does_not_end(path, tmp_path, monkeypatch):
    """Nor of what it began, which has its output, too."""
    pids = tmp_path / "pids"
    hook_programs.put(path, before=f"sleep 600 &\necho $$ $! >{pids}\nwait")
    communicate = subprocess.Popen.communicate

    def later(*arguments, **options):
        polling.until(lambda: pids.exists() and pids.read_text().endswith("\n"))
        return communicate(*arguments, **options)

    monkeypatch.setattr(subprocess.Popen, "communicate", later)
    assert cdi_hook.CdiHook(seconds=0.2).ask(path).problem is not None
    polling.until(lambda: not any(map(is_running, pids.read_text().split())))


def is_running(pid):
    try:
        text = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return text.rpartition(")")[2].split()[0] not in {"Z", "X"}
