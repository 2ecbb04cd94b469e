"""How slices are written for a cluster: as its API server takes, and its scheduler survives."""

import json

import api_cluster
import pytest
import structlog

from dra_driver.adapters.kube import kube
from dra_driver.apps.node import slice_form
from dra_driver.logic.offering import hazards, publishing
from dra_driver.sim.api.serving import options

LISTS = frozenset({"DRAListTypeAttributes"})
OWNER = publishing.Owner(api_cluster.DRIVER, api_cluster.NODE, "uid-1")
SPLIT, PLAIN = publishing.Layout.SPLIT, publishing.Layout.PLAIN
PARTITION = "gpu-0-mig-1g10gb-19-0"


@pytest.fixture
def form_of():
    """Makes servers; how slices are to be written for one."""
    made = []

    def make(version, *, avoids=True, shared=False, **options):
        made.append(api_cluster.Cluster(kubernetes_version=version, **options))
        form = slice_form.SliceForm(made[-1].client, avoids=avoids, shared=shared)
        return form.get(OWNER, "v1")

    yield make
    for cluster in made:
        cluster.close()


@pytest.mark.parametrize(
    ("version", "gates", "lists"),
    [
        ("v1.37.0", LISTS, True),
        ("v1.37.0", frozenset(), False),
        # Its schedulers fail at a device with a list.
        ("v1.36.2", LISTS, False),
    ],
)
def test_lists_are_published_where_the_server_keeps_them_and_schedulers_cope(
    form_of, version, gates, lists
):
    assert form_of(version, enabled_gates=gates) == publishing.Form(SPLIT, lists=lists)


def test_a_server_that_goes_away_between_two_questions_is_asked_again(own_cluster):
    own_cluster.upgrade(kubernetes_version="v1.37.0", enabled_gates=LISTS)
    form = slice_form.SliceForm(own_cluster.client, avoids=True, shared=False)
    asked = []

    def away(call):
        asked.extend([call.verb] if call.verb == "create" else ())
        return options.Fault(status=503, reason="ServiceUnavailable") if len(asked) > 1 else None

    with own_cluster.faults.where(away), pytest.raises(kube.Unavailable):
        form.get(OWNER, "v1")
    assert form.get(OWNER, "v1") == publishing.Form(SPLIT, lists=True)


def test_a_scheduler_that_counters_stop_gets_none(form_of):
    form = form_of("v1.36.1")
    assert form.layout is PLAIN
    assert form.reason == f"kube-scheduler v1.36.1 {hazards.PANICS}"


@pytest.mark.parametrize(("shared", "beside"), [(True, False), (False, True)])
def test_one_that_does_not_count_shares_beside_partitions_gets_one_of_the_two(
    form_of, shared, beside
):
    gates = frozenset({"DRAPartitionableDevices"})
    form = form_of("v1.35.6", shared=shared, enabled_gates=gates)
    assert form == publishing.Form(SPLIT, beside_shares=beside)


def test_a_setting_insists(form_of):
    assert form_of("v1.36.0", avoids=False, shared=True) == publishing.Form(SPLIT)


def test_after_doubt_another_release_counts(own_cluster):
    own_cluster.upgrade(kubernetes_version="v1.36.1")
    form = slice_form.SliceForm(own_cluster.client, avoids=True, shared=False)
    assert form.get(OWNER, "v1").layout is PLAIN
    own_cluster.upgrade(kubernetes_version="v1.36.2")
    assert form.get(OWNER, "v1").layout is PLAIN
    form.doubt()
    assert form.get(OWNER, "v1") == publishing.Form(SPLIT)


def test_a_release_with_defects_is_asked_again_after_a_while(own_cluster, monkeypatch):
    own_cluster.upgrade(kubernetes_version="v1.36.1")
    form = slice_form.SliceForm(own_cluster.client, avoids=True, shared=False)
    assert form.get(OWNER, "v1").layout is PLAIN
    own_cluster.upgrade(kubernetes_version="v1.36.2")
    monkeypatch.setattr(slice_form, "ASK_AGAIN", 0.0)
    assert form.get(OWNER, "v1") == publishing.Form(SPLIT)
    own_cluster.upgrade(kubernetes_version="v1.36.1")
    # One without defects is not.
    assert form.get(OWNER, "v1") == publishing.Form(SPLIT)


def test_a_defect_is_told_once_of_a_release(own_cluster):
    form = slice_form.SliceForm(own_cluster.client, avoids=True, shared=True)
    with structlog.testing.capture_logs() as lines:
        for version in ("v1.36.0", "v1.36.1", "v1.36.0"):
            own_cluster.upgrade(kubernetes_version=version)
            form.doubt()
            for _ in range(2):
                form.get(OWNER, "v1")
    told = [line["event"].split(" panics")[0] for line in lines]
    assert told == ["kube-scheduler v1.36.0", "kube-scheduler v1.36.1"]


def test_settings_that_make_no_instances_have_nothing_to_leave_out(own_cluster):
    own_cluster.upgrade(kubernetes_version="v1.36.1")
    form = slice_form.SliceForm(own_cluster.client, avoids=True, shared=True, cut=False)
    with structlog.testing.capture_logs() as lines:
        assert form.get(OWNER, "v1") == publishing.Form(SPLIT)
    assert lines == []


def published(cluster, *names):
    """The devices that are published, by name, once these are among them."""

    def found():
        there = {
            one["name"]: one
            for piece in cluster.slices()
            for one in piece["spec"].get("devices") or ()
        }
        return there if there.keys() >= {*names} else None

    return api_cluster.wait_for(found, f"{names} to be published")


@pytest.mark.parametrize(
    ("setting", "partitions", "told"),
    [
        ("avoid", False, "partitions are not offered"),
        ("ignore", True, "it is published all the same (--scheduler-defects)"),
    ],
)
def test_the_plugin_leaves_out_what_stops_a_scheduler_and_says_so(
    own_plugin, own_cluster, setting, partitions, told
):
    own_cluster.upgrade(kubernetes_version="v1.36.1")
    plugin = own_plugin(
        mig_mode="dynamic", gpus="h100-80gb-hbm3:1", scheduler_defects=setting
    ).start()

    assert (PARTITION in published(own_cluster, "gpu-0")) is partitions
    [line] = plugin.log(f"kube-scheduler v1.36.1 {hazards.PANICS}: {told}")
    assert line["least_safe_release"] == "1.36.2"


def test_a_cluster_that_is_upgraded_under_the_plugin_gets_what_was_left_out(
    own_plugin, own_cluster
):
    own_cluster.upgrade(kubernetes_version="v1.36.1")
    own_plugin(mig_mode="dynamic", gpus="h100-80gb-hbm3:1").start()
    assert PARTITION not in published(own_cluster, "gpu-0")
    own_cluster.upgrade(kubernetes_version="v1.36.2")
    published(own_cluster, "gpu-0", PARTITION)


def test_of_a_card_with_shares_no_partitions_are_published_where_they_are_not_counted(
    own_plugin, own_cluster
):
    own_cluster.upgrade(
        kubernetes_version="v1.35.6",
        enabled_gates=frozenset({"DRAPartitionableDevices", "DRAConsumableCapacity"}),
    )
    second = "device.attributes['gpu.nvidia.com'].index == 1"
    rules = json.dumps([{"selector": second, "shares": "memory"}])
    own_plugin(
        mig_mode="dynamic", gpus="h100-80gb-hbm3:2", environment={"DRA_DRIVER_GPUS": rules}
    ).start()

    found = published(own_cluster, "gpu-0", "gpu-1")
    assert PARTITION in found
    assert not [name for name in found if name.startswith("gpu-1-mig-")]
    assert found["gpu-1"]["allowMultipleAllocations"] is True
    assert "consumesCounters" not in found["gpu-1"]
