"""One claim after another: what the kubelet is answered, and what is on disk then."""

import threading

import api_cluster
import plugin_process
import plugin_victim
import pytest

from dra_driver.adapters.kube import kube
from dra_driver.model import claims, prepared


@pytest.fixture
def checks(machine, cluster):
    return plugin_victim.Checks(machine, cluster)


def test_a_claim_gets_its_device_a_record_and_a_spec(kubelet, cluster, checks):
    ref = cluster.claim("gpu-1")
    assert kubelet.prepare(ref) == [plugin_process.device(ref, "gpu-1")]
    checks.is_prepared(ref, "gpu-1")


def test_a_claim_prepared_again_gets_the_same_and_nothing_is_written(kubelet, cluster, machine):
    ref = cluster.claim("gpu-0", "gpu-1")
    first = kubelet.prepare(ref)
    paths = [machine.record_path(ref), machine.spec_path(ref)]
    before = [_written(path) for path in (*paths, machine.records, machine.cdi)]
    assert kubelet.prepare(ref) == first
    assert [_written(path) for path in (*paths, machine.records, machine.cdi)] == before


def test_a_spec_that_is_gone_is_written_again_by_the_next_prepare(
    kubelet, cluster, machine, checks
):
    ref = cluster.claim("gpu-0")
    kubelet.prepare(ref)
    machine.spec_path(ref).unlink()
    kubelet.prepare(ref)
    checks.is_prepared(ref, "gpu-0")


def test_files_of_claims_can_be_read_by_whom_they_are_for(kubelet, cluster, machine):
    ref = cluster.claim("gpu-0")
    kubelet.prepare(ref)
    assert machine.record_path(ref).stat().st_mode & 0o777 == 0o600
    assert machine.spec_path(ref).stat().st_mode & 0o777 == 0o644


def test_an_unprepare_takes_everything_away_and_works_again_and_again(kubelet, cluster, checks):
    ref = cluster.claim("gpu-0")
    kubelet.prepare(ref)
    for _ in range(2):
        kubelet.unprepare(ref)
        checks.is_free()


def test_an_unprepare_does_not_ask_the_api_server(kubelet, cluster, checks):
    ref = cluster.claim("gpu-0")
    kubelet.prepare(ref)
    # What is told of the claim's devices is written at its own pace.
    api_cluster.wait_for(
        lambda: cluster.client.get(kube.CLAIMS, ref.name, ref.namespace)["status"].get("devices"),
        "status.devices",
    )
    cluster.delete_claim(ref)
    before = len(cluster.faults.calls)
    kubelet.unprepare(ref)
    checks.is_free()
    asked = [call for call in cluster.faults.calls[before:] if call.subresource != "status"]
    assert [call for call in asked if call.resource == "resourceclaims"] == []


def test_an_unprepare_of_a_claim_that_nobody_knows_is_fine(kubelet, checks):
    kubelet.unprepare(claims.ClaimRef("nowhere", "unknown", claims.ClaimUid("0-unknown")))
    checks.is_free()


def test_v1beta1_is_answered_like_v1(kubelet, cluster):
    ref = cluster.claim("gpu-0")
    answer = kubelet.prepare(ref, version="v1beta1.DRAPlugin")
    assert answer == [plugin_process.device(ref, "gpu-0")]


def test_two_results_on_one_device_are_one_device_for_both_requests(kubelet, cluster, checks):
    ref = cluster.claim(
        {"device": "gpu-0", "request": "a"},
        {"device": "gpu-0", "request": "b", "adminAccess": True},
        {"device": "gpu-1", "request": "b", "adminAccess": True},
        namespace=api_cluster.ADMIN_NAMESPACE,
    )
    assert kubelet.prepare(ref) == [
        plugin_process.device(ref, "gpu-0", "a", "b"),
        plugin_process.device(ref, "gpu-1", "b", is_first=False),
    ]
    assert checks.machine.spec(ref) == checks.spec(ref, "gpu-0", "gpu-1")


def test_the_alternative_of_a_request_is_answered_by_the_name_of_the_request(kubelet, cluster):
    ref = cluster.claim({"device": "gpu-1", "request": "gpu/small"})
    assert kubelet.prepare(ref) == [plugin_process.device(ref, "gpu-1", "gpu")]


def test_devices_of_other_drivers_are_theirs(kubelet, cluster, checks):
    other = {"driver": "nic.example.com", "pool": "elsewhere", "device": "nic-0", "request": "nic"}
    mixed = cluster.claim(other, "gpu-0")
    foreign = cluster.claim(other)
    assert kubelet.prepare(mixed) == [plugin_process.device(mixed, "gpu-0")]
    assert kubelet.prepare(foreign) == []
    checks.is_prepared(mixed, "gpu-0")
    kubelet.unprepare(foreign)
    checks.is_prepared(mixed, "gpu-0")


def test_admin_access_works_while_the_device_is_held_and_holds_nothing(kubelet, cluster):
    admin_result = {"device": "gpu-0", "adminAccess": True}
    user = cluster.claim("gpu-0")
    admins = [cluster.claim(admin_result, namespace=api_cluster.ADMIN_NAMESPACE) for _ in range(2)]
    kubelet.prepare(admins[0])
    kubelet.prepare(user)
    kubelet.prepare(admins[1])
    kubelet.unprepare(admins[0])
    assert "gpu-0" in kubelet.refusal(cluster.claim("gpu-0"))


def test_a_device_that_another_allocated_claim_has_is_refused_with_its_name(
    kubelet, cluster, checks
):
    holder, second = cluster.claim("gpu-0"), cluster.claim("gpu-0")
    kubelet.prepare(holder)
    assert kubelet.refusal(second) == (
        f"claim {second}: device 'gpu-0' is prepared for claim {holder}, which is allocated to it "
        "too. Delete the pods of one of the two claims"
    )
    checks.is_prepared(holder, "gpu-0")


def _gone(cluster, holder):
    cluster.delete_claim(holder)


def _made_again(cluster, holder):
    cluster.delete_claim(holder)
    cluster.claim("gpu-0", name=holder.name)


def _freed(cluster, holder):
    cluster.reallocate(holder)


def _moved(cluster, holder):
    cluster.reallocate(holder, "gpu-1")


@pytest.mark.parametrize("leave", [_gone, _made_again, _freed, _moved])
def test_a_device_that_its_holder_is_about_to_give_back_is_waited_for(
    kubelet, cluster, checks, plugin, leave
):
    holder, second = cluster.claim("gpu-0"), cluster.claim("gpu-0")
    kubelet.prepare(holder)
    leave(cluster, holder)
    answers = []
    waiting = threading.Thread(target=lambda: answers.append(kubelet.prepare(second)))
    waiting.start()
    plugin.wait_log("waiting", component="preparer", claim_uid=second.uid)
    assert answers == []
    kubelet.unprepare(holder)
    waiting.join(api_cluster.DEADLINE)
    assert answers == [[plugin_process.device(second, "gpu-0")]]
    checks.is_prepared(second, "gpu-0")


def test_a_device_that_is_not_given_back_in_time_is_an_error_that_names_the_holder(
    kubelet, cluster, checks
):
    holder, second = cluster.claim("gpu-0"), cluster.claim("gpu-0")
    kubelet.prepare(holder)
    cluster.delete_claim(holder)
    error = kubelet.refusal(second, timeout=4)
    assert error == (
        f"claim {second}: device 'gpu-0' is still prepared for claim {holder}, whose pod has not "
        "ended on this node yet"
    )
    checks.is_prepared(holder, "gpu-0")


def test_a_claim_that_was_made_again_under_its_name_is_refused(kubelet, cluster, checks):
    old = cluster.claim("gpu-0")
    cluster.delete_claim(old)
    new = cluster.claim("gpu-0", name=old.name)
    assert kubelet.refusal(old) == (
        f"claim default/{old.name} has UID {new.uid}, not {old.uid}: it was deleted and made "
        "again. The pod has to be made again too"
    )
    checks.is_free()


def test_a_claim_that_is_gone_is_refused(kubelet, cluster, checks):
    ref = cluster.claim("gpu-0")
    cluster.delete_claim(ref)
    assert kubelet.refusal(ref) == (
        f"claim {ref} does not exist any more: was it deleted while its pod started?"
    )
    checks.is_free()


def test_a_claim_that_is_not_allocated_is_refused(kubelet, cluster, checks):
    ref = cluster.claim(allocate=False)
    assert kubelet.refusal(ref) == (
        f"claim {ref} is not allocated: was its pod bound to this node by hand (nodeName)? "
        "Let the scheduler place it"
    )
    checks.is_free()


def test_a_claim_for_another_node_is_refused(kubelet, cluster, checks):
    ref = cluster.claim({"device": "gpu-0", "pool": "node-2"})
    assert "'node-2'" in kubelet.refusal(ref)
    checks.is_free()


def test_a_config_that_cannot_be_honoured_is_refused_and_nothing_is_left(kubelet, cluster, checks):
    parameters = {
        "apiVersion": "resource.nvidia.com/v1beta1",
        "kind": "GpuConfig",
        "sharing": {"strategy": "Exclusive"},
    }
    opaque = {"driver": api_cluster.DRIVER, "parameters": parameters}
    ref = cluster.claim("gpu-0", config=[{"source": "FromClaim", "opaque": opaque}])
    assert 'sharing.strategy: "Exclusive" is not allowed' in kubelet.refusal(ref)
    checks.is_free()


def test_each_claim_of_a_call_has_its_own_answer(kubelet, cluster, machine):
    good = [cluster.claim("gpu-0"), cluster.claim("gpu-1")]
    gone = cluster.claim("gpu-0")
    cluster.delete_claim(gone)
    open_claim = cluster.claim(allocate=False)
    odd = claims.ClaimRef("default", "odd", claims.ClaimUid("../odd"))
    answers = kubelet.ask_prepare(good[0], gone, open_claim, odd, good[1])
    assert {uid: bool(answer.error) for uid, answer in answers.items()} == {
        good[0].uid: False,
        gone.uid: True,
        open_claim.uid: True,
        odd.uid: True,
        good[1].uid: False,
    }
    assert [machine.record(ref).phase for ref in good] == [prepared.Phase.COMPLETED] * 2
    answers = kubelet.ask_unprepare(good[0], gone, open_claim, odd, good[1])
    assert {uid for uid, answer in answers.items() if answer.error} == {odd.uid}
    assert machine.files() == []


@pytest.mark.parametrize(
    "uid", ["../x", "x/../../y", "/etc/passwd", ".", "..", "", "a b", "x\x00", "x" * 64, "-x"]
)
def test_a_uid_that_is_not_fit_for_a_file_name_is_refused_and_nothing_is_written(
    kubelet, machine, uid
):
    ref = claims.ClaimRef("default", "odd", claims.ClaimUid(uid))
    before = _tree(machine)
    for answers in (kubelet.ask_prepare(ref), kubelet.ask_unprepare(ref)):
        assert list(answers) == [uid]
        assert repr(uid) in answers[uid].error
        assert "1 to 63 letters" in answers[uid].error
    assert _tree(machine) == before


def test_a_claim_that_is_given_other_devices_gets_those_and_keeps_no_old_one(
    kubelet, cluster, checks
):
    ref = cluster.claim("gpu-0")
    kubelet.prepare(ref)
    cluster.reallocate(ref, "gpu-1")
    assert kubelet.prepare(ref) == [plugin_process.device(ref, "gpu-1")]
    checks.is_prepared(ref, "gpu-1")
    other = cluster.claim("gpu-0")
    assert kubelet.prepare(other) == [plugin_process.device(other, "gpu-0")]


def _written(path):
    """Changes with each write; that it was read is in `stat`, too."""
    found = path.stat()
    return found.st_ino, found.st_mtime_ns, found.st_ctime_ns


def _tree(machine):
    """Every file of the node but logs, and what GPUs keep."""
    skipped = {machine.simulation}
    return sorted(
        (str(path), path.stat().st_mtime_ns if path.is_file() else 0)
        for path in machine.root.rglob("*")
        if not skipped & {path, *path.parents} and path.suffix != ".jsonl"
    )


def test_a_prepare_that_fails_leaves_nothing(kubelet, cluster, machine, checks):
    ref, other = cluster.claim("gpu-0"), cluster.claim("gpu-0")
    machine.block_cdi()
    assert str(machine.cdi) in kubelet.refusal(ref)
    assert list(machine.records.iterdir()) == []
    machine.unblock_cdi()
    assert kubelet.prepare(other) == [plugin_process.device(other, "gpu-0")]
    checks.is_prepared(other, "gpu-0")


def test_a_prepare_that_fails_the_second_time_keeps_what_the_first_has_done(
    kubelet, cluster, machine, checks
):
    ref = cluster.claim("gpu-0")
    kubelet.prepare(ref)
    described, mount = machine.metadata_paths(ref)
    for path in (machine.spec_path(ref), mount):
        path.unlink()
    machine.block_cdi()
    assert str(machine.cdi) in kubelet.refusal(ref)
    assert described.exists()
    machine.unblock_cdi()
    assert str(ref) in kubelet.refusal(cluster.claim("gpu-0"))
    kubelet.prepare(ref)
    checks.is_prepared(ref, "gpu-0")
