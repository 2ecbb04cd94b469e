"""What the settings have for a GPU."""

import dataclasses

import mig_cards
import pytest

from dra_driver import errors
from dra_driver.logic.offering import per_gpu_rules
from dra_driver.model import mig

DYNAMIC, STATIC, OFF = mig.Mode.DYNAMIC, mig.Mode.STATIC, mig.Mode.OFF
H100, T4 = mig_cards.gpu(mig_cards.H100), mig_cards.gpu(mig_cards.T4)
SECOND = dataclasses.replace(H100, minor=1, index=1)


def attribute(name):
    return f"device.attributes['{mig_cards.DRIVER}'].{name}"


def mode_of(gpu, *rules, default=DYNAMIC, driver=mig_cards.DRIVER):
    return per_gpu_rules.compiled(driver, default, rules).of(gpu)


@pytest.mark.parametrize("mode", mig.Mode)
def test_without_rules_every_gpu_has_the_default(mode):
    assert {mode_of(gpu, default=mode) for gpu in (H100, SECOND, T4)} == {mode}


def test_the_first_rule_that_matches_counts():
    rules = [
        (f"{attribute('minor')} == 1", OFF),
        (f"{attribute('architecture')} == 'Hopper'", STATIC),
        ("true", DYNAMIC),
    ]
    assert [mode_of(gpu, *rules, default=OFF) for gpu in (SECOND, H100, T4)] == [
        OFF, STATIC, DYNAMIC,
    ]  # fmt: skip
    assert mode_of(SECOND, *rules[::-1], default=OFF) is DYNAMIC


def test_a_gpu_that_no_rule_matches_has_the_default():
    assert mode_of(T4, (f"{attribute('architecture')} == 'Hopper'", OFF), default=STATIC) is STATIC


def test_a_rule_sees_the_whole_gpu_as_it_is_published():
    driver = "gpu.example.com"
    expression = (
        f"device.driver == '{driver}' && device.attributes['{driver}'].uuid == '{H100.uuid}' && "
        f"device.capacity['{driver}'].memory.compareTo(quantity('70Gi')) > 0"
    )
    assert mode_of(H100, (expression, OFF), driver=driver) is OFF
    assert mode_of(H100, (expression, OFF)) is DYNAMIC


def test_a_rule_that_has_no_answer_for_a_gpu_is_refused_with_what_to_write():
    rules = [("false", OFF), (f"{attribute('numaNode')} == 1", STATIC)]
    with pytest.raises(errors.Rejected) as caught:
        mode_of(H100, *rules)
    text = str(caught.value)
    assert text.startswith("setting gpus[1].selector: ")
    assert "no such key: numaNode" in text
    assert " for device 'gpu-0'; write " in text
    written = text.partition("; write ")[2]
    assert mode_of(H100, (written, STATIC)) is DYNAMIC
    assert mode_of(dataclasses.replace(H100, numa_node=1), (written, STATIC)) is STATIC


def test_a_rule_without_an_answer_does_not_matter_to_gpus_that_an_earlier_one_matches():
    rules = [(f"{attribute('minor')} == 0", OFF), (f"{attribute('numaNode')} == 1", STATIC)]
    assert mode_of(H100, *rules) is OFF
    with pytest.raises(errors.Rejected):
        mode_of(SECOND, *rules)


def test_a_rule_that_fails_without_a_missing_attribute_is_refused_without_a_remedy():
    with pytest.raises(errors.Rejected) as caught:
        mode_of(H100, (f"1 / {attribute('minor')} > 0", OFF))
    assert str(caught.value).startswith("setting gpus[0].selector: ")
    assert str(caught.value).endswith(" for device 'gpu-0'")


@pytest.mark.parametrize("expression", ["device.", "device.driver", "unknown == 1", "'a' + 1 == 2"])
def test_an_expression_that_is_wrong_is_fatal_and_told_by_its_number(expression):
    with pytest.raises(errors.Fatal) as caught:
        per_gpu_rules.compiled(
            mig_cards.DRIVER, DYNAMIC, [("true", OFF), ("true", OFF), (expression, OFF)]
        )
    assert str(caught.value).startswith("setting gpus[2].selector: ")


def test_a_rule_that_says_nothing_of_the_matter_is_passed_over():
    rules = [("true", None), (f"{attribute('minor')} == 1", OFF)]
    assert [mode_of(gpu, *rules) for gpu in (SECOND, H100)] == [OFF, DYNAMIC]
