"""Settings of health: what withdraws a GPU, what ends pods, and what is done about it."""

import pytest
import yaml

from dra_driver import errors, settings

Plugin = settings.KubeletPlugin
NODE = {"NODE_NAME": "node-1"}


def resolve(*, file=None, environment=NODE, **flags):
    return settings.resolve(Plugin, file=file, environment=environment, flags=flags)


def refusal(**sources):
    with pytest.raises(errors.Fatal) as caught:
        resolve(**sources)
    return str(caught.value)


@pytest.mark.parametrize(
    "text",
    ["xid=94:NoSchedule", "thermal:NoSchedule", "memory=remap-pending:None", "gpu-lost:None"],
)
def test_an_effect_is_of_a_key_or_of_a_value_of_it(text):
    assert resolve(health_effects=text).health_effects == (text,)
    assert resolve(file={"healthEffects": [text, "xid=1:None"]}).health_effects == (
        text,
        "xid=1:None",
    )


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            "xid=94",
            (
                "'xid=94': write KEY:EFFECT or KEY=VALUE:EFFECT, where EFFECT is None or "
                "NoSchedule; what ends pods is set by --health-evict"
            ),
        ),
        (
            "xid=94:NoExecute",
            (
                "'xid=94:NoExecute': write KEY:EFFECT or KEY=VALUE:EFFECT, where EFFECT is None or "
                "NoSchedule; what ends pods is set by --health-evict"
            ),
        ),
        (
            "xids:None",
            (
                "'xids': 'xids' is not one of gpu-lost, xid, recovery, memory, driver, fabric, "
                "thermal, unmonitored, passthrough"
            ),
        ),
        ("xid=0x4f:None", "'xid=0x4f': an XID is a number, as in xid=79"),
        (
            "memory=gone:None",
            (
                "'memory=gone': memory: its values are remap-pending, remap-failed, ecc; memory "
                "alone means all of it"
            ),
        ),
        ("driver=x:None", "'driver=x': driver: it has no values; driver alone means all of it"),
    ],
)
def test_another_effect_is_refused_with_what_is_allowed(text, problem):
    told = refusal(health_effects=f"thermal:None,{text}")
    assert told.startswith("flag --health-effects, at [1]: ")
    assert told.endswith(problem)


@pytest.mark.parametrize("text", ["recovery", "gpu-lost", "xid=79", "memory=ecc"])
def test_what_ends_pods_is_a_key_or_a_value_of_it(text):
    assert resolve(health_evict=text).health_evict == (text,)


def test_what_ends_pods_has_no_effect_of_its_own():
    told = refusal(environment=NODE | {"DRA_DRIVER_HEALTH_EVICT": "recovery:NoExecute"})
    assert told.startswith("environment variable DRA_DRIVER_HEALTH_EVICT, at [0]: ")
    assert "'recovery:NoExecute' is not one of gpu-lost, xid, recovery, " in told


@pytest.mark.parametrize(("text", "seconds"), [("0", 0.0), ("0.5", 0.5), ("3600", 3600.0)])
def test_a_hold_is_up_to_an_hour(text, seconds):
    assert resolve(health_hold_seconds=text).health_hold_seconds == seconds


@pytest.mark.parametrize("text", ["-1", "3601", "soon", "inf", "nan"])
def test_a_hold_is_no_less_and_no_more(text):
    assert refusal(health_hold_seconds=text).startswith(f"flag --health-hold-seconds: {text!r}: ")


def test_recovery_is_off_or_by_reset():
    assert resolve(recovery="reset").recovery == "reset"
    assert resolve(file=yaml.safe_load("recovery: off")).recovery == "off"
    assert refusal(recovery="reboot") == (
        "flag --recovery: 'reboot': Input should be 'off' or 'reset'"
    )


@pytest.mark.parametrize("name", ["GPUNeedsReboot", "gpu.needs_re-boot", "R", "a" * 63, ""])
def test_a_condition_of_the_node_has_a_name_or_there_is_none(name):
    assert resolve(reboot_condition=name).reboot_condition == name


@pytest.mark.parametrize("name", ["needs reboot", "-R", "R.", "a" * 64, "x/y"])
def test_a_condition_s_name_is_one_that_kubernetes_takes(name):
    assert refusal(reboot_condition=name) == (
        f"flag --reboot-condition: {name!r}: allowed are letters and digits, and inside hyphens, "
        "dots and underscores; at most 63"
    )
