"""The doctor's command, and what it says of the node beside its driver."""

import json
import tempfile
import threading

import api_cluster
import doctor_scene
import pytest

from dra_driver import cli, errors
from dra_driver.adapters.kubelet import dra_grpc
from dra_driver.apps.doctor import doctor, doctor_node
from dra_driver.logic.doctor import diagnosis
from dra_driver.sim.gpus import hardware

pytestmark = pytest.mark.sampled(9)


@pytest.fixture
def node(own_machine, cluster):
    return doctor_scene.Node(own_machine, cluster.kubeconfig)


def examine(config):
    return doctor_scene.by_check(doctor_scene.examine(config))


def run(node, *flags):
    config = node.configured()
    with pytest.raises(SystemExit) as ended:
        cli.main(
            ["doctor", "--node-name", config.node_name, "--kubeconfig", str(config.kubeconfig),
             "--kubelet-root", str(config.kubelet_root), "--cdi-dir", str(config.cdi_dir),
             "--boot-id-file", str(config.boot_id_file), "--proc-root", str(config.proc_root),
             "--simulate-gpus", "t4:2", *flags]
        )  # fmt: skip
    return ended.value.code


def test_a_node_that_has_all_ends_with_0(node, capsys):
    assert run(node) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "Fine"
    assert lines[-1] == "Node node-1, driver gpu.nvidia.com: 0 problems, 0 notes, 17 fine"


def test_a_problem_ends_with_1_and_is_told_first_with_its_remedy(node, capsys):
    node.machine.boot_id.unlink()
    assert run(node) == 1
    shown = capsys.readouterr().out
    assert shown.startswith(
        f"Problem: boot id\n  looked at: {node.machine.boot_id}\n  cause:     it cannot be read: "
        "No such file or directory; without it what was prepared before a reboot would count as "
        "prepared\n  remedy:    mount -t proc proc /proc, or correct --boot-id-file\n\nFine\n"
    )
    assert shown.endswith(": 1 problem, 0 notes, 16 fine\n")


@pytest.mark.parametrize("missing", [False, True])
def test_an_init_container_ends_with_0_and_leaves_a_message(node, capsys, missing):
    message = node.machine.root / "message"
    if missing:
        node.machine.boot_id.unlink()
    assert run(node, "--exit-zero", "--termination-message", str(message)) == 0
    counts, *problems = message.read_text().splitlines()
    assert counts == (
        "1 problem, 0 notes, 16 fine." if missing else "0 problems, 0 notes, 17 fine."
    )
    assert [line.partition(":")[0] for line in problems] == (
        [f"boot id {node.machine.boot_id}"] if missing else []
    )
    assert f"driver gpu.nvidia.com: {counts[:-1]}" in capsys.readouterr().out


def test_an_init_container_ends_with_0_without_an_api_server(own_machine, own_cluster, capsys):
    node = doctor_scene.Node(own_machine, own_cluster.kubeconfig)
    own_cluster.stop()
    message = own_machine.root / "message"
    assert run(node, "--exit-zero", "--termination-message", str(message)) == 0
    assert f"\nAPI server {own_cluster.kubeconfig}: " in message.read_text()
    assert "Problem: API server\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (("--mig-mode", "maybe"), "flag --mig-mode: 'maybe'"),
        (("--simulate-gpus", "h200:1"), "GPU model 'h200' is not known"),
        (("--config", "/nowhere/settings.yaml"), "/nowhere/settings.yaml"),
    ],
)
def test_a_wrong_setting_is_a_problem_like_any_other(node, capsys, flags, told):
    message = node.machine.root / "message"
    extra = ("--termination-message", str(message), *flags)
    assert run(node, *extra) == 1
    assert told in message.read_text()
    assert told in capsys.readouterr().out
    assert run(node, "--exit-zero", *extra) == 0


def test_simulated_gpus_that_may_not_be_looked_at_are_no_surprise(node, capsys):
    # As for a user without rights, with an error that root gets too.
    beyond = node.machine.root / ("x" * 300)
    assert run(node, "--simulation-dir", str(beyond)) == 1
    told = capsys.readouterr()
    assert f"directory of simulated GPUs {beyond}: File name too long; run as root" in told.out
    assert "Traceback" not in told.err


def test_a_message_that_cannot_be_written_changes_nothing(node, capsys):
    assert run(node, "--exit-zero", "--termination-message", "/nowhere/message") == 0
    told = capsys.readouterr()
    assert "cannot be written to /nowhere/message: No such file or directory" in told.err
    assert "17 fine" in told.out


def test_what_goes_wrong_unexpectedly_leaves_what_was_found_before(node, capsys):
    def broken(_config):
        raise TypeError("no such thing")

    findings = doctor.examine(node.configured(), broken, user_agent="test")
    assert diagnosis.told(findings[-1]).startswith(
        "doctor the NVIDIA driver: looking failed unexpectedly: TypeError: no such thing"
    )
    assert "registration directory" in [finding.check for finding in findings]
    assert "Traceback" in capsys.readouterr().err


def test_a_driver_that_does_not_come_back_is_not_waited_for(node, monkeypatch):
    hangs, come_back = threading.Event(), threading.Event()

    def hanging(_config):
        hangs.set()
        come_back.wait(api_cluster.DEADLINE)
        # Nothing of the node, which is cleared away meanwhile, is touched any more.
        raise errors.Retryable("the test is over")

    class Doctor(threading.Thread):
        """Its time is up once it is there, however fast the machine is."""

        def join(self, timeout=None):
            if self.name == "doctor":
                assert hangs.wait(api_cluster.DEADLINE)
            super().join(timeout)

    with monkeypatch.context() as patch:
        patch.setattr(doctor.threading, "Thread", Doctor)
        findings = doctor.examine(node.configured(), hanging, seconds=1.0, user_agent="test")
    come_back.set()
    assert findings[-1].level is diagnosis.Level.PROBLEM
    assert diagnosis.told(findings[-1]).startswith(
        "time the NVIDIA driver: not looked at within 1 s"
    )
    assert "registration directory" in [finding.check for finding in findings]


def test_what_is_found_at_the_last_moment_is_told(node, monkeypatch):
    class Late(threading.Thread):
        """Ends when time is up, and before it is asked whether it has."""

        def start(self):
            pass

        def join(self, timeout=None):
            pass

        def is_alive(self):
            self.run()
            return False

    with monkeypatch.context() as patch:
        patch.setattr(doctor.threading, "Thread", Late)
        patch.setattr(doctor, "_parts", lambda *_: iter([["a"], ["b"], ["c"]]))
        findings = doctor.examine(node.configured(), hardware.simulated, user_agent="test")
    assert findings == ["a", "b", "c"]


@pytest.mark.parametrize("missing", [False, True])
def test_json_has_the_same_findings(node, capsys, missing):
    if missing:
        node.machine.boot_id.unlink()
    assert run(node, "--output", "json") == int(missing)
    told = json.loads(capsys.readouterr().out)
    assert (told["node"], told["driver"]) == ("node-1", "gpu.nvidia.com")
    assert told["works"] is not missing
    [boot] = [each for each in told["findings"] if each["check"] == "boot id"]
    assert set(boot) == {"level", "check", "looked_at", "cause", "remedy"}
    assert boot["level"] == ("problem" if missing else "fine")
    assert boot["looked_at"] == str(node.machine.boot_id)


def test_nothing_is_left_on_the_node_and_in_the_cluster(node, cluster, tmp_path, monkeypatch):
    """Nor are the simulated GPUs, of which there are none yet."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    published = cluster.slices()
    found = doctor_scene.by_check(doctor_scene.examine(node.configured()))
    assert found["GPUs"].level is diagnosis.Level.FINE
    assert found["driver root"].looked_at.startswith(str(node.machine.simulation))
    made = " (not there yet: a kubelet plugin with these settings makes it)"
    program = f"{node.machine.simulation}/driver/usr/bin/nvidia-cuda-mps-control"
    assert found["MPS"].cause == program + made
    assert found["driver root"].cause.endswith(made)
    assert list(tmp_path.iterdir()) == []
    assert list(node.machine.simulation.iterdir()) == []
    assert not node.machine.plugin.exists()
    assert list(node.machine.registry.iterdir()) == []
    assert list(node.machine.cdi.iterdir()) == []
    assert cluster.slices() == published


def test_simulated_gpus_that_a_plugin_has_made_are_looked_at(node, own_plugin, cluster):
    # It has made them when it answers.
    own_plugin(cluster=cluster).start().kubelet.unprepare()
    node.machine.lose_gpus("gpu-1")
    found = examine(node.configured())
    assert found["driver root"].looked_at.startswith(str(node.machine.simulation))
    assert found["GPUs"].cause == "1 x NVIDIA H100 80GB HBM3; driver 580.159.04"
    assert "not there yet" not in found["driver root"].cause + found["MPS"].cause


def test_simulated_gpus_without_a_place_are_a_problem(node, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", "/nowhere")
    findings = doctor_scene.examine(node.configured(simulation_dir=node.machine.root / "absent"))
    assert findings[-1].level is diagnosis.Level.PROBLEM
    assert "simulated GPUs need a directory: " in findings[-1].cause
    assert "set TMPDIR" in findings[-1].cause


def test_a_registration_directory_that_is_absent_is_the_kubelet_s_business(node):
    node.machine.registry.rmdir()
    found = examine(node.configured())["registration directory"]
    assert found.level is diagnosis.Level.PROBLEM
    assert found.looked_at == str(node.machine.registry)
    assert "--kubelet-root" in found.remedy
    assert not node.machine.registry.exists()


def test_a_cdi_directory_that_is_absent_is_a_note(node):
    node.machine.cdi.rmdir()
    found = examine(node.configured())["CDI directory"]
    assert found.level is diagnosis.Level.NOTE
    assert found.remedy.startswith(f"mkdir -p {node.machine.cdi};")


@pytest.mark.parametrize(
    ("setting", "check", "flag"),
    [
        ("registry_dir", "registration directory", "--registry-dir"),
        ("plugin_dir", "plugin directory", "--plugin-dir"),
        ("state_dir", "state directory", "--state-dir"),
        ("cdi_dir", "CDI directory", "--cdi-dir"),
    ],
)
def test_a_directory_that_takes_no_files_is_a_problem(node, setting, check, flag):
    found = examine(node.configured(**{setting: "/proc"}))[check]
    assert found.level is diagnosis.Level.PROBLEM
    assert found.looked_at == "/proc"
    assert found.cause.startswith("no file can be put there: /proc: ")
    assert flag in found.remedy


@pytest.mark.parametrize("setting", ["plugin_dir", "cdi_dir"])
def test_a_directory_that_cannot_be_made_is_a_problem(node, setting):
    file = node.machine.root / "file"
    file.touch()
    findings = doctor_scene.examine(node.configured(**{setting: file / "below"}))
    [found] = diagnosis.of_level(findings, diagnosis.Level.PROBLEM)
    assert found.cause == f"it cannot be made: {file}: not a directory"


def test_a_socket_path_that_is_too_long_is_a_problem(node):
    deep = node.machine.root / ("x" * 100)
    found = examine(node.configured(plugin_dir=deep))["socket path"]
    assert found.level is diagnosis.Level.PROBLEM
    assert found.remedy == "choose a shorter --plugin-dir"


def test_an_empty_boot_id_is_a_problem(node):
    node.machine.boot("")
    found = examine(node.configured())["boot id"]
    assert found.level is diagnosis.Level.PROBLEM
    assert found.cause.startswith("it is empty;")


def test_processes_of_a_container_are_a_note(node):
    (node.proc / "2" / "comm").write_text("sh\n")
    found = examine(node.configured())["process names"]
    assert found.level is diagnosis.Level.NOTE
    assert found.remedy.startswith("hostPID: true")


def test_the_plugin_itself_may_run(node, own_plugin, cluster):
    own_plugin(cluster=cluster).start().kubelet.unprepare()
    found = examine(node.configured())["driver name"]
    assert found.cause == "gpu.nvidia.com is served by this driver"


@pytest.mark.parametrize("waiting", [False, True])
def test_the_old_instance_may_run_during_a_rolling_update(node, own_plugin, cluster, waiting):
    """Also one that waits for the directory of CDI specs."""
    if waiting:
        node.machine.cdi.rmdir()
        node.machine.cdi.touch()
    old = own_plugin(cluster=cluster, rolling_update_uid="old").start()
    if waiting:
        old.wait_log("waiting")
    else:
        old.kubelet.unprepare()
    found = examine(node.configured(rolling_update_uid="new"))
    assert found["driver name"].cause == "gpu.nvidia.com is served by this driver"
    assert (found["CDI directory"].level is diagnosis.Level.PROBLEM) is waiting


def test_another_plugin_of_the_same_name_is_a_problem(node, monkeypatch):
    """Its socket is where ours would be, as that of the vendor's driver is."""
    monkeypatch.setattr(doctor_node, "START_SECONDS", 0.0)
    config = node.configured()
    info = dra_grpc.PluginInfo(config.driver_name, str(config.service_socket))
    server = dra_grpc.registration_server(config.registration_socket, info, print)
    server.start()
    try:
        found = examine(config)["driver name"]
        renamed = examine(node.configured(driver_name="other.example.com"))["driver name"]
    finally:
        server.stop(0)
    assert found.level is diagnosis.Level.PROBLEM
    assert found.looked_at == str(config.registration_socket)
    assert renamed.level is diagnosis.Level.FINE


def test_a_socket_that_nobody_listens_on_is_no_plugin(node):
    config = node.configured()
    info = dra_grpc.PluginInfo(config.driver_name, str(config.service_socket))
    server = dra_grpc.registration_server(config.registration_socket, info, print)
    server.start()
    aside = config.registry / "dead.sock"
    config.registration_socket.rename(aside)
    server.stop(0)
    assert aside.is_socket()
    assert examine(config)["driver name"].cause == f"nobody else is {api_cluster.DRIVER}"
