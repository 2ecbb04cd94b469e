"""The DeviceClasses of the chart."""

import chart
import pytest

from dra_driver.logic.cel import selection
from dra_driver.logic.offering import classes, shares
from dra_driver.logic.preparing import configs
from dra_driver.model import slices


def test_the_classes_are_the_driver_s_and_whole_gpus_are_an_extended_resource_in_v1():
    made = {b["metadata"]["name"]: b for b in chart.objects() if b["kind"] == "DeviceClass"}
    for body in classes.device_classes("gpu.nvidia.com"):
        found = made.pop(body["metadata"]["name"])
        assert found["apiVersion"] == body["apiVersion"]
        assert found["spec"]["selectors"] == body["spec"]["selectors"]
        extended = {"extendedResourceName": classes.EXTENDED_RESOURCE}
        whole = body["metadata"]["name"] == "gpu.nvidia.com"
        assert found["spec"] == body["spec"] | (extended if whole else {})
    assert made == {}


WHOLE = {"type": "gpu", "mpsCapable": True, "timeSliceCapable": True}


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        (WHOLE, ["exclusive", "gpu", "mps", "time-sliced"]),
        (WHOLE | {"mpsCapable": False}, ["exclusive", "gpu", "time-sliced"]),
        (WHOLE | {"timeSliceCapable": False}, ["exclusive", "gpu", "mps"]),
        ({"type": "mig"}, ["mig", "mig"]),
        ({"type": "vfio"}, ["vfio"]),
        (WHOLE | {shares.ENFORCEMENT: "MPS"}, ["gpu", "shared", "shared-mps"]),
        ({"type": "mig", shares.ENFORCEMENT: "None"}, ["mig", "mig", "shared"]),
    ],
    ids=str,
)
def test_each_class_has_the_devices_that_its_name_says(attributes, expected):
    device = slices.Device("device", attributes, {})
    found = [
        body["metadata"]["name"].partition(".")[0]
        for body in chart.objects()
        if body["kind"] == "DeviceClass"
        for selector in body["spec"]["selectors"]
        if selection.compile(selector["cel"]["expression"]).matches(device, "gpu.nvidia.com")
    ]
    assert sorted(found) == expected


@pytest.mark.parametrize("version", ["v1beta1", "v1beta2"])
def test_older_versions_of_the_api_have_no_extended_resources(version):
    made = [
        body
        for body in chart.objects({"resourceApiVersion": version})
        if body["kind"] == "DeviceClass"
    ]
    assert {body["apiVersion"] for body in made} == {f"resource.k8s.io/{version}"}
    assert {tuple(body["spec"]) for body in made} == {("selectors",), ("selectors", "config")}


@pytest.mark.parametrize("driver", ["gpu.example.com", "nvidia.example.com"])
def test_with_another_driver_name_the_classes_have_the_names_that_the_driver_gives_them(driver):
    expected = [body["metadata"]["name"] for body in classes.device_classes(driver)]
    for shared, few in ((True, expected), (False, list(classes.types(driver)))):
        presets = None if shared else {"timeSliceInterval": "", "mps": False}
        values = {
            "settings": {"driverName": driver},
            "deviceClasses": {"shared": shared, **({"presets": presets} if presets else {})},
        }
        made = [b["metadata"]["name"] for b in chart.objects(values) if b["kind"] == "DeviceClass"]
        assert made == few


def test_shared_devices_are_an_extended_resource_of_their_own_if_that_is_asked_for():
    values = {"deviceClasses": {"sharedExtendedResourceName": "nvidia.com/gpu.shared"}}
    named = {
        body["metadata"]["name"]: body["spec"]["extendedResourceName"]
        for body in chart.objects(values)
        if body["kind"] == "DeviceClass" and "extendedResourceName" in body["spec"]
    }
    assert named == {
        "gpu.nvidia.com": "nvidia.com/gpu",
        "shared.gpu.nvidia.com": "nvidia.com/gpu.shared",
    }


@pytest.mark.parametrize(
    ("presets", "expected"),
    [
        ({"timeSliceInterval": "Short"}, {"timeSlicingConfig": {"interval": "Short"}}),
        (
            {"mpsConfig": {"defaultPinnedDeviceMemoryLimit": "8Gi", "maxClients": 4}},
            {"mpsConfig": {"defaultPinnedDeviceMemoryLimit": "8Gi", "maxClients": 4}},
        ),
    ],
    ids=["time slice", "limits of MPS"],
)
def test_what_the_classes_with_a_config_set_up_is_a_value(presets, expected):
    bodies = chart.objects({"deviceClasses": {"presets": presets}})
    made = [
        entry["opaque"]["parameters"]
        for body in bodies
        if body["kind"] == "DeviceClass"
        for entry in body["spec"].get("config", ())
    ]
    for parameters in made:
        configs.decode(parameters, path="class")
    found = {key: value for one in made for key, value in one["sharing"].items()}
    assert expected.items() <= found.items()


@pytest.mark.parametrize(
    "presets",
    [
        {"timeSliceInterval": "Forever"},
        {"mpsConfig": {"defaultActiveThreadPercentage": 101}},
        {"mpsConfig": {"maxclients": 2}},
        {"mps": "yes"},
    ],
    ids=str,
)
def test_a_config_of_a_class_that_cannot_work_is_refused_by_the_schema(presets):
    with pytest.raises(chart.helm.HelmValuesError, match="presets"):
        chart.texts({"deviceClasses": {"presets": presets}})
