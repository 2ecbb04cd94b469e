"""Settings of the kubelet plugin, put together from those of its subjects."""

import pathlib

from dra_driver.settings import driver, health, mps, node, offering, simulation


class KubeletPlugin(
    simulation.Simulation,
    health.Health,
    mps.Mps,
    offering.Offering,
    driver.Driver,
    node.Node,
):
    """Settings of `dra-driver kubelet-plugin`."""

    @property
    def mps(self) -> pathlib.Path:
        """Where MPS daemons have their directories."""
        return self.state / "mps"

    @property
    def simulation(self) -> pathlib.Path:
        """The directory of simulated GPUs."""
        return self.simulation_dir or self.state / "simulation"
