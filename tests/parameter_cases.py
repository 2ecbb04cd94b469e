"""Specs of parameter objects: legal ones, and illegal ones with what is told of them.

`by` says who refuses an illegal one: `schema` (types, limits), `rule` (CEL of the definition), or
`controller` alone.
"""

import dataclasses
from typing import Any

from hypothesis import strategies as st

from dra_driver.model import parameters

Json = dict[str, Any]
GPU, MIG, MIG_DEVICE, VFIO = parameters.Kind


def compared(value: Any, operator: str = "Equals") -> Json:
    return {"value": value, "operator": operator}


def nested(depth: int) -> Json:
    node: Json = {"index": 0}
    for _ in range(depth):
        node = {"andExpression": [node]}
    return node


LEGAL: dict[str, tuple[parameters.Kind, Json]] = {
    "nothing": (GPU, {}),
    "a count": (GPU, {"count": 32}),
    "a glob": (GPU, {"selector": {"productName": "*[T4].\\x'\"*"}}),
    "an index": (GPU, {"selector": {"index": 0}}),
    "a uuid": (GPU, {"selector": {"uuid": "GPU-6b2a4e2f-0000-1111-2222-333344445555"}}),
    "mig": (GPU, {"selector": {"migEnabled": False}}),
    "a quantity": (GPU, {"selector": {"memory": compared("16Gi", "NotEquals")}}),
    "a number of bytes": (GPU, {"selector": {"memory": compared(17179869184, "LessThan")}}),
    "a version": (GPU, {"selector": {"cudaComputeCapability": compared("7.5", "GreaterThan")}}),
    "a version with a v": (GPU, {"selector": {"driverVersion": compared("v580.65.06")}}),
    "the first name": (GPU, {"selector": {"cudaRuntimeVersion": compared("12")}}),
    "the later name": (GPU, {"selector": {"cudaDriverVersion": compared("12.4")}}),
    "lists": (
        GPU,
        {
            "selector": {
                "andExpression": [
                    {"orExpression": [{"index": 0}, {"index": 1}]},
                    {"architecture": "Ampere"},
                    {"brand": "*"},
                ]
            }
        },
    ),
    "deep lists": (GPU, {"selector": nested(parameters.MOST_LEVELS)}),
    "time slices": (
        GPU,
        {"sharing": {"strategy": "TimeSlicing", "timeSlicingConfig": {"timeSlice": "Short"}}},
    ),
    "mps": (
        GPU,
        {
            "sharing": {
                "strategy": "MPS",
                "mpsConfig": {
                    "maxConnections": 2,
                    "activeThreadPercentage": 50,
                    "pinnedDeviceMemoryLimit": "10Gi",
                },
            }
        },
    ),
    "limits of single devices": (
        GPU,
        {"sharing": {"strategy": "MPS", "mpsConfig": {"pinnedDeviceMemoryLimit": {"0": "1Gi"}}}},
    ),
    "limits by their last name": (
        GPU,
        {
            "sharing": {
                "strategy": "MPS",
                "mpsConfig": {"defaultPerDevicePinnedMemoryLimit": {"0": "1Gi"}},
            }
        },
    ),
    "a profile": (MIG, {"profile": "1g.10gb"}),
    "a profile with more": (MIG_DEVICE, {"profile": "1g.24gb+me.all"}),
    "its gpu": (MIG, {"profile": "1g.10gb", "selector": {"productName": "*a100*"}}),
    "a partition's time slices": (
        MIG,
        {"profile": "1g.5gb", "sharing": {"strategy": "TimeSlicing"}},
    ),
    "another claim's gpu": (MIG_DEVICE, {"profile": "1g.5gb", "gpuClaimName": "mig-enabled-gpu"}),
    "a virtual machine's": (VFIO, {"selector": {"productName": "*a100*"}}),
    "its ids": (
        VFIO,
        {"selector": {"orExpression": [{"vendorID": "0x10de"}, {"deviceID": "0x23??"}]}},
    ),
    "addressed memory": (VFIO, {"selector": {"memory": compared("80Gi", "LessThan")}}),
}


@dataclasses.dataclass(frozen=True)
class Illegal:
    kind: parameters.Kind
    spec: Any
    told: str
    by: str = "schema"


_NUMBERS = 'write one to three numbers in quotes, for example "7.5"'
_ONE = "write an object with exactly one property, or one list: andExpression or orExpression"
ILLEGAL: dict[str, Illegal] = {
    "a list": Illegal(GPU, [], "spec: a list is not allowed: write an object"),
    "a count of 0": Illegal(
        GPU, {"count": 0}, "spec.count: 0 is not allowed: write a whole number"
    ),
    "a count below 0": Illegal(GPU, {"count": -1}, "spec.count: -1 is not allowed"),
    "a count of more than a claim": Illegal(GPU, {"count": 33}, "spec.count: 33 is not allowed"),
    "a fraction": Illegal(GPU, {"count": 1.5}, "spec.count: 1.5 is not allowed"),
    "a text as count": Illegal(GPU, {"count": "2"}, "spec.count: '2' is not allowed"),
    "two properties": Illegal(
        GPU,
        {"selector": {"index": 0, "uuid": "GPU-1"}},
        f"spec.selector: it has index and uuid: {_ONE}; several properties go into an",
        by="rule",
    ),
    "a property and a list": Illegal(
        GPU,
        {"selector": {"orExpression": [{"andExpression": [{"index": 0}], "brand": "x"}]}},
        "spec.selector.orExpression[0]: it has brand and andExpression: write",
        by="rule",
    ),
    "no property": Illegal(GPU, {"selector": {}}, f"spec.selector: it has nothing: {_ONE}", "rule"),
    "an empty list": Illegal(
        GPU,
        {"selector": {"andExpression": []}},
        "spec.selector.andExpression: a list is not allowed: write 1 to 32 selectors",
    ),
    "a long list": Illegal(
        GPU,
        {"selector": {"orExpression": [{"index": 0}] * 33}},
        "spec.selector.orExpression: a list",
    ),
    "deeper lists": Illegal(
        GPU,
        {"selector": nested(parameters.MOST_LEVELS + 1)},
        "spec.selector: lists are nested more than 16 deep",
        by="controller",
    ),
    "too deep for a stack": Illegal(
        GPU, {"selector": nested(3000)}, "spec.selector: lists are nested", by="controller"
    ),
    "many selectors": Illegal(
        GPU,
        {"selector": {"orExpression": [{"orExpression": [{"index": 0}] * 32}] * 8}},
        "spec.selector: more than 256 selectors",
        by="controller",
    ),
    "an unknown property": Illegal(
        GPU,
        {"selector": {"prodName": "x"}},
        'strict decoding error: unknown field "spec.selector.prodName": allowed are index, uuid, ',
        by="rule",
    ),
    "an unknown field": Illegal(
        GPU,
        {"profile": "1g.5gb"},
        'strict decoding error: unknown field "spec.profile": allowed are count, selector, sharing',
        by="pruning",
    ),
    "an operator": Illegal(
        GPU,
        {"selector": {"memory": compared("1Gi", "lessThan")}},
        "spec.selector.memory.operator: 'lessThan' is not allowed: write one of Equals, NotEquals",
    ),
    "no operator": Illegal(
        GPU, {"selector": {"memory": {"value": "1Gi"}}}, "spec.selector.memory.operator: missing"
    ),
    "no value": Illegal(
        GPU,
        {"selector": {"driverVersion": {"operator": "Equals"}}},
        "spec.selector.driverVersion.value: missing",
    ),
    "memory below 0": Illegal(
        GPU, {"selector": {"memory": compared("-1Gi")}}, "spec.selector.memory.value: '-1Gi' is not"
    ),
    "memory of words": Illegal(
        GPU, {"selector": {"memory": compared("16 GB")}}, "spec.selector.memory.value: '16 GB' is"
    ),
    "a version as a number": Illegal(
        GPU,
        {"selector": {"cudaComputeCapability": compared(7.5)}},
        f"spec.selector.cudaComputeCapability.value: 7.5 is not allowed: {_NUMBERS}",
    ),
    "a version of four numbers": Illegal(
        GPU,
        {"selector": {"driverVersion": compared("1.2.3.4")}},
        "spec.selector.driverVersion.value",
    ),
    "an empty glob": Illegal(
        GPU,
        {"selector": {"brand": ""}},
        "spec.selector.brand: '' is not allowed: write a text of 1",
    ),
    "a long glob": Illegal(GPU, {"selector": {"brand": "x" * 129}}, "spec.selector.brand: 'xxx"),
    "a glob of two lines": Illegal(
        GPU,
        {"selector": {"brand": "a\nb"}},
        "spec.selector.brand: 'a\\nb' is not allowed: write no",
    ),
    "an index below 0": Illegal(GPU, {"selector": {"index": -1}}, "spec.selector.index: -1 is not"),
    "a uuid with a glob": Illegal(
        GPU, {"selector": {"uuid": "GPU-*"}}, "spec.selector.uuid: 'GPU-*'"
    ),
    "a bool as text": Illegal(
        GPU, {"selector": {"migEnabled": "true"}}, "spec.selector.migEnabled: 'true' is not allowed"
    ),
    "no profile": Illegal(
        MIG, {}, "spec.profile: missing: write a MIG profile, for example 1g.10gb"
    ),
    "a profile of words": Illegal(MIG_DEVICE, {"profile": "small"}, "spec.profile: 'small' is not"),
    "a name of a claim": Illegal(
        MIG, {"profile": "1g.5gb", "gpuClaimName": "A b"}, "spec.gpuClaimName: 'A b' is not allowed"
    ),
    "an index of a vfio device": Illegal(
        VFIO,
        {"selector": {"index": 0}},
        'strict decoding error: unknown field "spec.selector.index": allowed are uuid, memory, ',
        by="rule",
    ),
}

SHARING: dict[str, Illegal] = {
    "a strategy": Illegal(
        GPU, {"sharing": {"strategy": "Mps"}}, 'spec.sharing.strategy: "Mps" is not allowed'
    ),
    "the other's config": Illegal(
        GPU,
        {"sharing": {"strategy": "MPS", "timeSlicingConfig": {}}},
        "spec.sharing.timeSlicingConfig: not allowed with the strategy MPS",
        by="rule",
    ),
    "a config alone": Illegal(
        GPU,
        {"sharing": {"mpsConfig": {}}},
        "spec.sharing.strategy: missing: write MPS, as mpsConfig is given",
        by="rule",
    ),
    "two names": Illegal(
        GPU,
        {"sharing": {"strategy": "MPS", "mpsConfig": {"maxConnections": 1, "maxClients": 1}}},
        "spec.sharing.mpsConfig.maxConnections: not allowed together with maxClients",
        by="rule",
    ),
    "a percentage": Illegal(
        MIG,
        {
            "profile": "1g.5gb",
            "sharing": {"strategy": "MPS", "mpsConfig": {"activeThreadPercentage": 101}},
        },
        "spec.sharing.mpsConfig.activeThreadPercentage: 101 is not allowed",
    ),
    "a small limit": Illegal(
        GPU,
        {"sharing": {"strategy": "MPS", "mpsConfig": {"pinnedDeviceMemoryLimit": "1Ki"}}},
        'spec.sharing.mpsConfig.pinnedDeviceMemoryLimit: "1Ki" is not allowed: write at least 1Mi',
        by="controller",
    ),
}
"""What is wrong with sharing is found where the claim is made."""

NAMES = st.sampled_from(
    ["count", "selector", "andExpression", "orExpression", "memory", "value", "operator", "index",
     "productName", "sharing", "strategy", "mpsConfig", "profile", "pinnedDeviceMemoryLimit"]
)  # fmt: skip
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | NAMES,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(NAMES | st.text(max_size=5), inner, max_size=4)
    ),
    max_leaves=20,
)
"""Any JSON, of names that mean something now and then."""
