"""A kubelet plugin that is killed before one of its steps, and what must hold all the time."""

import contextlib
import pathlib
import sys
from collections.abc import Callable, Iterable
from typing import Any

import api_cluster
import plugin_process

from dra_driver import errors
from dra_driver.model import claims, prepared

ENTRY = pathlib.Path(__file__).parent / "apps" / "killed_plugin.py"

_WRITE_RECORD = [
    "write .UID.json.new",
    "chmod .UID.json.new",
    "fsync .UID.json.new",
    "rename .UID.json.new",
    "fsync claims",
]
_WRITE_SPEC = ["write .SPEC.new", "chmod .SPEC.new", "rename .SPEC.new"]
_MOUNT = "gpu.nvidia.com_metadata_UID_gpu.json"
_WRITE_MOUNT = [f"write .{_MOUNT}.new", f"chmod .{_MOUNT}.new", f"rename .{_MOUNT}.new"]
PREPARE = [*_WRITE_MOUNT, *_WRITE_RECORD, *_WRITE_SPEC]
UNDO = [
    *("remove .SPEC.new", "remove SPEC"),
    *(f"remove .{_MOUNT}.new", f"remove {_MOUNT}"),
    *("remove .UID.json.new", "remove UID.json"),
]
"""The steps that change files, as `Victim.steps` names them."""

_MODELS = {"gpu-0": "NVIDIA H100 80GB HBM3", "gpu-1": "Tesla T4"}


class Victim:
    """A plugin with `killed_plugin.py` as its entry point, and the steps that it took."""

    def __init__(
        self,
        machine: plugin_process.Machine,
        cluster: api_cluster.Cluster,
        *,
        only_gpus: bool = False,
    ) -> None:
        """With `only_gpus` the GPUs are partitioned, and their changes are the only steps."""
        self._armed = machine.root / "armed"
        self._steps = machine.root / "steps"
        self.plugin = plugin_process.Plugin(
            machine,
            cluster,
            command=(sys.executable, str(ENTRY), "kubelet-plugin"),
            environment={
                "KILLED_IN": "/none" if only_gpus else f"{machine.records}:{machine.cdi}",
                "KILLED_ARMED": str(self._armed),
                "KILLED_STEPS": str(self._steps),
            },
            mig_mode="dynamic" if only_gpus else "off",
        )

    def start(self, number: int) -> plugin_process.Kubelet:
        """Start it, to die before this step once it is armed. It has recovered on return."""
        self.plugin.start(KILLED_AT=str(number))
        self.plugin.kubelet.unprepare()
        return self.plugin.kubelet

    def dies_in(self, action: Callable[[], Any]) -> bool:
        """Whether the plugin is gone after the action, which is begun with the killer armed."""
        with self._killer():
            with contextlib.suppress(errors.Retryable):
                action()
                return False
            self.plugin.wait_exit()
            return True

    def dies_at_start(self, number: int) -> bool:
        """Whether the plugin is gone before it has recovered; it is started with that."""
        ready = len(self.plugin.log("publishing")) + 1
        with self._killer():
            self.plugin.spawn(KILLED_AT=str(number))
            api_cluster.wait_for(
                lambda: not self.plugin.is_running() or len(self.plugin.log("publishing")) == ready,
                lambda: f"ready or gone; the log: {self.plugin.log_text()}",
            )
            return not self.plugin.is_running()

    def steps(self, ref: claims.ClaimRef) -> list[str]:
        """The steps since it was armed; UID and SPEC stand for the names of the claim's files."""
        spec = f"k8s.{api_cluster.DRIVER}-claim_{ref.uid}.json"
        lines = self._steps.read_text(encoding="utf-8").splitlines()
        return [line.replace(spec, "SPEC").replace(ref.uid, "UID") for line in lines]

    @contextlib.contextmanager
    def _killer(self) -> Any:
        self._steps.unlink(missing_ok=True)
        self._armed.touch()
        try:
            yield
        finally:
            self._armed.unlink()


class Checks:
    """What must be true of the files of claims."""

    def __init__(self, machine: plugin_process.Machine, cluster: api_cluster.Cluster) -> None:
        self.machine = machine
        self.cluster = cluster

    def is_written_ahead(self, ref: claims.ClaimRef) -> None:
        """What is left after a kill: nothing that the record does not tell of."""
        spec = self.machine.spec_path(ref)
        left = [path for path in (spec, spec.with_name(f".{spec.name}.new")) if path.exists()]
        assert not left or self.machine.record(ref) is not None

    def is_cleared_up(
        self, *refs: claims.ClaimRef, described: Iterable[claims.ClaimRef] = ()
    ) -> None:
        """After a start: records and specs of these claims at most, and nothing half written.

        Those that are `described` may be that still: it is swept later.
        """
        allowed = {name for ref in refs for name in self.paths(ref)}
        allowed |= {
            str(path.relative_to(self.machine.root))
            for ref in described
            for path in self.machine.metadata_paths(ref)
        }
        assert set(self.machine.files()) <= allowed

    def is_prepared(self, ref: claims.ClaimRef, *devices: str, boot_id: str = "boot-1") -> None:
        """This claim has these devices, and there is no other."""
        record = self.machine.record(ref)
        assert record is not None
        assert (record.parts, record.described is not None) == ({}, True)
        assert record.model_copy(update={"described": None}) == prepared.Record(
            uid=ref.uid,
            namespace=ref.namespace,
            name=ref.name,
            phase=prepared.Phase.COMPLETED,
            boot_id=boot_id,
            devices=tuple(
                prepared.PreparedDevice(**plugin_process.device(ref, name, is_first=False))
                for name in devices
            ),
            gpus={name: self.machine.uuid(name) for name in devices},
            minors={name: int(name.removeprefix("gpu-")) for name in devices},
        )
        assert self.machine.spec(ref) == self.spec(ref, *devices)
        assert self.machine.files() == self.paths(ref)

    def is_free(self) -> None:
        """No claim has left anything."""
        assert self.machine.files() == []

    def works(self, kubelet: plugin_process.Kubelet, ref: claims.ClaimRef, *devices: str) -> None:
        """Asked again, the claim gets its devices, and nobody else does until it is gone."""
        assert kubelet.prepare(ref) == plugin_process.devices(ref, *devices)
        self.is_prepared(ref, *devices)
        rivals = [self.cluster.claim(name) for name in devices]
        for rival in rivals:
            assert str(ref) in kubelet.refusal(rival)
        self.is_prepared(ref, *devices)
        kubelet.unprepare(ref)
        self.is_free()
        for rival, name in zip(rivals, devices, strict=True):
            assert kubelet.prepare(rival) == [plugin_process.device(rival, name)]
            kubelet.unprepare(rival)
        self.is_free()

    def paths(self, ref: claims.ClaimRef) -> list[str]:
        """The files of a prepared claim, as `Machine.files` names them."""
        described, mount = self.machine.metadata_paths(ref)
        paths = (self.machine.record_path(ref), self.machine.spec_path(ref), mount)
        found = sorted(str(path.relative_to(self.machine.root)) for path in paths)
        return [*found, str(described.relative_to(self.machine.root))]

    def spec(self, ref: claims.ClaimRef, *devices: str) -> dict[str, Any]:
        """The CDI spec of a claim with these of the two GPUs of the node."""
        return {
            "cdiVersion": "0.5.0",
            "kind": "k8s.gpu.nvidia.com/claim",
            "devices": [
                {
                    "name": f"{ref.uid}-{name}",
                    "containerEdits": {
                        "env": [
                            f"SIMULATED_GPU_{name[-1]}={_MODELS[name]}|{self.machine.uuid(name)}"
                        ]
                    },
                }
                for name in devices
            ],
            "containerEdits": {
                "mounts": [
                    {
                        "hostPath": str(self.machine.simulation / "nvidia-smi"),
                        "containerPath": "/usr/bin/nvidia-smi",
                        "options": ["ro", "nosuid", "nodev", "rbind", "rprivate"],
                    }
                ]
            },
        }
