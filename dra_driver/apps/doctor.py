"""`dra-driver doctor`: what this node lacks for the kubelet plugin with the same settings.

It looks and asks: what it writes is removed at once, or is a dry run. Simulated GPUs are made as
the plugin makes them.
"""

from collections.abc import Callable
from typing import Literal

from dra_driver import settings
from dra_driver.adapters import terminal
from dra_driver.apps import doctor_cluster, doctor_driver, doctor_node, doctor_view, node_agent
from dra_driver.logic import diagnosis


def run(
    config: settings.KubeletPlugin,
    hardware: Callable[[], node_agent.Hardware],
    screen: terminal.Terminal,
    *,
    output: Literal["table", "json"] = "table",
    user_agent: str,
) -> int:
    """Print what was found; the exit status is 0, or 1 if there is a problem."""
    findings = examine(config, hardware, user_agent=user_agent)
    show = doctor_view.show_json if output == "json" else doctor_view.show
    show(findings, screen, node=config.node_name, driver=config.driver_name)
    return 0 if diagnosis.works(findings) else 1


def examine(
    config: settings.KubeletPlugin,
    hardware: Callable[[], node_agent.Hardware],
    *,
    user_agent: str,
) -> list[diagnosis.Finding]:
    """Everything that was looked at, in that order: the node, its driver, the cluster."""
    # Simulated hardware makes directories: they are looked at before.
    node = doctor_node.findings(config)
    driver = doctor_driver.look(config, hardware())
    cluster = doctor_cluster.findings(
        config, partitions=driver.partitionable, user_agent=user_agent
    )
    return [*node, *driver.findings, *cluster]
