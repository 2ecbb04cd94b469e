"""What the start of NVIDIA's kubelet plugin means here: its flag, the variables of its container.

So this driver runs where a pod is made for that one: `spec.draDriver` of the GPU operator's
GPUCluster. Sources: NVIDIA/gpu-operator a22dbf67 `manifests/state-dra-driver/0500_daemonset.yaml`,
kubernetes-sigs/dra-driver-nvidia-gpu 95932046 `cmd/gpu-kubelet-plugin/main.go` and
`pkg/featuregates`.
"""

import dataclasses
from collections.abc import Iterator, Mapping

from dra_driver import errors
from dra_driver.settings import resolving

_SAME = {
    "CDI_ROOT": "cdi_dir",
    "DRIVER_ROOT_CTR_PATH": "driver_root_seen",
    "HOST_DRIVER_ROOT": "driver_root",
    "NVIDIA_DRIVER_ROOT": "driver_root",
    "NVIDIA_CDI_HOOK_PATH": "cdi_hook",
    "KUBELET_REGISTRAR_DIRECTORY_PATH": "registry_dir",
    "NAMESPACE": "pod_namespace",
    "IMAGE_NAME": "mps_image",
    "IMAGE_PULL_POLICY": "mps_image_pull_policy",
    "IMAGE_PULL_SECRETS": "mps_image_pull_secrets",
    "SERVICE_ACCOUNT_NAME": "mps_service_account",
}
"""Variables with the value of a setting. Of two for one setting the later one counts.

NODE_NAME and KUBECONFIG are missing here: they are read in any case.
"""
_PATH = "/metrics"
_DEBUGGING = 6
"""From this verbosity on NVIDIA's plugin logs single calls and loops."""
_WITHOUT_EFFECT = {
    "KUBE_API_QPS": "this driver does not limit its own requests",
    "KUBE_API_BURST": "this driver does not limit its own requests",
}
_ALWAYS = {
    "TimeSlicingSettings": "time slices",
    "MPSSupport": "MPS",
    "NVMLDeviceHealthCheck": "health checks",
}
"""Gates of what is always on here."""
_MISSING = {
    "VGPUSupport": "vGPUs",
    "DeviceMetadata": "files of device metadata",
    "FabricManagerPartitioning": "partitions of the Fabric Manager",
    "AllAlpha": "all that NVIDIA's driver has as alpha",
}
"""Gates of what is not there. A driver that ignored them would seem to have it."""
_ELSEWHERE = frozenset(
    {
        "AllBeta",
        "ComputeDomainCliques",
        "ContextualLogging",
        "CrashOnNVLinkFabricErrors",
        "DRAListTypeAttributes",
        "HostManagedIMEXDaemon",
        "IMEXDaemonsWithDNSNames",
        "LoggingAlphaOptions",
        "LoggingBetaOptions",
        "NodeLocalFabricIPC",
    }
)
"""Gates of ComputeDomains, which are not there, of logging, and of how attributes are written."""
_DYNAMIC_MIG = "DynamicMIG"
_SHARES = "ConsumableShares"
_PASSTHROUGH = "PassthroughSupport"


@dataclasses.dataclass(frozen=True, slots=True)
class Meaning:
    """Settings with the variables that they come from, and what has no effect, one line each."""

    given: tuple[resolving.Given, ...] = ()
    told: tuple[str, ...] = ()


def meaning(environment: Mapping[str, str], *, verbosity: str | None, driver_name: str) -> Meaning:
    """What the flag `-v` and the variables of NVIDIA's plugin mean.

    Args:
        environment: the variables.
        verbosity: the value of `-v`, if it was given.
        driver_name: name of this driver, which is in the path of its directory.

    Raises:
        errors.Fatal: a value is not allowed, or asks for what is not there.
    """
    gates = _gates(environment.get("FEATURE_GATES", ""))
    given = (
        *_verbosity(verbosity),
        *_paths(environment, driver_name),
        *_ports(environment),
        *_switches(gates, environment),
        *_effects(environment),
    )
    told = (
        *(
            f"{name} has no effect: {why}"
            for name, why in _WITHOUT_EFFECT.items()
            if environment.get(name)
        ),
        *_told_of_metrics(environment),
        *_told_of_gates(gates),
    )
    return Meaning(given, told)


def _given(setting: str, value: str, variable: str) -> resolving.Given:
    return setting, value, f"environment variable {variable}"


def _verbosity(text: str | None) -> Iterator[resolving.Given]:
    if text is None:
        return
    if not text.isdecimal():
        raise errors.Fatal(f"flag -v: {text!r}: write a number from 0 on, for example 4")
    yield "log_level", "debug" if int(text) >= _DEBUGGING else "info", "flag -v"


def _paths(environment: Mapping[str, str], driver_name: str) -> Iterator[resolving.Given]:
    for variable, setting in _SAME.items():
        if environment.get(variable):
            yield _given(setting, environment[variable], variable)
    variable = "KUBELET_PLUGINS_DIRECTORY_PATH"
    if environment.get(variable):
        directory = environment[variable].rstrip("/")
        yield _given("plugin_dir", f"{directory}/{driver_name}", variable)
    if environment.get("HOST_ROOT"):
        # The pod has no hostPID: the processes of the node are those of the node's own procfs.
        yield _given("proc_root", f"{environment['HOST_ROOT'].rstrip('/')}/proc", "HOST_ROOT")


def _ports(environment: Mapping[str, str]) -> Iterator[resolving.Given]:
    if environment.get("HTTP_ENDPOINT") and environment.get("METRICS_PATH", _PATH):
        yield _given("metrics_address", environment["HTTP_ENDPOINT"], "HTTP_ENDPOINT")
    variable = "HEALTHCHECK_PORT"
    text = environment.get(variable, "")
    if not text or (text.startswith("-") and text[1:].isdecimal()):
        return
    if not text.isdecimal() or not 0 < int(text) < 2**16:
        raise errors.Fatal(
            f"environment variable {variable}: {text!r}: write a port from 1 to 65535, or -1 for "
            "no health service"
        )
    yield _given("health_address", f":{text}", variable)


def _effects(environment: Mapping[str, str]) -> Iterator[resolving.Given]:
    """XIDs that withdraw nothing. NVIDIA's plugin, too, tells of them all the same."""
    variable = "ADDITIONAL_XIDS_TO_IGNORE"
    text = environment.get(variable, "")
    numbers = [part for part in (each.strip() for each in text.split(",")) if part]
    for number in numbers:
        if not (number.isascii() and number.isdecimal()):
            raise errors.Fatal(
                f"environment variable {variable}: {number!r}: write numbers of XIDs, separated by "
                "commas, for example 94,143"
            )
    if numbers:
        yield _given("health_effects", ",".join(f"xid={each}:None" for each in numbers), variable)


def _told_of_metrics(environment: Mapping[str, str]) -> Iterator[str]:
    path = environment.get("METRICS_PATH")
    if path and path != _PATH:
        yield f"METRICS_PATH={path} has no effect: metrics are served at {_PATH}"


def _gates(text: str) -> dict[str, bool]:
    """The gates by name, as `Name=true,Other=false` has them."""
    found = {}
    for entry in filter(None, (part.strip() for part in text.split(","))):
        name, _, value = entry.partition("=")
        if value.lower() not in ("true", "false"):
            raise errors.Fatal(
                f"FEATURE_GATES: {entry!r}: write NAME=true or NAME=false, separated by commas"
            )
        known = {_DYNAMIC_MIG, _SHARES, _PASSTHROUGH, *_ALWAYS, *_MISSING, *_ELSEWHERE}
        if name not in known:
            raise errors.Fatal(
                f"FEATURE_GATES: {name!r} is unknown; known are {', '.join(sorted(known))}. "
                "Take it out of spec.draDriver.featureGates of the GPUCluster"
            )
        found[name] = value.lower() == "true"
        if found[name] and name in _MISSING:
            raise errors.Fatal(
                f"FEATURE_GATES: {name}=true: this driver does not have {_MISSING[name]}. "
                "Take it out of spec.draDriver.featureGates of the GPUCluster"
            )
    return found


def _switches(
    gates: Mapping[str, bool], environment: Mapping[str, str]
) -> Iterator[resolving.Given]:
    if _DYNAMIC_MIG in gates:
        # Without it NVIDIA's plugin hands out the instances that an administrator made.
        mode = "dynamic" if gates[_DYNAMIC_MIG] else "static"
        yield "mig_mode", mode, f"{_DYNAMIC_MIG} in FEATURE_GATES"
    if gates.get(_PASSTHROUGH):
        # It publishes each GPU in both ways too.
        yield "vfio", "on", f"{_PASSTHROUGH} in FEATURE_GATES"
        if environment.get("HOST_ROOT"):
            yield _given("host_root", environment["HOST_ROOT"], "HOST_ROOT")
    variable = "CONSUMABLE_SHARES"
    asked = environment.get(variable, "disabled")
    if asked in ("", "disabled"):
        return
    if not gates.get(_SHARES):
        raise errors.Fatal(
            f"{variable}={asked} needs the feature gate {_SHARES}: set it to true in "
            f"spec.draDriver.featureGates of the GPUCluster, or {variable} to disabled"
        )
    if asked == "unlimited":
        raise errors.Fatal(
            f"{variable}={asked}: shares are memory, or a number of equal ones from 1 to 100"
        )
    yield _given("shares", asked, variable)


def _told_of_gates(gates: Mapping[str, bool]) -> Iterator[str]:
    for name, is_on in gates.items():
        text = f"FEATURE_GATES: {name}={str(is_on).lower()}"
        if name in _ALWAYS:
            yield f"{text} has no effect: this driver always has {_ALWAYS[name]}"
        elif name in _ELSEWHERE:
            yield f"{text} has no effect: it switches nothing of this driver"
