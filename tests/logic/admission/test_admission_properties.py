"""The webhook refuses what the plugin would refuse, no more and no less; nothing makes it fall."""

import config_cases
import webhook_reviews as reviews
from hypothesis import given
from hypothesis import strategies as st

from dra_driver import errors
from dra_driver.logic.admission import admission, admitted, advice
from dra_driver.logic.offering import classes
from dra_driver.logic.preparing import config_choice
from dra_driver.model import claims, slices

PARAMETERS = [
    *(parameters for parameters, _ in config_cases.LEGAL.values()),
    *(case.parameters for case in config_cases.ILLEGAL.values()),
]
NAMES = ["a", "b", "c", "c/x", "c/y"]
CLASSES = list(classes.types(reviews.DRIVER))

entries = st.builds(
    lambda parameters, requests, driver: reviews.config(parameters, *requests, driver=driver),
    st.sampled_from(PARAMETERS),
    st.lists(st.sampled_from(NAMES), max_size=2, unique=True),
    st.sampled_from([reviews.DRIVER, reviews.DRIVER, reviews.DRIVER, "dra.example"]),
)


@st.composite
def asked(draw):
    classes = st.sampled_from(CLASSES)
    alternatives = [{"name": name, "deviceClassName": draw(classes)} for name in ("x", "y")]
    return [
        reviews.request("a", draw(classes)),
        reviews.request("b", draw(classes)),
        reviews.request("c", firstAvailable=alternatives),
    ]


def results(requests):
    """Every result that an allocation may have, with the type of its device."""
    for request in requests:
        for inner in request.get("firstAvailable") or [request["exactly"]]:
            name = request["name"] + (f"/{inner['name']}" if "name" in inner else "")
            device = slices.DeviceId(reviews.DRIVER, "node", "device")
            device_class = inner["deviceClassName"]
            yield claims.Result(name, device), classes.types(reviews.DRIVER)[device_class]


def refused_by_the_plugin(requests, configs):
    found = [
        claims.OpaqueConfig(
            entry["opaque"]["driver"],
            entry["opaque"]["parameters"],
            tuple(entry.get("requests") or ()),
        )
        for entry in configs
    ]
    try:
        own = config_choice.entries(found, reviews.DRIVER)
        for result, device_type in results(requests):
            config_choice.for_result(own, result, device_type)
    except errors.Rejected:
        return True
    return False


@given(asked(), st.lists(entries, max_size=4), st.sampled_from(admitted.VERSIONS))
def test_the_webhook_refuses_what_the_plugin_would(requests, configs, version):
    body = reviews.made("resourceclaims", version, requests=requests, configs=configs)
    decision = admission.decide(reviews.review("resourceclaims", version, body), reviews.DRIVER)
    assert decision.allowed is not refused_by_the_plugin(requests, configs)


WORDS = [
    "spec", "devices", "config", "requests", "opaque", "driver", "parameters", "kind", "sharing",
    "exactly", "firstAvailable", "name", "deviceClassName", "tolerations", "effect", "selectors",
    "cel", "expression", "capacity", "metadata", "operation", "CREATE", "UPDATE", "gpu.nvidia.com",
    "GpuConfig", "memory", "oldObject", 'device.attributes["gpu.nvidia.com"].numaNode == 1',
]  # fmt: skip
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from(WORDS) | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(WORDS) | st.text(max_size=3), inner, max_size=6)
    ),
    max_leaves=25,
)


def shaped():
    """An object that is like one of the API's in most places, and anything in others."""
    config = st.fixed_dictionaries(
        {"opaque": st.fixed_dictionaries({"driver": st.just(reviews.DRIVER)})}
    )
    exactly = st.dictionaries(
        st.sampled_from(["deviceClassName", "selectors", "tolerations", "capacity"]), anything
    )
    request = st.fixed_dictionaries({"name": st.just("a"), "exactly": exactly | anything})
    devices = st.fixed_dictionaries(
        {
            "config": st.lists(config | anything, max_size=2) | anything,
            "requests": st.lists(request | anything, max_size=2) | anything,
        }
    )
    spec = st.fixed_dictionaries({"devices": devices | anything})
    return st.fixed_dictionaries({"spec": spec | anything})


@given(st.sampled_from(list(reviews.KINDS)), st.sampled_from(["CREATE", "UPDATE"]), shaped())
def test_no_object_makes_it_fall(resource, operation, body):
    document = reviews.review(resource, body=body, operation=operation)
    decision = admission.decide(document, reviews.DRIVER)
    answer = admission.answer(decision)
    assert answer["response"]["allowed"] is not bool(decision.problems)
    assert all(len(text) <= advice.LONGEST for text in decision.warnings)


@given(anything)
def test_no_document_makes_it_fall(document):
    try:
        admission.decide(document, reviews.DRIVER)
    except admission.MalformedReview as error:
        assert str(error)  # noqa: PT017 - one of two good ends
