"""Arguments of `dra-driver convert`."""

import argparse
import pathlib

from dra_driver import cli_arguments


def convert(commands: cli_arguments.Commands) -> argparse.ArgumentParser:
    """What is converted, by which rules, and how it is told."""
    parser = commands.add_parser(
        "convert",
        help="turn manifests of device plugins, HAMi, Volcano and others into ones with claims",
        description="Turn manifests that ask for GPUs as older systems had it (device plugin, "
        "HAMi, Volcano, gpu-manager, gpushare, KAI, DRA before v1) into ones with claims of "
        "resource.k8s.io/v1, and print them. What is not translated stays byte for byte as it was, "
        "with comments. The exit status is 0, or 1 if something cannot be translated: then nothing "
        "is. With --check it is 2 if there is something to convert.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "-f",
        "--file",
        action="append",
        required=True,
        metavar="FILE | DIR | -",
        help="manifests, all *.yaml, *.yml and *.json below a folder, or the standard input; may "
        "be repeated: what belongs together is converted together",
    )
    done = parser.add_mutually_exclusive_group()
    done.add_argument(
        "--write", action="store_true", help="change the files, in place of printing them"
    )
    done.add_argument(
        "--check", action="store_true", help="print no manifests; tell by the exit status"
    )
    parser.add_argument(
        "--explain",
        action="store_true",
        help="print what becomes of what, in place of the manifests",
    )
    parser.add_argument("--output", choices=("table", "json"), help="of --explain. Default: table")
    _add_conversion_rules(parser)
    return parser


def _add_conversion_rules(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--whole-gpus",
        action="store_true",
        help="convert containers that ask for nvidia.com/gpu alone, too; without it they stay, as "
        "the driver serves that resource where the cluster has extended resources by DRA",
    )
    parser.add_argument(
        "--share-class",
        metavar="NAME",
        help="DeviceClass of shares. Default: shared-mps.gpu.nvidia.com",
    )
    parser.add_argument(
        "--replicas",
        type=_count,
        default=10,
        metavar="N",
        help="how many pods shared a card where manifests do not tell (nvidia.com/gpu.shared). "
        "Default: 10",
    )
    parser.add_argument(
        "--template-path",
        action="append",
        default=[],
        type=_path,
        metavar="PATH",
        help="where other kinds have pod templates, as spec.worker.template; lists on the way are "
        "gone through; may be repeated",
    )
    parser.add_argument(
        "--keep-parameters",
        action="store_true",
        help="leave objects with parameters of DRA's first API in the manifests",
    )
    fleet = parser.add_mutually_exclusive_group()
    fleet.add_argument(
        "--slices",
        nargs="+",
        action="extend",
        default=[],
        type=pathlib.Path,
        metavar="FILE",
        help="the cluster's cards, which percentages are resolved with: `kubectl get "
        "resourceslices -o yaml`",
    )
    fleet.add_argument(
        "--kubeconfig",
        type=pathlib.Path,
        metavar="FILE",
        help="the cluster to read the cards from instead. Without either no cluster is asked",
    )


def _count(text: str) -> int:
    number = int(text) if text.isascii() and text.isdigit() and len(text) < 4 else 0
    if not 1 <= number <= 100:
        raise argparse.ArgumentTypeError(f"{text!r}: write a number from 1 to 100")
    return number


def _path(text: str) -> tuple[str, ...]:
    path = tuple(text.split("."))
    if not all(path):
        raise argparse.ArgumentTypeError(f"{text!r}: write keys with dots between them")
    return path
