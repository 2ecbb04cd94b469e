"""What every subject of the kubelet plugin is built on."""

import dataclasses

from dra_driver import settings, telemetry
from dra_driver.adapters.disk import ledgers, records, resets
from dra_driver.adapters.kube import kube
from dra_driver.adapters.system import boots, locks
from dra_driver.apps.node import host


@dataclasses.dataclass(frozen=True, slots=True)
class Base:
    """The settings of a node, its hardware and its API server, and what is kept on its disk."""

    config: settings.KubeletPlugin
    hardware: host.Hardware
    client: kube.Client
    metrics: telemetry.Metrics
    boot_id: str
    records: records.Records
    books: ledgers.Ledgers
    resets: resets.Resets
    locks: locks.Locks


def opened(
    config: settings.KubeletPlugin,
    hardware: host.Hardware,
    metrics: telemetry.Metrics,
    *,
    user_agent: str,
) -> Base:
    """The base of a node; its state directory is opened, and nothing is changed in it.

    Raises:
        errors.Fatal: the API server's address or credentials are not to be had.
    """
    boot_id = boots.current(config.boot_id_file)
    return Base(
        config=config,
        hardware=hardware,
        client=kube.Client(kubeconfig=config.kubeconfig, user_agent=user_agent),
        metrics=metrics,
        boot_id=boot_id,
        records=records.Records(config.state / "claims"),
        books=ledgers.Ledgers(config.state / "gpus", boot_id=boot_id),
        resets=resets.opened(config.state / "resets"),
        locks=locks.Locks(config.state / "locks"),
    )
