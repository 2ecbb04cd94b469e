"""What the CDI spec of a claim tells of its MPS daemons, where nothing else does."""

import pytest
import sharing_claims

from dra_driver.logic.preparing import cdi, mps_edits
from dra_driver.model import prepared

pytestmark = pytest.mark.sampled(7)

GPU, OTHER_GPU, PARTITION = sharing_claims.GPU, sharing_claims.OTHER_GPU, sharing_claims.PARTITION
LIMITS = {"defaultActiveThreadPercentage": 30, "defaultPinnedDeviceMemoryLimit": "4Gi"}


def recalled(node, ref):
    text = (node.cdi / node.cdi_name(ref)).read_text(encoding="utf-8")
    gpus = {GPU: node.uuid(0), OTHER_GPU: node.uuid(1)}
    return mps_edits.recalled(node.record(ref).devices, cdi.edits(ref.uid, text), gpus)


@pytest.mark.parametrize(
    ("devices", "config"),
    [
        ([GPU], sharing_claims.mps_gpu()),
        ([GPU], sharing_claims.mps_gpu(**LIMITS)),
        ([GPU], sharing_claims.mps_gpu(domain="Namespace", maxClients=2, **LIMITS)),
        ([GPU, OTHER_GPU], sharing_claims.mps_gpu(**LIMITS)),
        ([PARTITION], sharing_claims.mps_mig(**LIMITS)),
    ],
    ids=["without limits", "with limits", "by namespace", "two cards", "partition"],
)
def test_the_daemon_of_a_config_is_recalled_as_it_was_set_up(host, users, devices, config):
    ref = users.give(*devices, configs=[config])
    host.prepare(ref)
    assert host.record(ref).sharing.mps
    assert recalled(host, ref) == host.record(ref).sharing


def test_each_share_is_recalled_with_its_own_limits(shared_host, users):
    ref = users.give(
        sharing_claims.share(memory=10, cores=20), sharing_claims.share(memory=5, cores=30)
    )
    shared_host.prepare(ref)
    assert len(shared_host.record(ref).sharing.mps) == 2
    assert recalled(shared_host, ref) == shared_host.record(ref).sharing


@pytest.mark.parametrize("configs", [[], [sharing_claims.time_slicing("Long")]])
def test_a_claim_without_a_daemon_has_none(host, users, configs):
    ref = users.give(GPU, configs=configs)
    host.prepare(ref)
    assert recalled(host, ref) == prepared.Sharing()
