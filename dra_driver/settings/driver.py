"""Settings that say where NVIDIA's driver is."""

import pathlib

import pydantic
from pydantic import Field

from dra_driver.settings import base, types


class Driver(base.Settings):
    """Where NVIDIA's driver is, and what comes with it."""

    driver_root: pathlib.Path = Field(
        pathlib.Path("/"),
        description="Where the NVIDIA driver is installed on the host: /, or for example "
        "/run/nvidia/driver or /home/kubernetes/bin/nvidia.",
    )
    driver_root_seen: pathlib.Path | None = Field(
        None, description="The driver root as this process sees it. Default: the same path."
    )
    library_dirs: tuple[str, ...] = Field(
        (),
        description="Directories under the driver root that hold driver libraries and come before "
        "the usual ones, for NVML, nvidia-smi, MPS and containers; a bin beside one has programs. "
        "Separated by commas.",
    )
    cdi_hook: pathlib.Path | None = Field(
        None,
        description="nvidia-cdi-hook on the host. Default: looked for under the driver root; "
        "without it libraries are found through the environment.",
    )
    sysfs_root: pathlib.Path = Field(pathlib.Path("/sys"), description="Where sysfs is mounted.")
    host_root: pathlib.Path = Field(
        pathlib.Path("/"),
        description="The root of the host as this process sees it: kernel modules for VFIO are "
        "loaded from there.",
    )
    fabric_manager: types.FabricManagerAddress = Field(
        "",
        description="Where NVIDIA's Fabric Manager listens: unix:PATH on the host, or an IPv4 "
        "address and a port. It is asked for the partitions of the NVLink fabric, which are "
        "published as attributes; without effect where vfio is off. Default: it is not asked.",
    )

    @pydantic.field_validator("library_dirs", mode="before")
    @classmethod
    def _split_directories(cls, value: object) -> object:
        return types.split(value)
