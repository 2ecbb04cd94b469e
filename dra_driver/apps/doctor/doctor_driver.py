"""What `dra-driver doctor` looks at of GPUs and the NVIDIA driver of the node."""

import dataclasses
import pathlib
from collections.abc import Iterator, Sequence

from dra_driver import errors, settings
from dra_driver.adapters.disk import files, health_records
from dra_driver.adapters.driver import capabilities, cdi_hook, driver_programs, driver_root
from dra_driver.adapters.mps import mps_control
from dra_driver.adapters.nvml import nvidia_smi, nvml, nvml_health
from dra_driver.adapters.system import sysfs
from dra_driver.apps.doctor import doctor_passthrough
from dra_driver.apps.node import host, time_slice_probe
from dra_driver.logic.doctor import card_diagnosis, diagnosis, health_diagnosis
from dra_driver.logic.health import meaning
from dra_driver.logic.preparing import injecting
from dra_driver.model import devices, health
from dra_driver.model import health_records as written

_USUAL_ROOTS = ("/", "/run/nvidia/driver", "/home/kubernetes/bin/nvidia")
"""Where packages of a distribution, the GPU Operator, and GKE install the driver."""


@dataclasses.dataclass(frozen=True, slots=True)
class Seen:
    """The findings, and whether the node has something to offer partitions of."""

    findings: tuple[diagnosis.Finding, ...]
    partitionable: bool


def look(config: settings.KubeletPlugin, hardware: host.Hardware) -> Seen:
    """Ask NVML, and look for what containers are given."""
    found = devices.Discovery(())
    failure: errors.DriverError | None = None
    try:
        found = hardware.nvml.discover()
    except errors.DriverError as error:
        failure = error
    modes = (config.mig_mode, *(rule.mig_mode for rule in config.gpus if rule.mig_mode))
    partitionable = diagnosis.partitionable(found.gpus, modes)
    library = hardware.driver.library(nvml.SONAME)
    findings = [*_root(hardware.driver, library, failure)]
    if failure is None:
        findings += diagnosis.gpus(found, "NVML")
        findings += card_diagnosis.findings(found.gpus, "NVML")
        findings += _health(config, hardware.nvml, found.gpus)
        findings += _places(found.gpus, hardware.place, config.sysfs_root)
    findings += doctor_passthrough.findings(config, hardware, found.gpus)
    if config.simulate_gpus is None:
        findings += _real(config, found.gpus, partitionable=partitionable)
    if library is not None or failure is None:
        findings += _programs(config, hardware, found.gpus)
    return Seen(tuple(findings), partitionable)


def _health(
    config: settings.KubeletPlugin, nvml_: nvml.Nvml, gpus: Sequence[devices.Gpu]
) -> Sequence[diagnosis.Finding]:
    """What a look finds now, and what the driver remembers that no look does."""
    known: list[health.Condition] = []
    try:
        contents = health_records.at(config.state / "health").contents()
        for gpu, record in contents.records.items():
            known += [written.read(gpu, one) for one in record.conditions]
    except files.TROUBLE:
        # What is wrong with the directory is told where directories are looked at.
        known = []
    try:
        facts = nvml_health.HealthReader(nvml_).facts([gpu.uuid for gpu in gpus])
    except errors.DriverError as error:
        remedy = "dmesg | grep -i -e nvrm -e xid on the node tells more"
        return [diagnosis.note("health", "NVML", str(error), remedy)]
    seen = [
        health.Condition(finding, "")
        for gpu, one in facts.items()
        for finding in meaning.of_facts(gpu, one, meaning.Policy()).findings
    ]
    told = {one.finding.identity for one in known}
    known += [one for one in seen if one.finding.identity not in told]
    return [
        *health_diagnosis.findings(gpus, known, "NVML", node=config.node_name),
        *health_diagnosis.unlisted(gpus, known, "PCI bus", node=config.node_name),
    ]


def _root(
    layout: driver_root.Layout,
    library: driver_root.Place | None,
    failure: errors.DriverError | None,
) -> Iterator[diagnosis.Finding]:
    """Whether the driver is where the settings say; if it is, whether it works."""
    check, root = "driver root", layout.root
    if failure is None:
        told = f"has {library.path}" if library else "the driver answers"
        yield diagnosis.fine(check, root.host, told)
    elif library is not None:
        yield diagnosis.fine(check, root.host, f"has {library.path}")
        yield diagnosis.problem(
            "NVML", root.host_path(library.path), str(failure), _remedy_of_nvml(failure)
        )
    elif not root.seen.is_dir():
        cause = f"there is no directory {root.seen}"
        yield diagnosis.problem(check, root.host, cause, _right_root(layout))
    else:
        directories = ", ".join(layout.library_dirs)
        cause = f"no {nvml.SONAME} in {directories} below {root.seen}"
        yield diagnosis.problem(check, root.host, cause, _right_root(layout))


def _remedy_of_nvml(failure: errors.DriverError) -> str:
    match failure:
        case nvml.NoLibrary():
            return (
                "install the library for the architecture of the node, and what it needs; "
                "--library-dirs names directories below the driver root that come first"
            )
        case nvml.Mismatch():
            return (
                "cat /proc/driver/nvidia/version on the node tells the version of the module; load "
                "that of the library (rmmod and modprobe, with no process on the GPUs), or reboot"
            )
    return "modprobe nvidia on the node; dmesg | grep -i nvrm tells why that fails"


def _right_root(layout: driver_root.Layout) -> str:
    """Which settings find the driver, if that is somewhere else where it usually is."""
    root = layout.root
    for path in _USUAL_ROOTS if root.host == "/" or str(root.seen) == root.host else ():
        base = root.seen if root.host == "/" else pathlib.Path("/")
        other = driver_root.Layout(driver_root.Root(path, base / path.lstrip("/")), layout.given)
        if other.library(nvml.SONAME):
            return f"--driver-root {path}; with the chart: --set settings.driverRoot={path}"
    return layout.remedy(nvml.SONAME)


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
    yield _hook(config, files.cdi_hook)


def _hook(config: settings.KubeletPlugin, path: str | None) -> diagnosis.Finding:
    check, place, remedy = "nvidia-cdi-hook", str(config.driver_root), injecting.HOOK_REMEDY
    if path is None:
        return diagnosis.note(check, place, f"it is absent: {injecting.NO_HOOK}", remedy)
    seen = host.seen_hook(config, path)
    if config.plugin in pathlib.Path(path).parents and not pathlib.Path(path).exists():
        # The next container of the pod does it.
        return diagnosis.fine(check, place, f"{path}, once it is copied there")
    answer = cdi_hook.CdiHook().ask(seen)
    lacking = injecting.lacking(path, answer.commands, answer.problem)
    if lacking:
        return diagnosis.note(check, place, lacking, remedy)
    return diagnosis.fine(check, place, path)


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
    config: settings.KubeletPlugin, hardware: host.Hardware, found: Sequence[devices.Gpu]
) -> Iterator[diagnosis.Finding]:
    """What some claims need; simulated GPUs have an nvidia-smi of their own."""
    if config.simulate_gpus is None:
        probe = time_slice_probe.Probe(hardware.with_time_slices)
        yield _nvidia_smi(host.layout_of_driver(config), probe, found)
    yield _mps(hardware.driver)


def _nvidia_smi(
    layout: driver_root.Layout, probe: time_slice_probe.Probe, found: Sequence[devices.Gpu]
) -> diagnosis.Finding:
    check, looked_at = "time slices", layout.root.host
    try:
        program = driver_programs.find(layout, nvidia_smi.PROGRAM, library=nvidia_smi.LIBRARY)
    except errors.DriverError as error:
        return diagnosis.note(
            check,
            looked_at,
            str(error),
            "install nvidia-utils of the driver; until then claims that set a time slice are not "
            "prepared",
        )
    return card_diagnosis.time_slices(probe.filled(found), looked_at, str(program.path))


def _mps(layout: driver_root.Layout) -> diagnosis.Finding:
    check, looked_at = "MPS", layout.root.host
    try:
        program = mps_control.find(layout)
    except errors.DriverError as error:
        return diagnosis.note(
            check,
            looked_at,
            str(error),
            "install nvidia-compute-utils of the driver; until then claims that share by MPS are "
            "not prepared",
        )
    return diagnosis.fine(check, looked_at, str(program.path))
