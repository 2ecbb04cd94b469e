"""The classes that come with the driver."""

import pathlib

import pytest

from dra_driver.adapters.console import documents
from dra_driver.logic.offering import classes
from dra_driver.logic.preparing import configs
from dra_driver.model import sharing

DEPLOYED = pathlib.Path(__file__).parents[3] / "deploy" / "device-classes.yaml"


def test_the_classes_are_those_that_are_applied_to_a_real_cluster():
    assert list(classes.device_classes("gpu.nvidia.com")) == documents.load_all(DEPLOYED)


@pytest.mark.parametrize(
    ("name", "device_type"),
    [
        ("gpu.example.com", "gpu"),
        ("mig.example.com", "mig"),
        ("mig.gpu.example.com", "mig"),
        ("vfio.gpu.example.com", "vfio"),
    ],
)
def test_another_driver_name_is_in_the_class_s_name_and_selector(name, device_type):
    made = {body["metadata"]["name"]: body for body in classes.device_classes("gpu.example.com")}
    assert list(made) == [
        "gpu.example.com",
        "mig.example.com",
        "mig.gpu.example.com",
        "vfio.gpu.example.com",
        "shared.gpu.example.com",
        "shared-mps.gpu.example.com",
        "exclusive.gpu.example.com",
        "time-sliced.gpu.example.com",
        "mps.gpu.example.com",
    ]
    assert made[name]["spec"]["selectors"][0]["cel"]["expression"] == (
        "device.driver == 'gpu.example.com' && "
        f"device.attributes['gpu.example.com'].type == '{device_type}'"
    )


@pytest.mark.parametrize("driver", ["gpu.nvidia.com", "gpu.example.com"])
def test_the_names_are_those_of_all_classes(driver):
    made = classes.device_classes(driver)
    assert classes.names(driver) == {body["metadata"]["name"] for body in made}


def test_only_that_of_whole_gpus_serves_an_extended_resource_if_one_is_named():
    made = classes.device_classes("gpu.example.com", whole_gpus="example.com/gpu")
    serving = {body["metadata"]["name"]: body["spec"].get("extendedResourceName") for body in made}
    assert serving.pop("gpu.example.com") == "example.com/gpu"
    assert set(serving.values()) == {None}


def test_a_driver_whose_name_does_not_begin_with_gpu_has_the_type_in_front_of_it():
    names = list(classes.types("nvidia.example.com"))
    assert names == ["nvidia.example.com", "mig.nvidia.example.com", "vfio.nvidia.example.com"]


def test_the_classes_of_one_type_are_the_peer_s_and_one_for_partitions_with_gpu_in_its_name():
    assert classes.types("gpu.nvidia.com") == {
        "gpu.nvidia.com": sharing.DeviceType.GPU,
        "mig.nvidia.com": sharing.DeviceType.MIG,
        "mig.gpu.nvidia.com": sharing.DeviceType.MIG,
        "vfio.gpu.nvidia.com": sharing.DeviceType.VFIO,
    }


def test_the_configs_of_classes_are_ones_that_the_driver_takes():
    given = {
        body["metadata"]["name"]: body["spec"]["config"]
        for body in classes.device_classes("gpu.example.com")
        if "config" in body["spec"]
    }
    assert list(given) == ["time-sliced.gpu.example.com", "mps.gpu.example.com"]
    settings = {}
    for name, [entry] in given.items():
        assert entry["opaque"]["driver"] == "gpu.example.com"
        settings[name] = configs.decode(entry["opaque"]["parameters"], path=name).settings
    sliced, mps = settings.values()
    assert (type(sliced), sliced.interval) == (sharing.TimeSlicing, sharing.Interval.LONG)
    assert isinstance(mps, sharing.Mps)
