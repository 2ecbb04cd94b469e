"""The embedded API server as tests of its clients need it: faults on demand, calls on record."""

import pathlib
from collections.abc import Callable
from typing import Any

import reserved_port

from dra_driver.adapters.kube import kube
from dra_driver.sim.api.serving import options, routing, server

CONFIG_MAPS = kube.Resource("", "v1", "configmaps")

Rule = Callable[[routing.Call], "options.Fault | None"]


class ServedApi:
    """A server that can be stopped and started anew, empty, on the same port."""

    def __init__(self, directory: pathlib.Path, **settings: Any) -> None:
        self.calls: list[routing.Call] = []
        self.rule: Rule = lambda _call: None
        """What goes wrong with which request."""
        self._port = reserved_port.Reserved()
        self._settings = {"port": self._port.number} | settings
        self._server: server.ApiServer | None = None
        self.kubeconfig = directory / "kubeconfig"
        self.start()
        self.client = kube.Client(kubeconfig=self.kubeconfig, user_agent="test/1")

    def start(self) -> None:
        self._server = server.ApiServer(
            options.Options(fault=self._fault, request_log=self.calls.append, **self._settings)
        )
        self._server.start()
        self._server.write_kubeconfig(self.kubeconfig)

    def stop(self) -> None:
        if self._server is not None:
            self._server.stop()
            self._server = None

    def close(self) -> None:
        self.client.close()
        self.stop()
        self._port.close()

    @property
    def store(self) -> Any:
        assert self._server is not None
        return self._server.store

    def count(self, verb: str, resource: str = "configmaps") -> int:
        """How many such requests there were."""
        return sum(call.verb == verb and call.resource == resource for call in list(self.calls))

    def fail(self, *faults: options.Fault, verb: str | None = None) -> None:
        """The next requests (of that verb) meet these faults, one each."""
        left = iter(faults)

        def rule(call: routing.Call) -> options.Fault | None:
            return next(left, None) if verb in (None, call.verb) else None

        self.rule = rule

    def _fault(self, call: routing.Call) -> options.Fault | None:
        return self.rule(call)

    # Objects

    def put(self, name: str, namespace: str = "default", **data: str) -> kube.Json:
        """Create a ConfigMap, or replace its data."""
        body = {"metadata": {"name": name, "labels": {"app": name[0]}}, "data": data}
        try:
            return self.client.create(CONFIG_MAPS, body, namespace)
        except kube.Conflict:
            return self.client.replace(CONFIG_MAPS, body, namespace)

    def remove(self, name: str, namespace: str = "default") -> None:
        self.client.delete(CONFIG_MAPS, name, namespace)
