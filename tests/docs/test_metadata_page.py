"""docs/metadata.md: what its examples print in a container, and what it says there is."""

import pathlib
import re
import subprocess
import sys

import pytest

from dra_driver.logic.preparing import metadata
from dra_driver.model import device_metadata, devices, prepared

PAGE = (pathlib.Path(__file__).parents[2] / "docs/metadata.md").read_text("utf-8")
CARD = devices.Gpu(
    index=0, minor=0, uuid=devices.GpuUuid("GPU-5515"), product_name="NVIDIA H100 80GB HBM3",
    pci_address=devices.PciAddress("0000:07:00.0"),
)  # fmt: skip


def example(language):
    [text] = re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    return text


@pytest.fixture(params=[None, "mine"], ids=["named", "template"])
def container(request, tmp_path):
    """The root of a container that has one GPU."""
    entry = prepared.PreparedDevice(
        requests=("gpu",), pool="node-1", device="gpu-0", cdi_ids=("a/b=c",)
    )
    content = device_metadata.Content(
        requests={"gpu": device_metadata.Described(name="gpu")}, pod_claim_name=request.param
    )
    record = prepared.Record(
        uid="0a1b", namespace="team-a", name="train", phase=prepared.Phase.COMPLETED,
        boot_id="boot-1", devices=(entry,),
    )  # fmt: skip
    made, [document] = metadata.said(
        "gpu.nvidia.com",
        device_metadata.into(record, content),
        {"gpu-0": devices.Offer(CARD)},
        {"gpu-0": {"parentUUID": "GPU-other"}},
    )
    inside = metadata.container_path("gpu.nvidia.com", made.name, content, "gpu")
    path = tmp_path / inside.removeprefix("/")
    path.parent.mkdir(parents=True)
    path.write_text(document.text)
    return tmp_path


@pytest.mark.parametrize(
    ("language", "program", "printed"),
    [("python", (sys.executable, "-c"), "gpu-0 GPU-5515\n"), ("sh", ("sh", "-c"), "GPU-5515\n")],
)
def test_an_example_prints_the_gpu_of_its_container(container, language, program, printed):
    text = example(language)
    assert len(text.splitlines()) <= 10
    there = text.replace(metadata.CONTAINER_DIR, f"{container}{metadata.CONTAINER_DIR}")
    assert there != text
    answer = subprocess.run(
        [*program, there], capture_output=True, text=True, check=False, timeout=30
    )
    assert (answer.stdout, answer.stderr) == (printed, "")


def test_paths_and_limits_are_those_of_the_code():
    assert metadata.CONTAINER_DIR in PAGE
    for text in (*metadata.VERSIONS[:1], f"{metadata.FOLDER}/<namespace>_<claim>"):
        assert text in PAGE
    assert f"At most {metadata.MOST_ATTRIBUTES} attributes" in PAGE
    assert f"more than {metadata.LONGEST_NAME - 1} letters" in PAGE
