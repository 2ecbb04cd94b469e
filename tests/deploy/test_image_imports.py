"""What the image, and the wheel without the extra `sim`, can import with what is in them."""

import importlib.metadata
import json
import pathlib
import re
import subprocess
import sys
import tomllib

PROJECT = tomllib.loads(
    (pathlib.Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8")
)["project"]
EMBEDDED = ("dra_driver.sim.api", "dra_driver.sim.cluster", "dra_driver.sim.demo")
"""What `dra-driver demo` alone needs."""
_IMPORT_ALL = """
import importlib, json, pathlib, sys
import dra_driver
forbidden, embedded = json.loads(sys.argv[1]), tuple(json.loads(sys.argv[2]))

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in forbidden:
            raise ModuleNotFoundError(f"no {name}", name=name)

sys.meta_path.insert(0, Absent())
root = pathlib.Path(dra_driver.__file__).parents[1]
names = [
    ".".join(path.relative_to(root).with_suffix("").parts)
    for path in sorted((root / "dra_driver").rglob("*.py"))
    if path.name not in ("__init__.py", "__main__.py")
]
found = [name for name in names if not name.startswith(embedded)]
for name in found:
    importlib.import_module(name)
loaded = [name for name in sys.modules if name.startswith(embedded)]
print(json.dumps({"imported": found, "embedded": loaded}))
"""


def packages(requirements):
    """The top-level modules of the distributions that these requirements name."""
    names = {re.split(r"[^A-Za-z0-9._-]", one)[0].lower().replace("_", "-") for one in requirements}
    provided = importlib.metadata.packages_distributions()
    return {
        module
        for module, distributions in provided.items()
        if names & {name.lower().replace("_", "-") for name in distributions}
    }


def test_all_but_the_embedded_cluster_does_without_what_only_the_extras_bring():
    extras = PROJECT["optional-dependencies"]
    forbidden = packages([*extras["sim"], *extras["dev"]]) - packages(PROJECT["dependencies"])
    forbidden -= {"dra_driver"}
    assert {"uvicorn", "httptools", "pytest"} <= forbidden
    done = subprocess.run(
        [sys.executable, "-c", _IMPORT_ALL, json.dumps(sorted(forbidden)), json.dumps(EMBEDDED)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["embedded"] == []
    assert "dra_driver.apps.plugin.node_agent" in answer["imported"]
    assert "dra_driver.sim.gpus.hardware" in answer["imported"]
