"""Which GPUs have time slices to set: asked of the driver once, and not guessed by generation."""

import dataclasses
from collections.abc import Callable, Collection, Iterable, Sequence

from dra_driver import errors, telemetry
from dra_driver.logic.offering import abilities
from dra_driver.model import devices

Ask = Callable[[Sequence[str]], Collection[str]]
"""Those of the GPUs with these UUIDs that have time slices; raises errors.DriverError."""


class Probe:
    """Asks about each GPU once, and again with another version of the driver.

    A question that fails is not asked again: the program may hang, and whoever looks for GPUs would
    wait for it each time. The generation of the GPU decides then.
    """

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._log = telemetry.logger("inventory")
        self._asked: dict[tuple[str, str | None], bool | None] = {}

    def filled(self, gpus: Iterable[devices.Gpu]) -> list[devices.Gpu]:
        """The GPUs with what is known of their time slices."""
        found = list(gpus)
        new = [
            gpu
            for gpu in found
            if abilities.time_slices(gpu) is not False and _key(gpu) not in self._asked
        ]
        if new:
            self._learn(new)
        return [
            dataclasses.replace(gpu, time_slices=self._asked.get(_key(gpu), gpu.time_slices))
            for gpu in found
        ]

    def _learn(self, new: Sequence[devices.Gpu]) -> None:
        try:
            able = set(self._ask([gpu.uuid for gpu in new]))
        except errors.DriverError as error:
            self._log.info("time slices not asked for", reason=str(error))
            self._asked |= {_key(gpu): None for gpu in new}
            return
        for gpu in new:
            self._asked[_key(gpu)] = gpu.uuid in able
            if gpu.uuid not in able:
                self._log.info("GPU has no time slices to set", uuid=gpu.uuid)


def _key(gpu: devices.Gpu) -> tuple[str, str | None]:
    return gpu.uuid, gpu.driver_version
