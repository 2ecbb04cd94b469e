"""The Python packages of the image: `deploy/requirements.txt`, and their wheels in build/wheels.

python deploy/lock.py            fetch the wheels that are locked, for an image without network
python deploy/lock.py --renew    lock the newest versions that pyproject.toml allows
"""  # noqa: INP001

import argparse
import hashlib
import pathlib
import re
import subprocess
import sys
import tomllib

ROOT = pathlib.Path(__file__).parents[1]
LOCK = ROOT / "deploy" / "requirements.txt"
WHEELS = ROOT / "build" / "wheels"
PYTHON = "3.11"
ARCHITECTURES = ("x86_64", "aarch64")
_PLATFORMS = ("manylinux_2_28", "manylinux_2_17", "manylinux2014")
_HEADER = "# Packages of the image, for both architectures; made by deploy/lock.py --renew.\n"


def download(*requirements: str) -> None:
    """Fetch wheels of these requirements, for both architectures, to `WHEELS`."""
    WHEELS.mkdir(parents=True, exist_ok=True)
    for architecture in ARCHITECTURES:
        platforms = [f"--platform={name}_{architecture}" for name in _PLATFORMS]
        target = ["--only-binary=:all:", f"--python-version={PYTHON}", *platforms]
        command = [sys.executable, "-m", "pip", "download", "--quiet", "-d", str(WHEELS)]
        subprocess.run([*command, *target, *requirements], check=True)


def locked() -> str:
    """The text of the lock for the wheels that are there."""
    hashes: dict[str, list[str]] = {}
    for wheel in sorted(WHEELS.glob("*.whl"), key=lambda path: path.name.lower()):
        name, version = wheel.name.split("-")[:2]
        pin = f"{re.sub('[-_.]+', '-', name).lower()}=={version}"
        hashes.setdefault(pin, []).append(hashlib.sha256(wheel.read_bytes()).hexdigest())
    lines = [
        " \\\n".join([pin, *(f"    --hash=sha256:{digest}" for digest in digests)])
        for pin, digests in sorted(hashes.items())
    ]
    return _HEADER + "\n".join(lines) + "\n"


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--renew", action="store_true", help="lock the newest versions")
    if not parser.parse_args().renew:
        download("--require-hashes", "--no-deps", "-r", str(LOCK))
        return 0
    for wheel in WHEELS.glob("*.whl"):
        wheel.unlink()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    download(*project["project"]["dependencies"], *project["build-system"]["requires"])
    LOCK.write_text(locked(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
