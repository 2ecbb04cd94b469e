"""The command line: options of each subcommand; picks an app, decides nothing."""

import argparse
import os
import pathlib
import signal
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dra_driver import build, cli_arguments, convert_arguments, errors, settings, telemetry
from dra_driver.adapters.console import standard_error
from dra_driver.settings import controller as controller_settings
from dra_driver.settings import resolving, vendor_environment
from dra_driver.settings import webhook as webhook_settings

if TYPE_CHECKING:
    from dra_driver.apps.node import host

VERSION = build.VERSION
_ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
"""Signals to end; SIGHUP: the terminal was closed."""


Translation = Callable[[Mapping[str, str]], vendor_environment.Meaning]
"""What variables of another program mean as settings of the subcommand."""


def main(
    arguments: Sequence[str] | None = None,
    *,
    translation: Translation = lambda _: vendor_environment.Meaning(),
) -> None:
    """Run a subcommand; the exit status is 0 when all is well, 1 after an error, 2 for misuse."""
    parser = _parser()
    parser.set_defaults(translation=translation)
    options, unknown = parser.parse_known_args(arguments)
    if unknown:
        parser.error(
            f"unrecognized arguments: {' '.join(unknown)}; "
            f"dra-driver {options.command} --help lists what there is"
        )
    try:
        with standard_error.of_threads():
            sys.exit(options.run(options))
    except errors.DriverError as error:
        standard_error.say(f"dra-driver: {error}")
        sys.exit(1)
    except Exception as error:  # noqa: BLE001 - the end, and what is told of it has one door
        standard_error.trace(error)
        sys.exit(1)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="dra-driver",
        description="Kubernetes Dynamic Resource Allocation driver for NVIDIA GPUs.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"dra-driver {VERSION}")
    commands = parser.add_subparsers(
        title="commands", required=True, metavar="COMMAND", dest="command"
    )
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
    doctor = cli_arguments.doctor(commands)
    settings.add_flags(doctor, settings.KubeletPlugin)
    doctor.set_defaults(run=_doctor)
    _add_probe(commands)
    cli_arguments.demo(commands).set_defaults(run=_demo)
    explain = cli_arguments.explain(commands)
    explain.set_defaults(run=_explain, misused=explain.error)
    convert = convert_arguments.convert(commands)
    convert.set_defaults(run=_convert, misused=convert.error)
    cli_arguments.status(commands).set_defaults(run=_status)
    fault = cli_arguments.fault(commands)
    settings.add_flags(fault, settings.KubeletPlugin)
    fault.set_defaults(run=_fault)
    cli_arguments.mps_daemon(commands).set_defaults(run=_mps_daemon)
    cli_arguments.fabric_partitions(commands).set_defaults(run=_fabric_partitions)
    _add_webhook(commands)
    _add_controller(commands)
    return parser


def _doctor(options: argparse.Namespace) -> int:
    telemetry.configure(level="error", log_format="console")
    from dra_driver.adapters.console import terminal  # noqa: PLC0415 - only what a command needs
    from dra_driver.apps.doctor import doctor  # noqa: PLC0415 - as above

    return doctor.run(
        lambda: _settings(settings.KubeletPlugin, options),
        _hardware,
        terminal.Terminal(),
        doctor.Options(
            output=options.output,
            seconds=options.timeout,
            message=options.termination_message,
            exit_zero=options.exit_zero,
        ),
        user_agent=f"dra-driver/{VERSION} doctor",
    )


def _add_probe(commands: cli_arguments.Commands) -> None:
    probe = commands.add_parser(
        "probe",
        help="whether the kubelet plugin of this node works; what the probes of its pod run",
        description="Exit with 0 if the kubelet plugin with these settings can prepare claims.",
        allow_abbrev=False,
    )
    probe.add_argument("--allow-starting", action="store_true", help="it need not be ready yet")
    settings.add_flags(probe, settings.KubeletPlugin)
    probe.set_defaults(run=_probe)


def _probe(options: argparse.Namespace) -> int:
    from dra_driver.apps.plugin import probe  # noqa: PLC0415 - only what a command needs

    probe.check(_settings(settings.KubeletPlugin, options), allow_starting=options.allow_starting)
    return 0


def _explain(options: argparse.Namespace) -> int:
    saved = (*options.slices, *options.claims)
    if (options.target is None) == (options.file is None):
        options.misused("name either pod/NAME or claim/NAME, or a manifest with -f FILE")
    if saved and options.kubeconfig is not None:
        options.misused("--kubeconfig and saved files exclude each other: leave one out")
    telemetry.configure(level="error", log_format="console")
    from dra_driver.adapters.console import terminal  # noqa: PLC0415 - only what a command needs
    from dra_driver.apps.looking import explain  # noqa: PLC0415 - as above

    asked = explain.Options(
        target=options.target,
        manifest=options.file,
        saved=saved,
        kubeconfig=options.kubeconfig if saved else _kubeconfig(options.kubeconfig),
        namespace=options.namespace,
        output=options.output,
        emulate=options.emulate,
    )
    return explain.run(asked, terminal.Terminal(), user_agent=f"dra-driver/{VERSION} explain")


def _convert(options: argparse.Namespace) -> int:
    if options.output and not options.explain:
        options.misused("--output is of --explain: add that, or leave it out")
    if options.write and "-" in options.file:
        options.misused("--write changes files: the standard input is none")
    telemetry.configure(level="error", log_format="console")
    from dra_driver.adapters.console import terminal  # noqa: PLC0415 - only what a command needs
    from dra_driver.apps.converting import convert  # noqa: PLC0415 - as above

    asked = convert.Options(
        files=tuple(options.file),
        explains=options.explain,
        checks=options.check,
        writes=options.write,
        output=options.output or "table",
        share_class=options.share_class,
        whole_gpus=options.whole_gpus,
        replicas=options.replicas,
        template_paths=tuple(options.template_path),
        keep_parameters=options.keep_parameters,
        slices=tuple(options.slices),
        kubeconfig=options.kubeconfig,
    )
    return convert.run(asked, terminal.Terminal(), user_agent=f"dra-driver/{VERSION} convert")


def _status(options: argparse.Namespace) -> int:
    telemetry.configure(level="error", log_format="console")
    from dra_driver.adapters.console import terminal  # noqa: PLC0415 - only what a command needs
    from dra_driver.apps.looking import status  # noqa: PLC0415 - as above

    asked = status.Options(
        kubeconfig=options.kubeconfig if options.saved else _kubeconfig(options.kubeconfig),
        saved=tuple(options.saved),
        node=options.node,
        output=options.output,
    )
    return status.run(asked, terminal.Terminal(), user_agent=f"dra-driver/{VERSION} status")


def _fault(options: argparse.Namespace) -> int:
    telemetry.configure(level="error", log_format="console")
    from dra_driver.adapters.console import terminal  # noqa: PLC0415 - only what a command needs
    from dra_driver.sim.gpus import fault, injecting  # noqa: PLC0415 - not on every node

    # Of a setting, it is a text.
    given = pathlib.Path(options.kubeconfig) if options.kubeconfig else None
    card = fault.card(
        options.target,
        lambda: _kubeconfig(given),
        lambda: _settings(settings.KubeletPlugin, options),
    )
    said = injecting.inject(card, options.verb, options.value, options.instance)
    terminal.Terminal().say(f"{options.target}: {said}")
    return 0


def _mps_daemon(options: argparse.Namespace) -> int:
    if options.check:
        from dra_driver.apps.mps import mps_check  # noqa: PLC0415 - only what a command needs

        mps_check.check(options.file)
        return 0
    telemetry.configure(level="info", log_format="auto")
    from dra_driver.apps.mps import mps_daemon  # noqa: PLC0415 - only what a command needs

    mps_daemon.Supervisor(
        mps_daemon.Options(
            file=options.file,
            driver_root=options.driver_root,
            private_shm=options.private_shm,
            library_dirs=options.library_dirs,
        )
    ).run()
    return 0


def _fabric_partitions(options: argparse.Namespace) -> int:
    from dra_driver.apps.offering import fabric_question  # noqa: PLC0415 - as above

    fabric_question.ask(options.library, options.address)
    return 0


def _add_webhook(commands: cli_arguments.Commands) -> None:
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
    _begin(config)
    from dra_driver.apps.webhook import (  # noqa: PLC0415 - only what a command needs
        converting,
        webhook,
    )

    agent = f"dra-driver/{VERSION} webhook"
    webhook.Webhook(
        config,
        lambda config: webhook.certificate_source(config, user_agent=agent),
        lambda config: converting.converter(config, user_agent=agent),
    ).run(stop)
    return 0


def _add_controller(commands: cli_arguments.Commands) -> None:
    controller = commands.add_parser(
        "controller",
        help="remove what nodes that are gone have left; one in a cluster, or several",
        description="Remove ResourceSlices and pods of MPS daemons whose node does not exist any "
        "more and that the garbage collector missed, and report claims that are allocated to such "
        "a node. Of several controllers one leads. Settings come from defaults, then the settings "
        "file, then the environment, then flags: later ones win.",
        allow_abbrev=False,
    )
    settings.add_flags(controller, controller_settings.Controller)
    controller.set_defaults(run=_controller)


def _controller(options: argparse.Namespace) -> int:
    stop = _stop_on_signals()
    config = _settings(controller_settings.Controller, options)
    _begin(config)
    from dra_driver.adapters.kube import kube  # noqa: PLC0415 - only what a command needs
    from dra_driver.apps.controller import controller  # noqa: PLC0415 - as above

    client = kube.Client(
        kubeconfig=config.kubeconfig, user_agent=f"dra-driver/{VERSION} controller"
    )
    controller.Controller(config, client).run(stop)
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
        from dra_driver.sim.demo import demo, plugin_settings  # noqa: PLC0415 - not on every node
    except ModuleNotFoundError as error:
        raise errors.Fatal(
            f"the embedded cluster needs {error.name}: pip install 'dra-driver[sim]'"
        ) from error
    from dra_driver.adapters.console import terminal  # noqa: PLC0415 - only what a command needs

    asked = demo.Options(
        files=tuple(options.file),
        nodes=tuple(demo.parse_node(text) for text in options.node) or demo.DEFAULT_NODES,
        keep=options.keep,
        output=options.output,
        runtime=options.runtime,
        timeout=options.timeout,
        plugin_flags=plugin_settings.flags(options.plugin_setting),
        convert=options.convert,
        emulate=options.emulate,
    )
    return demo.run(asked, stop, terminal.Terminal())


def _stop_on_signals() -> threading.Event:
    """An event that is set soon after a signal to end, whatever the main thread is doing."""
    stop = threading.Event()
    reader, writer = os.pipe()
    os.set_blocking(writer, False)

    def pass_on() -> None:
        while os.read(reader, 1)[0] not in _ENDING:
            pass
        stop.set()

    threading.Thread(target=pass_on, name="signals", daemon=True).start()
    # No handler sets the event. It would run in the main thread: inside the event too, to wait for
    # ever for its lock; and not at all once that waits, if another thread got the signal.
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    for number in _ENDING:
        signal.signal(number, lambda *_: None)
    return stop


def _kubelet_plugin(options: argparse.Namespace) -> int:
    config = _settings(settings.KubeletPlugin, options)
    _begin(config)
    for text in options.translation(os.environ).told:
        telemetry.logger("settings").warning("without effect", reason=text)
    from dra_driver.apps.plugin import kubelet_plugin  # noqa: PLC0415 - only what a command needs

    kubelet_plugin.KubeletPlugin(
        config, lambda: _hardware(config), user_agent=f"dra-driver/{VERSION} kubelet-plugin"
    ).run(_stop_on_signals())
    return 0


def _begin(config: settings.Settings) -> None:
    """What goes on until it is told to end has a log, and room for connections."""
    telemetry.configure(level=config.log_level, log_format=config.log_format)
    from dra_driver.adapters.system import open_files  # noqa: PLC0415 - only what a command needs

    open_files.allow_many()


def _settings(model: type[resolving.T], options: argparse.Namespace) -> resolving.T:
    path = options.config or os.environ.get(settings.CONFIG_VARIABLE)
    file: Any = None
    if path:
        from dra_driver.adapters.console import documents  # noqa: PLC0415 - most have no file

        file = documents.load_one(pathlib.Path(path))
    flags = {name: getattr(options, name) for name in model.model_fields}
    return settings.resolve(
        model,
        file=file,
        environment=os.environ,
        flags=flags,
        translated=options.translation(os.environ).given,
    )


def _hardware(config: settings.KubeletPlugin) -> "host.Hardware":
    if config.simulate_gpus is not None:
        from dra_driver.sim.gpus import hardware  # noqa: PLC0415 - not loaded on a real node

        return hardware.simulated(config)
    from dra_driver.apps.node import host  # noqa: PLC0415 - after the sockets answer

    return host.hardware(config)
