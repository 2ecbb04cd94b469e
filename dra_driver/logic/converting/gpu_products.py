"""Products and profiles as GPU feature discovery and the device plugin spell them.

Blanks of a name are `-`; of a profile `+` is `.`, since labels and resources have none.
Source: `internal/lm/resource.go` (`getProductName`), `internal/resource/nvml-mig-device.go`.
"""

import dataclasses
import re

_SHARED, _PARTITION, _INVALID = "-SHARED", "-MIG-", "INVALID"
_PROFILE = re.compile(r"(\d+g\.\d+gb)(-me)?\.(.+)", re.ASCII)


@dataclasses.dataclass(frozen=True, slots=True)
class Product:
    """A value of the label `nvidia.com/gpu.product`.

    `profile` is that of the partitions that such nodes have (strategy `single`), `invalid` that
    they have no single one.
    """

    name: str
    profile: str | None = None
    shared: bool = False
    invalid: bool = False


def read(value: str) -> Product:
    """What a value of the label says."""
    shared = value.endswith(_SHARED)
    name, is_partition, rest = value.removesuffix(_SHARED).partition(_PARTITION)
    if not is_partition:
        return Product(name, shared=shared)
    return Product(name, profile(rest), shared=shared, invalid=rest == _INVALID)


def profile(spelled: str) -> str:
    """A profile as NVML writes it: `1g.10gb.me` is `1g.10gb+me`."""
    found = _PROFILE.fullmatch(spelled)
    return f"{found[1]}{found[2] or ''}+{found[3]}" if found else spelled
