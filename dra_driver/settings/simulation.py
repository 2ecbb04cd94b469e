"""Settings of simulated GPUs."""

import pathlib

from pydantic import Field

from dra_driver.settings import base


class Simulation(base.Settings):
    """GPUs that are not there."""

    simulate_gpus: str | None = Field(
        None,
        description="Pretend to have GPUs: MODEL:COUNT[,MODEL:COUNT]..., for example "
        "h100-80gb-hbm3:8,t4:1. Nothing real is touched.",
    )
    simulation_dir: pathlib.Path | None = Field(
        None,
        description="Where the state of simulated GPUs is kept. Default: STATE_DIR/simulation.",
    )
