"""`gpu-kubelet-plugin`: the kubelet plugin, started as NVIDIA's is, in a pod made for that one.

The GPU operator's GPUCluster makes such pods, and names the image that they run.
"""

import argparse
import dataclasses
import os
import pathlib
import sys
from collections.abc import Mapping, Sequence
from typing import NoReturn

from dra_driver import cli, settings
from dra_driver.adapters.console import standard_error
from dra_driver.apps.plugin import own_hook
from dra_driver.settings import vendor_environment

_NAME = f"{settings.ENVIRONMENT_PREFIX}DRIVER_NAME"


def main(arguments: Sequence[str] | None = None) -> None:
    """Run `dra-driver kubelet-plugin` with what `-v` and the variables of NVIDIA's plugin mean."""
    parser = argparse.ArgumentParser(
        prog="gpu-kubelet-plugin",
        description="dra-driver kubelet-plugin, with the variables of NVIDIA's plugin "
        "(FEATURE_GATES, HEALTHCHECK_PORT, ...). Its own, DRA_DRIVER_..., go before them.",
        allow_abbrev=False,
    )
    parser.add_argument("-v", "--v", dest="verbosity", metavar="N", help="6 and more: debug")
    options, unknown = parser.parse_known_args(arguments)
    if unknown:
        parser.error(
            f"unrecognized arguments: {' '.join(unknown)}; settings are variables here: "
            "dra-driver kubelet-plugin --help lists them"
        )

    known: list[vendor_environment.Meaning] = []

    def translation(environment: Mapping[str, str]) -> vendor_environment.Meaning:
        if not known:
            known.append(_meaning(environment, options.verbosity))
        return known[0]

    cli.main(["kubelet-plugin"], translation=translation)


def _meaning(environment: Mapping[str, str], verbosity: str | None) -> vendor_environment.Meaning:
    name = environment.get(_NAME) or settings.KubeletPlugin.model_fields["driver_name"].default
    found = vendor_environment.meaning(environment, verbosity=verbosity, driver_name=name)
    meant = {setting: value for setting, value, _ in found.given}
    if "cdi_hook" in meant or "plugin_dir" not in meant:
        return found
    # The operator's pod has no init container that does it, as the chart's has.
    copied, problem = own_hook.installed(pathlib.Path(meant["plugin_dir"]))
    given = [("cdi_hook", str(copied), "nvidia-cdi-hook of the image")] if copied else []
    told = [problem] if problem else []
    return dataclasses.replace(found, given=(*found.given, *given), told=(*found.told, *told))


def no_compute_domains() -> NoReturn:
    """What starts in place of NVIDIA's programs for ComputeDomains: it says that there are none."""
    program = os.path.basename(sys.argv[0])  # noqa: PTH119 - a name, which no file has to have
    standard_error.say(
        f"{program}: dra-driver has no ComputeDomains. Set "
        "spec.draDriver.computeDomains.enabled to false in the GPUCluster"
    )
    sys.exit(1)
