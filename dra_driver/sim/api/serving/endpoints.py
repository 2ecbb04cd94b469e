"""Everything under a path that is no resource: discovery, version, health, OpenAPI."""

from typing import Any

from dra_driver.sim.api.kinds import problems, served_kinds
from dra_driver.sim.api.serving import discovery, openapi, routing

Json = dict[str, Any]
_PATHS = ("/api", "/apis", "/healthz", "/openapi/v3", "/version")
_HEALTH = ("/healthz", "/livez", "/readyz")


class Endpoints:
    """Answers those paths, by the kinds that are served at that moment."""

    def __init__(self, served: served_kinds.Table, git_version: str) -> None:
        self._served = served
        self._version = discovery.version_info(git_version)

    def answer(self, request: routing.Request) -> str | Json:
        """A text or a JSON object.

        Raises:
            problems.ApiError: 404.
        """
        path = request.path.rstrip("/") or "/"
        if path.startswith(_HEALTH):
            return "ok"
        if path == "/":
            return {"paths": list(_PATHS)}
        if path == "/version":
            return self._version
        if path.startswith("/openapi/"):
            return self._openapi(path)
        return self._discovery(path, discovery.wants_aggregated(request.accept))

    def _openapi(self, path: str) -> Json:
        match path.strip("/").split("/"):
            case ["openapi", "v3"]:
                return openapi.index(self._served)
            case ["openapi", "v3", "api", version]:
                group = ""
            case ["openapi", "v3", "apis", group, version]:
                pass
            case _:
                raise problems.no_such_path()
        self._check(group, version)
        return openapi.document(group, version, self._served)

    def _discovery(self, path: str, aggregated: bool) -> Json:
        if path in ("/api", "/apis") and aggregated:
            return discovery.aggregated(self._served, core=path == "/api")
        match path.strip("/").split("/"):
            case ["api"]:
                return discovery.core_versions()
            case ["apis"]:
                return discovery.groups(self._served)
            case ["apis", group] if group in self._served.versions:
                return discovery.group(group, self._served)
            case ["api", version]:
                return self._resources("", version)
            case ["apis", group, version]:
                return self._resources(group, version)
        raise problems.no_such_path()

    def _resources(self, group: str, version: str) -> Json:
        self._check(group, version)
        return discovery.resources(group, version, self._served)

    def _check(self, group: str, version: str) -> None:
        if version not in self._served.versions.get(group, ()):
            raise problems.no_such_path()
