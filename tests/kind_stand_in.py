"""Takes the place of `kind`, `docker`, `podman`, `helm`, `kubectl` or `make`, see kind_programs.py.

It notes its call, and remembers as much as the scripts of demo/kind ask for: which clusters there
are, which GPUs the driver was installed with, which pods were applied. It imports little, since it
is started for each call.
"""

import json
import os
import pathlib
import re
import sys

_OBJECT = re.compile(r"^---$", re.MULTILINE)


class _Memory:
    """What was done, in files."""

    def __init__(self, directory: pathlib.Path) -> None:
        self._directory = directory

    def get(self, name, default):
        path = self._directory / name
        return json.loads(path.read_text("utf-8")) if path.exists() else default

    def put(self, name, value) -> None:
        (self._directory / name).write_text(json.dumps(value), encoding="utf-8")

    def note(self, call) -> None:
        with (self._directory / "calls").open("a", encoding="utf-8") as file:
            file.write(json.dumps(call) + "\n")


def _kind(arguments, memory) -> None:
    match arguments:
        case ["get", "clusters"]:
            _say("\n".join(memory.get("clusters", ["another"])))
        case ["create", "cluster", *_]:
            pathlib.Path(_after("--kubeconfig", arguments)).write_text("mine", encoding="utf-8")
            memory.put("clusters", ["another", _after("--name", arguments)])
            made = pathlib.Path(_after("--config", arguments)).read_text("utf-8")
            memory.put("nodes", made.count("demo.dra-driver/gpus"))
        case ["delete", "cluster", *_]:
            memory.put("clusters", ["another"])
            pathlib.Path(_after("--kubeconfig", arguments)).unlink()
        case ["export", "kubeconfig", *_]:
            pathlib.Path(_after("--kubeconfig", arguments)).write_text("mine", encoding="utf-8")
        case ["load", "image-archive", archive, *_]:
            assert pathlib.Path(archive).exists(), archive


def _docker(arguments, memory) -> None:
    match arguments:
        case ["save", "--output", archive, _]:
            pathlib.Path(archive).write_text("image", encoding="utf-8")
        case ["exec", _, "containerd", "config", "dump"]:
            _say(memory.get("containerd", "    enable_cdi = true"))
        case ["info", "--format", _]:
            _say(memory.get("runtime", "nvidia"))


def _helm(arguments, memory) -> None:
    if arguments[0] == "uninstall":
        memory.put("installed", value=False)
        return
    text = pathlib.Path(_after("--values", arguments)).read_text("utf-8")
    _install(re.search(r'simulateGpus: "(.*)"', text), re.search(r'shares: "(.*)"', text), memory)
    memory.put("workers", 1 if "demo.dra-driver/first:" in text else memory.get("nodes", 2))


def _install(gpus, shares, memory) -> None:
    count = sum(int(part.rpartition(":")[2]) for part in gpus[1].split(",")) if gpus else 1
    memory.put("gpus", count)
    memory.put("shares", shares[1])
    memory.put("installed", value=True)


def _kubectl(arguments, memory) -> None:
    namespace = _after("-n", arguments)
    if "resourceslices" in arguments:
        _devices(memory)
    elif "nodes" in arguments:
        _say("\n".join(f"node/worker-{number}" for number in range(memory.get("nodes", 2))))
    elif "delete" in arguments and "-k" in arguments:
        memory.put("installed", value=False)
    elif "apply" in arguments and (folder := _after("-k", arguments)):
        _kustomize(folder, memory)
    elif "apply" in arguments:
        _apply(pathlib.Path(_after("-f", arguments)).read_text("utf-8"), memory)
    elif "daemonset" in arguments:
        sys.exit(0 if memory.get("installed", default=False) else 1)
    elif "events" in arguments:
        _events(_after("--field-selector", arguments), namespace, memory)
    elif "pods" in arguments and "get" in arguments:
        _pods(namespace, memory)
    elif "namespace" in arguments and "get" in arguments:
        sys.exit(0 if memory.get(f"pods-{arguments[-1]}", {}) else 1)
    elif "namespace" in arguments and "delete" in arguments:
        memory.put(f"pods-{arguments[arguments.index('namespace') + 1]}", {})
    elif "logs" in arguments:
        _say(memory.get("logs", "GPU 0: Tesla T4 (UUID: GPU-0f)"))


def _devices(memory) -> None:
    for index in range(memory.get("gpus", 0)):
        for _ in range(memory.get("workers", 0)):
            _say(f"gpu-{index}|{'' if memory.get('shares', '') == 'off' else 'true'}")
            _say(f"gpu-{index}-mig-1g10gb-19-0|")


def _kustomize(folder, memory) -> None:
    text = (pathlib.Path(folder) / "kustomization.yaml").read_text("utf-8")
    _install(re.search(r'simulate-gpus=(.*?)"', text), re.search(r"shares=(\w+)", text), memory)
    memory.put("workers", 1 if "demo.dra-driver~1first" in text else memory.get("nodes", 2))


def _pods(namespace, memory) -> None:
    for name, expected in memory.get(f"pods-{namespace}", {}).items():
        _say("|".join((namespace, name, expected, *_becomes(expected))))


def _apply(text, memory) -> None:
    for body in _OBJECT.split(text):
        if re.search(r"^kind: Pod$", body, re.MULTILINE):
            [namespace] = re.findall(r"^  namespace: (.*)$", body, re.MULTILINE)
            [name] = re.findall(r"^  name: (.*)$", body, re.MULTILINE)
            expected = re.findall(r"demo.dra-driver/expect: (.*)$", body, re.MULTILINE)
            pods = memory.get(f"pods-{namespace}", {})
            memory.put(f"pods-{namespace}", {**pods, name: "".join(expected)})


def _becomes(expected):
    """Phase, node, and reason of the condition PodScheduled."""
    if expected == "Unschedulable":
        return "Pending", "", "Unschedulable"
    return ("Pending" if expected == "Refused" else "Running"), "worker", ""


def _events(selector, namespace, memory) -> None:
    for name, expected in memory.get(f"pods-{namespace}", {}).items():
        if selector == "reason=FailedScheduling" and expected.startswith("Unschedulable"):
            _say(f"{namespace}/{name}")
        if selector == "reason=FailedPrepareDynamicResources" and expected == "Refused":
            _say(f"{name}|Failed to prepare dynamic resources: NodePrepareResources failed for")


def _say(text) -> None:
    sys.stdout.write(f"{text}\n")


def _after(flag, arguments):
    return arguments[arguments.index(flag) + 1] if flag in arguments else ""


def _main() -> None:
    name, *arguments = sys.argv[1:]
    memory = _Memory(pathlib.Path(os.environ["MEMORY"]))
    memory.note([name, *arguments])
    programs = {"kind": _kind, "docker": _docker, "podman": _docker, "helm": _helm}
    programs["kubectl"] = _kubectl
    if name in programs:
        programs[name](arguments, memory)


if __name__ == "__main__":
    _main()
