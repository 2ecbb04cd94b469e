"""A container for a plain OCI runtime, changed by nothing but the edits of a CDI spec."""

import json
import shutil
import subprocess


def make(directory, edits, command):
    """A bundle in `directory` whose root holds `command`'s program's loader and C library only."""
    root = directory / "rootfs"
    for name in ("bin", "dev", "proc", "sys", "tmp", "etc"):
        (root / name).mkdir(parents=True)
    for library in _loader_and_libc(command[0]):
        target = root / library.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(library, target)
    config = _config(command)
    for each in edits:
        _apply(config, each)
    (directory / "config.json").write_text(json.dumps(config), encoding="utf-8")


def _loader_and_libc(program):
    """What the dynamic linker needs for a program that is itself mounted by the edits."""
    listed = subprocess.run(
        ["ldd", program], capture_output=True, text=True, timeout=60, check=True
    ).stdout
    paths = [word for line in listed.splitlines() for word in line.split() if word[0] == "/"]
    return [path.rstrip(":") for path in paths]


def _config(command):
    capabilities = ["CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_MKNOD", "CAP_SYS_CHROOT"]
    return {
        "ociVersion": "1.0.2",
        "process": {
            "user": {"uid": 0, "gid": 0},
            "args": list(command),
            "env": ["PATH=/usr/bin:/bin"],
            "cwd": "/",
            "capabilities": dict.fromkeys(("bounding", "effective", "permitted"), capabilities),
        },
        "root": {"path": "rootfs"},
        "mounts": [
            {"destination": "/proc", "type": "proc", "source": "proc"},
            {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["mode=755"]},
        ],
        "linux": {
            "namespaces": [{"type": kind} for kind in ("pid", "ipc", "uts", "mount")],
            "devices": [],
            "resources": {"devices": [{"allow": False, "access": "rwm"}]},
        },
        "hooks": {},
    }


def _apply(config, edits):
    config["process"]["env"] += edits.get("env", ())
    for node in edits.get("deviceNodes", ()):
        facts = {"type": node["type"], "major": node["major"], "minor": node["minor"]}
        config["linux"]["devices"].append(
            {"path": node["path"], "fileMode": node["fileMode"], "uid": 0, "gid": 0} | facts
        )
        config["linux"]["resources"]["devices"].append(
            {"allow": True, "access": node["permissions"]} | facts
        )
    for mount in edits.get("mounts", ()):
        config["mounts"].append(
            {
                "destination": mount["containerPath"],
                "source": mount["hostPath"],
                "type": "none",
                "options": mount["options"],
            }
        )
    for hook in edits.get("hooks", ()):
        entry = {key: hook[key] for key in ("path", "args", "env") if key in hook}
        config["hooks"].setdefault(hook["hookName"], []).append(entry)


def run(directory, name, runc):
    """What the container prints, and its exit status."""
    state = directory / "state"
    result = subprocess.run(
        [runc, "--root", str(state), "run", "--bundle", str(directory), name],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    return result.returncode, result.stdout + result.stderr


def runtime():
    """A plain OCI runtime; None where there is none."""
    return shutil.which("runc", path="/usr/sbin:/usr/bin:/usr/local/bin") or shutil.which("crun")
