"""Selectors of parameter objects as CEL: the same devices as a plain reading of them."""

import operator

import effort
import hypothesis
import pytest
from hypothesis import strategies as st

from dra_driver.logic.cel import selection
from dra_driver.logic.parameters import globs, selecting
from dra_driver.model import parameter_specs, parameters, quantities, sharing, slices, versions

DRIVER = "gpu.nvidia.com"
OPERATORS = {
    "Equals": operator.eq,
    "NotEquals": operator.ne,
    "LessThan": operator.lt,
    "LessThanOrEqualTo": operator.le,
    "GreaterThan": operator.gt,
    "GreaterThanOrEqualTo": operator.ge,
}
JOINED = {"andExpression": all, "orExpression": any}
VERSIONS = {
    "cudaComputeCapability": "cudaComputeCapability",
    "driverVersion": "driverVersion",
    "cudaRuntimeVersion": "cudaDriverVersion",
    "cudaDriverVersion": "cudaDriverVersion",
}


# A plain reading of a selector


def glob_matches(pattern, text):
    """Character by character, without any regular expression."""
    if not pattern:
        return not text
    first, rest = pattern[0], pattern[1:]
    if first == "*":
        return any(glob_matches(rest, text[start:]) for start in range(len(text) + 1))
    return bool(text) and first in {"?", text[0]} and glob_matches(rest, text[1:])


def lowered(text):
    return "".join(c.lower() if "A" <= c <= "Z" else c for c in text)


def holds(node, device):
    [(name, value)] = node.items()
    if name in JOINED:
        return JOINED[name](holds(part, device) for part in value)
    if name == "migEnabled":
        return not value or device.attributes.get("migCapable") is True
    if name == "memory":
        return compares(device.capacity.get("memory"), quantities.parse(str(value["value"])), value)
    found = device.attributes.get(VERSIONS.get(name, name))
    if name in VERSIONS:
        numbers = [int(part) for part in value["value"].removeprefix("v").split(".")]
        return compares(found and triple(found), tuple(numbers + [0] * (3 - len(numbers))), value)
    if name in {"index", "uuid"}:
        return found is not None and found == value
    return found is not None and glob_matches(lowered(value), lowered(found))


def compares(found, wanted, written):
    return found is not None and OPERATORS[written["operator"]](found, wanted)


def triple(version):
    parsed = versions.parse(version.text)
    return parsed.major, parsed.minor, parsed.patch


# Any selector, any device

WORDS = st.text(st.sampled_from("aAtT4*?.[]{}()\\'\"$^+|-_ /é中%#"), min_size=1, max_size=6)
NAMES = st.sampled_from(["NVIDIA A100-SXM4-40GB", "Tesla T4", "a.b[4]", "\\'\"", "TT4"])
AMOUNTS = st.sampled_from(
    ["16G", "16Gi", "15Gi", "0", "40000000000", 16 * 2**30, "1e10", "16384Mi"]
)
NUMBERS = st.sampled_from(["7.5", "8", "9.0", "v7.5.0", "580.65.06", "12.4", "0.0.1"])
operators = st.sampled_from(sorted(OPERATORS))
properties = st.one_of(
    st.fixed_dictionaries({"index": st.integers(0, 2)}),
    st.fixed_dictionaries({"uuid": st.sampled_from(["GPU-1", "GPU-2"])}),
    st.fixed_dictionaries({"migEnabled": st.booleans()}),
    *(
        st.fixed_dictionaries({name: st.one_of(WORDS, NAMES, NAMES.map(lambda n: f"*{n[2:5]}*"))})
        for name in ("productName", "brand", "architecture")
    ),
    st.fixed_dictionaries(
        {"memory": st.fixed_dictionaries({"value": AMOUNTS, "operator": operators})}
    ),
    *(
        st.fixed_dictionaries(
            {name: st.fixed_dictionaries({"value": NUMBERS, "operator": operators})}
        )
        for name in VERSIONS
    ),
)
selectors = st.recursive(
    properties,
    lambda inner: st.one_of(
        st.fixed_dictionaries({name: st.lists(inner, min_size=1, max_size=3)})
        for name in ("andExpression", "orExpression")
    ),
    max_leaves=8,
)
released = st.sampled_from(["7.5.0", "8.0.0", "9.0.0", "580.65.6", "12.4.0"]).map(slices.Version)


@st.composite
def devices(draw):
    values = {
        "index": st.integers(0, 2),
        "uuid": st.sampled_from(["GPU-1", "GPU-2"]),
        "migCapable": st.booleans(),
        "productName": st.one_of(NAMES, WORDS),
        "brand": st.one_of(NAMES, WORDS),
        "architecture": st.one_of(NAMES, WORDS),
        "cudaComputeCapability": released,
        "driverVersion": released,
        "cudaDriverVersion": released,
    }
    kept = {name: draw(each) for name, each in values.items() if draw(st.integers(0, 3))}
    amount = draw(st.sampled_from([None, "16G", "16Gi", "40Gi", "15Gi"]))
    capacity = {"memory": quantities.parse(amount)} if amount else {}
    return slices.Device("gpu-0", kept, capacity)


def parsed(node):
    return parameter_specs.read(parameters.Kind.GPU, {"selector": node}).selector


def matches(found, device):
    """As the scheduler decides: all selectors hold."""
    return all(
        selection.compile(each.expression).matches(device, DRIVER)
        for each in selecting.conditions(found, sharing.DeviceType.GPU, DRIVER)
    )


@hypothesis.settings(max_examples=effort.examples(400))
@hypothesis.given(selectors, devices())
def test_the_cel_is_true_of_just_the_devices_that_the_selector_means(node, device):
    found = parsed(node)
    assert matches(found, device) is holds(node, device)


@hypothesis.settings(max_examples=effort.examples(300))
@hypothesis.given(WORDS, WORDS)
def test_a_glob_is_that_whatever_characters_are_in_it(pattern, text):
    device = slices.Device("gpu-0", {"productName": text}, {})
    found = parsed({"productName": pattern})
    assert matches(found, device) is glob_matches(lowered(pattern), lowered(text))


@pytest.mark.parametrize(
    ("pattern", "cel"),
    [
        ("Tesla T4", "x.lowerAscii() == 'tesla t4'"),
        ("*t4*", "x.lowerAscii().contains('t4')"),
        ("**t4*", "x.lowerAscii().contains('t4')"),
        ("*T4", "x.lowerAscii().endsWith('t4')"),
        ("NVIDIA*", "x.lowerAscii().startsWith('nvidia')"),
        ("*", None),
        ("a*[80gb].?", r"""x.lowerAscii().matches("(?s)^a.*\\[80gb\\]\\..$")"""),
        ("it's", '''x.lowerAscii() == "it's"'''),
    ],
)
def test_a_glob_becomes_the_simplest_cel(pattern, cel):
    assert globs.condition("x", pattern) == cel


def expressions(node, device_type=sharing.DeviceType.GPU):
    return [
        each.expression.replace(f"device.attributes['{DRIVER}']", "A").replace(
            f"device.capacity['{DRIVER}']", "C"
        )
        for each in selecting.conditions(parsed(node), device_type, DRIVER)
    ]


def test_what_all_has_to_hold_has_a_selector_each():
    node = {
        "andExpression": [
            {"memory": {"value": "16G", "operator": "LessThanOrEqualTo"}},
            {"cudaComputeCapability": {"value": "7.5", "operator": "GreaterThanOrEqualTo"}},
        ]
    }
    assert expressions(node) == [
        "'memory' in C && C.memory.compareTo(quantity('16G')) <= 0",
        "'cudaComputeCapability' in A && A.cudaComputeCapability.compareTo(semver('7.5.0')) >= 0",
    ]


def test_16g_and_16gi_differ():
    card = slices.Device("gpu-0", {}, {"memory": quantities.parse("16Gi")})
    for value, answer in (("16G", False), ("16Gi", True)):
        node = {"memory": {"value": value, "operator": "LessThanOrEqualTo"}}
        assert matches(parsed(node), card) is answer


def test_a_whole_gpu_in_mig_mode_is_one_that_can_be_cut_and_any_is_one_that_is_not():
    assert expressions({"migEnabled": True}) == ["'migCapable' in A && A.migCapable"]
    assert expressions({"migEnabled": False}) == []
    assert expressions({"orExpression": [{"migEnabled": False}, {"index": 1}]}) == []


def test_of_partitions_the_gpu_is_selected_by_what_they_tell_of_it():
    node = {"andExpression": [{"uuid": "GPU-1"}, {"productName": "*a100*"}, {"migEnabled": True}]}
    assert expressions(node, sharing.DeviceType.MIG) == [
        "'parentUUID' in A && A.parentUUID == 'GPU-1'",
        "'productName' in A && A.productName.lowerAscii().contains('a100')",
    ]


@pytest.mark.parametrize(
    ("node", "told"),
    [
        ({"index": 0}, "spec.selector.index: a partition does not tell the index of its GPU"),
        (
            {"orExpression": [{"memory": {"value": "1Gi", "operator": "Equals"}}]},
            "spec.selector.orExpression[0].memory: a partition tells its own memory",
        ),
        ({"migEnabled": False}, "spec.selector.migEnabled: a GPU that is not cut"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_what_partitions_do_not_tell_is_a_fault(node, told):
    [fault] = selecting.faults(parsed(node), sharing.DeviceType.MIG)
    assert fault.message.startswith(told)
    assert not [*selecting.faults(parsed(node), sharing.DeviceType.GPU)]


def test_a_card_for_virtual_machines_is_known_by_its_own_uuid_and_by_that_of_the_gpu():
    found = parameter_specs.read(
        parameters.Kind.VFIO,
        {"selector": {"andExpression": [{"uuid": "GPU-1"}, {"productName": "*a100*"}]}},
    ).selector
    for attributes in ({"gpuUUID": "GPU-1"}, {"uuid": "GPU-1"}):
        device = slices.Device("v", {"productName": "NVIDIA A100", **attributes}, {})
        conditions = selecting.conditions(found, sharing.DeviceType.VFIO, DRIVER)
        assert all(selection.compile(c.expression).matches(device, DRIVER) for c in conditions)
