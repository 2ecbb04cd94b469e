"""The kubelet plugin of one node: sockets first, everything else while they answer."""

import functools
import pathlib
import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from dra_driver import errors, settings, telemetry
from dra_driver.adapters.kubelet import dra_grpc, dra_protocol, unix_sockets
from dra_driver.adapters.system import instances
from dra_driver.apps.plugin import awaiting, serving, succession
from dra_driver.apps.telling import device_health

if TYPE_CHECKING:
    from dra_driver.adapters.kubelet import health_checks
    from dra_driver.adapters.serving import http_server
    from dra_driver.apps.node import host
    from dra_driver.apps.plugin import node_agent

GRACE_SECONDS = 20.0
"""How long calls in progress may go on after a stop was asked for."""
SWITCH_SECONDS = 0.0005
"""For how long a thread may compute while others wait for the interpreter; Python has 0.005."""
LONG = 3600.0
"""Seconds of one wait for the end, which comes when it comes."""


class KubeletPlugin:
    """Registers with the kubelet, and prepares claims."""

    def __init__(
        self,
        config: settings.KubeletPlugin,
        hardware: "Callable[[], host.Hardware]",
        *,
        user_agent: str,
    ) -> None:
        """Nothing is started yet. `hardware` is asked for once the sockets answer."""
        self._config = config
        self._hardware = hardware
        self._user_agent = user_agent
        self._log = telemetry.logger("plugin")
        self._metrics = telemetry.Metrics(config.driver_name, config.node_name)
        self._metrics_server: http_server.Server | None = None
        self._health_server: health_checks.Server | None = None
        self._standing = succession.Standing(config)
        self._service = serving.Service(self._metrics, self._standing.told)
        self._health = device_health.Health(config.node_name)
        self._dra = dra_grpc.dra_server(config.service_socket, self._service, self._health)
        self._registration = dra_grpc.registration_server(
            config.registration_socket,
            dra_grpc.PluginInfo(
                config.driver_name,
                str(config.service_socket),
                (*dra_protocol.DRA_PACKAGES, *dra_protocol.HEALTH_SERVICES),
            ),
            self._on_registration,
        )
        self._agent: node_agent.NodeAgent | None = None
        self._serves = False
        self._ends = False
        self._serving = threading.Lock()
        self._failure: errors.Fatal | None = None
        self._threads: list[threading.Thread] = []

    def run(self, stop: threading.Event) -> None:
        """Serve until `stop` is set; it is set here, too, after a failure.

        Raises:
            errors.Fatal: it cannot work as it is configured.
        """
        # Other threads compute too, and a call gives the interpreter up at each file that it syncs.
        sys.setswitchinterval(SWITCH_SECONDS)
        try:
            self._start(stop)
            while not stop.wait(LONG):
                pass
        finally:
            self._stop()
        if self._failure is not None:
            raise self._failure

    def _start(self, stop: threading.Event) -> None:
        config = self._config
        unix_sockets.check_path(config.service_socket, setting="--plugin-dir")
        unix_sockets.check_path(config.registration_socket, setting="--registry-dir")
        # Before the sockets: what they wait for, it tells.
        self._health_server = self._serve_health()
        if not awaiting.opened(
            self._open_service, self._hindrance_of_sockets, self._waits_for, stop
        ):
            return
        if self._has_older():
            self._standing.defer()
            self._run_beside("successor", self._succeed, stop)
        elif not self._register(stop):
            return
        self._run_beside("starter", self._start_agent, stop)

    def _run_beside(
        self, name: str, work: Callable[[threading.Event], None], stop: threading.Event
    ) -> None:
        """Work in a thread; if it fails the process ends."""

        def run() -> None:
            try:
                work(stop)
            except errors.DriverError as error:
                fatal = error if isinstance(error, errors.Fatal) else errors.Fatal(str(error))
                self._fail(fatal, stop)
            except Exception as error:  # noqa: BLE001 - the main thread ends the process with it
                self._log.exception("start failed")
                self._fail(errors.Fatal(f"start failed: {type(error).__name__}: {error}"), stop)

        thread = threading.Thread(target=run, name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _fail(self, failure: errors.Fatal, stop: threading.Event) -> None:
        self._failure = failure
        self._service.failed(str(failure))
        stop.set()

    def _end_outdated(self, stop: threading.Event, reason: str) -> None:
        """The driver was replaced: only a new process can use it. All that is prepared stays."""
        if self._failure is None:
            text = f"{reason}. This process has the old library, and ends; the next one works on"
            self._fail(errors.Fatal(text), stop)

    def _has_older(self) -> bool:
        """Whether an instance serves the node already, as in a rolling update."""
        # This one would pass for an older one while it is being made known.
        with self._serving:
            agent = self._agent
            if agent is not None and agent.serves:
                return agent.has_others()
            return bool(self._config.rolling_update_uid) and instances.any_alive(self._config.state)

    def _succeed(self, stop: threading.Event) -> None:
        """Take over from an older instance."""

        def tell(reason: str) -> None:
            log = self._log.info if reason == serving.STARTING else self._log.warning
            log("waiting", reason=succession.DEFERS + reason)

        # Others wait for the API server, too.
        lacks = awaiting.Seldom(self._lacks_in_cluster, first=succession.LOOK_AGAIN)
        if succession.wait(self._config, lambda: self._service.hindrance() or lacks(), tell, stop):
            self._standing.take_over(self._has_older)
            self._register(stop)

    def _lacks_in_cluster(self) -> str | None:
        """What would keep this instance from publishing in place of an older one."""
        agent = self._agent
        return agent.lacks() if agent is not None else None

    def _register(self, stop: threading.Event) -> bool:
        """Let the kubelet, and the publisher, take this instance for the one that serves."""
        if not awaiting.opened(
            self._open_registration, self._hindrance_of_sockets, self._waits_for, stop
        ):
            return False
        with self._serving:
            self._serves = True
            if self._agent is not None:
                self._agent.serve()
        self._log.info(
            "sockets open",
            service=str(self._config.service_socket),
            registration=str(self._config.registration_socket),
        )
        return True

    def _open_service(self) -> None:
        _make_directory(self._config.plugin, 0o750)
        self._clear_dead_sockets()
        self._dra.start()

    def _open_registration(self) -> None:
        if not self._config.registry.is_dir():
            # It is not made: the kubelet would not look there.
            raise FileNotFoundError(self._config.registry)
        with self._serving:
            if self._ends:
                # Its socket would stay, and the kubelet would call nobody.
                raise errors.Fatal("the driver is stopping")
            self._registration.start()

    def _hindrance_of_sockets(self) -> str | None:
        # Loaded only where there is one.
        from dra_driver.apps.node import node_directories  # noqa: PLC0415

        return node_directories.hindrance_of_sockets(self._config)

    def _waits_for(self, reason: str) -> None:
        self._log.warning("waiting", reason=reason)
        self._service.waits_for(reason)

    def _clear_dead_sockets(self) -> None:
        """Those of instances in earlier rolling updates that could not clean up."""
        if self._config.rolling_update_uid:
            for directory, pattern in (
                (self._config.registry, f"{self._config.driver_name}-*-reg.sock"),
                (self._config.plugin, "dra-*.sock"),
            ):
                for path in unix_sockets.clear_dead(directory, pattern):
                    self._log.info("socket of a dead instance removed", path=str(path))

    def _start_agent(self, stop: threading.Event) -> None:
        self._metrics_server = self._serve_metrics()
        awaiting.done(lambda: self._begin(stop), self._waits_for, stop)

    def _begin(self, stop: threading.Event) -> None:
        """Start the agent, as soon as its directories are there."""
        # Loaded now, not at the top: it takes longer than the sockets may.
        from dra_driver.apps.node import node_directories  # noqa: PLC0415
        from dra_driver.apps.plugin import node_agent  # noqa: PLC0415

        config = self._config

        def has(path: pathlib.Path, mode: int, hindrance: awaiting.Hindrance) -> bool:
            if not awaiting.nothing_in_the_way(hindrance, self._waits_for, stop):
                return False
            _make_directory(path, mode)
            return True

        if not has(config.state, 0o700, lambda: node_directories.hindrance_of_state(config)):
            return
        hardware = self._hardware()
        hardware.nvml.when_outdated(functools.partial(self._end_outdated, stop))
        agent = node_agent.NodeAgent(
            config,
            hardware,
            self._metrics,
            on_health=self._health.say,
            calls=self._service.calls,
            user_agent=self._user_agent,
        )
        is_started = False
        try:
            # Known to others from now on: to the doctor, and to a newer instance.
            self._employ(agent)
            if has(config.cdi_dir, 0o755, lambda: node_directories.hindrance_of_cdi(config)):
                self._service.starting()
                agent.start(functools.partial(self._service.ready, hindrance=agent.hindrance))
                is_started = True
        finally:
            if not is_started:
                self._employ(None)
                self._service.starting()
                agent.stop()

    def _employ(self, agent: "node_agent.NodeAgent | None") -> None:
        """It is the agent from now on, and publishes if this instance serves the node."""
        with self._serving:
            self._agent = agent
            if agent is not None and self._serves:
                agent.serve()

    def _serve_metrics(self) -> "http_server.Server | None":
        address = self._config.metrics_address
        if not address:
            return None
        from dra_driver.apps import pages  # noqa: PLC0415 - the sockets do not wait for it

        try:
            server = pages.server(
                address,
                {"/metrics": pages.metrics(self._metrics)},
                lambda error: self._log.error("request failed", exc_info=error),
            )
        except errors.Fatal as error:
            raise errors.Fatal(f"--metrics-address {address}: {error}") from error
        server.start()
        return server

    def _serve_health(self) -> "health_checks.Server | None":
        if not self._config.health_address:
            return None
        from dra_driver.apps.plugin import health_port  # noqa: PLC0415 - most have none

        server = health_port.server(self._config)
        server.start()
        return server

    def _stop(self) -> None:
        self._log.info("stopping")
        with self._serving:
            self._ends = True
        self._registration.stop(0)
        self._service.failed(str(self._failure or "the driver is stopping"))
        # A stream would hold the server up as if it were a call in progress.
        self._health.close()
        self._dra.stop(GRACE_SECONDS)
        for thread in self._threads:
            thread.join(GRACE_SECONDS)
        if self._agent is not None:
            self._agent.stop()
        if self._metrics_server is not None:
            self._metrics_server.stop()
        if self._health_server is not None:
            self._health_server.stop()

    def _on_registration(self, registered: bool, error: str) -> None:
        self._standing.registered(None if registered else error)
        if registered:
            self._log.info("registered with the kubelet")
        else:
            self._log.error("the kubelet refused the registration", reason=error)


def _make_directory(path: pathlib.Path, mode: int) -> None:
    if not path.is_dir():
        path.mkdir(mode=mode, parents=True)
