"""Commands that only look: beside a plugin that runs, they change no file of the node."""

import hashlib
import os
import subprocess
import sys

import api_cluster
import driver_trees
import pytest

from dra_driver.adapters.kube import kube

pytestmark = pytest.mark.sampled(13)

GPUS = "h100-80gb-hbm3:2"


def tree(directory):
    """Everything below it: kind, mode, inode, times of change, content."""
    found = {}
    for path in [directory, *sorted(directory.rglob("*"))]:
        facts = path.lstat()
        times = (facts.st_mtime_ns, facts.st_ctime_ns)
        content = None
        if path.is_symlink():
            content = str(path.readlink())
        elif path.is_file():
            content = hashlib.sha256(path.read_bytes()).hexdigest()
        name = str(path.relative_to(directory))
        found[name] = (oct(facts.st_mode), facts.st_ino, facts.st_size, times, content)
    return found


class Node:
    """A node with a plugin that has prepared something of each kind, and rests."""

    def __init__(self, plugin, cluster, machine, home):
        """Commands may put what they need into `home`, which is empty before and after."""
        self.plugin, self.cluster, self.machine, self.home = plugin, cluster, machine, home
        self.started()

    def started(self):
        plugin, cluster = self.plugin.start(), self.cluster
        plugin.register()
        mps = {"sharing": {"strategy": "MPS", "mpsConfig": {}}}
        config = [self.config(mps)]
        self.claims = [
            cluster.claim("gpu-0-mig-1g10gb-19-0"),
            cluster.claim("gpu-1", config=config),
        ]
        plugin.kubelet.prepare(*self.claims)
        for ref in self.claims:
            api_cluster.wait_for(
                lambda ref=ref: cluster.get_claim(ref)["status"].get("devices"), "the report"
            )
        plugin.wait_log("ResourceSlices written")

    def config(self, sharing):
        body = {"apiVersion": "resource.nvidia.com/v1beta1", "kind": "GpuConfig", **sharing}
        return {
            "source": "FromClaim", "requests": [],
            "opaque": {"driver": api_cluster.DRIVER, "parameters": body},
        }  # fmt: skip

    def run(self, *command):
        done = subprocess.run(
            [sys.executable, "-m", "dra_driver", *command],
            env={"PATH": os.environ["PATH"], "HOME": str(self.home), "TMPDIR": str(self.home)},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert "Traceback" not in done.stderr, done.stderr
        return done

    def snapshot(self):
        """All but logs: the plugin writes into its own that it was asked, and so does a daemon."""
        return {
            name: facts
            for name, facts in tree(self.machine.root).items()
            if not name.startswith("log") and "/log/" not in name
        }


@pytest.fixture(scope="module")
def resting(new_plugin, cluster, machine, tmp_path_factory):
    plugin = new_plugin(
        gpus=GPUS,
        mig_mode="dynamic",
        # In the state directory, as the chart has it.
        simulation_dir=None,
        rescan_seconds=3600,
    )
    made = Node(plugin, cluster, machine, tmp_path_factory.mktemp("home"))
    yield made
    plugin.kubelet.unprepare(*made.claims)


def flags(node, gpus):
    machine = node.machine
    return [
        *("--node-name", api_cluster.NODE, "--kubeconfig", str(node.cluster.kubeconfig)),
        *("--kubelet-root", str(machine.kubelet), "--cdi-dir", str(machine.cdi)),
        *("--boot-id-file", str(machine.boot_id), "--simulate-gpus", gpus),
    ]


COMMANDS = {
    "doctor": lambda node: ("doctor", *flags(node, GPUS)),
    "doctor with other cards": lambda node: ("doctor", *flags(node, "t4:1")),
    "doctor as in a pod": lambda node: (
        *("doctor", "--exit-zero", "--timeout=15", "--output", "json"),
        *flags(node, GPUS),
    ),
    "probe": lambda node: ("probe", *flags(node, GPUS)),
    "status": lambda node: ("status", "--kubeconfig", str(node.cluster.kubeconfig)),
    "explain": lambda node: (
        *("explain", f"claim/{node.claims[0].name}", "-n", node.claims[0].namespace),
        *("--kubeconfig", str(node.cluster.kubeconfig)),
    ),
}


@pytest.mark.parametrize("command", COMMANDS)
def test_it_changes_nothing_on_the_node(resting, command):
    before = resting.snapshot()
    objects = objects_of(resting.cluster)

    done = resting.run(*COMMANDS[command](resting))

    assert done.returncode == 0, done.stdout + done.stderr
    assert resting.snapshot() == before
    assert objects_of(resting.cluster) == objects
    assert list(resting.home.iterdir()) == []


def objects_of(cluster):
    return [cluster.client.list(kind)[0] for kind in (kube.SLICES, kube.CLAIMS, kube.NODES)]


def test_a_doctor_that_is_asked_about_other_cards_tells_of_those(resting):
    done = resting.run("doctor", *flags(resting, "t4:1"))

    assert "1 x Tesla T4" in done.stdout
    assert str(resting.home) not in done.stdout


def test_a_doctor_that_is_asked_about_the_real_driver_changes_nothing_in_it(resting, tmp_path):
    [debian] = [tree for tree in driver_trees.TREES if tree.name == "debian"]
    debian.make(tmp_path)
    before = resting.snapshot(), tree(tmp_path)
    real = [part for part in flags(resting, GPUS) if part not in ("--simulate-gpus", GPUS)]

    done = resting.run("doctor", *real, "--driver-root-seen", str(tmp_path))

    assert "has /usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1" in done.stdout
    assert (resting.snapshot(), tree(tmp_path)) == before


def test_a_doctor_beside_a_plugin_without_a_state_yet_makes_none(resting, tmp_path):
    nowhere = tmp_path / "nowhere"

    done = resting.run("doctor", *flags(resting, GPUS), "--state-dir", str(nowhere / "state"))

    assert done.returncode == 1  # The plugin that answers there is none of this state.
    assert not nowhere.exists()
