"""The kubelet plugin of one node: sockets first, everything else while they answer."""

import pathlib
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from dra_driver import errors, settings, telemetry
from dra_driver.adapters import dra_grpc, dra_protocol
from dra_driver.apps import awaiting, device_health, serving

if TYPE_CHECKING:
    from dra_driver.apps import node_agent

GRACE_SECONDS = 20.0
"""How long calls in progress may go on after a stop was asked for."""
LONG = 3600.0
"""Seconds of one wait for the end, which comes when it comes."""


class KubeletPlugin:
    """Registers with the kubelet, and prepares claims."""

    def __init__(
        self,
        config: settings.KubeletPlugin,
        hardware: "Callable[[], node_agent.Hardware]",
        *,
        user_agent: str,
    ) -> None:
        """Nothing is started yet. `hardware` is asked for once the sockets answer."""
        self._config = config
        self._hardware = hardware
        self._user_agent = user_agent
        self._log = telemetry.logger("plugin")
        self._metrics = telemetry.Metrics(config.driver_name, config.node_name)
        self._metrics_server: telemetry.MetricsServer | None = None
        self._service = serving.Service(self._metrics)
        self._health = device_health.Health(config.node_name)
        self._dra = dra_grpc.dra_server(config.service_socket, self._service, self._health)
        self._registration = dra_grpc.registration_server(
            config.registration_socket,
            dra_grpc.PluginInfo(
                config.driver_name,
                str(config.service_socket),
                (*dra_protocol.DRA_PACKAGES, dra_protocol.HEALTH_SERVICE),
            ),
            self._on_registration,
        )
        self._agent: node_agent.NodeAgent | None = None
        self._failure: errors.Fatal | None = None
        self._starter: threading.Thread | None = None

    def run(self, stop: threading.Event) -> None:
        """Serve until `stop` is set; it is set here, too, after a failure.

        Raises:
            errors.Fatal: it cannot work as it is configured.
        """
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
        dra_grpc.check_socket_path(config.service_socket, setting="--plugin-dir")
        dra_grpc.check_socket_path(config.registration_socket, setting="--registry-dir")
        for opening in (self._open_service, self._open_registration):
            if not awaiting.opened(opening, self._hindrance_of_sockets, self._waits_for, stop):
                return
        self._starter = threading.Thread(
            target=self._start_agent, args=(stop,), name="starter", daemon=True
        )
        self._starter.start()
        self._log.info(
            "sockets open",
            service=str(config.service_socket),
            registration=str(config.registration_socket),
        )

    def _open_service(self) -> None:
        _make_directory(self._config.plugin, 0o750)
        self._clear_dead_sockets()
        self._dra.start()

    def _open_registration(self) -> None:
        if not self._config.registry.is_dir():
            # It is not made: the kubelet would not look there.
            raise FileNotFoundError(self._config.registry)
        self._registration.start()

    def _hindrance_of_sockets(self) -> str | None:
        # Loaded only where there is one.
        from dra_driver.apps import node_directories  # noqa: PLC0415

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
                for path in dra_grpc.clear_dead_sockets(directory, pattern):
                    self._log.info("socket of a dead instance removed", path=str(path))

    def _start_agent(self, stop: threading.Event) -> None:
        try:
            self._metrics_server = self._serve_metrics()
            awaiting.done(lambda: self._begin(stop), self._waits_for, stop)
        except errors.DriverError as error:
            self._failure = error if isinstance(error, errors.Fatal) else errors.Fatal(str(error))
        except Exception as error:  # noqa: BLE001 - the main thread ends the process with it
            self._log.exception("start failed")
            self._failure = errors.Fatal(f"start failed: {type(error).__name__}: {error}")
        if self._failure is not None:
            self._service.failed(str(self._failure))
            stop.set()

    def _begin(self, stop: threading.Event) -> None:
        """Start the agent, as soon as its directories are there."""
        # Loaded now, not at the top: it takes longer than the sockets may.
        from dra_driver.apps import node_agent, node_directories  # noqa: PLC0415

        config = self._config

        def has(path: pathlib.Path, mode: int, hindrance: awaiting.Hindrance) -> bool:
            if not awaiting.nothing_in_the_way(hindrance, self._waits_for, stop):
                return False
            _make_directory(path, mode)
            return True

        if not has(config.state, 0o700, lambda: node_directories.hindrance_of_state(config)):
            return
        agent = node_agent.NodeAgent(
            config,
            self._hardware(),
            self._metrics,
            on_health=self._health.say,
            user_agent=self._user_agent,
        )
        try:
            if has(config.cdi_dir, 0o755, lambda: node_directories.hindrance_of_cdi(config)):
                agent.start(lambda preparer: self._service.ready(preparer, agent.hindrance))
                self._agent = agent
        finally:
            if self._agent is None:
                agent.stop()

    def _serve_metrics(self) -> telemetry.MetricsServer | None:
        address = self._config.metrics_address
        if not address:
            return None
        host, _, port = address.rpartition(":")
        host = host.strip("[]")
        try:
            return self._metrics.serve(host or "0.0.0.0", int(port))  # noqa: S104 - asked for
        except (OSError, OverflowError) as error:
            raise errors.Fatal(
                f"metrics cannot be served at {address}: {error}. Choose another --metrics-address"
            ) from error

    def _stop(self) -> None:
        self._log.info("stopping")
        self._registration.stop(0)
        self._service.failed("the driver is stopping")
        # A stream would hold the server up as if it were a call in progress.
        self._health.close()
        self._dra.stop(GRACE_SECONDS)
        if self._starter is not None:
            self._starter.join(GRACE_SECONDS)
        if self._agent is not None:
            self._agent.stop()
        if self._metrics_server is not None:
            self._metrics_server.stop()

    def _on_registration(self, registered: bool, error: str) -> None:
        if registered:
            self._log.info("registered with the kubelet")
        else:
            self._log.error("the kubelet refused the registration", reason=error)


def _make_directory(path: pathlib.Path, mode: int) -> None:
    if not path.is_dir():
        path.mkdir(mode=mode, parents=True)
