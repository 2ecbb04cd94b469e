"""Settings of sharing: how devices are divided, who holds the limits, memory of MPS daemons."""

import pytest
import yaml

from dra_driver import errors, settings
from dra_driver.model import mig, shares

Plugin = settings.KubeletPlugin
NODE = {"NODE_NAME": "node-1"}


def resolve(*, file=None, environment=NODE, **flags):
    return settings.resolve(Plugin, file=file, environment=environment, flags=flags)


def refusal(**sources):
    with pytest.raises(errors.Fatal) as caught:
        resolve(**sources)
    return str(caught.value)


@pytest.mark.parametrize("text", ["off", "memory", "1", "4", "100"])
def test_a_division_is_off_memory_or_a_number(text):
    assert resolve(shares=text).shares == text
    assert resolve(file={"shares": text}).shares == text
    assert resolve(environment=NODE | {"DRA_DRIVER_SHARES": text}).shares == text
    rule = resolve(file={"gpus": [{"selector": "true", "shares": text}]}).gpus[0]
    assert (rule.shares, rule.mig_mode) == (text, None)


@pytest.mark.parametrize(("written", "text"), [("4", "4"), ("off", "off"), ("memory", "memory")])
def test_a_file_of_settings_may_say_it_without_quotes(written, text):
    file = yaml.safe_load(f"shares: {written}\ngpus: [{{selector: 'true', shares: {written}}}]")
    found = resolve(file=file)
    assert (found.shares, found.gpus[0].shares) == (text, text)


@pytest.mark.parametrize("text", ["", "0", "101", "on", "Memory", "4.0"])
def test_another_division_is_refused_with_what_is_allowed(text):
    problem = f"{text!r}: allowed are off, memory, and a number from 1 to 100"
    assert refusal(shares=text).endswith(problem)
    told = refusal(file={"gpus": [{"selector": "true", "shares": text}]})
    assert told.startswith("gpus in the settings file, at [0].shares: ")
    assert told.endswith(problem)


def test_a_rule_may_say_everything_and_has_to_say_something():
    rule = {
        "selector": "true", "migMode": "off", "shares": "memory", "shareEnforcement": "None",
        "vfio": "only",
    }  # fmt: skip
    (found,) = resolve(file={"gpus": [rule]}).gpus
    assert (found.mig_mode, found.shares, found.vfio) == (mig.Mode.OFF, "memory", "only")
    assert found.share_enforcement is shares.Enforcement.NONE
    text = refusal(file={"gpus": [{"selector": "true"}]})
    assert text.endswith("a rule needs migMode, shares, shareEnforcement or vfio")


def test_limits_are_held_by_mps_or_by_nobody():
    assert resolve(share_enforcement="None").share_enforcement is shares.Enforcement.NONE
    assert resolve(share_enforcement="MPS").share_enforcement is shares.Enforcement.MPS
    assert "'MPS' or 'None'" in refusal(share_enforcement="none")


@pytest.mark.parametrize("text", ["1Mi", "64Mi", "1Gi", "2G"])
def test_the_memory_of_a_daemon_is_a_quantity(text):
    assert resolve(mps_shm_size=text).mps_shm_size == text


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("1023Ki", "at least 1Mi is needed"),
        ("1", "at least 1Mi is needed"),
        ("-1Gi", "more than 0 is needed"),
        ("large", "quantity 'large' is not a number with an optional suffix"),
        ("1GB", "quantity '1GB' is not a number with an optional suffix"),
    ],
)
def test_too_little_memory_or_no_quantity_is_refused(text, problem):
    told = refusal(mps_shm_size=text)
    assert told.startswith(f"flag --mps-shm-size: {text!r}: ")
    assert problem in told


@pytest.mark.parametrize(("vfio", "cuts"), [("off", False), ("on", True), ("only", False)])
def test_gpus_for_virtual_machines_too_are_had_in_ways_that_exclude_each_other(vfio, cuts):
    assert resolve(vfio=vfio, mig_mode="off").cuts_any is cuts
    rules = [{"selector": "true", "vfio": vfio}]
    assert resolve(file={"gpus": rules, "migMode": "off"}).cuts_any is cuts
