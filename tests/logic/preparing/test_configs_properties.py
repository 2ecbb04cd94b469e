"""Whatever the API server lets through is decoded or refused, and never anything else."""

import json

import config_cases
import jsonschema
from hypothesis import given
from hypothesis import strategies as st

from dra_driver.logic.preparing import config_checks, configs
from dra_driver.model import configs as wire
from dra_driver.model import sharing

NAMES = [
    "apiVersion", "kind", "sharing", "strategy", "timeSlicingConfig", "mpsConfig", "interval",
    "timeSlice", "defaultActiveThreadPercentage", "activeThreadPercentage",
    "defaultPinnedDeviceMemoryLimit", "pinnedDeviceMemoryLimit", "maxConnections", "maxClients",
    "defaultPerDevicePinnedMemoryLimit", "multiUser", "domain", "iommu", "backendPolicy",
    "enableAPIDevice",
]  # fmt: skip
TEXTS = [
    "MPS", "TimeSlicing", "Short", "Claim", "LegacyOnly", "1Gi", "-1", "1e999", "0", "\ud800",
    wire.API_VERSION, *sharing.Kind,
]  # fmt: skip
scalars = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.sampled_from(TEXTS)
)
names = st.sampled_from(NAMES) | st.text() | st.sampled_from(["0", "GPU-1", "[key]", "\ud800"])
json_values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(names, inner, max_size=6),
    max_leaves=20,
)


def optional(**fields):
    return st.fixed_dictionaries({}, optional=fields)


memory = st.integers(2**26, 2**45) | st.integers(1, 2**20).map("{}Mi".format)
percentage, clients = st.integers(1, 100), st.integers(1, 48)
intervals = st.sampled_from(sharing.Interval).map(str)
current = {
    "defaultActiveThreadPercentage": percentage,
    "defaultPinnedDeviceMemoryLimit": memory,
    "maxClients": clients,
}
older = {
    "activeThreadPercentage": percentage,
    "pinnedDeviceMemoryLimit": memory,
    "maxConnections": clients,
}
others = {
    "defaultPerDevicePinnedMemoryLimit": st.dictionaries(
        st.integers(0, 9).map(str) | st.uuids().map("GPU-{}".format), memory, max_size=3
    ),
    "multiUser": st.booleans(),
    "domain": st.sampled_from(sharing.Domain).map(str),
}


def strategy(name, **fields):
    return st.fixed_dictionaries({"strategy": st.just(name)}, optional=fields)


mps = strategy("MPS", mpsConfig=optional(**current, **others) | optional(**older, **others))
slices = strategy(
    "TimeSlicing", timeSlicingConfig=optional(interval=intervals) | optional(timeSlice=intervals)
)
mixed = optional(
    strategy=st.sampled_from(["MPS", "TimeSlicing"]),
    mpsConfig=optional(**current, **older),
    timeSlicingConfig=optional(interval=intervals, timeSlice=intervals),
)
iommu = optional(
    backendPolicy=st.sampled_from(sharing.BackendPolicy).map(str), enableAPIDevice=st.booleans()
)
plausible = st.one_of(
    st.builds(config_cases.gpu, st.one_of(mps, slices, mixed)),
    st.builds(config_cases.mig, mps | mixed),
    st.builds(config_cases.vfio, iommu),
)


def outcome(parameters):
    """The config, or the refusal."""
    try:
        return configs.decode(parameters, path="parameters")
    except configs.InvalidConfig as error:
        return error


def accepts(parameters):
    schema = wire.schema(sharing.Kind(parameters["kind"]))
    return jsonschema.Draft202012Validator(schema).is_valid(parameters)


@given(json_values)
def test_anything_is_decoded_or_refused_with_a_text_that_can_be_sent(parameters):
    came = outcome(parameters)
    if isinstance(came, configs.InvalidConfig):
        assert came.problems
        assert str(came).encode()


@given(st.sampled_from(sharing.Kind), st.dictionaries(names, json_values, max_size=5))
def test_any_fields_of_a_kind_are_decoded_or_refused(kind, fields):
    came = outcome(config_cases.made(str(kind), fields | {"kind": str(kind)}))
    assert isinstance(came, sharing.Config | configs.InvalidConfig)


@given(plausible)
def test_writing_a_config_out_changes_nothing(parameters):
    config = outcome(parameters)
    if isinstance(config, sharing.Config):
        written = configs.encode(config)
        assert outcome(written) == config
        assert configs.encode(outcome(written)) == written
        assert json.loads(json.dumps(written)) == written


@given(plausible)
def test_a_schema_accepts_all_that_is_decoded_and_little_more(parameters):
    config = outcome(parameters)
    if isinstance(config, sharing.Config):
        assert accepts(parameters)
    elif accepts(parameters):
        assert all("each needs at least 1Mi" in str(problem) for problem in config.problems)


@given(plausible)
def test_refusing_does_not_depend_on_the_order_of_keys(parameters):
    turned = json.loads(json.dumps(parameters), object_pairs_hook=lambda pairs: dict(pairs[::-1]))
    first, second = outcome(parameters), outcome(turned)
    if isinstance(first, sharing.Config):
        assert second == first
    else:
        assert set(second.problems) == set(first.problems)


@given(
    st.integers(1, 2**17).map(lambda count: count * 2**20),
    clients,
    st.sets(st.uuids().map("GPU-{}".format), min_size=1, max_size=8),
)
def test_all_clients_together_get_no_more_than_was_promised(promised, count, uuids):
    mps = sharing.Mps(memory_limit=promised, max_clients=count)
    for limit in config_checks.memory_limits(mps, sorted(uuids)).values():
        assert limit * count <= promised < (limit + 2**20) * count
