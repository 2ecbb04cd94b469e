"""`gpu-kubelet-plugin`: the kubelet plugin, started as NVIDIA's is, in a pod made for that one.

The GPU operator's GPUCluster makes such pods, and names the image that they run.
"""

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from typing import NoReturn

from dra_driver import cli, settings
from dra_driver.adapters.console import standard_error
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

    def translation(environment: Mapping[str, str]) -> vendor_environment.Meaning:
        return vendor_environment.meaning(
            environment,
            verbosity=options.verbosity,
            driver_name=environment.get(_NAME)
            or settings.KubeletPlugin.model_fields["driver_name"].default,
        )

    cli.main(["kubelet-plugin"], translation=translation)


def no_compute_domains() -> NoReturn:
    """What starts in place of NVIDIA's programs for ComputeDomains: it says that there are none."""
    program = os.path.basename(sys.argv[0])  # noqa: PTH119 - a name, which no file has to have
    standard_error.say(
        f"{program}: dra-driver has no ComputeDomains. Set "
        "spec.draDriver.computeDomains.enabled to false in the GPUCluster"
    )
    sys.exit(1)
