"""The CDI specs of claims: what a container runtime reads, made from what is remembered of a claim.

A spec is no state of its own: the claim's record and the GPUs of the node tell all that is in it.
Whoever writes or removes one holds the claim's lock.
"""

import pathlib
from collections.abc import Mapping

from dra_driver.adapters.disk import files
from dra_driver.apps.node import injection
from dra_driver.logic.preparing import cdi, injecting
from dra_driver.model import devices, prepared


def text(
    driver_name: str,
    injector: injection.Injector,
    record: prepared.Record,
    gpus: Mapping[str, devices.Gpu],
    shared: Mapping[str, cdi.Edits],
) -> str:
    """What the spec of a claim has to say. Device nodes are looked at.

    `gpus` are those of the claim's devices, by device name; `shared` the edits for what lets
    processes share them, by device key.

    Raises as `injection.Injector` does.
    """
    partitions = {one.device: one for one in record.partitions}
    grants = {
        name: devices.Grant(gpu, partitions[name].instance, partitions[name].profile)
        if name in partitions
        else devices.Grant(gpu)
        for name, gpu in gpus.items()
        if not devices.is_vfio(name)
    }
    # What a virtual machine gets needs nothing of NVIDIA's driver, which does not have it.
    found = injector.injection(grants) if grants else cdi.Injection(injecting.NOTHING, {})
    edits = {
        key: found.devices.get(entry.device, cdi.Edits()).and_also(shared.get(key, cdi.Edits()))
        for entry in record.devices
        for key in [cdi.device_key(entry.device, entry.share_id)]
    }
    return cdi.spec(driver_name, record.uid, cdi.Injection(found.common, edits))


def uuids(record: prepared.Record, gpus: Mapping[str, devices.Gpu]) -> dict[str, str]:
    """What CUDA calls the devices of a claim, by name; `gpus` are those of the devices."""
    instances = {one.device: one.uuid for one in record.partitions}
    return {name: instances.get(name) or gpu.uuid for name, gpu in gpus.items()}


class Specs:
    """The spec files of one driver, one for each claim; other files are left alone.

    Every method raises one of `files.TROUBLE` where the disk refuses.
    """

    def __init__(self, directory: pathlib.Path, driver_name: str) -> None:
        """The directory must exist."""
        self._directory = directory
        self._driver_name = driver_name

    def put(self, uid: str, content: str) -> bool:
        """Have this spec; whether it was another one, or none. Nothing is written if it is there.

        It need not be durable: no container runs after the machine went down. A directory that
        vanished is made again, unless it was mounted: that takes a restart of the driver's pod.
        """
        if self.read(uid) == content:
            return False
        files.write(self._path(uid), content, mode=0o644, durable=False, folder_mode=0o755)
        return True

    def read(self, uid: str) -> str | None:
        """The spec that is there; None where there is none, or one that is no text."""
        try:
            return files.read(self._path(uid))
        except UnicodeDecodeError:
            return None

    def remove(self, uid: str) -> None:
        """Have none; that is fine where there is none."""
        files.remove(self._path(uid))

    def uids(self) -> set[str]:
        """The claims that have a spec file, in whatever state."""
        found = (cdi.claim_uid(self._driver_name, name) for name in files.names(self._directory))
        return {uid for uid in found if uid}

    def leftovers(self) -> list[str]:
        """The claims whose spec killed processes had begun to write."""
        targets = map(files.target_of_leftover, files.names(self._directory))
        found = (cdi.claim_uid(self._driver_name, target) for target in targets if target)
        return [uid for uid in found if uid]

    def clear(self, uid: str) -> None:
        """Remove what a killed process had begun to write; the spec stays as it is."""
        files.clear(self._path(uid))

    def _path(self, uid: str) -> pathlib.Path:
        return self._directory / cdi.file_name(self._driver_name, uid)
