"""Configs that are legal, with what they come to, and configs that are not, with what is said."""

import dataclasses

from dra_driver.model import configs, sharing

GI, MI = 2**30, 2**20


def gpu(shared=None, **fields):
    return made("GpuConfig", fields if shared is None else {"sharing": shared, **fields})


def mig(shared=None, **fields):
    return made("MigDeviceConfig", fields if shared is None else {"sharing": shared, **fields})


def vfio(iommu=None, **fields):
    return made("VfioDeviceConfig", fields if iommu is None else {"iommu": iommu, **fields})


def made(kind, fields):
    return {"apiVersion": configs.API_VERSION, "kind": kind, **fields}


def mps(**fields):
    return gpu({"strategy": "MPS", "mpsConfig": fields})


def slices(**fields):
    return gpu({"strategy": "TimeSlicing", "timeSlicingConfig": fields})


def of_gpu(settings=None):
    return sharing.Config(sharing.Kind.GPU, settings)


def of_mig(settings=None):
    return sharing.Config(sharing.Kind.MIG, settings)


def of_vfio(*settings):
    return sharing.Config(sharing.Kind.VFIO, sharing.Vfio(*settings))


I, P, D = sharing.Interval, sharing.BackendPolicy, sharing.Domain  # noqa: E741 - a table

LEGAL = {
    "nothing but the kind": (gpu(), of_gpu()),
    "sharing is empty": (gpu({}), of_gpu()),
    "sharing is null": (made("GpuConfig", {"sharing": None}), of_gpu()),
    "nulls are absent": (
        gpu({"strategy": None, "timeSlicingConfig": None, "mpsConfig": None}),
        of_gpu(),
    ),
    "time slices": (gpu({"strategy": "TimeSlicing"}), of_gpu(sharing.TimeSlicing(I.DEFAULT))),
    "time slices, empty": (slices(), of_gpu(sharing.TimeSlicing(I.DEFAULT))),
    "time slices, null": (slices(interval=None), of_gpu(sharing.TimeSlicing(I.DEFAULT))),
    "time slices, Default": (
        slices(interval="Default"),
        of_gpu(sharing.TimeSlicing(I.DEFAULT)),
    ),
    "time slices, Short": (slices(interval="Short"), of_gpu(sharing.TimeSlicing(I.SHORT))),
    "time slices, Medium": (slices(interval="Medium"), of_gpu(sharing.TimeSlicing(I.MEDIUM))),
    "time slices, Long": (slices(interval="Long"), of_gpu(sharing.TimeSlicing(I.LONG))),
    "timeSlice is interval": (slices(timeSlice="Long"), of_gpu(sharing.TimeSlicing(I.LONG))),
    "an older name that is null": (
        slices(timeSlice=None, interval="Short"),
        of_gpu(sharing.TimeSlicing(I.SHORT)),
    ),
    "the other strategy's config is null": (
        gpu({"strategy": "MPS", "timeSlicingConfig": None}),
        of_gpu(sharing.Mps()),
    ),
    "MPS": (gpu({"strategy": "MPS"}), of_gpu(sharing.Mps())),
    "MPS, empty": (mps(), of_gpu(sharing.Mps())),
    "MPS of NVIDIA's example": (
        mps(defaultActiveThreadPercentage=50, defaultPinnedDeviceMemoryLimit="10Gi"),
        of_gpu(sharing.Mps(thread_percentage=50, memory_limit=10 * GI)),
    ),
    "all of MPS": (
        mps(
            defaultActiveThreadPercentage=1,
            defaultPinnedDeviceMemoryLimit="4Gi",
            defaultPerDevicePinnedMemoryLimit={"0": "1Gi", "GPU-1": "2Gi", "MIG-2": "3Gi"},
            multiUser=True,
            maxClients=48,
            domain="Namespace",
        ),
        of_gpu(
            sharing.Mps(
                thread_percentage=1,
                memory_limit=4 * GI,
                per_device={"0": GI, "GPU-1": 2 * GI, "MIG-2": 3 * GI},
                multi_user=True,
                max_clients=48,
                domain=D.NAMESPACE,
            )
        ),
    ),
    "MPS with defaults written out": (
        mps(multiUser=False, maxClients=1, domain="Claim", defaultPerDevicePinnedMemoryLimit={}),
        of_gpu(sharing.Mps()),
    ),
    "MPS by its older names": (
        mps(activeThreadPercentage=100, pinnedDeviceMemoryLimit="1Gi", maxConnections=2),
        of_gpu(sharing.Mps(thread_percentage=100, memory_limit=GI, max_clients=2)),
    ),
    "a limit in decimal units": (
        mps(defaultPinnedDeviceMemoryLimit="1G"),
        of_gpu(sharing.Mps(memory_limit=953 * MI)),
    ),
    "a limit with a rest": (
        mps(defaultPinnedDeviceMemoryLimit="10M"),
        of_gpu(sharing.Mps(memory_limit=9 * MI)),
    ),
    "the least limit": (
        mps(defaultPinnedDeviceMemoryLimit="1Mi"),
        of_gpu(sharing.Mps(memory_limit=MI)),
    ),
    "a limit as a number": (
        mps(defaultPinnedDeviceMemoryLimit=1073741824),
        of_gpu(sharing.Mps(memory_limit=GI)),
    ),
    "a limit as a number with an exponent": (
        mps(defaultPinnedDeviceMemoryLimit=1e9),
        of_gpu(sharing.Mps(memory_limit=953 * MI)),
    ),
    "a limit as a text with an exponent": (
        mps(defaultPinnedDeviceMemoryLimit="1e9"),
        of_gpu(sharing.Mps(memory_limit=953 * MI)),
    ),
    "the least part of a limit": (
        mps(defaultPinnedDeviceMemoryLimit="48Mi", maxClients=48),
        of_gpu(sharing.Mps(memory_limit=48 * MI, max_clients=48)),
    ),
    "MIG, nothing": (mig(), of_mig()),
    "MIG, empty": (mig({}), of_mig()),
    "MIG, MPS": (
        mig({"strategy": "MPS", "mpsConfig": {"maxClients": 3}}),
        of_mig(sharing.Mps(max_clients=3)),
    ),
    "VFIO, nothing": (vfio(), of_vfio()),
    "VFIO, empty": (vfio({}), of_vfio(P.LEGACY_ONLY, False)),  # noqa: FBT003
    "VFIO, all": (
        vfio({"backendPolicy": "PreferIommuFD", "enableAPIDevice": True}),
        of_vfio(P.PREFER_IOMMU_FD, True),  # noqa: FBT003
    ),
    "VFIO, legacy": (vfio({"backendPolicy": "LegacyOnly", "enableAPIDevice": False}), of_vfio()),
}

INTERVALS = "write Default (also if left out), Short, Medium or Long"
PERCENTAGES = (
    "write a whole number from 1 to 100, the percentage of multiprocessors that each process may "
    "use; without it there is no limit"
)
CLIENTS = (
    "write a whole number from 1 to 48, how many processes the claim runs; each gets an even part "
    "of the memory limit. Without it each gets all of it"
)
KEYS = (
    "write the UUID of a device (GPU-…, MIG-…), or its index from 0 on among the sorted UUIDs of "
    "the devices that the config is for"
)
LIMIT = "sharing.mpsConfig.defaultPinnedDeviceMemoryLimit"
PER_DEVICE = "sharing.mpsConfig.defaultPerDevicePinnedMemoryLimit"


@dataclasses.dataclass(frozen=True)
class Illegal:
    parameters: object
    messages: tuple[str, ...]
    by_schema: bool = True
    """Whether the schema of the kind can refuse it too."""


def illegal(parameters, *messages, by_schema=True):
    return Illegal(parameters, messages, by_schema)


def percentage(value, shown):
    field = "sharing.mpsConfig.defaultActiveThreadPercentage"
    message = f"{field}: {shown} is not allowed: {PERCENTAGES}"
    return illegal(mps(defaultActiveThreadPercentage=value), message, by_schema=value != 50.0)


def limit(value, shown, advice, *, by_schema=True):
    message = f"{LIMIT}: {shown} is not allowed: write {advice}"
    return illegal(mps(defaultPinnedDeviceMemoryLimit=value), message, by_schema=by_schema)


MOST = "at most 1Pi: no device has as much"
QUANTITY, LEAST = "a quantity of memory, for example 10Gi", "at least 1Mi: limits are in whole MiB"

ILLEGAL = {
    "an interval that is none": illegal(
        slices(interval="Eternal"),
        f'sharing.timeSlicingConfig.interval: "Eternal" is not allowed: {INTERVALS}',
    ),
    "an interval in lower case": illegal(
        slices(interval="short"),
        f'sharing.timeSlicingConfig.interval: "short" is not allowed: {INTERVALS}',
    ),
    "an interval by both names": illegal(
        slices(interval="Short", timeSlice="Short"),
        "sharing.timeSlicingConfig.timeSlice: not allowed together with interval, of which it is "
        "the older name: remove timeSlice",
    ),
    "an older name with a bad value": illegal(
        slices(timeSlice="x"),
        f'sharing.timeSlicingConfig.timeSlice: "x" is not allowed: {INTERVALS} '
        "(older name of interval)",
    ),
    "percentage -1": percentage(-1, "-1"),
    "percentage 0": percentage(0, "0"),
    "percentage 101": percentage(101, "101"),
    "percentage as a text": percentage("50", '"50"'),
    "percentage with a fraction": percentage(50.5, "50.5"),
    "percentage as a float": percentage(50.0, "50.0"),
    "percentage true": percentage(True, "true"),  # noqa: FBT003
    "0 clients": illegal(
        mps(maxClients=0), f"sharing.mpsConfig.maxClients: 0 is not allowed: {CLIENTS}"
    ),
    "49 clients": illegal(
        mps(maxClients=49), f"sharing.mpsConfig.maxClients: 49 is not allowed: {CLIENTS}"
    ),
    "a domain that is none": illegal(
        mps(domain="Cluster"),
        'sharing.mpsConfig.domain: "Cluster" is not allowed: write Claim (also if left out) or '
        "Namespace: who shares the daemon, and the faults",
    ),
    "several users as a text": illegal(
        mps(multiUser="true"),
        'sharing.mpsConfig.multiUser: "true" is not allowed: write true or false: whether '
        "processes of several users run at once",
    ),
    "a limit of 0": limit("0", '"0"', LEAST, by_schema=False),
    "a negative limit": limit("-1Gi", '"-1Gi"', LEAST),
    "a limit below a MiB": limit("1023Ki", '"1023Ki"', LEAST, by_schema=False),
    "a number below a MiB": limit(1048575, "1048575", LEAST),
    "a limit that no device has": limit("1e999", '"1e999"', MOST, by_schema=False),
    "a limit of more than a pebibyte": limit("1025Ti", '"1025Ti"', MOST, by_schema=False),
    "a limit as a number that no device has": limit(1e300, "1e+300", MOST),
    "a limit with an exponent that is a bomb": limit("1e999999999", '"1e999999999"', QUANTITY),
    "a limit that is not a number": limit("NaN", '"NaN"', QUANTITY),
    "a limit that is no quantity": limit("10GB", '"10GB"', QUANTITY),
    "a limit true": limit(True, "true", QUANTITY),  # noqa: FBT003
    "a limit that is an object": limit({"0": "1Gi"}, "an object", QUANTITY),
    "a limit too small for its clients": illegal(
        mps(
            defaultPinnedDeviceMemoryLimit="3Mi",
            defaultPerDevicePinnedMemoryLimit={"0": "3Mi", "1": "4Mi"},
            maxConnections=4,
        ),
        *(
            f'{field}: "3Mi" is not allowed: it is for 4 processes (maxClients), and each needs at '
            "least 1Mi: write at least 4Mi, or a smaller maxClients"
            for field in (LIMIT, f"{PER_DEVICE}[0]")
        ),
        by_schema=False,
    ),
    "a key that is no device": illegal(
        mps(defaultPerDevicePinnedMemoryLimit={"gpu-0": "1Gi"}),
        f"{PER_DEVICE}[gpu-0]: this key is not allowed: {KEYS}",
    ),
    "a negative index": illegal(
        mps(defaultPerDevicePinnedMemoryLimit={"-1": "1Gi"}),
        f"{PER_DEVICE}[-1]: this key is not allowed: {KEYS}",
    ),
    "an index with a zero in front": illegal(
        mps(defaultPerDevicePinnedMemoryLimit={"00": "1Gi"}),
        f"{PER_DEVICE}[00]: this key is not allowed: {KEYS}",
    ),
    "a device with null": illegal(
        mps(defaultPerDevicePinnedMemoryLimit={"0": None}),
        f"{PER_DEVICE}[0]: missing: write {QUANTITY}",
    ),
    "devices as a list": illegal(
        mps(defaultPerDevicePinnedMemoryLimit=["1Gi"]),
        f"{PER_DEVICE}: a list is not allowed: write an object from devices, by UUID or by index "
        "among the sorted UUIDs, to quantities of at least 1Mi, which override "
        "defaultPinnedDeviceMemoryLimit",
    ),
    "an unknown strategy": illegal(
        gpu({"strategy": "Fabric"}),
        'sharing.strategy: "Fabric" is not allowed: write TimeSlicing or MPS; without it nothing '
        "is set up",
    ),
    "MPS with time slices": illegal(
        gpu({"strategy": "MPS", "timeSlicingConfig": {}}),
        "sharing.timeSlicingConfig: not allowed with the strategy MPS: remove it, or write "
        "strategy TimeSlicing",
    ),
    "time slices with MPS": illegal(
        gpu({"strategy": "TimeSlicing", "mpsConfig": {}}),
        "sharing.mpsConfig: not allowed with the strategy TimeSlicing: remove it, or write "
        "strategy MPS",
    ),
    "MPS without a strategy": illegal(
        gpu({"mpsConfig": {}}), "sharing.strategy: missing: write MPS, as mpsConfig is given"
    ),
    "time slices without a strategy": illegal(
        gpu({"timeSlicingConfig": {}}),
        "sharing.strategy: missing: write TimeSlicing, as timeSlicingConfig is given",
    ),
    "sharing that is no object": illegal(
        gpu("MPS"), 'sharing: "MPS" is not allowed: write an object'
    ),
    "an unknown field": illegal(
        gpu(unexpectedField=1),
        'strict decoding error: unknown field "unexpectedField": allowed are apiVersion, kind, '
        "sharing",
    ),
    "a field in another case": illegal(
        gpu({"Strategy": "MPS"}),
        'strict decoding error: unknown field "sharing.Strategy": allowed are strategy, '
        "timeSlicingConfig, mpsConfig. Is strategy meant?",
    ),
    "a field in snake case": illegal(
        mps(multi_user=True),
        'strict decoding error: unknown field "sharing.mpsConfig.multi_user": allowed are '
        "defaultActiveThreadPercentage, defaultPinnedDeviceMemoryLimit, "
        "defaultPerDevicePinnedMemoryLimit, multiUser, maxClients, domain. Is multiUser meant?",
    ),
    "an older name where it is not": illegal(
        gpu({"strategy": "TimeSlicing", "timeSlice": "Short"}),
        'strict decoding error: unknown field "sharing.timeSlice": allowed are strategy, '
        "timeSlicingConfig, mpsConfig",
    ),
    "time slices on MIG": illegal(
        mig({"strategy": "TimeSlicing"}),
        'sharing.strategy: "TimeSlicing" is not allowed: write MPS, or leave it out: time slices '
        "are set on whole GPUs, and have no effect on a MIG device",
    ),
    "settings of time slices on MIG": illegal(
        mig({"strategy": "MPS", "timeSlicingConfig": {}}),
        'strict decoding error: unknown field "sharing.timeSlicingConfig": allowed are strategy, '
        "mpsConfig",
    ),
    "settings of time slices on MIG without a strategy": illegal(
        mig({"timeSlicingConfig": {}}),
        'strict decoding error: unknown field "sharing.timeSlicingConfig": allowed are strategy, '
        "mpsConfig",
    ),
    "MPS on MIG without a strategy": illegal(
        mig({"mpsConfig": {}}), "sharing.strategy: missing: write MPS, as mpsConfig is given"
    ),
    "a backend that is none": illegal(
        vfio({"backendPolicy": "IommuFD"}),
        'iommu.backendPolicy: "IommuFD" is not allowed: write LegacyOnly (also if left out) or '
        "PreferIommuFD",
    ),
    "an API device as a text": illegal(
        vfio({"enableAPIDevice": "yes"}),
        'iommu.enableAPIDevice: "yes" is not allowed: write true or false: whether the container '
        "gets the device of the IOMMU interface",
    ),
    "an API device in another case": illegal(
        vfio({"enableApiDevice": True}),
        'strict decoding error: unknown field "iommu.enableApiDevice": allowed are backendPolicy, '
        "enableAPIDevice. Is enableAPIDevice meant?",
    ),
    "sharing on VFIO": illegal(
        vfio(sharing={}),
        'strict decoding error: unknown field "sharing": allowed are apiVersion, kind, iommu',
    ),
    "another version": illegal(
        gpu() | {"apiVersion": "resource.nvidia.com/v1alpha1"},
        'apiVersion: "resource.nvidia.com/v1alpha1" is not allowed: write '
        "resource.nvidia.com/v1beta1",
    ),
    "no version": illegal(
        {"kind": "GpuConfig"}, "apiVersion: missing: write resource.nvidia.com/v1beta1"
    ),
    "all at once": illegal(
        {
            "kind": "GpuConfig",
            "sharing": {
                "strategy": "MPS",
                "timeSlicingConfig": {"interval": "Never"},
                "mpsConfig": {
                    "maxClients": 100,
                    "activeThreadPercentage": 20,
                    "defaultActiveThreadPercentage": 200,
                },
            },
        },
        "apiVersion: missing: write resource.nvidia.com/v1beta1",
        f'sharing.timeSlicingConfig.interval: "Never" is not allowed: {INTERVALS}',
        "sharing.mpsConfig.defaultActiveThreadPercentage: 200 is not allowed: " + PERCENTAGES,
        f"sharing.mpsConfig.maxClients: 100 is not allowed: {CLIENTS}",
        "sharing.timeSlicingConfig: not allowed with the strategy MPS: remove it, or write "
        "strategy TimeSlicing",
        "sharing.mpsConfig.activeThreadPercentage: not allowed together with "
        "defaultActiveThreadPercentage, of which it is the older name: remove "
        "activeThreadPercentage",
    ),
}
