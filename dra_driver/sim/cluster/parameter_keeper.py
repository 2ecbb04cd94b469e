"""The controller that makes templates of parameter objects, as a process beside the nodes.

It is what runs in a cluster, but looks more often: people wait for what comes of their manifests.
"""

import pathlib

from dra_driver.adapters.kube import kube
from dra_driver.logic.parameters import definitions
from dra_driver.sim.cluster import beside
from dra_driver.sim.cluster.workloads import controllers

NAMESPACE = "default"
"""Where its Lease is."""


class Keeper:
    """`dra-driver controller` for one cluster, and the kinds that it looks after."""

    def __init__(self, directory: pathlib.Path, kubeconfig: pathlib.Path, driver: str) -> None:
        """Nothing is started; `directory` is made by `start`."""
        self._directory = directory
        self._kubeconfig = kubeconfig
        self._driver = driver
        self._process = beside.Process("controller", directory / "controller.log")

    def start(self, client: kube.Client) -> None:
        """Define the kinds of parameters, and start the process."""
        for body in definitions.all_kinds():
            client.create(controllers.DEFINITIONS, body)
        self._directory.mkdir(mode=0o700, parents=True)
        self._process.start(
            [
                *("controller", "--identity", "demo", "--namespace", NAMESPACE),
                *("--driver-name", self._driver, "--kubeconfig", str(self._kubeconfig)),
                *("--status-address", "127.0.0.1:0", "--log-format", "json"),
                *("--retry-seconds", "0.2", "--parameters-seconds", "0.2"),
                *("--matching-seconds", "2"),
            ]
        )

    def check_alive(self) -> None:
        """Refuse to go on without it.

        Raises:
            errors.Fatal: it has ended; the text has the end of its log.
        """
        self._process.check_alive()

    def stop(self) -> None:
        """End it."""
        self._process.stop()
