"""What a plugin puts in order while it runs, as it would be found on a node."""

import api_cluster
import pytest

from dra_driver.sim.api.serving import options


@pytest.mark.exhaustive
def test_records_specs_and_files_of_dead_instances_are_put_in_order_while_it_runs(
    own_plugin, own_cluster, own_machine
):
    plugin = own_plugin(mig_mode="dynamic").start()
    whole, part = own_cluster.claim("gpu-1"), own_cluster.claim("gpu-0-mig-1g10gb-19-6")
    answers = [plugin.kubelet.prepare(ref) for ref in (whole, part)]
    spec = own_machine.spec_path(part)
    before = spec.read_bytes()
    dead = own_machine.plugin / f"instance-{0:020d}-1"
    away = options.Fault(status=503, reason="ServiceUnavailable")
    with own_cluster.faults.where(lambda _: away):
        own_machine.record_path(whole).write_text("damaged")
        spec.unlink()
        dead.touch()
        plugin.wait_log("record rebuilt", source="CDI spec", claim_uid=whole.uid)
        api_cluster.wait_for(spec.exists, "the spec of a claim")
        api_cluster.wait_for(lambda: not dead.exists(), "the end of a dead instance's file")
    assert spec.read_bytes() == before
    assert [plugin.kubelet.prepare(ref) for ref in (whole, part)] == answers
    for ref in (whole, part):
        plugin.kubelet.unprepare(ref)
    assert [name for name in own_machine.files() if "damaged" not in name] == []
