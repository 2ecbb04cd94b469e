"""The directories of the node while the plugin runs: what it waited for at its start may go later.

A directory that somebody removes is lost to a running container though it is made again: what is
mounted there stays the old one. Then only a new container helps, and its liveness probe says so.
"""

import pathlib
from collections.abc import Iterator

from dra_driver import settings, telemetry
from dra_driver.adapters.disk import directories
from dra_driver.apps.node import node_directories


class DirectoryWatch:
    """Looks when it is asked, without putting a file anywhere; makes the CDI directory again."""

    def __init__(self, config: settings.KubeletPlugin) -> None:
        self._config = config
        self._log = telemetry.logger("directories")

    def trouble(self) -> str | None:
        """What is not there any more, and what to do about it; None if that is nothing."""
        return next(self._troubles(), None)

    def _troubles(self) -> Iterator[str]:
        config = self._config
        for what, path in (
            ("registration directory", config.registry),
            ("plugin directory", config.plugin),
            ("state directory", config.state),
            ("directory of records", config.state / "claims"),
            ("directory of ledgers", config.state / "gpus"),
        ):
            loss = directories.loss(path)
            if loss is not None:
                yield _told(what, path, loss, only_anew=loss.is_lasting)
        if (trouble := self._cdi()) is not None:
            yield trouble

    def _cdi(self) -> str | None:
        path = self._config.cdi_dir
        loss = directories.loss(path)
        if loss is not None and not path.exists():
            try:
                path.mkdir(mode=0o755, parents=True, exist_ok=True)
            except OSError as error:
                return f"CDI directory {path}: it is gone, and cannot be made again: {error}"
            self._log.warning("the CDI directory was gone; it is made again", path=str(path))
            loss = directories.loss(path)
        if loss is None:
            return None
        return _told("CDI directory", path, loss, only_anew=loss.was_replaced)


def _told(what: str, path: pathlib.Path, loss: directories.Loss, *, only_anew: bool) -> str:
    if only_anew:
        return (
            f"{what} {path}: {loss.reason}. {node_directories.ONLY_ANEW}: kubectl delete pod, "
            "unless its liveness probe is faster"
        )
    return f"{what} {path}: {loss.reason}. Remedy: mount it writable into the container"
