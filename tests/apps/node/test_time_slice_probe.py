"""Which GPUs have time slices: asked of the driver, once for each."""

import dataclasses

import mig_cards
import pytest

from dra_driver import errors
from dra_driver.apps.node import time_slice_probe

H100 = mig_cards.gpu(mig_cards.H100)
OTHER = dataclasses.replace(H100, index=1, minor=1, uuid="GPU-1")
OLD = dataclasses.replace(H100, index=2, minor=2, uuid="GPU-2", compute_capability=(6, 0))


class Driver:
    """Answers which of the GPUs have some."""

    def __init__(self, *able):
        self.able, self.asked, self.error = able, [], None

    def __call__(self, uuids):
        self.asked.append(list(uuids))
        if self.error is not None:
            raise self.error
        return [uuid for uuid in uuids if uuid in self.able]


def known(probe, *gpus):
    return [gpu.time_slices for gpu in probe.filled(gpus)]


def test_each_gpu_is_asked_about_once():
    driver = Driver(H100.uuid)
    probe = time_slice_probe.Probe(driver)
    assert known(probe, H100, OTHER) == [True, False]
    assert known(probe, H100, OTHER) == [True, False]
    assert driver.asked == [[H100.uuid, OTHER.uuid]]
    newer = dataclasses.replace(OTHER, driver_version="999.1")
    driver.able = (OTHER.uuid,)
    assert known(probe, H100, newer) == [True, True]
    assert driver.asked[1:] == [[OTHER.uuid]]


def test_one_too_old_is_not_asked_about():
    driver = Driver()
    assert known(time_slice_probe.Probe(driver), OLD) == [None]
    assert driver.asked == []


@pytest.mark.parametrize("error", [errors.Retryable("it hangs"), errors.Rejected("it says mu")])
def test_a_question_that_fails_leaves_it_unknown_and_is_not_asked_again(error):
    driver = Driver()
    driver.error = error
    probe = time_slice_probe.Probe(driver)
    assert known(probe, H100) == [None]
    assert known(probe, H100) == [None]
    assert driver.asked == [[H100.uuid]]
