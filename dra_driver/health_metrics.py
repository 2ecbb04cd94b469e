"""Metrics of the health of a node's GPUs, among those of `telemetry.Metrics`."""

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Literal

import prometheus_client
from prometheus_client import core, registry

STATES = ("healthy", "informed", "withdrawn", "unmonitored")
"""How a device or a GPU is: nothing is told of it; something is told; nobody new gets it; a virtual
machine has the GPU, so that nobody can tell."""
EVENTS = (
    "xid",
    "double-bit-ecc",
    "single-bit-ecc-storm",
    "dram-retirement",
    "dram-retirement-failure",
    "non-fatal-poison",
    "fatal-poison",
    "gpu-unavailable",
    "recovery-action",
)
"""What the driver can tell of a GPU."""
ResetResult = Literal["done", "refused", "failed"]
_RESULTS: tuple[ResetResult, ...] = ("done", "refused", "failed")


@dataclasses.dataclass(frozen=True, slots=True)
class Now:
    """How things are at one moment.

    `devices` are counts by state; `seconds` is for how long each GPU has been in each state, by its
    name and the state; of `unmonitored` GPUs that are looked at no events are heard.
    """

    devices: Mapping[str, int] = dataclasses.field(default_factory=dict)
    unmonitored: int = 0
    seconds: Mapping[tuple[str, str], float] = dataclasses.field(default_factory=dict)


class HealthMetrics(registry.Collector):
    """Counters of what happens, and what is told of a moment when somebody reads it."""

    def __init__(
        self, into: prometheus_client.CollectorRegistry, constant: Mapping[str, str]
    ) -> None:
        """`constant` are the labels of every series."""
        self._constant = dict(constant)
        self._told: Callable[[], Now] = Now
        names = list(constant)
        self._events = prometheus_client.Counter(
            "dra_driver_gpu_events_total",
            "Events that the NVIDIA driver told of GPUs, by kind.",
            [*names, "gpu", "event"],
            registry=into,
        )
        self._xids = prometheus_client.Counter(
            "dra_driver_gpu_xids_total",
            "XIDs that the NVIDIA driver told of GPUs, by number (other: not in the table).",
            [*names, "gpu", "xid"],
            registry=into,
        )
        self._resets = prometheus_client.Counter(
            "dra_driver_gpu_resets_total",
            "Resets of GPUs, by result (done, refused, failed).",
            [*names, "result"],
            registry=into,
        )
        for result in _RESULTS:
            self._resets.labels(**self._constant, result=result)
        into.register(self)

    def known(self, gpus: Iterable[str]) -> None:
        """These GPUs are there: their counters begin at zero."""
        for gpu in gpus:
            for event in EVENTS:
                self._events.labels(**self._constant, gpu=gpu, event=event)

    def heard(self, gpu: str, event: str, *, xid: str | None) -> None:
        """The driver has told something of a GPU, `xid` being the number of an XID."""
        self._events.labels(**self._constant, gpu=gpu, event=event).inc()
        if xid is not None:
            self._xids.labels(**self._constant, gpu=gpu, xid=xid).inc()

    def reset(self, result: ResetResult) -> None:
        """A reset of a GPU was tried."""
        self._resets.labels(**self._constant, result=result).inc()

    def now_is(self, told: Callable[[], Now]) -> None:
        """`told` says how things are; it is asked whenever metrics are read."""
        self._told = told

    def collect(self) -> Iterator[core.Metric]:
        """For the registry: what is so now."""
        now = self._told()
        names, values = list(self._constant), list(self._constant.values())
        devices = core.GaugeMetricFamily(
            "dra_driver_devices",
            "Devices, by health (healthy, informed, withdrawn, unmonitored).",
            labels=[*names, "health"],
        )
        for state in STATES:
            devices.add_metric([*values, state], now.devices.get(state, 0))
        yield devices
        unmonitored = core.GaugeMetricFamily(
            "dra_driver_unmonitored_gpus", "GPUs of which no events are heard.", labels=names
        )
        unmonitored.add_metric(values, now.unmonitored)
        yield unmonitored
        seconds = core.CounterMetricFamily(
            "dra_driver_gpu_health_seconds",
            "Time that a GPU has been in a state of health (healthy, informed, withdrawn, "
            "unmonitored).",
            labels=[*names, "gpu", "health"],
        )
        for (gpu, state), value in sorted(now.seconds.items()):
            seconds.add_metric([*values, gpu, state], value)
        yield seconds
