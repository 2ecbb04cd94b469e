"""What the image is made of. `buildah` or `docker` build it; here its recipe is read."""

import fnmatch
import pathlib
import re
import tomllib

import chart
import pytest
from packaging import requirements, utils

from dra_driver.apps.plugin import own_hook

dockerfile = pytest.importorskip("dockerfile", reason="no wheel of Docker's parser")

ROOT = chart.DEPLOY.parent
LOCK = (chart.DEPLOY / "requirements.txt").read_text("utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))


@pytest.fixture(scope="module")
def stages():
    """The commands of each stage, by name; that of the last one is empty."""
    made, name = {}, None
    for command in dockerfile.parse_file(str(chart.DEPLOY / "Dockerfile")):
        if command.cmd == "FROM":
            name = command.value[2] if len(command.value) > 1 else ""
            made[name] = []
        made.setdefault(name, []).append(command)
    return made


def sources(stages):
    """What is copied from the checkout."""
    return [
        path
        for commands in stages.values()
        for command in commands
        if command.cmd == "COPY" and not any(f.startswith("--from") for f in command.flags)
        for path in command.value[:-1]
    ]


def pins():
    """Version and hashes of each package of the lock."""
    found = {}
    for block in re.split(r"\n(?=\S)", LOCK.partition("\n")[2].strip()):
        pin, *hashes = block.replace("\\\n", "").split()
        name, _, version = pin.partition("==")
        found[name] = (version, hashes)
    return found


def test_its_base_images_are_pinned_and_can_be_replaced(stages):
    defaults = dict(command.value[0].split("=", 1) for command in stages[None])
    for name, image in defaults.items():
        assert re.search(r":v?\d+\.\d+\.\d+", image), name
    used = {commands[0].value[0] for name, commands in stages.items() if name is not None}
    assert used - set(stages) == {f"${{{name}}}" for name in defaults}


def test_nothing_is_compiled_or_installed_in_what_is_run(stages):
    runs = [command.value for command in stages["driver"] if command.cmd == "RUN"]
    assert runs == [
        ("dra-driver", "--version"),
        ("nvidia-cdi-hook", "--version"),
        ("bash", "-c", "exec gpu-kubelet-plugin --help"),
    ]


@pytest.mark.parametrize(("stage", "user"), [("", "65532:65532"), ("gpu-operator", "0:0")])
def test_the_two_images_differ_in_nothing_but_their_user(stages, stage, user):
    base, *rest = stages[stage]
    assert base.value[0] == "driver"
    assert [(command.cmd, command.value) for command in rest] == [("USER", (user,))]


def test_nothing_is_fetched(stages):
    """pip has no index, and nothing else is run that could."""
    [environment] = [c.value for c in stages["build"] if c.cmd == "ENV"]
    assert dict(zip(environment[::2], environment[1::2], strict=True))["PIP_NO_INDEX"] == "1"
    assert {c.value[0] for c in stages["build"] if c.cmd == "RUN"} == {"python"}
    assert not [c for commands in stages.values() for c in commands if c.cmd == "ADD"]


def test_it_runs_without_rights_unless_a_pod_says_otherwise(stages):
    [user] = [command.value for command in stages[""] if command.cmd == "USER"]
    assert user == ("65532:65532",)
    [entry] = [command.value for command in stages["driver"] if command.cmd == "ENTRYPOINT"]
    assert entry == ("dra-driver",)
    assert "dra-driver" in PROJECT["project"]["scripts"]
    for component in ("webhook", "controller"):
        context = chart.deployed(component)["spec"]["securityContext"]
        assert f"{context['runAsUser']}:{context['runAsGroup']}" == user[0]
    assert chart.container(chart.objects())["securityContext"]["runAsUser"] == 0


def test_the_hook_is_where_the_daemon_set_copies_it_from(stages):
    [copied] = [
        c.value for c in stages["driver"] if c.cmd == "COPY" and c.flags == ("--from=toolkit",)
    ]
    pod = chart.the(chart.objects(), "DaemonSet")["spec"]["template"]["spec"]
    [hook] = [each for each in pod["initContainers"] if each["name"] == "cdi-hook"]
    assert f"cp {copied[-1]} " in hook["args"][0]
    assert copied[-1] == str(own_hook.HOOK)


def test_what_it_copies_is_there_and_is_sent_to_the_builder(stages):
    lines = (ROOT / ".dockerignore").read_text("utf-8").splitlines()
    everything, *kept = [line for line in lines if line and not line.startswith("#")]
    assert everything == "*"
    copied = sources(stages)
    assert sorted(f"!{path}" for path in copied) == sorted(k for k in kept if k.startswith("!"))
    assert [p for p in copied if not (ROOT / p).exists() and p != "build/wheels"] == []
    left_out = [pattern for pattern in kept if not pattern.startswith("!")]
    for path in ("dra_driver/__pycache__/cli.pyc", "dra_driver/__pycache__"):
        assert any(fnmatch.fnmatch(path, pattern) for pattern in left_out)
    needed = {PROJECT["project"]["readme"], *PROJECT["project"]["license-files"]}
    assert {
        p for p in needed if not any(pathlib.PurePath(p).is_relative_to(c) for c in copied)
    } == (set())


def test_every_package_is_locked_with_its_hashes():
    for name, (version, hashes) in pins().items():
        assert re.fullmatch(r"[\w.]+", version), name
        assert hashes, name
        assert all(re.fullmatch(r"--hash=sha256:[0-9a-f]{64}", text) for text in hashes), name


def test_packages_with_machine_code_are_locked_for_both_architectures():
    for name in ("cffi", "cryptography", "google-re2", "grpcio", "protobuf", "pydantic-core"):
        assert len(pins()[name][1]) == 2, name


def test_the_lock_has_what_the_project_asks_for():
    locked = pins()
    asked = [*PROJECT["project"]["dependencies"], *PROJECT["build-system"]["requires"]]
    for text in asked:
        wanted = requirements.Requirement(text)
        name = utils.canonicalize_name(wanted.name)
        assert name in locked, "run `python deploy/lock.py --renew`"
        assert locked[name][0] in wanted.specifier, "run `python deploy/lock.py --renew`"
