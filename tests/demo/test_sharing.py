"""Sharing: every manifest with the options that its README names, and what the README says.

Each is played once: kept until it has been looked at, then stopped.
"""

import contextlib
import dataclasses
import pathlib
import re
import shlex
import tempfile
import threading

import pytest
import structlog
from polling import until

from dra_driver import cli, telemetry
from dra_driver.adapters.console import terminal
from dra_driver.adapters.mps import mps_local
from dra_driver.apps.looking import explain
from dra_driver.model import mps
from dra_driver.sim.cluster import manifests
from dra_driver.sim.demo import demo, plugin_settings

pytestmark = pytest.mark.sampled(13)

FOLDER = pathlib.Path(__file__).parents[2] / "demo" / "sharing"
MANIFESTS = sorted(FOLDER.glob("*.yaml"))
NAMES = [path.name for path in MANIFESTS]
README = (FOLDER / "README.md").read_text(encoding="utf-8")
ROW = re.compile(r"^\| \[(.*?)\]\((.*?)\) \| .* \| `(--.*?)` \| (.*?) \|$", re.MULTILINE)
H100 = "NVIDIA H100 80GB HBM3"
GIB = 2**30
UID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
END_OF_NAME = re.compile(r"(?<=-gpu-|-mig-)[a-z0-9]{5}\b")


@dataclasses.dataclass(slots=True)
class Played:
    """What was shown of a manifest, which MPS daemons ran meanwhile, and what was left."""

    status: int = -1
    tables: dict[str, terminal.Table] = dataclasses.field(default_factory=dict)
    lines: dict[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    daemons: list[mps.Daemon] = dataclasses.field(default_factory=list)
    explained: str = ""
    left: list[str] = dataclasses.field(default_factory=list)

    def rows(self, title="Pods"):
        """The cells of a table without styles."""
        table = self.tables.get(title)
        return [tuple(map(plain, row)) for row in table.rows] if table else []

    def column(self, name):
        """The cells of a column by pod."""
        number = self.tables["Pods"].columns.index(name)
        return {row[0]: row[number] for row in self.rows()}

    @property
    def limits(self):
        """The limits of the daemons, as they were told."""
        return {(each.limits.thread_percentage, each.limits.memory_bytes) for each in self.daemons}


class Looking(terminal.Terminal):
    """Keeps what is shown. When the cluster is said to go on, `look` is called, and ends it."""

    def __init__(self, played, look):
        super().__init__()
        self._played = played
        self._look = look

    def step(self, text):
        super().step(text)
        if found := re.search("KUBECONFIG=(.*)", text):
            self._look(pathlib.Path(found[1]))

    def block(self, block):
        self._played.lines[plain(block.title[0])] = block.lines

    def table(self, table):
        self._played.tables[table.title] = table


def plain(cell):
    return cell if isinstance(cell, str) else cell[0]


def processes(directory):
    """The ids of processes that have a directory in their command or environment."""
    found = []
    for path in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            texts = [(path / name).read_bytes() for name in ("cmdline", "environ")]
        except OSError:  # It has ended.
            continue
        if any(str(directory).encode() in text for text in texts):
            found.append(path.name)
    return found


def told():
    """What the overview has: the options, and the pods with their ends, by manifest."""
    return {
        target: (
            shlex.split(options),
            {
                pod: state.strip()
                for state, pods in re.findall(r"([^:;]+): ([^;]+)", ends)
                for pod in re.findall(r"`(\S+?)`", pods)
            },
        )
        for name, target, options, ends in ROW.findall(README)
        if name == target
    }


def options_of(name):
    given = cli._parser().parse_args(["demo", *told()[name][0]])
    return demo.Options(
        files=(FOLDER / name,),
        nodes=tuple(demo.parse_node(text) for text in given.node),
        plugin_flags=plugin_settings.flags(given.plugin_setting),
        keep=True,
    )


def run(name, directory, capsys, monkeypatch):
    """Play a manifest with all that it makes in a directory."""
    played, stop = Played(), threading.Event()

    def look(kubeconfig):
        files = directory.glob("*/*/state/mps/*/daemon.json")
        played.daemons = [mps.decode(path.read_text()) for path in files]
        if name.startswith("5"):
            capsys.readouterr()
            target = explain.Options(
                target="pod/more-cores",
                manifest=None,
                saved=(),
                kubeconfig=kubeconfig,
                namespace="too-much",
            )
            explain.run(target, terminal.Terminal(), user_agent="test")
            played.explained = capsys.readouterr().out
        stop.set()

    def stop_daemon(launcher, daemon, seconds):
        left.append(f"MPS daemon {daemon.id}, which the plugin has not stopped")
        original(launcher, daemon, seconds)

    left, original = [], mps_local.LocalLauncher.stop
    monkeypatch.setattr(mps_local.LocalLauncher, "stop", stop_daemon)
    telemetry.configure(level="error", log_format="console")
    played.status = demo.run(options_of(name), stop, Looking(played, look))
    structlog.reset_defaults()
    with contextlib.suppress(AssertionError):
        # What was killed may take a moment to end.
        until(lambda: not processes(directory))
    played.left = [*left, *processes(directory), *map(str, directory.iterdir())]
    return played


@pytest.fixture(scope="module")
def known():
    return {}


@pytest.fixture
def played(known, capsys, monkeypatch):
    """What a manifest came to."""

    def played(name):
        if name not in known:
            with tempfile.TemporaryDirectory(prefix="t-", dir="/tmp") as directory:
                monkeypatch.setattr(tempfile, "tempdir", directory)
                known[name] = run(name, pathlib.Path(directory), capsys, monkeypatch)
        return known[name]

    return played


@pytest.mark.parametrize("name", NAMES)
def test_a_manifest_comes_out_as_its_readme_says(played, name):
    assert played(name).column("PHASE") == told()[name][1]
    assert played(name).status == 0


@pytest.mark.parametrize("name", NAMES)
def test_no_process_and_no_file_is_left(played, name):
    assert played(name).left == []


def test_two_pods_of_one_claim_take_turns_with_the_interval_of_their_config(played):
    found = played("1-time-slicing.yaml")
    assert set(found.column("SHARING").values()) == {"time slice Long"}
    assert found.daemons == []
    first, second = found.lines.values()
    assert first == second


def test_two_pods_of_one_claim_have_one_daemon_and_the_limits_of_each_process(played):
    found = played("2-mps.yaml")
    assert set(found.column("SHARING").values()) == {"MPS: 30 %, 4Gi"}
    [daemon] = found.daemons
    assert found.limits == {(30, 4 * GIB)}
    assert all(f"  gpu-0  {H100}  {daemon.device}" in lines for lines in found.lines.values())


def test_a_daemon_serves_the_partition_that_was_made_for_the_claim(played):
    found = played("3-mig-and-mps.yaml")
    assert set(found.column("DEVICES").values()) == {f"3g.40gb of {H100}"}
    assert set(found.column("SHARING").values()) == {"MPS: 50 %, 10Gi"}
    [daemon] = found.daemons
    assert found.limits == {(50, 10 * GIB)}
    partition = f"      MIG 3g.40gb     Device  0: (UUID: {daemon.device})"
    assert all(partition[2:] in lines for lines in found.lines.values())


def test_shares_of_two_namespaces_have_a_daemon_each_on_the_same_card(played):
    found = played("4-shares.yaml")
    assert found.column("DEVICES") == {
        "shares-a/pod": f"share of 10Gi, 30 % of {H100}",
        "shares-b/pod": f"share of 20Gi, 50 % of {H100}",
    }
    assert found.column("SHARING") == {
        "shares-a/pod": "MPS: 30 %, 10Gi", "shares-b/pod": "MPS: 50 %, 20Gi",
    }  # fmt: skip
    assert found.limits == {(30, 10 * GIB), (50, 20 * GIB)}
    assert len({daemon.device for daemon in found.daemons}) == 1


@pytest.mark.exhaustive
def test_what_asks_for_more_than_is_left_is_told_what_is_left(played):
    found = played("5-too-much.yaml")
    reasons = dict(found.rows("Why pods do not run"))
    assert "1 too full (cores 20 left < 30)" in reasons["too-much/more-cores"]
    assert "1 too full (memory 50839Mi left < 60Gi)" in reasons["too-much/more-memory"]


def test_shares_of_one_namespace_have_a_daemon_that_allows_the_largest(played):
    assert played("5-too-much.yaml").limits == {(50, 20 * GIB)}


def test_a_config_that_cannot_work_is_refused_with_the_field_and_nothing_is_set_up(played):
    found = played("6-refused.yaml")
    reasons = dict(found.rows("Why pods do not run"))
    assert 'sharing.strategy: "TimeSlicing" is not allowed' in reasons["refused/turns-on-mig"]
    memory = "sharing.mpsConfig.defaultPinnedDeviceMemoryLimit: 1048576Mi is more than gpu-1 has"
    assert memory in reasons["refused/limit-above-all"]
    assert found.daemons == []


# What the README says


def readme_blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def without_variation(text):
    """The words of a text, without what differs from run to run; a table's lines are joined."""
    joined = re.sub(r"\s+", " ", text)
    return END_OF_NAME.sub("*", UID.sub("*", joined)).strip()


def test_the_readme_has_the_usual_parts():
    assert re.findall(r"^## (.*)$", README, re.MULTILINE) == [
        "Overview",
        "Requirements",
        "How to run",
        "Expected output",
        "What to look at",
        "Clean up",
    ]


def test_the_readme_lists_every_manifest_with_its_pods():
    assert {name: set(ends) for name, (_, ends) in told().items()} == {
        path.name: {
            f"{body['metadata']['namespace']}/{body['metadata']['name']}"
            for body in manifests.load([path])
            if body["kind"] == "Pod"
        }
        for path in MANIFESTS
    }


@pytest.mark.parametrize("number", range(len(NAMES)))
def test_the_tables_in_the_readme_are_those_of_the_manifests(played, number):
    [text] = [block for block in readme_blocks("text") if block.startswith("Pods\n")]
    shown = re.split(r"^Pods\n", text, flags=re.MULTILINE)[1:]
    assert len(shown) == len(NAMES)
    found = played(NAMES[number])
    pods, _, waiting = shown[number].partition("Why pods do not run\n")
    lines = pods.splitlines()
    assert tuple(re.split(r" {3,}", lines[0])) == found.tables["Pods"].columns
    rows = [tuple(re.split(r" {3,}", line)) for line in lines[2:] if "   " in line]
    assert rows == found.rows()
    reasons = [" ".join(row) for row in found.rows("Why pods do not run")]
    written = waiting.partition("---\n")[2].partition("\n\n")[0]
    assert without_variation(written) == without_variation(" ".join(reasons))


def test_the_pod_in_the_readme_is_shown_as_it_is_there(played):
    [text] = [block for block in readme_blocks("text") if block.startswith("mps/first:")]
    assert tuple(text.splitlines()[1:]) == tuple(
        f"  {line}" for line in played("2-mps.yaml").lines["mps/first"]
    )


def test_the_explanation_in_the_readme_is_that_of_the_command(played):
    [text] = [block for block in readme_blocks("text") if block.startswith("pod too-much")]
    assert without_variation(text) == without_variation(played("5-too-much.yaml").explained)


def test_the_commands_of_the_readme_are_understood_and_have_the_options_of_the_overview():
    lines = [line for block in readme_blocks("console") for line in block.splitlines()]
    commands = [shlex.split(line.removeprefix("$ sudo ")) for line in lines]
    commands = [[word for word in each if word != "$"] for each in commands]
    paths = [word for each in commands for word in each if word.startswith("demo/sharing")]
    assert [path for path in paths if not (FOLDER.parents[1] / path).exists()] == []
    parser = cli._parser()
    ours = [parser.parse_args(each[1:]) for each in commands if each[0].endswith("dra-driver")]
    assert {each.run for each in ours} == {cli._demo, cli._explain}
    for each in ours:
        if each.run is cli._demo:
            expected = parser.parse_args(["demo", *told()[each.file[0].name][0]])
            assert (each.node, each.plugin_setting) == (expected.node, expected.plugin_setting)
