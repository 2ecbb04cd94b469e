"""Labels of a node as GPU feature discovery writes them, for one kind of card without sharing.

Written from its `internal/lm/resource.go` and `nvml.go`, not from our code.
"""

import re


def family(major: int, minor: int) -> str:
    fixed = {3: "kepler", 5: "maxwell", 6: "pascal", 9: "hopper", 10: "blackwell", 12: "blackwell"}
    if major == 7:
        return "volta" if minor < 5 else "turing"
    if major == 8:
        return "ampere" if minor < 9 else "ada-lovelace"
    return fixed.get(major, "undefined")


def product(name: str) -> str:
    return "-".join(re.sub(r"[^A-Za-z0-9\-_. ]", "", name).split())


def of(gpu, count: int = 1) -> dict[str, str]:
    """The labels of a node with `count` such cards (`devices.Gpu`)."""
    driver = gpu.driver_version.split(".")
    revision = driver[2] if len(driver) > 2 else ""
    major, minor = gpu.compute_capability
    cuda_major, cuda_minor = gpu.cuda_driver_version
    labels = {
        "cuda.driver.major": driver[0],
        "cuda.driver.minor": driver[1],
        "cuda.driver.rev": revision,
        "cuda.driver-version.major": driver[0],
        "cuda.driver-version.minor": driver[1],
        "cuda.driver-version.revision": revision,
        "cuda.driver-version.full": gpu.driver_version,
        "cuda.runtime.major": str(cuda_major),
        "cuda.runtime.minor": str(cuda_minor),
        "cuda.runtime-version.major": str(cuda_major),
        "cuda.runtime-version.minor": str(cuda_minor),
        "cuda.runtime-version.full": f"{cuda_major}.{cuda_minor}",
        "gpu.compute.major": str(major),
        "gpu.compute.minor": str(minor),
        "gpu.count": str(count),
        "gpu.family": family(major, minor),
        "gpu.product": product(gpu.product_name),
        "gpu.replicas": "1",
        "gpu.sharing-strategy": "none",
        "gpu.present": "true",
        "mig.capable": "true" if gpu.mig_capable else "false",
    }
    if gpu.memory_bytes:
        labels["gpu.memory"] = str(gpu.memory_bytes // 2**20)
    return {f"nvidia.com/{name}": value for name, value in labels.items()}
