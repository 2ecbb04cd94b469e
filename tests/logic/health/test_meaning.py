"""What events and looks mean, and what operators may change of that."""

import mig_cards
import pytest

from dra_driver.logic.health import meaning, xids
from dra_driver.model import devices, health, taints

GPU = devices.GpuUuid("GPU-1")
USUAL = meaning.Policy()


def policy(*effects, evict=()):
    return meaning.Policy(
        tuple(health.parse_effect(text) for text in effects),
        tuple(health.parse_cause(text) for text in evict),
    )


def xid(number, *, spot=None, by=USUAL):
    event = health.Event(health.EventKind.XID, GPU, number)
    found = meaning.of_event(event, spot, by)
    assert found is not None
    return found


def seen(by=USUAL, **facts):
    return meaning.of_facts(GPU, health.Facts(**facts), by)


def said(found):
    return {f"{one.key}={one.value}:{one.effect}" for one in found.findings}


@pytest.mark.parametrize("number", sorted(xids.NEVER_WITHDRAW))
def test_an_xid_of_the_application_only_informs_and_lasts_as_long_as_its_claims(number):
    found = xid(number, by=policy(f"xid={number}:NoSchedule", evict=("xid",)))
    assert (found.effect, found.lasts) == (taints.NONE, health.Lasts.UNTIL_CLAIMS_END)
    assert "the application's; restart the application" in found.message


def test_a_gpu_that_has_fallen_off_the_bus_is_withdrawn_and_its_users_are_told_what_to_do():
    found = xid(79)
    assert found.message == "XID 79: the GPU has fallen off the bus; the node needs a reboot"
    assert (found.key, found.value) == (health.Key.XID, "79")
    assert (found.effect, found.fault) == (taints.NO_SCHEDULE, health.Fault.BUS)
    assert found.lasts is health.Lasts.UNTIL_RECOVERED


def test_an_xid_that_nobody_knows_counts_as_a_fault_of_the_hardware():
    found = xid(9999)
    assert (found.effect, found.fault) == (taints.NO_SCHEDULE, health.Fault.HARDWARE)
    assert found.message.startswith("XID 9999: an error that is not known here")


def test_an_xid_of_an_instance_is_about_its_place():
    place = mig_cards.spot(mig_cards.gpu(mig_cards.H100), "1g.10gb", 2)
    assert xid(48, spot=place).spot == place


@pytest.mark.parametrize(
    ("number", "fault", "effect"),
    [
        (48, "hardware", "NoSchedule"),
        (63, "hardware", "None"),
        (74, "fabric", "NoSchedule"),
        (94, "hardware", "None"),
        (95, "hardware", "NoSchedule"),
        (119, "driver", "NoSchedule"),
        (154, "driver", "None"),
    ],
)
def test_the_table_says_whose_fault_an_xid_is_and_whether_the_card_stays(number, fault, effect):
    assert (xids.of(number).fault, xids.of(number).effect) == (fault, effect)


@pytest.mark.parametrize(
    ("facts", "told"),
    [
        ({"recovery": 0}, set()),
        ({"recovery": 1}, {"recovery=reset:NoSchedule"}),
        ({"recovery": 2}, {"recovery=reboot:NoSchedule"}),
        ({"recovery": 3}, {"recovery=drain:NoSchedule"}),
        ({"recovery": 4}, {"recovery=drain-and-reset:NoSchedule"}),
        ({"recovery": 7}, {"recovery=reboot:NoSchedule"}),
        ({"reset_wanted": True}, {"recovery=reset:NoSchedule"}),
        ({"drain_and_reset_wanted": True}, {"recovery=drain-and-reset:NoSchedule"}),
        ({"recovery": 0, "reset_wanted": True}, {"recovery=reset:NoSchedule"}),
        ({"remap_pending": True, "remap_failed": False}, {"memory=remap-pending:NoSchedule"}),
        ({"remap_pending": False, "remap_failed": True}, {"memory=remap-failed:NoSchedule"}),
        ({"retired_pages": 59}, set()),
        ({"retired_pages": 60}, {"memory=remap-failed:NoSchedule"}),
        ({"retirement_pending": True}, {"memory=remap-pending:NoSchedule"}),
        ({"uncorrectable_ecc": 2, "remap_pending": False}, {"memory=ecc:None"}),
        ({"uncorrectable_ecc": 2}, {"memory=ecc:NoSchedule"}),
        ({"thermal_slowdown": True}, {"thermal=slowdown:None"}),
        ({"power_brake": True}, {"thermal=power-brake:None"}),
        ({"fabric": health.Fabric(0)}, set()),
        ({"fabric": health.Fabric(2)}, {"fabric=not-ready:None"}),
        ({"fabric": health.Fabric(3)}, set()),
        ({"fabric": health.Fabric(3, status=999)}, {"fabric=failed:NoSchedule"}),
        ({"fabric": health.Fabric(3, health=0x1AA)}, set()),
        ({"fabric": health.Fabric(3, health=0x1A9)}, {"fabric=degraded-bandwidth:None"}),
        ({"fabric": health.Fabric(3, health=0x19A)}, {"fabric=route-unhealthy:NoSchedule"}),
        ({"fabric": health.Fabric(3, health=0x4AA)}, {"fabric=configuration:NoSchedule"}),
        ({"links_down": ()}, set()),
        ({"links_down": (3, 7)}, {"fabric=link-down:None"}),
    ],
)
def test_each_fact_means_one_thing(facts, told):
    assert said(seen(**facts)) == told


def test_a_recovery_that_is_not_known_counts_as_drain_and_reset_and_is_told():
    found = seen(recovery=42)
    assert said(found) == {"recovery=drain-and-reset:NoSchedule"}
    assert "recovery action 42, which is not known here" in found.findings[0].message
    assert found.is_recovered is False


@pytest.mark.parametrize(
    ("facts", "is_recovered"),
    [
        ({}, None),
        ({"recovery": 0}, True),
        ({"recovery": 1}, False),
        ({"recovery": 0, "drain_and_reset_wanted": True}, False),
        ({"recovery": 0, "unread": {"recovery": "NVML error 999"}}, None),
        ({"is_lost": True}, False),
    ],
)
def test_a_card_is_recovered_where_the_driver_wants_nothing_done(facts, is_recovered):
    assert seen(**facts).is_recovered is is_recovered


def test_of_what_could_not_be_read_a_look_says_nothing():
    found = seen(unread={"fabric": "NVML error 999", "links_down": "NVML error 999"})
    assert found.unknown == {health.Key.FABRIC, *meaning.UNSEEN}


def test_of_a_lost_gpu_only_that_is_known():
    found = seen(is_lost=True, remap_pending=True)
    assert said(found) == {"gpu-lost=:NoSchedule"}
    assert {health.Key.MEMORY, health.Key.XID, health.Key.RECOVERY} <= found.unknown


def test_while_the_driver_does_not_answer_nothing_else_is_known():
    found = meaning.of_absence(GPU, "it is not loaded", USUAL)
    assert said(found) == {"driver=:NoSchedule"}
    assert health.Key.GPU_LOST in found.unknown
    assert found.is_recovered is None


def test_settings_change_effects_and_the_value_comes_before_the_key():
    by = policy("memory:None", "memory=remap-failed:NoSchedule", "thermal:NoSchedule")
    facts = {"remap_pending": True, "remap_failed": True, "thermal_slowdown": True}
    assert said(seen(by, **facts)) == {
        "memory=remap-pending:None",
        "memory=remap-failed:NoSchedule",
        "thermal=slowdown:NoSchedule",
    }


def test_pods_are_evicted_for_the_reasons_that_are_set_and_only_where_a_device_is_withdrawn():
    by = policy("memory=ecc:None", evict=("recovery", "memory", "xid=79"))
    facts = {"recovery": 1, "remap_pending": True, "uncorrectable_ecc": 1, "links_down": (1,)}
    assert said(seen(by, **facts)) == {
        "recovery=reset:NoExecute",
        "memory=remap-pending:NoExecute",
        "memory=ecc:None",
        "fabric=link-down:None",
    }
    assert (xid(79, by=by).effect, xid(48, by=by).effect) == ("NoExecute", "NoSchedule")


@pytest.mark.parametrize(
    "kind",
    [
        health.EventKind.DOUBLE_BIT_ECC,
        health.EventKind.DRAM_RETIREMENT,
        health.EventKind.RECOVERY_ACTION,
    ],
)
def test_events_that_a_look_explains_better_mean_nothing_by_themselves(kind):
    assert meaning.of_event(health.Event(kind, GPU), None, USUAL) is None


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        (health.EventKind.SINGLE_BIT_ECC_STORM, "memory=ecc:None"),
        (health.EventKind.DRAM_RETIREMENT_FAILURE, "memory=remap-failed:NoSchedule"),
        (health.EventKind.NON_FATAL_POISON, "memory=ecc:None"),
        (health.EventKind.FATAL_POISON, "memory=ecc:NoSchedule"),
        (health.EventKind.GPU_UNAVAILABLE, "gpu-lost=:NoSchedule"),
    ],
)
def test_other_events_last_until_the_card_is_recovered(kind, told):
    found = meaning.of_event(health.Event(kind, GPU), None, USUAL)
    assert f"{found.key}={found.value}:{found.effect}" == told
    assert found.lasts is health.Lasts.UNTIL_RECOVERED


def test_of_a_gpu_that_cannot_even_be_found_nothing_is_known_to_be_gone():
    seen = meaning.of_facts(GPU, health.Facts(unread={"is_lost": "Unknown Error"}), USUAL)
    assert seen == meaning.Seen((), frozenset(health.Key), None)


def test_a_fact_that_could_not_be_read_leaves_what_is_known_of_the_others():
    seen = meaning.of_facts(GPU, health.Facts(recovery=0, unread={"fabric": "x"}), USUAL)
    unknown = frozenset({health.Key.FABRIC, *meaning.UNSEEN})
    assert seen == meaning.Seen((), unknown, is_recovered=True)
