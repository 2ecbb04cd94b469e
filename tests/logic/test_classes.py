"""The classes that come with the driver."""

import pathlib

from dra_driver.adapters import documents
from dra_driver.logic import classes

DEPLOYED = pathlib.Path(__file__).parents[2] / "deploy" / "device-classes.yaml"


def test_the_classes_are_those_that_are_applied_to_a_real_cluster():
    assert list(classes.device_classes("gpu.nvidia.com")) == documents.load_all(DEPLOYED)


def test_another_driver_name_is_in_the_class_s_name_and_selector():
    [made] = classes.device_classes("gpu.example.com")
    assert made["metadata"]["name"] == "gpu.example.com"
    assert made["spec"]["selectors"][0]["cel"]["expression"] == (
        "device.driver == 'gpu.example.com' && device.attributes['gpu.example.com'].type == 'gpu'"
    )
