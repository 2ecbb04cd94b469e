"""Names that no device of the driver has: said when they are applied."""

import pytest
import webhook_reviews as reviews

from dra_driver.logic.admission import admission, advice

A = 'device.attributes["gpu.nvidia.com"]'
C = 'device.capacity["gpu.nvidia.com"]'
NOTHING = "so that no device is found: "


def warned(resource="resourceclaims", version="v1", **fields):
    body = reviews.made(resource, version, **fields)
    decision = admission.decide(reviews.review(resource, version, body), reviews.DRIVER)
    assert decision.allowed
    assert all(len(text) <= advice.LONGEST for text in decision.warnings)
    return list(decision.warnings)


def said(expression, device_class="team-a"):
    """What is said of a selector, without where it stands."""
    request = reviews.request("gpu", device_class, selectors=reviews.selector(expression))
    path = "spec.devices.requests[0].exactly.selectors[0].cel.expression: "
    found = warned(requests=[request])
    assert all(text.startswith(path) for text in found)
    return [text.removeprefix(path) for text in found]


# The driver's own name


@pytest.mark.parametrize(("resource", "version"), reviews.EVERYWHERE)
@pytest.mark.parametrize("driver", ["GPU.nvidia.com", "gpu.NVIDIA.com"])
def test_a_config_for_another_spelling_of_the_driver_is_passed_over(resource, version, driver):
    # Wrong as well, which nobody looks at.
    entries = [reviews.config({"kind": "GpuConfig", "wrong": 1}, driver=driver)]
    assert warned(resource, version, configs=entries) == [
        (
            f"{reviews.root(resource)}.config[0].opaque.driver: '{driver}' is not this driver, "
            "whose name is in lower case: the config is passed over: write gpu.nvidia.com"
        )
    ]


@pytest.mark.parametrize("driver", ["gpu.nvidia.co", "dra.example", "xgpu.nvidia.com", ""])
def test_configs_of_other_drivers_are_their_own(driver):
    assert warned(configs=[reviews.config({"wrong": 1}, driver=driver)]) == []


@pytest.mark.parametrize(
    "expression",
    [
        'device.attributes["GPU.nvidia.com"].index == 1',
        '"index" in device.attributes["GPU.nvidia.com"]',
        'cel.bind(a, device.attributes["GPU.nvidia.com"], a.index == 1)',
    ],
)
def test_an_expression_that_reads_another_spelling_of_the_driver_finds_nothing(expression):
    (text,) = said(expression)
    assert text == (
        "device.attributes['GPU.nvidia.com']: no device has anything there: the driver's name is "
        "in lower case: write gpu.nvidia.com"
    )


# Names in its domain


@pytest.mark.parametrize(
    ("expression", "told"),
    [
        (f'{A}.productname == "x"', "attribute 'productname', " + NOTHING + "write productName"),
        (f'{A}["productname"] == "x"', "attribute 'productname', " + NOTHING + "write productName"),
        (f'"productname" in {A}', "attribute 'productname', " + NOTHING + "write productName"),
        (f"has({A}.productname)", "attribute 'productname', " + NOTHING + "write productName"),
        (f'{A}.?productname.orValue("") == ""',
         "attribute 'productname', " + NOTHING + "write productName"),
        (f'cel.bind(a, {A}, a.productname == "x")',
         "attribute 'productname', " + NOTHING + "write productName"),
        (f'["x"].exists(name, name == {A}.productname)',
         "attribute 'productname', " + NOTHING + "write productName"),
        (f'{A}.model == "x"', "attribute 'model', " + NOTHING + "write productName"),
        (f"{A}.memory == 1", "attribute 'memory', " + NOTHING + "memory is of device.capacity"),
        (f'{C}.memroy == quantity("1Gi")', "capacity 'memroy', " + NOTHING + "write memory"),
        (f'{C}.productName == quantity("1Gi")',
         "capacity 'productName', " + NOTHING + "productName is of device.attributes"),
        (f"{A}.zzzzz == 1", "attribute 'zzzzz', " + NOTHING +
         "`kubectl get resourceslices -o yaml` has what is"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("device_class", ["gpu.nvidia.com", "mig.nvidia.com", "team-a"])
def test_a_name_that_the_driver_never_publishes_is_told_with_the_nearest(
    expression, told, device_class
):
    assert said(expression, device_class) == [f"gpu.nvidia.com publishes no {told}"]


@pytest.mark.parametrize(
    "expression",
    [
        'device.attributes["nic.example"].productname == "gpu.nvidia.com"',
        f'{A}.productName == "productname"',
        f'device.driver == "gpu.nvidia.com" && {A}.type == "gpu"',
        f'{A}.exists(name, name == "productname")',
        f'"gpu.nvidia.com" in device.attributes && {A}.uuid != ""',
        f'{A}.enforcement.orValue("") == ""',
        f'{A}["product" + "name"] == "x"',
    ],
)
def test_names_that_are_known_or_of_others_or_worked_out_are_nothing_to_warn_of(expression):
    assert [text for text in said(expression) if "publishes no" in text] == []


def test_all_that_devices_may_have_is_known():
    for name in advice._VOCABULARY.of("attributes"):
        assert not any("publishes no" in text for text in said(f'"{name}" in {A}'))
    for name in advice._VOCABULARY.of("capacity"):
        assert not any("publishes no" in text for text in said(f'"{name}" in {C}'))


def test_a_class_is_told_too():
    expression = f'device.driver == "gpu.nvidia.com" && {A}.productname == "x"'
    (text,) = warned("deviceclasses", selectors=reviews.selector(expression))
    assert text == (
        "spec.selectors[0].cel.expression: gpu.nvidia.com publishes no attribute 'productname', "
        f"{NOTHING}write productName"
    )


@pytest.mark.parametrize("field", ["matchAttribute", "distinctAttribute"])
@pytest.mark.parametrize("resource", ["resourceclaims", "resourceclaimtemplates"])
def test_constraints_are_told_too(resource, field):
    names = ("gpu.nvidia.com/productName", "gpu.nvidia.com/parentUuid", "nic.example/parentUuid")
    constraints = [{field: name} for name in (*names, "resource.kubernetes.io/pcieRoot")]
    assert warned(resource, constraints=constraints) == [
        (
            f"{reviews.root(resource)}.constraints[1].{field}: gpu.nvidia.com publishes no "
            f"attribute 'parentUuid', {NOTHING}write parentUUID"
        )
    ]


@pytest.mark.parametrize("name", ["memroy", "gpu.nvidia.com/memroy"])
def test_amounts_are_told_too(name):
    request = reviews.request("gpu", capacity={"requests": {name: "1Gi", "nic.example/x": "1"}})
    assert warned(requests=[request]) == [
        (
            "spec.devices.requests[0].exactly.capacity.requests: gpu.nvidia.com publishes no "
            f"capacity 'memroy', {NOTHING}write memory"
        )
    ]
    foreign = reviews.request("gpu", "team-a", capacity={"requests": {"memroy": "1Gi"}})
    assert warned(requests=[foreign]) == []


@pytest.mark.parametrize("device_class", ["gpu.nvidia.com", "shared.gpu.nvidia.com"])
def test_an_amount_by_the_name_with_the_domain_is_not_found_up_to_1_37(device_class):
    amounts = {"memory": "1Gi", "gpu.nvidia.com/cores": "5"}
    request = reviews.request("gpu", device_class, capacity={"requests": amounts})
    assert warned(requests=[request]) == [
        (
            "spec.devices.requests[0].exactly.capacity.requests[gpu.nvidia.com/cores]: "
            "gpu.nvidia.com publishes cores, which Kubernetes up to 1.37 takes for another "
            "capacity, so that no device is found: write cores"
        )
    ]


def test_names_of_any_length_and_any_characters_make_short_warnings():
    expression = f'{A}["{"x" * 500}\\u202e"] == "x"'
    (text,) = said(expression)
    assert text.startswith("gpu.nvidia.com publishes no attribute 'xxxxxxxx")
