"""docs/migration.md: its manifests run, its values are those of the chart, its names are real."""

import functools
import pathlib
import re
import tempfile
import threading

import chart
import mig_cards
import passed_cards
import pytest
import structlog
import yaml

from dra_driver import telemetry
from dra_driver.adapters.console import terminal
from dra_driver.logic.offering import attributes, catalog, shares
from dra_driver.model import devices, mig
from dra_driver.model import shares as share_model
from dra_driver.sim.demo import demo, plugin_settings

pytestmark = pytest.mark.sampled(9)

PAGE = (chart.DEPLOY.parent / "docs" / "migration.md").read_text("utf-8")
BLOCK = re.compile(r"^```yaml ?(?P<info>[^\n]*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
BLOCKS = [(found["info"].split(), found["text"]) for found in BLOCK.finditer(PAGE)]
NODE = "hopper=h100-80gb-hbm3:2"
SHARED = ("shares=memory",)


def runs(block):
    """The settings that a block is run with; None where it is not run.

    The pod of KAI names KAI's scheduler, which is not there; demo/old has one that does not.
    """
    match block:
        case "run", *settings:
            return tuple(settings)
        case "after", "dra":
            return ()
        case "after", system if system != "kai":
            return SHARED
    return None


def pods():
    """The names of pods in blocks that are run, with the settings of the block."""
    return [
        (body["metadata"]["name"], settings)
        for block, text in BLOCKS
        if (settings := runs(block)) is not None
        for body in yaml.safe_load_all(text)
        if body and body["kind"] == "Pod"
    ]


class Looking(terminal.Terminal):
    """Keeps the table of pods."""

    def __init__(self):
        super().__init__()
        self.pods = {}

    def table(self, table):
        if table.title == "Pods":
            texts = [
                [cell if isinstance(cell, str) else cell[0] for cell in row] for row in table.rows
            ]
            self.pods = {row[0]: dict(zip(table.columns, row, strict=True)) for row in texts}

    def block(self, block):
        pass


@functools.cache
def played(settings):
    """The pods of all blocks with these settings, as they ended, by name: one cluster for all."""
    objects = [body for body in chart.objects() if body["kind"] == "DeviceClass"]
    for block, text in BLOCKS:
        if runs(block) == settings:
            objects += filter(None, yaml.safe_load_all(text))
    with tempfile.TemporaryDirectory(prefix="t-", dir="/tmp") as directory:
        path = pathlib.Path(directory) / "manifests.yaml"
        path.write_text(yaml.safe_dump_all(objects), encoding="utf-8")
        options = demo.Options(
            files=(path,),
            # A node for each pod: none waits because others came first.
            nodes=tuple(demo.parse_node(f"{name}={NODE.partition('=')[2]}") for name in "abcde"),
            plugin_flags=plugin_settings.flags(settings),
        )
        shown = Looking()
        telemetry.configure(level="error", log_format="console")
        demo.run(options, threading.Event(), shown)
        structlog.reset_defaults()
    return shown.pods


def test_enough_is_looked_at():
    assert len(pods()) == 9
    assert {block for (block, *_), _ in BLOCKS} == {"values", "run", "before", "after"}


@pytest.mark.parametrize(("pod", "settings"), pods())
def test_a_pod_runs(pod, settings):
    assert played(settings)[f"default/{pod}"]["PHASE"] == "Running"


@pytest.mark.parametrize(
    ("pod", "settings", "devices"),
    [
        ("as-before", (), "2x NVIDIA H100 80GB HBM3"),
        ("part-as-before", (), "1g.10gb of NVIDIA H100 80GB HBM3"),
        ("part-with-a-claim", (), "1g.10gb of NVIDIA H100 80GB HBM3"),
        ("a-quarter", ("shares=4", "mig-mode=off"), "1/4 of NVIDIA H100 80GB HBM3"),
        ("vgpu", SHARED, "2x share of 10Gi, 30 % of NVIDIA H100 80GB HBM3"),
        ("part", SHARED, "share of 10Gi, 30 % of NVIDIA H100 80GB HBM3"),
        ("binpack-0", SHARED, "share of 8Gi, 10 % of NVIDIA H100 80GB HBM3"),
        ("binpack-1", SHARED, "share of 8Gi, 10 % of NVIDIA H100 80GB HBM3"),
        ("one-gpu", (), "NVIDIA H100 80GB HBM3"),
    ],
)
def test_a_pod_gets_what_the_page_says(pod, settings, devices):
    assert played(settings)[f"default/{pod}"]["DEVICES"] == devices


def test_a_partition_for_a_task_of_volcano_is_the_smallest_that_has_the_memory():
    [got] = [row["DEVICES"] for pod, row in played(SHARED).items() if "/train-" in pod]
    assert got == "share of 20096Mi, 100 % of 1g.20gb of NVIDIA H100 80GB HBM3"


def test_a_quarter_of_a_card_is_a_quarter_of_memory_and_multiprocessors():
    got = played(("shares=4", "mig-mode=off"))["default/a-quarter"]["SHARING"]
    assert got == f"MPS: 25 %, {81559 // 4}Mi"


def test_manifests_of_nvidia_s_driver_get_their_limits():
    assert played(())["default/two-containers"]["SHARING"] == "MPS: 50 %, 10Gi"


# Values


@pytest.mark.parametrize(
    "text", [text for (block, *_), text in BLOCKS if block == "values"], ids=lambda text: text[:20]
)
def test_the_chart_takes_the_values(text):
    rendered = chart.objects(yaml.safe_load(text))
    values = yaml.safe_load(text)
    selector = values.get("kubeletPlugin", {}).get("nodeSelector", {})
    spec = chart.the(rendered, "DaemonSet")["spec"]["template"]["spec"]
    assert selector.items() <= spec["nodeSelector"].items()
    for name, value in values.get("settings", {}).items():
        flag = re.sub("([A-Z])", r"-\1", name).lower()
        assert f"--{flag}={value}" in chart.container(rendered)["args"]


VALUES = yaml.safe_load((chart.PATH / "values.yaml").read_text("utf-8"))


def ours():
    """Values with a dot in all columns of tables but the first, which is the others'."""
    cells = [cell for line in PAGE.splitlines() for cell in line.split(" | ")[1:]]
    names = re.findall(rf"`((?:{'|'.join(VALUES)})(?:\.\w+)+)[`=]", "\n".join(cells))
    return sorted(set(names))


@pytest.mark.parametrize("name", ours())
def test_each_value_on_our_side_is_one_of_the_chart(name):
    value = VALUES
    for part in name.split("."):
        assert part in value
        value = value[part]


def test_enough_values_are_looked_at():
    assert {"settings.driverRoot", "kubeletPlugin.updateAtOnce", "priorityClass.name"} <= set(
        ours()
    )


# Names in slices


def row(title):
    [cells] = re.findall(rf"^\| {title} \| (.*) \|$", PAGE, re.MULTILINE)
    return set(re.findall(r"`([\w./<>]+)`", cells))


def published():
    """Names of attributes and capacities of whole cards, partitions, instances and shares."""
    card = mig_cards.gpu(mig_cards.H100, numa_node=0, pcie_root="pci0000:00")
    on_demand = catalog.card(card, mig.Mode.DYNAMIC).offers.values()
    found = [attributes.device(card, partitionable=True)]
    found += [attributes.partition(offer) for offer in on_demand if offer.spot]
    kind = share_model.Shares(4, share_model.Enforcement.MPS)
    found += [shares.shareable(device, kind) for device in found[:1]]
    return (
        {name for device in found for name in device.attributes},
        {name for device in found for name in device.capacity},
    )


def test_the_page_has_each_attribute_that_there_is():
    told = row("same attributes") | row("added")
    assert published()[0] <= told
    assert told - published()[0] == set()


def test_the_page_has_all_that_there_is_of_devices_for_virtual_machines():
    card = mig_cards.gpu(mig_cards.H100, numa_node=0, pcie_root="pci0000:00")
    device = attributes.vfio(devices.Offer(card, vfio=passed_cards.of(card)))
    told = row("same of VFIO devices") | row("added to VFIO devices")
    assert told == device.attributes.keys() | device.capacity.keys()


def test_the_page_has_each_capacity_that_there_is():
    assert published()[1] == row("same capacities") - {"memorySlice<n>"}


def test_each_link_leads_somewhere():
    docs = chart.DEPLOY.parent / "docs"
    for target in re.findall(r"\]\(([\w./-]+\.md)", PAGE):
        assert (docs / target).exists(), target
