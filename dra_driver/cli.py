"""The command line: options of each subcommand; picks an app, decides nothing."""

import argparse
import os
import pathlib
import signal
import sys
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dra_driver import errors, settings, telemetry, webhook_settings

if TYPE_CHECKING:
    from dra_driver.apps import node_agent

VERSION = "0.1.0"


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a subcommand; the exit status is 0 when all is well, 1 after an error, 2 for misuse."""
    parser = _parser()
    options = parser.parse_args(arguments)
    try:
        sys.exit(options.run(options))
    except errors.DriverError as error:
        print(f"dra-driver: {error}", file=sys.stderr)  # noqa: T201 - the user's terminal
        sys.exit(1)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="dra-driver",
        description="Kubernetes Dynamic Resource Allocation driver for NVIDIA GPUs.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"dra-driver {VERSION}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    plugin = commands.add_parser(
        "kubelet-plugin",
        help="publish the GPUs of this node and prepare claims; one on each node",
        description="Publish the GPUs of this node as ResourceSlices and prepare claims for the "
        "kubelet. Settings come from defaults, then the settings file, then the environment, then "
        "flags: later ones win.",
        allow_abbrev=False,
    )
    settings.add_flags(plugin, settings.KubeletPlugin)
    plugin.set_defaults(run=_kubelet_plugin)
    _add_probe(commands)
    _add_demo(commands)
    _add_explain(commands)
    _add_status(commands)
    _add_mps_daemon(commands)
    _add_webhook(commands)
    return parser


def _add_probe(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    # Without `help` the command is not listed: probes of containers run it, people seldom do.
    probe = commands.add_parser(
        "probe",
        description="Exit with 0 if the kubelet plugin with these settings can prepare claims.",
        allow_abbrev=False,
    )
    probe.add_argument("--allow-starting", action="store_true", help="it need not be ready yet")
    settings.add_flags(probe, settings.KubeletPlugin)
    probe.set_defaults(run=_probe)


def _probe(options: argparse.Namespace) -> int:
    from dra_driver.apps import probe  # noqa: PLC0415 - only what a command needs

    probe.check(_settings(settings.KubeletPlugin, options), allow_starting=options.allow_starting)
    return 0


def _add_demo(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    demo = commands.add_parser(
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
    _add_demo_inputs(demo)
    demo.add_argument(
        "--keep", action="store_true", help="leave the cluster running until Ctrl-C, for kubectl"
    )
    demo.add_argument("--output", choices=("table", "json"), default="table")
    demo.add_argument(
        "--runtime",
        choices=("pretended", "podman"),
        default="pretended",
        help="pretended: containers are not run, their nvidia-smi is; podman: containers are run "
        "(root and podman >= 4.1 with runc are needed)",
    )
    demo.add_argument(
        "--timeout",
        type=float,
        default=60.0,
        metavar="SECONDS",
        help="how long the pods of a step may take. Default: 60",
    )
    demo.add_argument(
        "--emulate",
        metavar="RELEASE",
        help="allocate devices with the known defects of a Kubernetes release: 1.36.2. Default: "
        "without them",
    )
    demo.set_defaults(run=_demo)


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
        "H100, and T4 with V100",
    )
    demo.add_argument(
        "--plugin-setting",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a setting of the kubelet plugins of all nodes, named as its flag: shares=memory; "
        "may be repeated",
    )


def _add_explain(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    explain = commands.add_parser(
        "explain",
        help="why a pod or claim has, would get, or cannot get devices; reads only",
        description="Tell which devices a pod's claims have or would get, or at which hurdle each "
        "device falls and what change would help. The exit status is 0 if they are allocated or "
        "fit, 2 if they do not fit, 1 after an error.",
        allow_abbrev=False,
    )
    explain.add_argument("target", nargs="?", metavar="pod/NAME | claim/NAME")
    explain.add_argument(
        "-f",
        "--file",
        type=pathlib.Path,
        metavar="FILE",
        help="manifest to explain instead; its objects need not be in the cluster",
    )
    explain.add_argument("-n", "--namespace", default="default", help="Default: default")
    explain.add_argument(
        "--kubeconfig",
        type=pathlib.Path,
        metavar="FILE",
        help="the cluster to read. Default: $KUBECONFIG, ~/.kube/config, the pod's service account",
    )
    for kind in ("slices", "claims"):
        explain.add_argument(
            f"--{kind}",
            nargs="+",
            action="extend",
            default=[],
            type=pathlib.Path,
            metavar="FILE",
            help=f"read files instead of a cluster: `kubectl get resource{kind} -A -o yaml`; "
            "other kinds (nodes, deviceclasses, pods, templates) may be in them too",
        )
    explain.add_argument("--output", choices=("table", "json"), default="table")
    explain.set_defaults(run=_explain)


def _explain(options: argparse.Namespace) -> int:
    telemetry.configure(level="error", log_format="console")
    from dra_driver.adapters import terminal  # noqa: PLC0415 - only what a command needs
    from dra_driver.apps import explain  # noqa: PLC0415 - as above

    saved = (*options.slices, *options.claims)
    asked = explain.Options(
        target=options.target,
        manifest=options.file,
        saved=saved,
        kubeconfig=options.kubeconfig if saved else _kubeconfig(options.kubeconfig),
        namespace=options.namespace,
        output=options.output,
    )
    return explain.run(asked, terminal.Terminal(), user_agent=f"dra-driver/{VERSION} explain")


def _add_status(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    status = commands.add_parser(
        "status",
        help="who has which part of which GPU, what is free and what still fits; reads only",
        description="Show every GPU as its memory slices: the claims and pods that have them, what "
        "is free, the largest profile that still fits, and fragmentation. Fragmentation is the "
        "share of the free memory slices that the largest fitting profile cannot use: of F free "
        "slices, as many of that profile as fit together cover C; it is (F - C) / F.",
        allow_abbrev=False,
    )
    status.add_argument(
        "--kubeconfig",
        type=pathlib.Path,
        metavar="FILE",
        help="the cluster to read. Default: $KUBECONFIG, ~/.kube/config, the pod's service account",
    )
    status.add_argument(
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
    status.add_argument("--node", metavar="NAME", help="show this node alone")
    status.add_argument("--output", choices=("table", "json"), default="table")
    status.set_defaults(run=_status)


def _status(options: argparse.Namespace) -> int:
    telemetry.configure(level="error", log_format="console")
    from dra_driver.adapters import terminal  # noqa: PLC0415 - only what a command needs
    from dra_driver.apps import status  # noqa: PLC0415 - as above

    asked = status.Options(
        kubeconfig=options.kubeconfig if options.saved else _kubeconfig(options.kubeconfig),
        saved=tuple(options.saved),
        node=options.node,
        output=options.output,
    )
    return status.run(asked, terminal.Terminal(), user_agent=f"dra-driver/{VERSION} status")


def _add_mps_daemon(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    # Without `help` the command is not listed: the kubelet plugin runs it, people seldom do.
    daemon = commands.add_parser(
        "mps-daemon",
        description="Run one MPS control daemon with its limits, again whenever it dies. The "
        "kubelet plugin starts this, for each GPU and trust domain that is shared by MPS. SIGHUP: "
        "read the file again, and apply its limits. SIGTERM: end.",
        allow_abbrev=False,
    )
    daemon.add_argument(
        "--file",
        required=True,
        type=pathlib.Path,
        metavar="FILE",
        help="daemon.json in the daemon's directory, as the kubelet plugin writes it",
    )
    daemon.add_argument(
        "--driver-root",
        type=pathlib.Path,
        default=pathlib.Path("/"),
        metavar="DIR",
        help="where the NVIDIA driver is installed, as this process sees it. Default: /",
    )
    daemon.add_argument(
        "--private-shm",
        action="store_true",
        help="have the daemon's own shared memory at /dev/shm, not the machine's (needs root)",
    )
    daemon.add_argument(
        "--check",
        action="store_true",
        help="run nothing; the exit status is 0 if the daemon is ready with its limits, else 1",
    )
    daemon.set_defaults(run=_mps_daemon)


def _mps_daemon(options: argparse.Namespace) -> int:
    if options.check:
        from dra_driver.apps import mps_check  # noqa: PLC0415 - only what a command needs

        mps_check.check(options.file)
        return 0
    telemetry.configure(level="info", log_format="auto")
    from dra_driver.apps import mps_daemon  # noqa: PLC0415 - only what a command needs

    mps_daemon.Supervisor(
        mps_daemon.Options(
            file=options.file, driver_root=options.driver_root, private_shm=options.private_shm
        )
    ).run()
    return 0


def _add_webhook(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    webhook = commands.add_parser(
        "webhook",
        help="refuse configs that cannot work when they are applied; two in a cluster",
        description="Answer the API server's AdmissionReviews: configs of the driver in claims, "
        "templates and device classes are refused if they cannot work, and warned of if they will "
        "surprise. Settings come from defaults, then the settings file, then the environment, "
        "then flags: later ones win.",
        allow_abbrev=False,
    )
    settings.add_flags(webhook, webhook_settings.Webhook)
    webhook.set_defaults(run=_webhook)


def _webhook(options: argparse.Namespace) -> int:
    stop = _stop_on_signals()
    config = _settings(webhook_settings.Webhook, options)
    telemetry.configure(level=config.log_level, log_format=config.log_format)
    from dra_driver.apps import webhook  # noqa: PLC0415 - only what a command needs

    webhook.Webhook(
        config,
        lambda config: webhook.certificate_source(
            config, user_agent=f"dra-driver/{VERSION} webhook"
        ),
    ).run(stop)
    return 0


def _kubeconfig(given: pathlib.Path | None) -> pathlib.Path | None:
    """As kubectl finds it; None for the service account of a pod."""
    if given is not None:
        return given
    if named := os.environ.get("KUBECONFIG"):
        return pathlib.Path(named)
    usual = pathlib.Path.home() / ".kube" / "config"
    return usual if usual.exists() else None


def _demo(options: argparse.Namespace) -> int:
    stop = _stop_on_signals()  # First of all: what follows takes a while, and leaves things behind.
    telemetry.configure(level="error", log_format="console")
    try:
        from dra_driver.sim import demo, plugin_settings  # noqa: PLC0415 - not on every node
    except ModuleNotFoundError as error:
        raise errors.Fatal(
            f"the embedded cluster needs {error.name}: pip install 'dra-driver[sim]'"
        ) from error
    from dra_driver.adapters import terminal  # noqa: PLC0415 - only what a command needs

    asked = demo.Options(
        files=tuple(options.file),
        nodes=tuple(demo.parse_node(text) for text in options.node) or demo.DEFAULT_NODES,
        keep=options.keep,
        output=options.output,
        runtime=options.runtime,
        timeout=options.timeout,
        plugin_flags=plugin_settings.flags(options.plugin_setting),
        emulate=options.emulate,
    )
    return demo.run(asked, stop, terminal.Terminal())


def _stop_on_signals() -> threading.Event:
    stop = threading.Event()
    # SIGHUP: the terminal was closed.
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: stop.set())
    return stop


def _kubelet_plugin(options: argparse.Namespace) -> int:
    config = _settings(settings.KubeletPlugin, options)
    telemetry.configure(level=config.log_level, log_format=config.log_format)
    from dra_driver.apps import kubelet_plugin  # noqa: PLC0415 - only what a command needs

    kubelet_plugin.KubeletPlugin(
        config, lambda: _hardware(config), user_agent=f"dra-driver/{VERSION} kubelet-plugin"
    ).run(_stop_on_signals())
    return 0


def _settings(model: type[settings.T], options: argparse.Namespace) -> settings.T:
    path = options.config or os.environ.get(settings.CONFIG_VARIABLE)
    file: Any = None
    if path:
        from dra_driver.adapters import documents  # noqa: PLC0415 - most have no file

        file = documents.load_one(pathlib.Path(path))
    flags = {name: getattr(options, name) for name in model.model_fields}
    return settings.resolve(model, file=file, environment=os.environ, flags=flags)


def _hardware(config: settings.KubeletPlugin) -> "node_agent.Hardware":
    if config.simulate_gpus is not None:
        from dra_driver.sim import hardware  # noqa: PLC0415 - not loaded on a real node

        return hardware.simulated(config)
    from dra_driver.apps import host  # noqa: PLC0415 - after the sockets answer

    return host.hardware(config)
