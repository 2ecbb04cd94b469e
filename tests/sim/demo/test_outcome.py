"""What is shown of a demo; how it is gathered is tested with whole demos."""

import dataclasses

import pytest

from dra_driver import errors
from dra_driver.sim.cluster import runtime
from dra_driver.sim.demo import outcome, shared

TEXT = "GPU 0: Tesla T4 (UUID: GPU-1)"
T4 = outcome.Device("gpu.nvidia.com", "mixed", "gpu-0", "Tesla T4", None, "GPU-1")
ETH = outcome.Device("net.example.com", "mixed", "eth0", None, None, None)
MIG = outcome.Device(
    "gpu.nvidia.com", "hopper", "gpu-0-mig-1g10gb-19-0", "NVIDIA H100", "1g.10gb", None
)
VIEW = runtime.View({"A": "1"}, ("/dev/nvidia0",), (("/host/smi", "/usr/bin/nvidia-smi"),), (TEXT,))


def pod(name="train", phase="Running", **fields):
    values = {
        "namespace": "team", "expected": "Running", "node": "mixed", "reason": None,
        "claims": (outcome.Claim("train-gpu-x", (T4,)),), "containers": {"main": VIEW},
    } | fields  # fmt: skip
    return outcome.Pod(name=name, phase=phase, **values)


WAITING = pod("waiting", "Unschedulable", node=None, reason="too few", claims=(), containers={})


def shown(*pods, workloads=()):
    return outcome.Outcome({"mixed": ("gpu-0",)}, pods, workloads)


@pytest.mark.parametrize(
    ("at_rest", "failed", "as_expected"),
    [(True, False, True), (False, False, False), (True, True, False)],
)
def test_all_is_as_expected_if_the_workloads_are_done_and_none_has_failed(
    at_rest, failed, as_expected
):
    job = outcome.Workload("Job", "team", "a", at_rest, None, failed=failed)
    assert shown(pod(), workloads=(job,)).as_expected is as_expected
    assert not shown(workloads=(job,)).as_expected


@pytest.mark.parametrize(
    ("expected", "phase", "as_expected"),
    [
        ("Running", "Running", True),
        ("Running", "Succeeded", True),
        ("Running", "Failed", False),
        ("Running", "Pending", False),
        ("Running", "Unschedulable", False),
        ("Unschedulable", "Unschedulable", True),
        ("Unschedulable", "Running", False),
        ("Unschedulable", "Pending", False),
        ("Unschedulable", "Refused", False),
        ("Refused", "Refused", True),
        ("Refused", "Running", False),
        ("Refused", "Pending", False),
        ("Running", "Refused", False),
        ("Unschedulable, then Running", "Running", False),
        ("Unschedulable, then Running", "Unschedulable", False),
    ],
)
def test_a_pod_is_as_expected(expected, phase, as_expected):
    assert pod(phase=phase, expected=expected).as_expected is as_expected


@pytest.mark.parametrize(
    ("expected", "phase", "as_expected"),
    [
        ("Unschedulable, then Running", "Running", True),
        ("Unschedulable, then Running", "Succeeded", True),
        ("Unschedulable, then Running", "Failed", False),
        ("Unschedulable, then Running", "Unschedulable", False),
        ("Unschedulable", "Running", False),
        ("Running", "Running", True),
    ],
)
def test_a_pod_that_has_waited_is_as_expected(expected, phase, as_expected):
    waited = pod(phase=phase, expected=expected, was_unschedulable=True)
    assert waited.as_expected is as_expected


@pytest.mark.parametrize(
    ("phase", "became"),
    [
        ("Running", "Running (was Unschedulable)"),
        ("Succeeded", "Succeeded (was Unschedulable)"),
        ("Unschedulable", "Unschedulable"),
        ("Pending", "Pending"),
    ],
)
def test_a_pod_that_has_waited_is_shown_as_such_once_it_runs(phase, became):
    waited = pod(phase=phase, was_unschedulable=True)
    assert waited.became == became
    [block] = outcome.to_blocks(shown(waited))
    assert block.title[2][0] == became
    assert outcome.to_tables(shown(waited))[0].rows[0][1][0] == became
    [listed] = outcome.to_json(shown(waited))["pods"]
    assert (listed["phase"], listed["wasUnschedulable"]) == (phase, True)


def test_the_json_has_the_documented_shape():
    job = outcome.Workload("Job", "team", "a", at_rest=True, reason="why", failed=True)
    assert outcome.to_json(shown(pod(), WAITING, workloads=(job,))) == {
        "nodes": [{"name": "mixed", "devices": ["gpu-0"]}],
        "pods": [
            {
                "namespace": "team",
                "name": "train",
                "phase": "Running",
                "wasUnschedulable": False,
                "node": "mixed",
                "reason": None,
                "convertedFrom": [],
                "claims": [
                    {
                        "name": "train-gpu-x",
                        "devices": [
                            {
                                "driver": "gpu.nvidia.com",
                                "pool": "mixed",
                                "device": "gpu-0",
                                "model": "Tesla T4",
                                "profile": None,
                                "uuid": "GPU-1",
                                "share": None,
                                "timeSlice": None,
                            }
                        ],
                    }
                ],
                "containers": [
                    {
                        "name": "main",
                        "env": {"A": "1"},
                        "deviceNodes": ["/dev/nvidia0"],
                        "mounts": [
                            {"hostPath": "/host/smi", "containerPath": "/usr/bin/nvidia-smi"}
                        ],
                        "output": [TEXT],
                    }
                ],
            },
            {
                "namespace": "team",
                "name": "waiting",
                "phase": "Unschedulable",
                "wasUnschedulable": False,
                "node": None,
                "reason": "too few",
                "convertedFrom": [],
                "claims": [],
                "containers": [],
            },
        ],
        "workloads": [
            {
                "kind": "Job",
                "namespace": "team",
                "name": "a",
                "atRest": True,
                "failed": True,
                "reason": "why",
            }
        ],
    }


def test_a_block_tells_what_a_pod_has_and_what_its_containers_see():
    two = outcome.Claim("two", (T4, ETH, MIG))
    nothing = runtime.View({}, (), (), ())
    body = pod(claims=(two, outcome.Claim("none", ())), containers={"main": VIEW, "idle": nothing})
    [block] = outcome.to_blocks(shown(body))
    assert block.title == (("team/train", "bold"), ": ", ("Running", "green"), " on mixed")
    assert block.lines == (
        "claim two",
        "  gpu-0  Tesla T4  GPU-1",
        "  eth0  net.example.com",
        "  gpu-0-mig-1g10gb-19-0  1g.10gb of NVIDIA H100",
        "claim none: nothing is allocated",
        "container main sees",
        f"  {TEXT}",
        "  A=1",
        "  /dev/nvidia0",
        "container idle sees no devices",
    )


SHARE = dataclasses.replace(
    T4, share=shared.Share("a1", {"memory": "4Gi", "cores": "30"}), time_slice="Long"
)
LIMITED = runtime.View(
    {shared.PIPE: "/tmp/nvidia-mps", shared.PERCENT: "30", shared.MEMORY: "0=4096M"}, (), (), ()
)
UNLIMITED = runtime.View({shared.PIPE: "/tmp/nvidia-mps"}, (), (), ())


def test_the_json_has_shares_and_time_slices():
    [found] = outcome.to_json(shown(pod(claims=(outcome.Claim("c", (SHARE,)),))))["pods"]
    [device] = found["claims"][0]["devices"]
    assert device["share"] == {
        "id": "a1", "consumed": {"memory": "4Gi", "cores": "30"}, "shares": None,
    }  # fmt: skip
    assert device["timeSlice"] == "Long"


def test_a_block_tells_of_shares_time_slices_and_limits():
    body = pod(
        claims=(outcome.Claim("c", (SHARE,)),), containers={"main": LIMITED, "side": UNLIMITED}
    )
    [block] = outcome.to_blocks(shown(body))
    assert block.lines == (
        "claim c",
        "  gpu-0  share of 4Gi, 30 % of Tesla T4  GPU-1  time slice Long",
        "container main sees",
        "  MPS, each process: 30 %, 4Gi",
        "  CUDA_MPS_PIPE_DIRECTORY=/tmp/nvidia-mps",
        "  CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=30",
        "  CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=4096M",
        "container side sees",
        "  MPS, each process: no limits",
        "  CUDA_MPS_PIPE_DIRECTORY=/tmp/nvidia-mps",
    )


def test_the_table_has_a_column_for_sharing_where_a_pod_shares():
    both = {"main": LIMITED, "same": LIMITED, "side": UNLIMITED, "none": VIEW}
    pods = (pod(claims=(outcome.Claim("c", (SHARE, SHARE)),), containers=both), pod("alone"))
    [table] = outcome.to_tables(shown(*pods))
    assert table.columns == ("POD", "PHASE", "NODE", "DEVICES", "SHARING")
    assert [row[3:] for row in table.rows] == [
        ("2x share of 4Gi, 30 % of Tesla T4", "MPS: 30 %, 4Gi; MPS: no limits; time slice Long"),
        ("Tesla T4", "-"),
    ]


def test_a_pod_that_got_nothing_has_no_block():
    assert outcome.to_blocks(shown(WAITING)) == ()


def test_the_table_has_a_row_for_each_pod_and_the_reason_of_those_that_do_not_run():
    more = outcome.Claim("b", (ETH, T4, MIG))
    pods = (
        pod(claims=(outcome.Claim("a", (T4,)), more)),
        pod("done", "Succeeded", claims=()),
        WAITING,
        pod("stuck", "Pending", claims=(), reason=None),
    )
    table, waiting = outcome.to_tables(shown(*pods))
    assert table.columns == ("POD", "PHASE", "NODE", "DEVICES")
    devices = "2x Tesla T4, net.example.com, 1g.10gb of NVIDIA H100"
    assert table.rows == (
        ("team/train", ("Running", "green"), "mixed", devices),
        ("team/done", ("Succeeded", "green"), "mixed", "-"),
        ("team/waiting", ("Unschedulable", "bold red"), "-", "-"),
        ("team/stuck", ("Pending", "bold red"), "mixed", "-"),
    )
    assert waiting.rows == (
        ("team/waiting", "too few"),
        ("team/stuck", "no reason is known"),
    )


def test_tables_without_rows_are_left_out():
    assert [table.title for table in outcome.to_tables(shown(pod()))] == ["Pods"]
    assert outcome.to_tables(shown()) == ()


def manifest(kind="Pod", **annotations):
    metadata = {"name": "train", "namespace": "team", "annotations": annotations or None}
    return {"apiVersion": "v1", "kind": kind, "metadata": metadata}


@pytest.mark.parametrize("expected", outcome.EXPECTATIONS)
def test_what_a_pod_can_become_may_be_expected(expected):
    outcome.check_expectations([manifest(), manifest(**{outcome.EXPECT_ANNOTATION: expected})])


def test_what_no_pod_becomes_is_refused_as_an_expectation():
    pods = [manifest(), manifest(**{outcome.EXPECT_ANNOTATION: "running"})]
    with pytest.raises(errors.Rejected) as refused:
        outcome.check_expectations(pods)
    assert str(refused.value) == (
        "Pod team/train: annotation demo.dra-driver/expect: 'running'; "
        "write one of: Running; Unschedulable; Refused; Unschedulable, then Running"
    )


def test_annotations_of_other_kinds_are_not_looked_at():
    outcome.check_expectations([manifest("ConfigMap", **{outcome.EXPECT_ANNOTATION: "x"})])
