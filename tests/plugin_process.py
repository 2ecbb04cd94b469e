"""The kubelet plugin as the node runs it: a process of its own, with real sockets and files.

Only the GPUs are pretended. `Machine` is the directories of a node, `Plugin` a process on it,
`Kubelet` what calls it.
"""

import concurrent.futures
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import api_cluster

from dra_driver.adapters.kubelet import dra_client, dra_grpc
from dra_driver.model import claims, prepared
from dra_driver.sim.gpus import gpu_faults, gpu_state

Json = dict[str, Any]
T = TypeVar("T")

TWO_GPUS = "h100-80gb-hbm3:1,t4:1"

_COMMAND = (sys.executable, "-m", "dra_driver", "kubelet-plugin")
_TRACES = ("Traceback", "Exception")
_OURS = ("DRA_DRIVER_", "NODE_NAME", "KUBECONFIG")


class Machine:
    """The directories of a node. They are at a short path: a socket's may have 107 bytes."""

    def __init__(self) -> None:
        self.root = pathlib.Path(tempfile.mkdtemp(prefix="dra-", dir="/tmp"))
        self.kubelet = self.root / "kubelet"
        self.registry = self.kubelet / "plugins_registry"
        self.plugin = self.kubelet / "plugins" / api_cluster.DRIVER
        self.cdi = self.root / "cdi"
        self.records = self.plugin / "claims"
        self.metadata = self.plugin / "dra-device-metadata"
        self.simulation = self.root / "simulation"
        self.boot_id = self.root / "boot_id"
        self.registry.mkdir(parents=True)
        self.simulation.mkdir()
        self.boot("boot-1")

    def close(self) -> None:
        shutil.rmtree(self.root)

    def boot(self, boot_id: str) -> None:
        self.boot_id.write_text(f"{boot_id}\n", encoding="utf-8")

    def uuid(self, device: str) -> str:
        """The UUID of a simulated GPU."""
        gpus = gpu_state.open_file(self.simulation).read().gpus
        return next(gpu.uuid for gpu in gpus if f"gpu-{gpu.minor}" == device)

    def lose_gpus(self, *devices: str) -> None:
        """These GPUs fall off the bus."""
        gpu_faults.remove(self.simulation, *(self.uuid(device) for device in devices))

    def heal_gpus(self) -> None:
        gpu_faults.clear(self.simulation)

    def record_path(self, ref: claims.ClaimRef) -> pathlib.Path:
        return self.records / f"{ref.uid}.json"

    def record(self, ref: claims.ClaimRef) -> prepared.Record | None:
        path = self.record_path(ref)
        return prepared.decode(path.read_text(encoding="utf-8")) if path.exists() else None

    def spec_path(self, ref: claims.ClaimRef) -> pathlib.Path:
        return self.cdi / f"k8s.{api_cluster.DRIVER}-claim_{ref.uid}.json"

    def metadata_paths(self, ref: claims.ClaimRef, request: str = "gpu") -> list[pathlib.Path]:
        """What containers read of their devices, and what mounts it."""
        name = f"{api_cluster.DRIVER}_metadata_{ref.uid}_{request}.json"
        folder = self.metadata / f"{ref.namespace}_{ref.name}"
        return [folder / request / "metadata.json", self.cdi / name]

    def spec(self, ref: claims.ClaimRef) -> Json | None:
        path = self.spec_path(ref)
        return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None

    def block_cdi(self) -> None:
        """No spec can be written; there must be none. A directory that is gone is made again."""
        self.cdi.rmdir()
        self.cdi.touch()

    def unblock_cdi(self) -> None:
        self.cdi.unlink()
        self.cdi.mkdir()

    def files(self) -> list[str]:
        """What there is of claims: records, specs, and whatever a killed process left over."""
        return sorted(
            str(path.relative_to(self.root))
            for folder in (self.records, self.cdi)
            for path in folder.iterdir()
        ) + sorted(
            str(path.relative_to(self.root))
            for path in self.metadata.rglob("*")
            if path.name == "metadata.json" or not any(path.iterdir())
        )

    def contents(self) -> dict[str, bytes]:
        """What is in those files."""
        return {name: (self.root / name).read_bytes() for name in self.files()}

    def restore(self, contents: Mapping[str, bytes]) -> None:
        """Put files back that are gone."""
        for name, content in contents.items():
            (self.root / name).parent.mkdir(parents=True, exist_ok=True)
            (self.root / name).write_bytes(content)


class Plugin:
    """One process of the driver. Its sockets answer when `start` returns."""

    def __init__(
        self,
        machine: Machine,
        cluster: api_cluster.Cluster,
        *,
        gpus: str | None = TWO_GPUS,
        command: Sequence[str] = _COMMAND,
        environment: Mapping[str, str] | None = None,
        **flags: Any,
    ) -> None:
        """`flags` are settings by their names in Python. MIG is off unless they say otherwise."""
        self.machine = machine
        self._command = list(command)
        self._environment = dict(environment or {})
        self._flags = {
            "node_name": api_cluster.NODE,
            "kubeconfig": cluster.kubeconfig,
            "kubelet_root": machine.kubelet,
            "cdi_dir": machine.cdi,
            "boot_id_file": machine.boot_id,
            "rescan_seconds": 0.2,
            "health_hold_seconds": 0,
            "simulation_dir": machine.simulation,
            "simulate_gpus": gpus,
            "mig_mode": "off",
            "log_level": "debug",
        } | flags
        uid = flags.get("rolling_update_uid")
        instance = f"-{uid}" if uid else ""
        self.service_socket = machine.plugin / f"dra{instance}.sock"
        self.registration_socket = machine.registry / f"{api_cluster.DRIVER}{instance}-reg.sock"
        self._process: subprocess.Popen[bytes] | None = None
        self._log_path = machine.root / f"log{instance}.jsonl"
        self._kubelet: Kubelet | None = None
        self._expected: list[str] = []

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def kubelet(self) -> "Kubelet":
        """A connection to the process that was started last."""
        if self._kubelet is None:
            self._kubelet = Kubelet(self.service_socket)
        return self._kubelet

    def start(self, **environment: str) -> "Plugin":
        """Start the process, and wait until both its sockets are there."""
        before = self._sockets()
        self.spawn(**environment)
        api_cluster.wait_for(
            lambda: self._exited() or self._are_new(before),
            lambda: f"sockets; the log: {self.log_text()}",
        )
        assert not self._exited(), self.log_text()
        return self

    def spawn(self, **environment: str) -> "Plugin":
        """Start the process, and wait for nothing."""
        flags = [
            part
            for name, value in self._flags.items()
            if value is not None
            for part in (f"--{name.replace('_', '-')}", str(value))
        ]
        with self._log_path.open("a") as log:
            self._process = subprocess.Popen(
                [*self._command, *flags],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=_clean_environment() | self._environment | environment,
            )
        return self

    def kill(self) -> None:
        """SIGKILL, unless it has ended already."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGKILL)
        self.wait_exit()

    def stop(self) -> int:
        """SIGTERM; the exit status."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        return self.wait_exit()

    def wait_exit(self, seconds: float = api_cluster.DEADLINE) -> int:
        """The exit status once it has ended."""
        if self._kubelet is not None:
            self._kubelet.close()
            self._kubelet = None
        assert self._process is not None
        return self._process.wait(seconds)

    def is_running(self) -> bool:
        return not self._exited()

    def registration(self) -> dra_client.Client:
        """A connection to the registration socket; it is to be closed."""
        return dra_client.Client(str(self.registration_socket))

    def register(self, error: str = "") -> None:
        """What the kubelet does with the registration socket; `error` is why it refuses."""
        register(self.registration_socket, error)

    def log_text(self) -> str:
        # What is written at this moment may end in the middle of a character.
        return self._log_path.read_text(errors="replace") if self._log_path.exists() else ""

    def log(self, event: str | None = None, **fields: Any) -> list[Json]:
        """The lines of the log, of all its processes, that have these fields."""
        wanted = fields if event is None else {"event": event, **fields}
        # The last one may be written at this moment.
        whole = self.log_text().rpartition("\n")[0].splitlines()
        lines = [json.loads(line) for line in whole if line[:1] == "{"]
        return [line for line in lines if wanted.items() <= line.items()]

    def wait_log(self, event: str, *, count: int = 1, **fields: Any) -> list[Json]:
        """Those lines, once there are `count` of them."""

        def found() -> list[Json]:
            lines = self.log(event, **fields)
            return lines if len(lines) >= count else []

        return api_cluster.wait_for(
            found, lambda: f"{count} of {event!r} {fields} in the log: {self.log_text()}"
        )

    def complaints(self) -> list[str]:
        """Lines of the log that no process may write, whatever happens to it."""
        return [
            line
            for line in self.log_text().splitlines()
            if "unexpectedly" in line or "start failed" in line or line.startswith(_TRACES)
            if not any(text in line for text in self._expected)
        ]

    def expects(self, text: str) -> None:
        """Lines with this text are no complaint."""
        self._expected.append(text)

    def _sockets(self) -> list[tuple[int, int] | None]:
        return [_identity(path) for path in (self.service_socket, self.registration_socket)]

    def _are_new(self, before: list[tuple[int, int] | None]) -> bool:
        now = self._sockets()
        return all(new not in (None, old) for new, old in zip(now, before, strict=True))

    def _exited(self) -> bool:
        return self._process is None or self._process.poll() is not None


def _identity(path: pathlib.Path) -> tuple[int, int] | None:
    """Inode and time: a file system gives the number of a file that is gone to the next one."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return status.st_ino, status.st_ctime_ns


def register(socket: pathlib.Path, error: str = "") -> None:
    """See `Plugin.register`."""
    with dra_client.Client(str(socket)) as client:
        client.get_info(api_cluster.DEADLINE)
        client.notify(registered=not error, error=error)


class Kubelet:
    """Calls one plugin the way the kubelet does."""

    def __init__(self, socket: pathlib.Path) -> None:
        self._client = dra_client.Client(str(socket))

    def close(self) -> None:
        self._client.close()

    def prepare(self, *refs: claims.ClaimRef, timeout: float = 45.0, **options: Any) -> list[Json]:
        """The devices of one claim after another, for claims that have to work."""
        answers = self.ask_prepare(*refs, timeout=timeout, **options)
        assert sorted(answers) == sorted(ref.uid for ref in refs)
        assert [answers[ref.uid].error for ref in refs] == ["" for _ in refs]
        return [device.model_dump() for ref in refs for device in answers[ref.uid].devices]

    def refusal(self, ref: claims.ClaimRef, timeout: float = 45.0) -> str:
        """Why the claim cannot be prepared."""
        answers = self.ask_prepare(ref, timeout=timeout)
        assert list(answers) == [ref.uid]
        answer = answers[ref.uid]
        assert answer.error
        assert answer.devices == ()
        return answer.error

    def ask_prepare(
        self, *refs: claims.ClaimRef, timeout: float = 45.0, version: str = "v1.DRAPlugin"
    ) -> dict[claims.ClaimUid, dra_grpc.Answer]:
        return self._client.prepare(refs, timeout=timeout, version=version)

    def unprepare(self, *refs: claims.ClaimRef, timeout: float = 45.0) -> None:
        """Unprepare claims; it has to work."""
        answers = self.ask_unprepare(*refs, timeout=timeout)
        assert {uid: answer.error for uid, answer in answers.items()} == {
            ref.uid: "" for ref in refs
        }

    def ask_unprepare(
        self, *refs: claims.ClaimRef, timeout: float = 45.0
    ) -> dict[claims.ClaimUid, dra_grpc.Answer]:
        return self._client.unprepare(refs, timeout=timeout)


def device(
    ref: claims.ClaimRef, name: str, *requests: str, is_first: bool = True, **fields: Any
) -> Json:
    """What the kubelet is to be told of a device of a claim.

    `is_first` of its requests: it brings what containers read of all their devices.
    """
    requests = requests or ("gpu",)
    described = (f"{api_cluster.DRIVER}/metadata={ref.uid}_{request}" for request in requests)
    found = prepared.PreparedDevice(
        requests=requests,
        pool=api_cluster.NODE,
        device=name,
        cdi_ids=(
            f"k8s.{api_cluster.DRIVER}/claim={ref.uid}-{name}",
            *(described if is_first else ()),
        ),
    )
    return found.model_dump() | fields


def devices(ref: claims.ClaimRef, *names: str) -> list[Json]:
    """The same of all devices of a claim with one request."""
    return [device(ref, name, is_first=name == names[0]) for name in names]


def recorded(answer: Iterable[Json]) -> list[Json]:
    """The devices of an answer as a record has them: what describes them is added to that."""
    return [device | {"cdi_ids": device["cdi_ids"][:1]} for device in answer]


def at_once(*actions: Callable[[], T]) -> list[T]:
    """The answers of actions that begin together, each in a thread of its own."""
    gate = threading.Barrier(len(actions))

    def run(action: Callable[[], T]) -> T:
        gate.wait(api_cluster.DEADLINE)
        return action()

    with concurrent.futures.ThreadPoolExecutor(len(actions)) as pool:
        return list(pool.map(run, actions))


def in_background(action: Callable[[], Any]) -> threading.Thread:
    """The thread in which the action has begun."""
    thread = threading.Thread(target=action, daemon=True)
    thread.start()
    return thread


def _clean_environment() -> dict[str, str]:
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(_OURS) and not name.startswith("GRPC_")
    }
