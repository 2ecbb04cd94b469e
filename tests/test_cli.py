import importlib.metadata
import json
import pathlib
import signal
import subprocess
import sys
import threading

import pytest
import structlog

from dra_driver import cli, errors, settings
from dra_driver.apps.plugin import kubelet_plugin
from dra_driver.sim.demo import demo

pytestmark = pytest.mark.sampled(9)

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


@pytest.fixture(autouse=True)
def process_state(monkeypatch):
    """No settings from outside; signal handlers and logs as they were."""
    for name in ("NODE_NAME", "KUBECONFIG", "DRA_DRIVER_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    before = {number: signal.getsignal(number) for number in SIGNALS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)
    structlog.reset_defaults()


def run(*arguments):
    """The exit status."""
    with pytest.raises(SystemExit) as caught:
        cli.main(arguments)
    return caught.value.code


class Started:
    """Stands for the app: what it was started with."""

    made: "list[Started]"
    failure: "Exception | None"

    def __init__(self, config, hardware, *, user_agent):
        self.config, self.hardware, self.user_agent = config, hardware, user_agent
        self.made.append(self)

    def run(self, stop):
        self.stop = stop
        if self.failure is not None:
            raise self.failure


@pytest.fixture
def plugin(monkeypatch):
    monkeypatch.setattr(kubelet_plugin, "KubeletPlugin", Started)
    monkeypatch.setattr(Started, "made", [], raising=False)
    monkeypatch.setattr(Started, "failure", None, raising=False)
    return Started


# In general


def test_the_version_is_that_of_the_package(capsys):
    assert run("--version") == 0
    assert capsys.readouterr().out == f"dra-driver {importlib.metadata.version('dra-driver')}\n"


def test_help_lists_the_commands(capsys):
    assert run("--help") == 0
    text = capsys.readouterr().out
    assert "kubelet-plugin" in text
    assert "publish the GPUs of this node and prepare claims; one on each node" in " ".join(
        text.split()
    )
    assert "demo" in text
    assert "whether the kubelet plugin of this node works" in " ".join(text.split())


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ([], "the following arguments are required: COMMAND"),
        (["kublet-plugin"], "invalid choice: 'kublet-plugin'"),
        (["kubelet-plugin", "--nodename", "x"], "unrecognized arguments: --nodename x"),
        (["demo", "--nodes", "x"], "--nodes x; dra-driver demo --help lists what there is"),
        (["kubelet-plugin", "--node", "x"], "unrecognized arguments: --node x"),
        (["kubelet-plugin", "--node-name"], "argument --node-name: expected one argument"),
        (["demo", "--output", "xml"], "argument --output: invalid choice: 'xml'"),
        (["demo", "--timeout", "long"], "--timeout: 'long': write a number of seconds above 0"),
        (["demo", "--timeout", "-1"], "--timeout: '-1': write a number of seconds above 0"),
        (["doctor", "--timeout", "0"], "--timeout: '0': write a number of seconds above 0"),
        (["doctor", "--timeout", "inf"], "--timeout: 'inf': write a number of seconds above 0"),
    ],
)
def test_misuse_is_told_and_ends_with_2(capsys, arguments, text):
    assert run(*arguments) == 2
    assert text in capsys.readouterr().err


def test_the_command_and_the_module_are_the_same():
    script = pathlib.Path(sys.executable).with_name("dra-driver")
    for command in ([script], [sys.executable, "-m", "dra_driver"]):
        done = subprocess.run(
            [*command, "kubelet-plugin"], capture_output=True, text=True, timeout=60,
            check=False, env={"PATH": ""},
        )  # fmt: skip
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr == (
            "dra-driver: node_name is not set: give --node-name or DRA_DRIVER_NODE_NAME\n"
        )


def test_what_a_command_does_not_need_is_not_loaded():
    script = (
        "import sys\n"
        "from dra_driver import cli\n"
        "try:\n"
        "    cli.main(['kubelet-plugin', '--help'])\n"
        "except SystemExit:\n"
        "    heavy = {'kubernetes', 'grpc', 'pynvml', 'lark', 're2', 'uvicorn'}\n"
        "    assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, timeout=60)


def test_what_opens_the_sockets_does_not_wait_for_what_prepares_to_load():
    script = (
        "import sys\n"
        "from dra_driver.apps.plugin import kubelet_plugin\n"
        "late = {'kubernetes', 'pynvml', 'yaml', 'dra_driver.apps.preparing.preparing',\n"
        "        'dra_driver.apps.plugin.node_agent', 'dra_driver.adapters.nvml.nvml'}\n"
        "assert not late & set(sys.modules), late & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, timeout=60)


# kubelet-plugin


def test_the_plugin_is_started_with_its_settings(plugin, tmp_path):
    assert run(
        "kubelet-plugin", "--node-name", "node-1", "--state-dir", str(tmp_path),
        "--rescan-seconds=2", "--library-dirs", "/a,/b",
    ) == 0  # fmt: skip
    (started,) = plugin.made
    assert started.config == settings.KubeletPlugin(
        node_name="node-1", state_dir=tmp_path, rescan_seconds=2.0, library_dirs=("/a", "/b")
    )
    assert started.user_agent == "dra-driver/0.1.0 kubelet-plugin"


def test_settings_come_from_the_file_then_the_environment_then_flags(plugin, tmp_path, monkeypatch):
    file = tmp_path / "settings.yaml"
    file.write_text("nodeName: of-file\ndriverName: of-file\nlogLevel: error\n")
    monkeypatch.setenv("DRA_DRIVER_DRIVER_NAME", "of-environment")
    monkeypatch.setenv("DRA_DRIVER_LOG_LEVEL", "warning")
    run("kubelet-plugin", "--config", str(file), "--log-level", "debug")
    config = plugin.made[0].config
    assert (config.node_name, config.driver_name, config.log_level) == (
        "of-file", "of-environment", "debug",
    )  # fmt: skip


def test_the_file_may_be_named_in_the_environment_and_a_flag_goes_before_it(
    plugin, tmp_path, monkeypatch
):
    for name in ("one", "two"):
        (tmp_path / name).write_text(f"nodeName: {name}\n")
    monkeypatch.setenv("DRA_DRIVER_CONFIG", str(tmp_path / "one"))
    run("kubelet-plugin")
    run("kubelet-plugin", "--config", str(tmp_path / "two"))
    assert [started.config.node_name for started in plugin.made] == ["one", "two"]


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (None, "cannot be read: [Errno 2] No such file or directory"),
        ("a: [", "cannot be read: "),
        ("a: 1\n---\nb: 2\n", "one YAML document is expected, it has 2"),
        ("nodename: x\n", "settings file: 'nodename' is unknown; known are "),
        ("- a\n", "settings file: a mapping is needed, not list"),
    ],
)
def test_a_wrong_file_is_told_and_ends_with_1(plugin, capsys, tmp_path, content, text):
    file = tmp_path / "settings.yaml"
    if content is not None:
        file.write_text(content)
    assert run("kubelet-plugin", "--node-name", "n", "--config", str(file)) == 1
    shown = capsys.readouterr()
    assert shown.err.startswith("dra-driver: ")
    assert text in shown.err
    assert "Traceback" not in shown.err
    assert plugin.made == []


def test_a_failure_of_the_app_is_told_in_one_line_and_ends_with_1(plugin, capsys, monkeypatch):
    monkeypatch.setattr(plugin, "failure", errors.Fatal("socket cannot be bound"))
    assert run("kubelet-plugin", "--node-name", "n") == 1
    assert capsys.readouterr().err == "dra-driver: socket cannot be bound\n"


def test_a_programming_error_is_told_with_its_trace(plugin, monkeypatch, capsys):
    monkeypatch.setattr(plugin, "failure", ZeroDivisionError("why\x1b[2J"))
    assert run("kubelet-plugin", "--node-name", "n") == 1
    said = capsys.readouterr().err
    assert said.startswith("Traceback (most recent call last):\n")
    assert said.endswith("ZeroDivisionError: why\\u001b[2J\n")


POD = """
apiVersion: v1
kind: Pod
metadata: {name: "p\\e[2J"}
spec: {resourceClaims: [{name: a, resourceClaimTemplateName: "t\\e[2J\\u202e"}]}
"""


@pytest.mark.parametrize("arguments", [
    ["explain", "-f", "FILE", "--slices", "EMPTY"],
    ["explain", "pod/\x1b[2J\u202e", "--slices", "FILE"],
    ["explain", "pod/x", "--slices", "FILE"],
    ["status", "--from", "FILE", "--node", "\x1b[2J\u202e"],
])  # fmt: skip
def test_no_name_in_an_error_or_answer_steers_the_terminal(tmp_path, capsys, arguments):
    (tmp_path / "FILE").write_text(POD)
    (tmp_path / "EMPTY").write_text("{apiVersion: v1, kind: List, items: []}")
    status = run(*(str(tmp_path / each) if each.isupper() else each for each in arguments))
    shown = capsys.readouterr()
    assert status in (1, 2)
    assert "[2J" in shown.out + shown.err
    assert set(shown.out + shown.err).isdisjoint("\x1b\u202e")


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_asks_the_app_to_stop(plugin, number):
    run("kubelet-plugin", "--node-name", "n")
    stop = plugin.made[0].stop
    assert not stop.is_set()
    signal.raise_signal(number)
    assert stop.wait(60)


def of_a_process(script):
    """Run a script that has `stop`, the event of the signals."""
    start = "import signal, threading, time\nfrom dra_driver import cli\n"
    start += "stop = cli._stop_on_signals()\n"
    subprocess.run(
        [sys.executable, "-c", start + script], check=True, capture_output=True, timeout=120
    )


def test_signals_stop_the_app_also_while_it_looks_whether_it_is_to_stop():
    of_a_process(
        "with stop._cond:\n"
        "    signal.raise_signal(signal.SIGTERM)\n"
        "    signal.raise_signal(signal.SIGHUP)\n"
        "assert stop.wait(60)\n"
    )


def test_a_signal_that_another_thread_gets_stops_the_app_too():
    of_a_process(
        "def get():\n"
        "    while not stop._cond._waiters:\n"
        "        time.sleep(0.01)\n"
        "    signal.pthread_kill(threading.get_ident(), signal.SIGTERM)\n"
        "threading.Thread(target=get).start()\n"
        "assert stop.wait(60)\n"
    )


def test_logs_are_set_up_as_asked(plugin, capsys):
    run("kubelet-plugin", "--node-name", "n", "--log-level", "warning", "--log-format", "json")
    log = structlog.get_logger()
    log.info("not shown")
    log.warning("shown")
    assert json.loads(capsys.readouterr().err)["event"] == "shown"


def test_simulated_gpus_are_made_when_the_app_asks_for_its_hardware(plugin, tmp_path):
    run(
        "kubelet-plugin", "--node-name", "n", "--state-dir", str(tmp_path), "--simulate-gpus",
        "t4:2",
    )  # fmt: skip
    assert list(tmp_path.iterdir()) == []
    hardware = plugin.made[0].hardware()
    found = hardware.nvml.discover()
    assert [gpu.product_name for gpu in found.gpus] == ["Tesla T4", "Tesla T4"]
    assert (tmp_path / "simulation").is_dir()


# demo


@pytest.fixture
def played(monkeypatch):
    asked = []

    def fake(options, stop, _terminal):
        asked.append((options, stop))
        return 7

    monkeypatch.setattr(demo, "run", fake)
    return asked


def test_the_demo_has_defaults_and_its_status_is_that_of_the_command(played):
    assert run("demo") == 7
    (options, stop) = played[0]
    assert options == demo.Options()
    assert isinstance(stop, threading.Event)


def test_the_demo_takes_files_nodes_and_options(played):
    run(
        "demo", "-f", "a.yaml", "--file", "folder", "--node", "one=t4:1",
        "--node", "two=h100-80gb-hbm3:8,t4:2", "--keep", "--output", "json",
        "--runtime", "podman", "--timeout", "2.5", "--emulate", "1.36.2",
        "--plugin-setting", "shares=memory", "--plugin-setting", "packing=spread",
    )  # fmt: skip
    assert played[0][0] == demo.Options(
        files=(pathlib.Path("a.yaml"), pathlib.Path("folder")),
        nodes=(demo.parse_node("one=t4:1"), demo.parse_node("two=h100-80gb-hbm3:8,t4:2")),
        keep=True,
        output="json",
        runtime="podman",
        timeout=2.5,
        plugin_flags=("--shares=memory", "--packing=spread"),
        emulate="1.36.2",
    )


@pytest.mark.parametrize("node", ["one", "=t4:1", "one=", "one=t4", "one=t4:x", "one=gtx:1"])
def test_a_node_that_is_none_is_told_and_ends_with_1(played, capsys, node):
    assert run("demo", "--node", node) == 1
    assert capsys.readouterr().err.startswith("dra-driver: ")
    assert played == []


@pytest.mark.parametrize("setting", ["shares", "sharing=MPS", "shares=many", "node-name=x"])
def test_a_setting_that_plugins_do_not_have_is_told_and_ends_with_1(played, capsys, setting):
    assert run("demo", "--plugin-setting", setting) == 1
    assert capsys.readouterr().err.startswith("dra-driver: --plugin-setting")
    assert played == []


def test_a_release_that_cannot_be_emulated_is_told_and_ends_with_1(capsys):
    assert run("demo", "--emulate", "1.2.3") == 1
    text = capsys.readouterr().err
    assert "1.2.3" in text
    assert "1.36.2" in text
