"""The option `--node` of the demo."""

import pytest

from dra_driver import errors
from dra_driver.sim.cluster import cluster
from dra_driver.sim.demo import demo


@pytest.mark.parametrize(
    "text", ["a=t4:1", "node-1=t4:4,v100-16gb-sxm2:4", "1=none", f"{'n' * 63}=t4:64"]
)
def test_a_node_has_a_name_and_gpus(text):
    name, _, gpus = text.partition("=")
    assert demo.parse_node(text) == cluster.NodeSpec(name, gpus)


@pytest.mark.parametrize("text", ["", "a", "a=", "=t4:1", "t4:1"])
def test_a_node_without_name_or_gpus_is_refused(text):
    with pytest.raises(errors.Rejected) as refused:
        demo.parse_node(text)
    assert str(refused.value) == (
        f"--node {text!r}: write NAME=MODEL:COUNT[,MODEL:COUNT]..., "
        "for example hopper=h100-80gb-hbm3:8, or NAME=none"
    )


@pytest.mark.parametrize(
    "name", ["A", "a_b", "a.b", "-a", "a-", "../../a", "a/b", " a", "n" * 64, "ä"]
)
def test_a_name_that_no_node_can_have_is_refused(name):
    with pytest.raises(errors.Rejected, match="is no name of a node: at most 63 lower-case"):
        demo.parse_node(f"{name}=t4:1")


@pytest.mark.parametrize("gpus", ["t4", "t4:0", "t4:65", "gtx:1", "t4:1,", "none,t4:1"])
def test_gpus_that_cannot_be_simulated_are_refused(gpus):
    with pytest.raises(errors.Rejected):
        demo.parse_node(f"a={gpus}")
