"""What `dra-driver doctor` looks at of GPUs and the NVIDIA driver of the node."""

import dataclasses
import pathlib
from collections.abc import Iterator, Sequence

from dra_driver import errors, settings
from dra_driver.adapters import (
    capabilities,
    driver_programs,
    driver_root,
    mps_control,
    nvidia_smi,
    sysfs,
)
from dra_driver.apps import host, node_agent, time_slice_probe
from dra_driver.logic import card_diagnosis, diagnosis
from dra_driver.model import devices, driver

_LIBRARY = "libnvidia-ml.so.1"
_USUAL_ROOTS = ("/", "/run/nvidia/driver", "/home/kubernetes/bin/nvidia")
"""Where packages of a distribution, the GPU Operator, and GKE install the driver."""


@dataclasses.dataclass(frozen=True, slots=True)
class Seen:
    """The findings, and whether the node has something to offer partitions of."""

    findings: tuple[diagnosis.Finding, ...]
    partitionable: bool


def look(config: settings.KubeletPlugin, hardware: node_agent.Hardware) -> Seen:
    """Ask NVML, and look for what containers are given."""
    found, failure = devices.Discovery(()), None
    try:
        found = hardware.nvml.discover()
    except errors.DriverError as error:
        failure = str(error)
    modes = (config.mig_mode, *(rule.mig_mode for rule in config.gpus if rule.mig_mode))
    partitionable = diagnosis.partitionable(found.gpus, modes)
    library = _library(hardware.driver, _directories(config))
    findings = [*_root(hardware.driver, config, library, failure)]
    if failure is None:
        findings += diagnosis.gpus(found, "NVML")
        findings += card_diagnosis.findings(found.gpus, "NVML")
        findings += _places(found.gpus, hardware.place, config.sysfs_root)
    if config.simulate_gpus is None:
        findings += _real(config, found.gpus, partitionable=partitionable)
    if library is not None or failure is None:
        findings += _programs(config, hardware, found.gpus)
    return Seen(tuple(findings), partitionable)


def _directories(config: settings.KubeletPlugin) -> Sequence[str]:
    return (*config.library_dirs, *driver.LIBRARY_DIRS)


def _root(
    root: driver_root.Root,
    config: settings.KubeletPlugin,
    library: str | None,
    failure: str | None,
) -> Iterator[diagnosis.Finding]:
    """Whether the driver is where the settings say; if it is, whether it works."""
    check, directories = "driver root", _directories(config)
    if failure is None:
        told = f"has {library}" if library else "the driver answers"
        yield diagnosis.fine(check, root.host, told)
    elif library is not None:
        yield diagnosis.fine(check, root.host, f"has {library}")
        yield diagnosis.problem(
            "NVML",
            root.host_path(library),
            failure,
            "modprobe nvidia on the node; dmesg | grep -i nvrm tells why that fails",
        )
    elif not root.seen.is_dir():
        cause = f"there is no directory {root.seen}"
        yield diagnosis.problem(check, root.host, cause, _right_root(root, directories))
    else:
        cause = f"no {_LIBRARY} in {', '.join(directories)} below {root.seen}"
        yield diagnosis.problem(check, root.host, cause, _right_root(root, directories))


def _library(root: driver_root.Root, directories: Sequence[str]) -> str | None:
    paths = (f"{directory}/{_LIBRARY}" for directory in directories)
    return next((path for path in paths if root.at(root.resolve(path)).is_file()), None)


def _right_root(root: driver_root.Root, directories: Sequence[str]) -> str:
    """Which settings find the driver, if that is somewhere else where it usually is."""
    for path in _USUAL_ROOTS if root.host == "/" or str(root.seen) == root.host else ():
        base = root.seen if root.host == "/" else pathlib.Path("/")
        other = driver_root.Root(path, base / path.lstrip("/"))
        if _library(other, directories):
            return f"--driver-root {path}; with the chart: --set settings.driverRoot={path}"
    return (
        "install the NVIDIA driver, or set --driver-root to where it is on the host and "
        "--driver-root-seen to where that is mounted in the container"
    )


def _places(
    found: Sequence[devices.Gpu], place: sysfs.Sysfs, looked_at: pathlib.Path
) -> Iterator[diagnosis.Finding]:
    lost = [gpu.pci_address for gpu in found if place.pcie_root(gpu.pci_address) is None]
    if lost:
        yield diagnosis.note(
            "sysfs",
            str(looked_at),
            f"it has no PCI root for {', '.join(lost)}: their devices lack the attribute "
            "resource.kubernetes.io/pcieRoot",
            "mount the node's /sys, or correct --sysfs-root",
        )


def _real(
    config: settings.KubeletPlugin, found: Sequence[devices.Gpu], *, partitionable: bool
) -> Iterator[diagnosis.Finding]:
    root = host.installed_driver(config)
    yield _device_nodes(root, [gpu.minor for gpu in found])
    version = next((gpu.driver_version for gpu in found if gpu.driver_version), None)
    if version is not None:
        yield from _files(config, root, version)
    if partitionable:
        yield _capabilities(config, root)


def _device_nodes(root: driver_root.DriverRoot, minors: Sequence[int]) -> diagnosis.Finding:
    check, looked_at = "device nodes", root.root_of_devices().host_path("/dev/nvidia*")
    try:
        nodes = root.device_nodes(minors)
    except errors.DriverError as error:
        cards = "".join(f" -c {minor}" for minor in minors or (0,))
        return diagnosis.problem(check, looked_at, str(error), f"nvidia-modprobe -u{cards}")
    return diagnosis.fine(check, looked_at, ", ".join(node.path for node in nodes))


def _files(
    config: settings.KubeletPlugin, root: driver_root.DriverRoot, version: str
) -> Iterator[diagnosis.Finding]:
    check, place = "driver libraries", str(config.driver_root)
    try:
        files = root.files(version)
    except errors.DriverError as error:
        yield diagnosis.problem(
            check,
            place,
            str(error),
            f"find {place} -name 'libcuda.so.*' shows the versions that are there; after an "
            "update of the driver, load its modules anew or reboot",
        )
        return
    yield diagnosis.fine(check, place, f"{len(files.libraries)} of version {version}")
    if files.cdi_hook is None:
        yield diagnosis.note(
            "nvidia-cdi-hook",
            place,
            "it is absent: containers find the libraries through LD_LIBRARY_PATH, which replaces "
            "one that the image sets",
            "install nvidia-container-toolkit-base, or set --cdi-hook",
        )
    else:
        yield diagnosis.fine("nvidia-cdi-hook", place, files.cdi_hook)


def _capabilities(
    config: settings.KubeletPlugin, root: driver_root.DriverRoot
) -> diagnosis.Finding:
    check, looked_at = "MIG capabilities", str(config.proc_root / "devices")
    try:
        major = capabilities.Capabilities(root.root_of_devices, config.proc_root).major()
    except errors.DriverError as error:
        return diagnosis.problem(
            check, looked_at, str(error), "modprobe nvidia on the node, or correct --proc-root"
        )
    return diagnosis.fine(check, looked_at, f"nvidia-caps has major number {major}")


def _programs(
    config: settings.KubeletPlugin, hardware: node_agent.Hardware, found: Sequence[devices.Gpu]
) -> Iterator[diagnosis.Finding]:
    """What some claims need; simulated GPUs have an nvidia-smi of their own."""
    if config.simulate_gpus is None:
        yield _nvidia_smi(config, time_slice_probe.Probe(hardware.with_time_slices), found)
    yield _mps(hardware.driver)


def _nvidia_smi(
    config: settings.KubeletPlugin, probe: time_slice_probe.Probe, found: Sequence[devices.Gpu]
) -> diagnosis.Finding:
    root = host.root_of_driver(config)
    try:
        program = driver_programs.find(
            root, nvidia_smi.PROGRAM, config.library_dirs, library=nvidia_smi.LIBRARY
        )
    except errors.DriverError as error:
        return diagnosis.note(
            "time slices",
            root.host,
            str(error),
            "install nvidia-utils of the driver; until then claims that set a time slice are not "
            "prepared",
        )
    return card_diagnosis.time_slices(probe.filled(found), root.host, str(program.path))


def _mps(root: driver_root.Root) -> diagnosis.Finding:
    try:
        program = mps_control.find(root.seen)
    except errors.DriverError as error:
        return diagnosis.note(
            "MPS",
            root.host,
            str(error),
            "install nvidia-compute-utils of the driver; until then claims that share by MPS are "
            "not prepared",
        )
    return diagnosis.fine("MPS", root.host, str(program.path))
