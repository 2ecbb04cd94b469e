"""Settings of each command, by subject. Each field is a flag, a variable and a key of the file.

A new setting goes to its subject: `node`, `driver`, `offering`, `mps`, `health`, `simulation` of
the kubelet plugin, or `webhook`, `controller`. How they are put together from flags, variables and
the file is `resolving`.
"""

from dra_driver.settings.base import Settings
from dra_driver.settings.plugin import KubeletPlugin
from dra_driver.settings.resolving import (
    CONFIG_VARIABLE,
    ENVIRONMENT_PREFIX,
    add_flags,
    resolve,
)
from dra_driver.settings.types import GpuRule

__all__ = [
    "CONFIG_VARIABLE",
    "ENVIRONMENT_PREFIX",
    "GpuRule",
    "KubeletPlugin",
    "Settings",
    "add_flags",
    "resolve",
]
