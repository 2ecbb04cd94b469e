"""Programs that take the place of `kind`, `docker`, `podman`, `helm`, `kubectl` and `make`.

All of them are kind_stand_in.py.
"""

import json
import pathlib
import re
import shutil
import subprocess
import sys

FOLDER = pathlib.Path(__file__).parents[1] / "demo" / "kind"
_STAND_IN = pathlib.Path(__file__).with_name("kind_stand_in.py")
CLUSTER = "dra-driver-demo"
ALL = ("kind", "docker", "helm", "kubectl", "make")
_TOOLS = (
    *("awk", "basename", "cat", "cmp", "cp", "dirname", "grep", "mkdir"),
    *("rm", "rmdir", "sed", "sh", "sleep", "sort", "tr"),
)


class Scene:
    """A machine on which the scripts run, with these programs and nothing else of the kind."""

    def __init__(self, directory: pathlib.Path, programs=ALL) -> None:
        self.bin = directory / "bin"
        self.state = directory / "state"
        self.memory = directory / "memory"
        self.memory.mkdir()
        self.bin.mkdir()
        for tool in _TOOLS:
            (self.bin / tool).symlink_to(shutil.which(tool))
        for name in programs:
            self.stand_in(name)

    def stand_in(self, name: str, before: str = "") -> None:
        """One of these programs, or what is to be done before it, as a line of shell."""
        self.put(name, f'{before}\nexec "{sys.executable}" -I -S "{_STAND_IN}" {name} "$@"')

    def put(self, name: str, lines: str) -> None:
        """A program, as lines of shell."""
        path = self.bin / name
        path.unlink(missing_ok=True)
        path.write_text(f"#!/bin/sh\n{lines}\n", encoding="utf-8")
        path.chmod(0o755)

    def run(self, script: str, *arguments: str, shell=("sh",), **variables: str):
        """One of the scripts, to its end."""
        environment = {
            "PATH": str(self.bin),
            "MEMORY": str(self.memory),
            "STATE_DIR": str(self.state),
            "LOOK_SECONDS": "0",
            **variables,
        }
        command = [shutil.which(shell[0]), *shell[1:], str(FOLDER / f"{script}.sh"), *arguments]
        return subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=600, check=False
        )

    def works(self, script: str, *arguments: str, **options) -> str:
        """What it printed; it has to succeed."""
        finished = self.run(script, *arguments, **options)
        assert finished.returncode == 0, finished.stdout + finished.stderr
        assert not finished.stderr, finished.stderr
        return finished.stdout

    def refused(self, script: str, *arguments: str, **options) -> str:
        """What it says when it does not go on."""
        finished = self.run(script, *arguments, **options)
        assert finished.returncode == 1, finished.stdout + finished.stderr
        return finished.stderr.strip()

    def calls(self) -> list[str]:
        """The calls since the last time, without what each call to the cluster has."""
        path = self.memory / "calls"
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        path.unlink(missing_ok=True)
        return [" ".join(json.loads(line)) for line in lines]

    def changes(self) -> list[str]:
        """The calls that change something."""
        asked = re.compile(r"^\w+ .*\b(get|info|config dump|rollout status|logs)\b")
        return [call for call in self.calls() if not asked.search(call)]
