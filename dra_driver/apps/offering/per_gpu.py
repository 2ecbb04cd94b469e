"""What the settings have for a GPU: the default, or the value of the first rule that matches."""

from collections.abc import Callable, Iterable
from typing import TypeVar

from dra_driver import settings
from dra_driver.model import devices, mig, shares

T = TypeVar("T")


def mig_mode(config: settings.KubeletPlugin) -> Callable[[devices.Gpu], mig.Mode]:
    """How a GPU may be cut.

    Raises:
        errors.Fatal: a selector is wrong.
    """
    return _rule(config, config.mig_mode, [rule.mig_mode for rule in config.gpus])


def vfio_mode(config: settings.KubeletPlugin) -> Callable[[devices.Gpu], devices.VfioMode]:
    """Whether a GPU is handed to virtual machines.

    Raises:
        errors.Fatal: a selector is wrong.
    """
    return _rule(config, config.vfio, [rule.vfio for rule in config.gpus])


def division(config: settings.KubeletPlugin) -> Callable[[devices.Gpu], shares.Shares | None]:
    """How a GPU is divided among claims; None: a claim has it for itself.

    Raises:
        errors.Fatal: a selector is wrong.
    """
    text_of = _rule(config, config.shares, [rule.shares for rule in config.gpus])
    enforcement_of = _rule(
        config, config.share_enforcement, [rule.share_enforcement for rule in config.gpus]
    )

    def of(gpu: devices.Gpu) -> shares.Shares | None:
        text = text_of(gpu)
        if text == "off":
            return None
        return shares.Shares(shares.parse_count(text), enforcement_of(gpu))

    return of


def _rule(
    config: settings.KubeletPlugin, default: T, values: Iterable[T | None]
) -> Callable[[devices.Gpu], T]:
    if not config.gpus:
        return lambda _: default
    # CEL takes long to load and much memory, and most nodes have no selectors.
    from dra_driver.logic.offering import per_gpu_rules  # noqa: PLC0415

    selectors = (rule.selector for rule in config.gpus)
    rules = zip(selectors, values, strict=True)
    return per_gpu_rules.compiled(config.driver_name, default, rules).of
