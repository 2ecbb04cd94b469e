"""Arguments of the subcommands that have no settings file."""

import argparse
import math
import pathlib
from typing import TypeAlias

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"  # noqa: SLF001 - no public name
"""What `add_subparsers` gives; each function here adds a subcommand to it and returns that."""


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r}: write a number of seconds above 0")
    return seconds


def doctor(commands: Commands) -> argparse.ArgumentParser:
    """How the doctor tells what it finds; it has the settings of the kubelet plugin, too."""
    parser = commands.add_parser(
        "doctor",
        help="what this node lacks for the kubelet plugin, and what to do about it",
        description="Look at everything that the kubelet plugin needs with these settings: "
        "directories, the NVIDIA driver, device nodes, the API server. The exit status is 0 if "
        "there is no problem, else 1.",
        allow_abbrev=False,
    )
    parser.add_argument("--output", choices=("table", "json"), default="table")
    parser.add_argument(
        "--timeout",
        type=_seconds,
        default=60.0,
        metavar="SECONDS",
        help="how long it may look; what was not looked at by then is a problem. Default: 60",
    )
    parser.add_argument(
        "--exit-zero",
        action="store_true",
        help="exit with 0 whatever is found, as an init container must",
    )
    parser.add_argument(
        "--termination-message",
        type=pathlib.Path,
        metavar="FILE",
        help="write the problems to this file, too, in at most 4096 bytes: the "
        "terminationMessagePath of a container, for kubectl describe pod",
    )
    return parser


def demo(commands: Commands) -> argparse.ArgumentParser:
    """Where the embedded cluster gets its nodes and manifests from, and how it runs."""
    parser = commands.add_parser(
        "demo",
        help="run pods with simulated GPUs in an embedded cluster, and show what they get",
        description="Start an embedded cluster (API server, scheduler, kubelets, the real driver "
        "on simulated GPUs), apply manifests, and show what each pod gets. The exit status is 0 "
        "only if each pod became what its annotation demo.dra-driver/expect says: Running (the "
        "default), Unschedulable, Refused (a driver does not prepare its claims), or "
        "'Unschedulable, then Running'. Objects with the annotation "
        'demo.dra-driver/step: "2" are applied once the pods of step 1 (the default) have run.',
        allow_abbrev=False,
    )
    _add_demo_inputs(parser)
    parser.add_argument(
        "--keep", action="store_true", help="leave the cluster running until Ctrl-C, for kubectl"
    )
    parser.add_argument("--output", choices=("table", "json"), default="table")
    parser.add_argument(
        "--runtime",
        choices=("pretended", "podman"),
        default="pretended",
        help="pretended: containers are not run, their nvidia-smi is; podman: containers are run "
        "(root and podman >= 4.1 with runc are needed)",
    )
    parser.add_argument(
        "--timeout",
        type=_seconds,
        default=60.0,
        metavar="SECONDS",
        help="how long the pods of a step may take. Default: 60",
    )
    parser.add_argument(
        "--emulate",
        metavar="RELEASE",
        help="behave as a Kubernetes release, with its known defects in allocating devices and "
        "what its API server serves and refuses: 1.34, 1.35, 1.36.2, 1.37, 1.38. Default: as 1.36, "
        "its defects mended",
    )
    return parser


def _add_demo_inputs(demo: argparse.ArgumentParser) -> None:
    demo.add_argument(
        "-f",
        "--file",
        action="append",
        default=[],
        type=pathlib.Path,
        metavar="FILE",
        help="manifest, or folder of manifests; may be repeated. Default: demo/quickstart",
    )
    demo.add_argument(
        "--node",
        action="append",
        default=[],
        metavar="NAME=MODEL:COUNT[,MODEL:COUNT]...",
        help="a node and its simulated GPUs; may be repeated. Default: three nodes with A100, "
        "H100, and T4 with V100. MODEL:COUNT:mig has MIG mode on",
    )
    demo.add_argument(
        "--plugin-setting",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a setting of the kubelet plugins of all nodes, named as its flag: shares=memory; "
        "may be repeated",
    )
    demo.add_argument(
        "--convert",
        action="store_true",
        help="run the webhook that converts pods, in the namespaces of the manifests' pods: what "
        "they ask of the device plugin, HAMi and others becomes claims",
    )


def explain(commands: Commands) -> argparse.ArgumentParser:
    """What is explained, and from which cluster or files."""
    parser = commands.add_parser(
        "explain",
        help="why a pod or claim has, would get, or cannot get devices; reads only",
        description="Tell which devices a pod's claims have or would get, or at which hurdle each "
        "device falls and what change would help. The exit status is 0 if they are allocated or "
        "fit, 2 if they do not fit or something is in the way, 1 after an error.",
        allow_abbrev=False,
    )
    parser.add_argument("target", nargs="?", metavar="pod/NAME | claim/NAME")
    parser.add_argument(
        "-f",
        "--file",
        type=pathlib.Path,
        metavar="FILE",
        help="manifest to explain instead; its objects need not be in the cluster",
    )
    parser.add_argument("-n", "--namespace", default="default", help="Default: default")
    parser.add_argument(
        "--kubeconfig",
        type=pathlib.Path,
        metavar="FILE",
        help="the cluster to read. Default: $KUBECONFIG, ~/.kube/config, the pod's service account",
    )
    for kind in ("slices", "claims"):
        parser.add_argument(
            f"--{kind}",
            nargs="+",
            action="extend",
            default=[],
            type=pathlib.Path,
            metavar="FILE",
            help=f"read files instead of a cluster: `kubectl get resource{kind} -A -o yaml`; "
            "other kinds (nodes, deviceclasses, pods, templates) may be in them too",
        )
    parser.add_argument("--output", choices=("table", "json"), default="table")
    _add_release(parser)
    return parser


def _add_release(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--emulate",
        metavar="RELEASE",
        help="decide as the scheduler of a Kubernetes release, with its known defects: 1.34, "
        "1.35, 1.36.2, 1.37, 1.38. Default: as that of the cluster; with saved files without "
        "defects",
    )


def status(commands: Commands) -> argparse.ArgumentParser:
    """What is shown, and from which cluster or files."""
    parser = commands.add_parser(
        "status",
        help="who has which part of which GPU, what is free and what still fits; reads only",
        description="Show every GPU as its memory slices: the claims and pods that have them, what "
        "is free, the largest profile that still fits, and fragmentation. Fragmentation is the "
        "share of the free memory slices that the largest fitting profile cannot use: of F free "
        "slices, as many of that profile as fit together cover C; it is (F - C) / F.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--kubeconfig",
        type=pathlib.Path,
        metavar="FILE",
        help="the cluster to read. Default: $KUBECONFIG, ~/.kube/config, the pod's service account",
    )
    parser.add_argument(
        "--from",
        dest="saved",
        nargs="+",
        action="extend",
        default=[],
        type=pathlib.Path,
        metavar="FILE",
        help="read files, or folders of files, instead of a cluster: "
        "`kubectl get resourceslices,resourceclaims,pods -A -o yaml`",
    )
    parser.add_argument("--node", metavar="NAME", help="show this node alone")
    parser.add_argument("--output", choices=("table", "json"), default="table")
    return parser


def mps_daemon(commands: Commands) -> argparse.ArgumentParser:
    """Which daemon is run; not listed in the help: the kubelet plugin runs it, people seldom do."""
    # Without `help` the command is not listed.
    parser = commands.add_parser(
        "mps-daemon",
        description="Run one MPS control daemon with its limits, again whenever it dies. The "
        "kubelet plugin starts this, for each GPU and trust domain that is shared by MPS. SIGHUP: "
        "read the file again, and apply its limits. SIGTERM: end.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--file",
        required=True,
        type=pathlib.Path,
        metavar="FILE",
        help="daemon.json in the daemon's directory, as the kubelet plugin writes it",
    )
    parser.add_argument(
        "--driver-root",
        type=pathlib.Path,
        default=pathlib.Path("/"),
        metavar="DIR",
        help="where the NVIDIA driver is installed, as this process sees it. Default: /",
    )
    parser.add_argument(
        "--library-dirs",
        type=lambda text: tuple(part for part in text.split(",") if part),
        default=(),
        metavar="DIRS",
        help="directories below it that hold its libraries, besides the usual ones; separated by "
        "commas",
    )
    parser.add_argument(
        "--private-shm",
        action="store_true",
        help="have the daemon's own shared memory at /dev/shm, not the machine's (needs root)",
    )
    parser.add_argument(
        "--check",
        action="store_true",
        help="run nothing; the exit status is 0 if the daemon is ready with its limits, else 1",
    )
    return parser


def fabric_partitions(commands: Commands) -> argparse.ArgumentParser:
    """What is asked; not listed in the help: the kubelet plugin runs it, people seldom do."""
    parser = commands.add_parser(
        "fabric-partitions",
        description="Ask NVIDIA's Fabric Manager for the partitions of the NVLink fabric, and "
        "write them as JSON. The kubelet plugin runs this, as the library may hang.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--library", required=True, type=pathlib.Path, metavar="FILE", help="libnvfm.so"
    )
    parser.add_argument(
        "--address", required=True, metavar="unix:PATH|IP:PORT", help="where it listens"
    )
    return parser


def fault(commands: Commands) -> argparse.ArgumentParser:
    """Which simulated GPU gets which fault; it has the settings of the kubelet plugin, too."""
    parser = commands.add_parser(
        "fault",
        help="put a fault into a simulated GPU, to see what becomes of it",
        description="Put a fault into a simulated GPU of a running demo (NODE/gpu-0; its "
        "kubeconfig is found as kubectl finds it), or, inside the pod of the plugin, of this node "
        "(gpu-0). Real GPUs are left alone.",
        allow_abbrev=False,
    )
    parser.add_argument("target", metavar="[NODE/]GPU", help="for example hopper/gpu-0")
    parser.add_argument(
        "verb",
        metavar="FAULT",
        help="xid NUMBER, recovery none|reset|reboot|drain|drain-and-reset|NUMBER, lost, "
        "remap-pending, remap-failed, ecc, thermal, power-brake, fabric, link-down; clear takes "
        "all out of the card",
    )
    parser.add_argument("value", nargs="?", help="of xid and recovery")
    parser.add_argument(
        "--instance",
        metavar="PARTITION|ID",
        help="the MIG instance that an xid is about: the name of its device, or its number",
    )
    return parser
