"""`dra-driver explain` as a whole, on saved files and against the embedded API server."""

import contextlib
import json
import re

import pytest
from control_plane import ControlPlane
from control_plane import request as wire_request
from explain_scene import (
    C,
    claim,
    device_class,
    gpu,
    held,
    node,
    pod,
    pool,
    request,
    template,
    wanted,
)

BIG = f"{C}.memory.compareTo(quantity('16Gi')) >= 0"


@pytest.fixture
def fleet(write):
    """A cluster that was saved: two nodes with a device each, one of them in use."""
    slices = [pool("a", gpu("x", memory="15Gi")), pool("b", gpu("x", memory="80Gi"))]
    others = [node("a"), node("b"), device_class(), held("theirs", "b/x", pods=("train",))]
    return (
        "--slices", write("slices.yaml", *slices, as_list=True),
        "--claims", write("claims.yaml", *others, as_list=True), write("more.yaml", claim("mine")),
    )  # fmt: skip


def test_a_stored_claim_that_fits_ends_with_0(explain, fleet):
    status, out, _ = explain("claim/mine", *fleet)
    assert status == 0
    assert out.startswith("claim default/mine: fits\n")
    assert "first choice" in out
    assert "gpu.example.com/a/x" in out


def test_an_allocated_claim_ends_with_0(explain, fleet):
    status, out, _ = explain("claim/theirs", *fleet)
    assert status == 0
    assert out.startswith("claim default/theirs: allocated\n")
    assert "none: the driver's defaults" in out
    assert "not shown by the API" in out


def test_an_allocated_claim_with_something_in_the_way_ends_with_2(explain, fleet, write):
    status, out, _ = explain("claim/twin", *fleet, write("twin.yaml", held("twin", "b/x")))
    assert status == 2
    assert out.startswith("claim default/twin: allocated, with problems\n")
    assert (
        "In the way\n  claim default/twin, device gpu.example.com/b/x: claim default/theirs (pod "
        "train) has it too. Delete the pods of one of the two claims\n"
    ) in out


def test_why_no_scheduler_looks_is_shown_and_no_table(explain, fleet, write):
    gated = pod("new", claims={"gpu": "mine"}, schedulingGates=[{"name": "quota"}])
    status, out, _ = explain("-f", write("gated.yaml", gated), *fleet)
    assert status == 2
    assert "The scheduler does not look for devices\n  the pod has scheduling gates" in out
    assert "Node a" not in out
    assert "No change" not in out


def test_of_many_pods_some_are_shown(explain, fleet, write):
    many = held("many", "a/x", pods=tuple(f"p{index}" for index in range(256)))
    _, out, _ = explain("claim/many", *fleet, write("many.yaml", many))
    assert re.search(r"p9,\s+and\s+246", out)
    assert "p10" not in out


def test_why_an_alternative_that_is_preferred_is_not_met_is_shown(explain, fleet, write):
    asked = {"name": "gpu", "firstAvailable": [{"name": "big", **wanted(BIG)},
                                               {"name": "any", **wanted()}]}  # fmt: skip
    status, out, _ = explain("-f", write("list.yaml", claim("list", asked)), *fleet)
    assert status == 0
    assert (
        "gpu/big, which comes first in its list, is not to be had there: 1 not matched by selector "
        f"`{BIG}`\n"
    ) in out


def test_two_changes_at_once_are_shown_as_such(explain, write):
    worn = pool("a", gpu("x", memory="8Gi", taint="worn"))
    saved = write("worn.yaml", worn, device_class(), claim("mine", request(BIG)))
    _, out, _ = explain("claim/mine", "--slices", saved)
    assert "Would fit now with both changes of any one line; one alone is not enough\n" in out


def test_what_the_driver_reports_is_shown_in_place_of_the_note(explain, fleet, write):
    ready = [{"type": "Ready", "status": "True"}]
    body = held("mine", "a/x")
    body["status"]["devices"] = [
        {"driver": "gpu.example.com", "pool": "a", "device": "x", "conditions": ready}
    ]
    _, out, _ = explain("claim/mine", *fleet, write("mine.yaml", body))
    assert "Ready=True" in out
    assert "not shown by the API" not in out


def test_a_manifest_that_does_not_fit_ends_with_2_and_a_table_for_each_node(explain, fleet, write):
    manifest = write("pod.yaml", template("t", request(BIG)), pod("new", templates={"gpu": "t"}))
    status, out, _ = explain("-f", manifest, *fleet)
    assert status == 2
    assert out.startswith("pod default/new: does not fit\n")
    assert "Node a\n" in out
    assert "memory 15Gi < 16Gi" in out
    assert "claim default/theirs (pod train)" in out
    assert "free once pod train ends (claim default/theirs)" in out
    assert "\x1b" not in out


def test_the_worst_of_several_decides(explain, fleet, write):
    manifest = write("both.yaml", claim("good"), claim("bad", request(BIG)))
    status, out, _ = explain("-f", manifest, *fleet)
    assert status == 2
    assert "claim default/good: fits" in out
    assert "claim default/bad: does not fit" in out


def test_json_has_what_the_tables_have(explain, fleet, write):
    manifest = write("claim.yaml", claim("bad", request(BIG)))
    status, out, _ = explain("-f", manifest, "--output", "json", *fleet)
    assert status == 2
    (found,) = json.loads(out)["explanations"]
    assert found["target"] == "claim default/bad"
    assert found["verdict"] == "does not fit"
    first = found["reports"][0]["requests"][0]["groups"][0]
    assert first["reason"] == BIG
    assert first["values"] == ["memory 15Gi < 16Gi"]
    assert found["nearest"][0]["devices"] == ["gpu.example.com/a/x"]


def test_an_error_in_an_expression_is_pointed_at(explain, fleet, write):
    text = "device.driver == 'x' &&\n  device.nope"
    status, out, _ = explain("-f", write("bad.yaml", claim("bad", request(text))), *fleet)
    assert status == 2
    lines = out.splitlines()
    at = lines.index("    device.nope")
    assert lines[at + 1].strip() == "^"
    assert lines[at + 1].index("^") == lines[at].index("nope")


def test_an_attribute_that_some_devices_lack_is_shown_with_the_guard(explain, write):
    text = "device.attributes['gpu.example.com'].numaNode == 1"
    saved = write("saved.yaml", pool("a", gpu("x"), gpu("y", numaNode=1)), device_class())
    status, out, _ = explain(
        "-f", write("bad.yaml", claim("bad", request(text))), "--slices", saved
    )
    assert status == 2
    guarded = f'"numaNode" in device.attributes["gpu.example.com"] && {text}'
    assert f"some devices have it and others lack it: write\n  {guarded}\n" in out


def test_many_different_nodes_are_cut_in_tables(explain, write):
    pools = [pool(f"n{index:02}", gpu("x", memory=f"{index + 1}Gi")) for index in range(15)]
    more = [pool(f"m{index:02}", gpu("x", memory=f"{index + 1}Mi")) for index in range(15)]
    saved = write("saved.yaml", *pools, *more, device_class(), claim("mine", request(BIG)))
    status, out, _ = explain("claim/mine", "--slices", saved)
    assert status == 2
    assert out.count("Node ") == 20
    assert "10 more nodes, each different: --output json has all of them." in out


def test_columns_without_anything_are_left_out(explain, write):
    saved = write("saved.yaml", pool("a", gpu("x", memory="8Gi")), claim("mine", request(BIG)))
    others = write("others.yaml", device_class())
    _, out, _ = explain("claim/mine", "--slices", saved, others)
    assert "values" in out
    assert "held by" not in out


def test_the_config_in_force_is_the_last_of_its_kind(explain, write):
    configs = [
        {"source": source, "opaque": {"driver": "gpu.example.com", "parameters": parameters}}
        for source, parameters in (
            ("FromClass", {"kind": "A", "x": 1}),
            ("FromClass", {"kind": "B"}),
            ("FromClaim", {"kind": "A", "x": 2}),
        )
    ]
    saved = write("saved.yaml", pool("a", gpu("x")), held("mine", "a/x", config=configs))
    status, out, _ = explain("claim/mine", "--slices", saved, "--output", "json")
    assert status == 0
    (has,) = json.loads(out)["explanations"][0]["allocated"]
    assert [(config["source"], config["parameters"]["kind"]) for config in has["configs"]] == [
        ("class", "A"),
        ("class", "B"),
        ("claim", "A"),
    ]
    _, out, _ = explain("claim/mine", "--slices", saved)
    shown = re.sub(r"\s+", "", out)
    assert '"x":2' in shown
    assert '"x":1' not in shown
    assert '{"kind":"B"}' in shown


def test_typed_lists_are_read_too(explain, write):
    items = [{key: pool("a", gpu("x"))[key] for key in ("metadata", "spec")}]
    body = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSliceList", "items": items}
    saved = write("saved.yaml", body, device_class(), claim("mine"))
    assert explain("claim/mine", "--slices", saved)[0] == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["claim/nope"], "claim default/nope does not exist"),
        (["node/a"], "allowed are pod/NAME and claim/NAME"),
        (["claim/mine", "-n", "other"], "claim other/mine does not exist"),
        (["-f", "/nonexistent.yaml"], "/nonexistent.yaml cannot be read"),
    ],
)
def test_what_cannot_be_explained_ends_with_1(explain, fleet, arguments, message):
    status, out, err = explain(*arguments, *fleet)
    assert (status, out) == (1, "")
    assert message in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "name either pod/NAME or claim/NAME, or a manifest"),
        (["claim/mine", "-f", "x.yaml"], "name either pod/NAME or claim/NAME, or a manifest"),
        (["claim/mine", "--kubeconfig", "x"], "exclude each other"),
        (["claim/mine", "--output", "x"], "invalid choice: 'x'"),
    ],
)
def test_misuse_ends_with_2_like_any_other(explain, fleet, arguments, message):
    status, out, err = explain(*arguments, *fleet)
    assert (status, out) == (2, "")
    assert err.startswith("usage: dra-driver explain ")
    assert message in err


def test_what_names_neither_pod_nor_claim_needs_no_cluster_to_be_refused(explain, tmp_path):
    status, _, err = explain("training", "--kubeconfig", str(tmp_path / "none"))
    assert status == 1
    assert err == "dra-driver: 'training': allowed are pod/NAME and claim/NAME\n"


def test_without_arguments_it_tells_what_it_needs(explain):
    status, _, err = explain()
    assert status == 2
    assert "name either pod/NAME or claim/NAME, or a manifest with -f FILE" in err


def test_a_file_that_is_no_object_ends_with_1(explain, write):
    status, _, err = explain("claim/x", "--slices", write("bad.yaml", {"a": 1}))
    assert status == 1
    assert "document 1: this is no Kubernetes object" in err


class TestAgainstACluster:
    @pytest.fixture
    def plane(self, tmp_path):
        running = ControlPlane(tmp_path)
        running.add_class("device.driver == 'gpu.example.com'")
        for name, memory in (("a", "15Gi"), ("b", "80Gi")):
            running.add_node(name)
            running.add_slice(name, {"name": "x", "capacity": {"memory": {"value": memory}}})
        with contextlib.closing(running):
            yield running

    def test_a_pending_pod_is_explained_and_nothing_is_written(
        self, plane, explain, tmp_path, monkeypatch
    ):
        plane.add_claim("first", wire_request("gpu", BIG))
        plane.add_claim("second", wire_request("gpu", BIG))
        plane.add_pod("winner", claims={"gpu": "first"})
        plane.start_scheduler()
        assert plane.node_of("winner") == "b"
        plane.add_pod("loser", claims={"gpu": "second"})
        plane.refusal_of("loser")
        plane.stop_parts()
        before = plane.claims(), plane.pod("loser"), plane.pod("winner")
        status, out, _ = explain("pod/loser", "--kubeconfig", tmp_path / "kubeconfig")
        assert status == 2
        assert "memory 15Gi < 16Gi" in out
        assert "free once pod winner ends (claim default/first)" in out
        monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
        status, out, _ = explain("pod/winner")
        assert (status, "gpu.example.com/b/x" in out) == (0, True)
        assert (plane.claims(), plane.pod("loser"), plane.pod("winner")) == before

    def test_a_manifest_need_not_be_in_the_cluster(self, plane, explain, write, tmp_path):
        manifest = write("new.yaml", template("t", request(BIG)), pod("p", templates={"g": "t"}))
        status, out, _ = explain("-f", manifest, "--kubeconfig", tmp_path / "kubeconfig")
        assert status == 0
        assert "gpu.example.com/b/x" in out
        assert plane.claims() == {}

    def test_a_cluster_that_cannot_be_reached_ends_with_1(self, explain, tmp_path):
        status, _, err = explain("pod/x", "--kubeconfig", tmp_path / "absent")
        assert status == 1
        assert "Pass --kubeconfig FILE" in err


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        ("slice", {"taints": ["x"]}),
        ("slice", {"name": []}),
        ("claim", {"exactly": {"deviceClassName": {}}}),
        ("claim", {"exactly": {"deviceClassName": "gpu", "tolerations": "x"}}),
        (
            "claim",
            {"exactly": {"deviceClassName": "gpu", "selectors": [{"cel": {"expression": 1}}]}},
        ),
    ],
)
def test_a_file_with_a_field_that_no_object_has_is_named(explain, write, kind, change):
    device = gpu("x", memory="15Gi") | (change if kind == "slice" else {})
    mine = claim("mine", request() | (change if kind == "claim" else {}))
    saved = write("saved.yaml", pool("a", device), node("a"), device_class(BIG), mine)
    status, out, told = explain("claim/mine", "--claims", saved)
    assert (status, out) == (1, "")
    assert told.startswith("dra-driver: ")
    assert f"{saved}: a field of an object is missing or of a wrong type (" in told
