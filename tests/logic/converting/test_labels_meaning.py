"""What is asked of nodes by labels holds for the same cards when it is asked of devices."""

import copy
import dataclasses

import gfd_labels
import hypothesis
import mig_cards
from hypothesis import strategies as st

from dra_driver.logic.cel import selection
from dra_driver.logic.converting import labels
from dra_driver.logic.offering import attributes
from dra_driver.model import nodes

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
MODELS = ("t4", "l4", "v100-16gb-sxm2", "a100-40gb-sxm4", "a100-80gb-sxm4", "h100-80gb-hbm3")


def card(model, **facts):
    return mig_cards.gpu(model, **facts)


CARDS = [
    *(card(model) for model in MODELS),
    card("h100-80gb-hbm3", driver_version="550.54.15", cuda_driver_version=(12, 4)),
    card("h100-80gb-hbm3", driver_version="535.104", memory_bytes=85520809984 + 2**19),
    card("t4", memory_bytes=None, driver_version="470.05.01"),
]
KEYS = sorted(set(gfd_labels.of(CARDS[0])) | {"topology.kubernetes.io/zone"})
VALUES = {
    key: sorted(
        {"a", "b"} if "zone" in key else {gfd_labels.of(one).get(key, "0") for one in CARDS}
    )
    for key in KEYS
}
NUMBERS = {key for key, values in VALUES.items() if all(value.isdecimal() for value in values)}


@st.composite
def requirements(draw):
    key = draw(st.sampled_from(KEYS))
    kind = ("In", "NotIn", "Exists", "DoesNotExist", *(("Gt", "Lt") if key in NUMBERS else ()))
    operator = draw(st.sampled_from(kind))
    if operator in {"Exists", "DoesNotExist"}:
        return {"key": key, "operator": operator}
    pool = st.sampled_from(VALUES[key])
    most = 1 if operator in {"Gt", "Lt"} else 3
    values = draw(st.lists(pool, min_size=1, max_size=most, unique=True))
    return {"key": key, "operator": operator, "values": values}


@st.composite
def specs(draw):
    """Specs of pods: a node selector, and required terms."""
    keys = draw(st.lists(st.sampled_from(KEYS), max_size=3, unique=True))
    spec = {"nodeSelector": {key: draw(st.sampled_from(VALUES[key])) for key in keys}}
    expressions = st.lists(requirements(), max_size=3)
    terms = draw(st.lists(st.builds(lambda e: {"matchExpressions": e}, expressions), max_size=3))
    if terms:
        spec["affinity"] = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}}
    return spec


def fits(spec, node):
    """Whether the node is one that the pod may be on."""
    entries = spec.get("nodeSelector") or {}
    required = spec.get("affinity", {}).get("nodeAffinity", {}).get(REQUIRED)
    return all(node.labels.get(key) == value for key, value in entries.items()) and (
        required is None or nodes.matches(required, node)
    )


def meets(selectors, device):
    return all(selection.compile(text).matches(device, mig_cards.DRIVER) for text in selectors)


@hypothesis.settings(max_examples=400)
@hypothesis.given(specs(), st.sampled_from(CARDS), st.sampled_from("ab"))
def test_a_node_fits_before_as_its_card_and_the_node_do_after(spec, gpu, zone):
    before = copy.deepcopy(spec)
    node = nodes.Node("n", gfd_labels.of(gpu) | {"topology.kubernetes.io/zone": zone})
    read = labels.read(spec, mig_cards.DRIVER)
    assert spec == before
    assert not read.problems
    fitted = fits(read.spec, node) and meets(read.selectors, attributes.device(gpu))
    assert fitted == fits(spec, node)


@hypothesis.given(specs())
def test_what_is_left_is_not_read_again(spec):
    once = labels.read(spec, mig_cards.DRIVER)
    again = labels.read(once.spec, mig_cards.DRIVER)
    assert (again.selectors, again.lines, again.spec) == ((), (), once.spec)


@hypothesis.given(specs(), st.sampled_from(CARDS))
def test_a_card_that_lacks_a_fact_is_not_met_instead_of_failing(spec, gpu):
    bare = dataclasses.replace(attributes.device(gpu), attributes={"type": "gpu"}, capacity={})
    meets(labels.read(spec, mig_cards.DRIVER).selectors, bare)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["key", "operator", "values", "matchExpressions", "nodeSelectorTerms", REQUIRED]
            ),
            inner,
            max_size=3,
        )
    ),
    max_leaves=8,
)


@hypothesis.given(
    st.fixed_dictionaries(
        {},
        optional={
            "nodeSelector": JSON,
            "affinity": JSON | st.builds(lambda inner: {"nodeAffinity": inner}, JSON),
            "containers": JSON,
        },
    )
)
def test_whatever_stands_there_is_answered(spec):
    assert labels.read(spec, mig_cards.DRIVER).spec == spec
