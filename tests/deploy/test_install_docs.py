"""docs/install.md names values and files that exist."""

import re

import chart
import pytest
import yaml

TEXT = (chart.DEPLOY.parent / "docs" / "install.md").read_text("utf-8")
VALUES = yaml.safe_load((chart.PATH / "values.yaml").read_text("utf-8"))
OF_THE_OPERATOR = {"devicePlugin.enabled", "driver.enabled", "migManager.enabled"}


def named():
    """Values in `--set` of a command, and those in backquotes with a dot."""
    tops = "|".join(VALUES)
    in_commands = re.findall(r"--set ([a-zA-Z.]+)=", TEXT)
    in_text = re.findall(rf"`((?:{tops})\.[a-zA-Z.]+)(?:[=:`])", TEXT)
    return sorted({*in_commands, *in_text} - OF_THE_OPERATOR)


@pytest.mark.parametrize("name", named())
def test_each_value_is_one_of_the_chart(name):
    value = VALUES
    for part in name.split("."):
        assert part in value
        value = value[part]


def test_enough_values_are_looked_at():
    assert {"settings.driverRoot", "allowOtherDrivers", "webhook.certManager.enabled"} <= set(
        named()
    )


@pytest.mark.parametrize("path", sorted(set(re.findall(r"\bdeploy/[\w./-]*\w", TEXT))))
def test_each_file_is_there(path):
    assert (chart.DEPLOY.parent / path).exists()


def test_names_of_objects_are_those_of_the_chart():
    [name] = set(re.findall(r"daemonset/([\w-]+)", TEXT))
    assert chart.the(chart.objects(), "DaemonSet")["metadata"]["name"] == name


@pytest.mark.parametrize(
    ("root", "who"),
    [("/run/nvidia/driver", "GPU operator"), ("/home/kubernetes/bin/nvidia", "GKE")],
)
def test_the_driver_roots_are_ones_that_the_chart_takes(root, who):
    assert f"`{root}`" in TEXT
    assert who in TEXT
    assert f"--driver-root={root}" in str(chart.objects({"settings": {"driverRoot": root}}))
