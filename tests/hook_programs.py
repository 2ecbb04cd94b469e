"""Stand-ins for `nvidia-cdi-hook`, with the commands that its releases have."""

import pathlib

from dra_driver.model import driver

V1_16 = ("update-ldcache", "create-symlinks", "chmod")
V1_17_5 = (*V1_16, "enable-cuda-compat")
V1_18 = (*V1_17_5, "disable-device-node-modification")
ALL = frozenset(driver.HOOK_COMMANDS)


def help_text(commands):
    """As the library for command lines shows it that the program uses (urfave/cli 2 and 3)."""
    lines = "".join(f"   {name:<34}What {name} does\n" for name in commands)
    return (
        "NAME:\n   NVIDIA CDI Hook - what create-symlinks and others are in\n\n"
        "USAGE:\n   NVIDIA CDI Hook [global options] command [command options]\n\n"
        f"VERSION:\n   1.0\ncommit: 0\n\nCOMMANDS:\n{lines}"
        "   help, h  Shows a list of commands or help for one command\n\n"
        "GLOBAL OPTIONS:\n   --debug, -d  Enable debug-level logging [$NVIDIA_CTK_DEBUG]\n"
    )


def put(path: pathlib.Path, commands=V1_18, *, before=""):
    """A program that has these commands; it notes in a file beside it how it was called."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    path.write_text(
        f'#!/bin/sh\necho "$@" >>{path}.calls\n{before}\n'
        f'[ "$*" = --help ] || exit 3\ncat <<"END"\n{help_text(commands)}END\n'
    )
    path.chmod(0o755)
    return path


def calls(path: pathlib.Path):
    """How it was called so far."""
    notes = path.with_name(f"{path.name}.calls")
    return notes.read_text().splitlines() if notes.exists() else []
