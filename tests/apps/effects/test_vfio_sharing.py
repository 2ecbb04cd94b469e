"""GPUs for virtual machines beside MPS and its daemons."""

import pytest
import sharing_claims

from dra_driver import errors

MPS = sharing_claims.mps_gpu(defaultActiveThreadPercentage=30)


def test_a_card_that_an_mps_daemon_serves_still_is_not_handed_over(host, users):
    ref = users.give("gpu-0", configs=[MPS])
    host.prepare(ref)
    [domain] = host.daemons()
    # The claim is gone, and its daemon is not yet.
    host.store.records.remove(ref.uid)
    vm = users.give("gpu-vfio-0")
    with pytest.raises(errors.Retryable) as caught:
        host.prepare(vm, seconds=0.1)
    assert f"MPS daemon {domain} serves {host.uuid()} still" in str(caught.value)
    assert host.driver(0) == "nvidia"


def test_beside_a_card_with_a_daemon_another_one_is_handed_over_and_comes_back(host, users):
    ref, vm = users.give("gpu-0", configs=[MPS]), users.give("gpu-vfio-1")
    host.prepare(ref)
    host.prepare(vm)
    assert (host.driver(0), host.driver(1)) == ("nvidia", "vfio-pci")
    assert host.gets(ref, "gpu-0")[0] == 30
    host.unprepare(vm)
    assert host.gets(ref, "gpu-0")[0] == 30
    host.unprepare(ref)
    assert host.is_clean()
