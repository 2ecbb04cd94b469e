"""A node with simulated GPUs in this process: what prepares claims, without sockets and API.

A node made again on the same directories is the driver after a restart.
"""

import itertools
import json
import pathlib
import threading

from dra_driver import settings
from dra_driver.adapters.disk import card_names, ledgers, records, resets
from dra_driver.adapters.driver import persistence_daemon
from dra_driver.adapters.nvml import nvml_compute, nvml_mig
from dra_driver.adapters.system import locks, patience, processes
from dra_driver.apps.effects import (
    handing_over,
    metadata_files,
    partitioning,
    passthrough,
    sharing,
    wiring,
)
from dra_driver.apps.mps import mps_health
from dra_driver.apps.offering import inventory, names, passing
from dra_driver.apps.preparing import attempts, preparing, rebuilding, turns
from dra_driver.apps.upkeep import (
    device_users,
    mending,
    orphans,
    recovering,
    refreshing,
    restoring,
    vfio_users,
)
from dra_driver.logic.preparing import cdi, metadata, planning, staleness
from dra_driver.model import claims, devices, mig
from dra_driver.sim.cluster import runtime
from dra_driver.sim.gpus import gpu_operations, gpu_state, hardware

FOLDERS = ("claims", "cdi", "gpus", "dra-device-metadata")
DRIVER, POOL = "gpu.nvidia.com", "node-1"
SECONDS = 60.0
FIRST, SECOND, LARGE = "gpu-0-mig-1g10gb-19-6", "gpu-0-mig-1g10gb-19-0", "gpu-0-mig-3g40gb-9-4"
OTHER_CARD = "gpu-1-mig-2g20gb-14-2"
"""Partitions of two H100."""


class Claims:
    """What the API would say; claims of a cluster, and what the node has published."""

    published = ()
    """Devices, or the error that tells that they cannot be read."""

    def __init__(self):
        self._numbers = itertools.count(1)
        self.known = {}

    def make(self, *devices, **fields):
        """A claim that is allocated to these devices, each by a request of its own."""
        number = next(self._numbers)
        ref = claims.ClaimRef("default", f"claim-{number}", claims.ClaimUid(f"uid-{number}"))
        self.allocate(ref, *devices, **fields)
        return ref

    def allocate(self, ref, *devices, admin=False):
        results = [
            {
                "request": f"r{number}",
                "driver": DRIVER,
                "pool": POOL,
                "device": device,
                **({"adminAccess": True} if admin else {}),
            }
            for number, device in enumerate(devices)
        ]
        body = {
            "metadata": {"name": ref.name, "namespace": ref.namespace, "uid": ref.uid},
            "spec": {"devices": {}},
            "status": {"allocation": {"devices": {"results": results}}},
        }
        self.known[ref.name] = claims.parse(body)

    def delete(self, ref):
        del self.known[ref.name]

    def fetch(self, ref, _deadline):
        return self.known.get(ref.name)

    def concerning(self, _node, _uids):
        return self.everywhere()

    def everywhere(self, _uids=()):
        return list(self.known.values())

    def ask(self):
        if isinstance(self.published, Exception):
            raise self.published
        return self.published


class Node:
    """The driver's parts that change the node, over directories that outlive them."""

    def __init__(
        self, root, gpus, api, *, mode="dynamic", boot="boot-1", adopt=False, shares=None,
        shm_bytes=2**20, vfio="off", device_metadata=True,
    ):  # fmt: skip
        self.root, self.api = root, api
        self.simulation, self.cdi, self.mps = root / "simulation", root / "cdi", root / "mps"
        self.cdi.mkdir(exist_ok=True)
        self.proc = root / "proc"
        self.proc.mkdir(exist_ok=True)
        config = settings.KubeletPlugin(
            node_name=POOL, simulate_gpus=gpus, simulation_dir=self.simulation
        )
        found = hardware.simulated(config)
        self.books = ledgers.Ledgers(root / "gpus", boot_id=boot)
        self.held = locks.Locks(root / "locks")
        self.store = attempts.Store(
            records.Records(root / "claims"),
            resets.opened(root / "resets"),
            self.cdi,
            self.held,
            boot_id=boot,
            recall=rebuilding.recalls(found.pci.scan, self.books),
        )
        # An API of claims alone tells of nothing that is published.
        ask = getattr(api, "ask", tuple)
        self.names = names.Names(
            card_names.CardNames(root / "names"), self.held, self.store.records, ask
        )
        handed_over = devices.VfioMode(vfio)
        self.pci, self.library = found.pci, found.nvml
        self.gpus = inventory.Inventory(
            inventory.Looking(
                *(found.nvml, found.place, self.books),
                lambda _: mig.Mode(mode),
                lambda _: shares,
                named=self.names.named,
                bus=passing.Passing(
                    found.pci.scan,
                    self.store.records,
                    self.books.handed_over,
                    lambda _: handed_over,
                    boot_id=boot,
                    is_on=handed_over is not devices.VfioMode.OFF,
                ),
            ),
            interval=3600,
            on_change=lambda: None,
        )
        self.gpus.look()
        self.bound_at_first = {
            one.address: "nvidia" if one.is_gpu else "snd_hda_intel"
            for one in found.pci.scan().functions.values()
        }
        self.nvml = nvml_mig.MigNvml(found.nvml)
        self.partitioner = partitioning.Partitioner(
            self.nvml, self.books, processes.Processes(self.proc).describe
        )
        self.modes = nvml_compute.ComputeModes(found.nvml)
        self.smi, self.launcher = self.programs(found)
        self.sharer = sharing.Sharer(
            sharing.Tools(self.smi, self.modes, self.launcher, self.mps, shm_bytes),
            self.books,
            mps_health.Health(self.store.records, self.held, self.launcher, self.mps),
        )
        self.stopping = threading.Event()
        self.calls = turns.Turns()
        self.identity = planning.Node(DRIVER, POOL)
        described = metadata_files.MetadataFiles(root, self.cdi, DRIVER)
        self.effects = wiring.Effects(
            found.injector,
            self.partitioner,
            self.sharer,
            self._passthrough(found),
            described,
            adopt,
            device_metadata,
        )
        self.preparer = preparing.Preparer(
            self.identity,
            self.store,
            api,
            self.gpus,
            self.effects,
            stopping=self.stopping,
            on_change=lambda: None,
        )
        self.users = device_users.DeviceUsers(
            self.nvml,
            self.gpus,
            processes.Processes(self.proc).describe,
            vfio_users.VfioUsers(found.pci, self.proc).of,
        )
        self.restorer = restoring.Restorer(
            self.identity,
            self.store,
            self.gpus,
            self.effects,
            leaving=self.preparer.leaving,
        )
        self.refresher = refreshing.Refresher(
            self.store, self.gpus, self.effects.metadata, leaving=self.preparer.leaving
        )
        self.mender = mending.Mender(self.identity, self.store, self.gpus.current)
        self.orphans = orphans.Orphans(
            self.gpus,
            self.store,
            self.books,
            self.effects.listed,
            self.mender,
            self.users,
            on_change=lambda: None,
        )

    def _passthrough(self, found):
        tools = handing_over.Tools(
            *(found.pci, found.nvml, self.partitioner, self.books, found.nodes, found.missing),
            *(self.proc, self.sharer.serving),
            persistence_daemon.PersistenceDaemon(self.root / "driver-root"),
        )
        handover = handing_over.Handover(tools)
        kept = card_names.CardNames(self.root / "names")
        return passthrough.Passthrough(
            handover, found.pci, self.books, found.handed_over, kept.devices
        )

    def programs(self, found):
        """What is nvidia-smi, and what runs MPS daemons."""
        return found.nvidia_smi, found.launcher

    def recover(self, *, listed=True):
        claim_list = self.api.everywhere if listed else lambda _: []
        recovering.Recovery(self.store, self.effects.listed, self.mender, claim_list).run()

    def clean(self):
        """What is done for instances at each look, and after each complete list of claims."""
        self.orphans.settle()
        if self.orphans.needs_view():
            self.orphans.remove(staleness.devices_here(self.api.everywhere(), self.identity))

    def prepare(self, ref, seconds=SECONDS):
        with self.arrival(ref, turns.Kind.PREPARE, seconds) as turn:
            return self.preparer.prepare(ref, turn)

    def unprepare(self, ref, seconds=SECONDS):
        with self.arrival(ref, turns.Kind.UNPREPARE, seconds) as turn:
            self.preparer.unprepare(ref, turn)

    def sweep(self, ref, only_if, seconds=SECONDS):
        with self.arrival(ref, turns.Kind.SWEEP, seconds) as turn:
            self.preparer.unprepare(ref, turn, only_if)

    def arrival(self, ref, kind, seconds=SECONDS):
        return self.calls.arrive(ref.uid, kind, patience.Patience(seconds))

    def card(self, number=0):
        """The state of a simulated GPU."""
        return gpu_state.open_file(self.simulation).read().gpus[number]

    def uuid(self, number=0):
        return self.card(number).uuid

    def instances(self, number=0):
        """Where there are instances: profile, start, and how many compute instances."""
        return [
            (one.profile_id, one.start, len(one.compute_instances))
            for one in sorted(self.card(number).gpu_instances, key=lambda one: one.start)
        ]

    def mig_uuids(self, number=0):
        return {ci.uuid for gi in self.card(number).gpu_instances for ci in gi.compute_instances}

    def record(self, ref):
        return self.store.records.get(ref.uid)

    def mounted(self, ref):
        """What a container of the claim finds of device metadata: host paths by path in it."""
        answer = metadata.answered(DRIVER, self.record(ref))
        ids = [one for device in answer for one in device.cdi_ids]
        view = runtime.resolve(self.cdi, ids)
        return {
            inside: pathlib.Path(host)
            for host, inside in view.mounts
            if inside.startswith(metadata.CONTAINER_DIR)
        }

    def metadata(self, ref):
        """The first object of each file that it finds, by the base name of the request."""
        return {
            pathlib.PurePath(inside).parent.name: json.loads(path.read_text().splitlines()[0])
            for inside, path in self.mounted(ref).items()
        }

    def described_in_containers(self, ref):
        """The devices of all requests as containers read of them."""
        found = self.metadata(ref).values()
        return [one for body in found for request in body["requests"] for one in request["devices"]]

    def variables(self, ref):
        """What the containers of the claim find in their environment."""
        spec = json.loads((self.cdi / cdi.file_name(DRIVER, ref.uid)).read_text())
        return [
            text for device in spec["devices"] for text in device["containerEdits"].get("env", [])
        ]

    def files(self):
        """What there is of claims and of GPUs that were changed."""
        return sorted(
            str(path.relative_to(self.root))
            for folder in FOLDERS
            if (self.root / folder).is_dir()
            for path in (self.root / folder).iterdir()
        )

    def is_clean(self):
        """No claim has left anything; the GPUs are as they were."""
        cards = gpu_state.open_file(self.simulation).read().gpus
        modes = [card.mig_enabled or card.mig_pending for card in cards]
        assert (self.files(), [card.gpu_instances for card in cards]) == ([], [[] for _ in cards])
        assert not any(modes)
        drivers = {one.address: one.driver for one in self.pci.scan().functions.values()}
        assert drivers == self.bound_at_first
        return True

    def editing(self):
        """A block in which the state of the simulated GPUs may be changed."""
        return gpu_state.open_file(self.simulation).edit()

    def discover(self):
        """The GPUs that NVML tells of now."""
        return self.library.discover().gpus

    def driver(self, number=0):
        """Which driver has a GPU."""
        found = self.pci.function(self.card(number).pci_address)
        return found and found.driver

    def override(self, address):
        """The driver that alone may have a function, as `/sys` tells; None: any that fits."""
        path = self.simulation / "sys/bus/pci/devices" / address / "driver_override"
        text = path.read_text().strip()
        return None if text == "(null)" else text

    def hardware(self):
        """The MIG state of all GPUs and their persistence, to be compared with itself."""
        return [
            (card.mig_enabled, card.mig_pending, card.gpu_instances, card.persistence_mode)
            for card in gpu_state.open_file(self.simulation).read().gpus
        ]

    def set_mig_mode(self, *, on, number=0):
        """The mode, as after a reset of the GPU."""
        with gpu_state.open_file(self.simulation).edit() as state:
            state.gpus[number].mig_enabled = state.gpus[number].mig_pending = on

    def foreign(self, profile, start, number=0, **options):
        """An administrator makes an instance."""
        return gpu_operations.create_instance(
            self.simulation, self.uuid(number), profile, start, **options
        )

    def destroy(self, gi, number=0):
        gpu_operations.destroy_instance(self.simulation, self.uuid(number), gi)

    def use(self, pid, number=0, *, command="trainer"):
        """A process begins to use the first instance of the GPU."""
        instance = self.card(number).gpu_instances[0]
        gpu_operations.start_process(
            self.simulation,
            self.uuid(number),
            pid,
            gi=instance.id,
            ci=instance.compute_instances[0].id,
        )
        self.name_process(pid, command)

    def occupy(self, pid, number=0, *, command="trainer"):
        """A process begins to use the GPU, outside all instances."""
        gpu_operations.start_process(self.simulation, self.uuid(number), pid)
        self.name_process(pid, command)

    def name_process(self, pid, command):
        directory = self.proc / str(pid)
        directory.mkdir()
        (directory / "comm").write_text(f"{command}\n")

    def end(self, pid, number=0):
        gpu_operations.end_process(self.simulation, self.uuid(number), pid)
