import pytest
from hypothesis import given
from hypothesis import strategies as st

from dra_driver.logic.doctor import diagnosis
from dra_driver.model import devices, mig, texts

PLUGINS = "/var/lib/kubelet/plugins/gpu.nvidia.com"
NAME = "gpu.nvidia.com"
FINDINGS = st.sampled_from(list(diagnosis.Level)).map(
    lambda level: diagnosis.Finding(level, "check", "/path", "cause", "remedy")
)


def gpu(minor=0, product="Tesla T4", **facts):
    facts = {"driver_version": "580.159.04"} | facts
    return devices.Gpu(minor, minor, f"GPU-{minor}", product, f"0000:0{minor}:00.0", **facts)


def neighbour(name=NAME, endpoint=f"{PLUGINS}/dra.sock"):
    return diagnosis.Neighbour(f"/registry/{name}-reg.sock", name, endpoint)


def named(*found, ours):
    return diagnosis.neighbours(
        found, name=NAME, own_directory=PLUGINS, ours=ours, looked_at="/registry/*.sock"
    )


@given(st.lists(FINDINGS))
def test_a_node_works_as_long_as_there_is_no_problem(findings):
    problems = diagnosis.of_level(findings, diagnosis.Level.PROBLEM)
    assert diagnosis.works(findings) == (not problems)
    assert diagnosis.summary(findings).startswith(f"{len(problems)} problem")


MORE = "... more"


@given(
    st.lists(st.tuples(st.sampled_from(list(diagnosis.Level)), st.text(max_size=300)), max_size=40),
    st.integers(min_value=60, max_value=4096),
)
def test_what_is_told_in_short_is_never_longer_than_it_may_be(told, limit):
    findings = [diagnosis.Finding(level, "check", "/path", text, "mend") for level, text in told]
    text = diagnosis.brief(findings, limit=limit, more=MORE)
    assert len(text.encode()) <= limit
    problems = diagnosis.of_level(findings, diagnosis.Level.PROBLEM)
    lines = [f"{diagnosis.summary(findings)}.", *map(diagnosis.told, problems)]
    whole = texts.printable("\n".join(lines))
    if len(whole.encode()) <= limit:
        assert text == whole
    else:
        head, _, more = text.rpartition("\n")
        assert more == MORE
        assert whole.startswith(head)
        # Nothing is left out that had room: one character has four bytes at most.
        assert len(text.encode()) > limit - 4


def test_what_is_told_in_short_is_printable_and_still_no_longer_than_it_may_be():
    """A character of three bytes that turns the direction of writing is told in six."""
    findings = [diagnosis.problem("check", "/path", "\u202e" * 1000, "mend")]
    text = diagnosis.brief(findings, limit=4096, more=MORE)
    assert len(text.encode()) <= 4096
    assert "\u202e" not in text
    assert text.endswith(MORE)


def test_what_is_told_in_short_is_each_problem_with_its_remedy():
    findings = [
        diagnosis.fine("a", "/a", "is there"),
        diagnosis.problem("b", "/b", "broken", "mend it"),
        diagnosis.note("c", "/c", "so so", "think"),
        diagnosis.problem("d", "/d", "bent", "straighten it"),
    ]
    assert diagnosis.brief(findings, limit=4096, more=MORE).splitlines() == [
        "2 problems, 1 note, 1 fine.",
        "b /b: broken. Remedy: mend it",
        "d /d: bent. Remedy: straighten it",
    ]
    assert diagnosis.hindrance(findings) == "b /b: broken. Remedy: mend it"
    assert diagnosis.hindrance(findings[:1]) is None


def test_findings_are_counted_by_level():
    findings = [
        diagnosis.problem("a", "/a", "broken", "mend it"),
        diagnosis.note("b", "/b", "so so", "think"),
        diagnosis.note("c", "/c", "so so", "think"),
    ]
    assert diagnosis.summary(findings) == "1 problem, 2 notes, 0 fine"
    assert diagnosis.summary([diagnosis.fine("d", "/d", "here")]) == "0 problems, 0 notes, 1 fine"


def test_gpus_are_told_by_product():
    found = devices.Discovery((gpu(0), gpu(1), gpu(2, "NVIDIA L4")))
    assert diagnosis.gpus(found, "NVML") == [
        diagnosis.fine("GPUs", "NVML", "2 x Tesla T4, 1 x NVIDIA L4; driver 580.159.04")
    ]


def test_a_node_without_gpus_is_a_note():
    [finding] = diagnosis.gpus(devices.Discovery(()), "NVML")
    assert finding.level is diagnosis.Level.NOTE
    assert finding.cause == "the driver serves no GPU, so none is offered"
    assert finding.remedy.startswith("lspci -d 10de:")


@pytest.mark.parametrize("others", [(), (gpu(1),)])
def test_a_gpu_that_does_not_answer_is_a_problem_and_is_named(others):
    failed = devices.GpuFailure(0, "GPU-0", "0000:00:00.0", "lost")
    first, *rest = diagnosis.gpus(devices.Discovery(others, (failed,)), "NVML")
    assert first.level is diagnosis.Level.PROBLEM
    assert first.cause == "GPU 0 (GPU-0, 0000:00:00.0): lost"
    assert [finding.level for finding in rest] == [diagnosis.Level.FINE] * len(others)


@pytest.mark.parametrize(
    ("capable", "modes", "expected"),
    [
        (True, (mig.Mode.DYNAMIC,), True),
        (True, (mig.Mode.OFF, mig.Mode.STATIC), True),
        (True, (mig.Mode.OFF,), False),
        (False, (mig.Mode.DYNAMIC,), False),
        (None, (mig.Mode.DYNAMIC,), False),
    ],
)
def test_partitions_need_a_card_that_can_be_cut_and_a_mode_that_lets_it(capable, modes, expected):
    assert diagnosis.partitionable([gpu(0), gpu(1, mig_capable=capable)], modes) is expected


@pytest.mark.parametrize(
    ("hindrance", "needed", "level"),
    [
        (None, True, diagnosis.Level.FINE),
        ("dropped", True, diagnosis.Level.PROBLEM),
        ("dropped", False, diagnosis.Level.NOTE),
    ],
)
def test_counters_that_are_not_taken_matter_where_there_are_partitions(hindrance, needed, level):
    finding = diagnosis.counters(hindrance, looked_at="request", needed=needed)
    assert finding.level is level
    assert ("DRAPartitionableDevices" in finding.remedy) is (hindrance is not None)


PANICS, TWICE = "it panics when a claim asks for All", "it may allocate a partition"


@pytest.mark.parametrize(
    ("release", "shares", "told"),
    [
        ("v1.36.2", True, []),
        ("v1.36.1", False, [PANICS]),
        ("v1.36.0-gke.12", True, [PANICS, TWICE]),
        ("v1.37.0", True, []),
        ("v1.35.5", False, [PANICS]),
        ("v1.35.6+k3s1", False, []),
        # The mend was not taken over to these.
        ("v1.35.9", True, [TWICE]),
        ("v1.34.1", True, [TWICE]),
        ("v1.34.1", False, []),
        ("v1.33.0", True, []),
        ("v2.36.1", True, []),
        ("no version", True, []),
    ],
)
@pytest.mark.parametrize("avoids", [True, False])
def test_releases_whose_scheduler_has_serious_defects_are_told(release, shares, told, avoids):
    found = list(diagnosis.scheduler(release, needed=False, shares=shares, avoids=avoids))
    assert [finding.level for finding in found] == [diagnosis.Level.NOTE for _ in told]
    for finding, beginning in zip(found, told, strict=True):
        assert finding.cause.startswith(beginning)
        assert ("so no partitions" in finding.cause) is avoids
        assert finding.remedy.startswith("Kubernetes 1.3")
        assert ("--scheduler-defects ignore" in finding.remedy) is avoids


@pytest.mark.parametrize(("needed", "level"), [(True, "PROBLEM"), (False, "NOTE")])
def test_partitions_that_are_left_out_are_a_problem_where_there_would_be_some(needed, level):
    found = diagnosis.scheduler("v1.36.1", needed=needed, shares=False, avoids=True)
    assert [finding.level for finding in found] == [diagnosis.Level[level]]


@pytest.mark.parametrize(
    ("found", "ours", "told"),
    [
        ((), False, "nobody else is gpu.nvidia.com"),
        ((neighbour("other.example.com"),), False, "nobody else is gpu.nvidia.com"),
        ((neighbour(),), True, "gpu.nvidia.com is served by this driver"),
        (
            (neighbour(endpoint=f"{PLUGINS}/dra-1.sock"), neighbour()),
            True,
            "gpu.nvidia.com is served by this driver",
        ),
    ],
)
def test_the_name_may_be_served_by_this_driver_and_by_nobody_else(found, ours, told):
    assert named(*found, ours=ours) == [diagnosis.fine("driver name", "/registry/*.sock", told)]


@pytest.mark.parametrize(
    ("endpoint", "ours"), [(f"{PLUGINS}/dra.sock", False), ("/elsewhere/dra.sock", True)]
)
def test_another_plugin_of_that_name_is_a_problem(endpoint, ours):
    [finding] = named(neighbour("other.example.com"), neighbour(endpoint=endpoint), ours=ours)
    assert finding.level is diagnosis.Level.PROBLEM
    assert finding.looked_at == "/registry/gpu.nvidia.com-reg.sock"
    assert endpoint in finding.cause
    assert "--driver-name" in finding.remedy
    # In our directory it may be this very installation, before it has opened its state.
    assert ("its log" in finding.remedy) is endpoint.startswith(PLUGINS)
