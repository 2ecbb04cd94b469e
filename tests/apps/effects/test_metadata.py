"""Files of device metadata on a node: where they are, whose they are, and when they go."""

import errno
import itertools
import json

import disk_faults
import effect_claims
import mig_node
import pytest
import sharing_claims
import sharing_node

from dra_driver import errors
from dra_driver.logic.preparing import metadata
from dra_driver.model import claims, prepared

GPU, OTHER_GPU, PARTITION = sharing_claims.GPU, sharing_claims.OTHER_GPU, sharing_claims.PARTITION
ROOT = metadata.CONTAINER_DIR


def folder(host, ref):
    return host.root / "dra-device-metadata" / f"{ref.namespace}_{ref.name}"


def path(host, ref, request="r0"):
    return folder(host, ref) / request / "metadata.json"


def spec(host, ref, request="r0"):
    return host.cdi / f"gpu.nvidia.com_metadata_{ref.uid}_{request}.json"


def left(host):
    """What there is of it, whosever it is."""
    files = (host.root / "dra-device-metadata").glob("*")
    return sorted([*files, *host.cdi.glob("*_metadata_*"), *host.cdi.glob(".*_metadata_*")])


def namesake(users, ref, uid, *devices):
    """The claim was deleted, and made again under its name."""
    again = claims.ClaimRef(ref.namespace, ref.name, claims.ClaimUid(uid))
    users.give_anew(again, *devices)
    return again


def ids(answer):
    return [one.rpartition("=")[2] for device in answer for one in device.cdi_ids[1:]]


def test_a_claim_has_a_file_for_each_request_that_everybody_may_read(host, users):
    ref = users.give(GPU, OTHER_GPU)
    assert ids(host.prepare(ref)) == [f"{ref.uid}_r0", f"{ref.uid}_r1"]
    assert host.mounted(ref) == {
        f"{ROOT}/resourceclaims/{ref.name}/{request}/gpu.nvidia.com-metadata.json": path(
            host, ref, request
        )
        for request in ("r0", "r1")
    }
    found = [path(host, ref), spec(host, ref)]
    assert {one.stat().st_mode & 0o777 for one in found} == {0o644}
    directories = [path(host, ref).parent, folder(host, ref), folder(host, ref).parent]
    assert {one.stat().st_mode & 0o777 for one in directories} == {0o755}
    said = host.metadata(ref)
    assert [one["requests"][0]["name"] for one in said.values()] == ["r0", "r1"]
    assert {one["metadata"]["uid"] for one in said.values()} == {ref.uid}


def test_a_partition_is_described_with_the_instance_that_it_is_now(host, users):
    ref = users.give(PARTITION)
    host.prepare(ref)
    [device] = host.described_in_containers(ref)
    [live] = host.mig_uuids()
    told = device["attributes"]
    assert told["uuid"] == {"string": live}
    assert told["parentUUID"] == {"string": host.uuid()}
    assert (told["profile"], told["placement"]) == ({"string": "1g.10gb"}, {"string": "6:1"})
    assert told["resource.kubernetes.io/pciBusID"]["string"]


def test_an_instance_that_is_made_anew_is_told_in_the_same_file_as_a_new_generation(host, users):
    ref = users.give(PARTITION)
    host.prepare(ref)
    before, inode = host.metadata(ref)["r0"], path(host, ref).stat().st_ino
    [instance] = host.card().gpu_instances
    host.destroy(instance.id)
    host.prepare(ref)
    now = host.metadata(ref)["r0"]
    [live] = host.mig_uuids()
    assert now["requests"][0]["devices"][0]["attributes"]["uuid"] == {"string": live}
    assert before["requests"][0]["devices"][0]["attributes"]["uuid"] != {"string": live}
    assert (before["metadata"]["generation"], now["metadata"]["generation"]) == (1, 2)
    assert path(host, ref).stat().st_ino == inode


def test_limits_of_a_share_and_of_an_mps_daemon_are_told(new_host, users):
    host = new_host(shares=sharing_node.BY_MEMORY).start()
    ref = users.share(memory=10, cores=20)
    host.prepare(ref)
    [device] = host.described_in_containers(ref)
    told = device["attributes"]
    assert (told["memory"], told["cores"]) == ({"int": 10 * 2**30}, {"int": 20})
    assert (told["enforcement"], told["mps"]) == ({"string": "MPS"}, {"bool": True})
    assert told["deviceMemoryLimit"] == {"int": 10 * 2**30}
    assert told["activeThreadPercentage"] == {"int": 20}


def test_a_gpu_for_a_virtual_machine_is_described_as_before_once_it_is_bound(host, users):
    ref = users.give(sharing_claims.FOR_VM)
    address, uuid = host.card(2).pci_address, host.uuid(2)
    host.prepare(ref)
    before = host.metadata(ref)
    [device] = host.described_in_containers(ref)
    told = device["attributes"]
    assert told["resource.kubernetes.io/pciBusID"] == {"string": address}
    assert (told["type"], told["gpuUUID"]) == ({"string": "vfio"}, {"string": uuid})
    assert told["boundTo"] == {"string": "vfio-pci"}
    assert "mdevUUID" not in told
    # NVML does not tell of it any more.
    host.gpus.look()
    host.refresher.look()
    assert host.metadata(ref) == before


def test_a_whole_claim_needs_one_write_of_its_record(host, users, monkeypatch):
    written = []
    store = type(host.store.records)
    original = store.write
    monkeypatch.setattr(
        store, "write", lambda self, one: (written.append(one.phase), original(self, one))
    )
    host.prepare(users.give(GPU))
    assert written == ["completed"]


# With the setting off, and before and after


def test_with_the_setting_off_nothing_is_written_and_no_name_is_added(new_host, users):
    host = new_host(device_metadata=False).start()
    ref = users.give(GPU)
    assert ids(host.prepare(ref)) == []
    assert (left(host), host.record(ref).parts) == ([], {})
    host.unprepare(ref)
    assert host.is_clean()


def test_a_claim_keeps_its_files_when_the_setting_is_switched_off(host, new_host, users):
    ref = users.give(GPU)
    answer, before = host.prepare(ref), None
    before = host.record(ref), left(host)
    off = new_host(device_metadata=False).start()
    assert off.prepare(ref) == answer
    assert (off.record(ref), left(off)) == before
    off.unprepare(ref)
    assert left(off) == []
    assert off.is_clean()


def test_a_claim_keeps_its_files_also_if_its_instance_is_made_anew_with_the_setting_off(
    host, new_host, users
):
    ref = users.give(PARTITION)
    answer = host.prepare(ref)
    off = new_host(device_metadata=False).start()
    [instance] = off.card().gpu_instances
    off.destroy(instance.id)
    assert off.prepare(ref) == answer
    [device] = off.described_in_containers(ref)
    assert {device["attributes"]["uuid"]["string"]} == off.mig_uuids()


@pytest.mark.parametrize("config", [(), (sharing_claims.mps_gpu(),)], ids=["plain", "mps"])
def test_a_claim_that_was_prepared_without_files_goes_on_without(new_host, users, config):
    ref = users.give(GPU, configs=config)
    off = new_host(device_metadata=False).start()
    answer = off.prepare(ref)
    before = off.record(ref)
    on = new_host().start()
    # Its containers run: another name in the answer is no reason to take anything from them.
    assert on.prepare(ref) == answer
    assert (on.record(ref), left(on)) == (before, [])
    on.unprepare(ref)
    assert on.is_clean()


def test_a_claim_that_was_only_begun_without_files_gets_them(new_host, users):
    ref = users.give(PARTITION)
    off = new_host(device_metadata=False).start()
    off.prepare(ref)
    begun = off.record(ref).model_copy(update={"phase": prepared.Phase.STARTED})
    off.store.records.write(begun)
    on = new_host().start()
    assert ids(on.prepare(ref)) == [f"{ref.uid}_r0"]


# Two claims of one name


def test_a_claim_that_was_made_again_waits_until_the_earlier_one_is_given_back(host, users):
    old = users.give(GPU)
    host.prepare(old)
    new = namesake(users, old, "uid-new", OTHER_GPU)
    before = path(host, old).read_text()
    with pytest.raises(errors.Retryable, match=r"uid-new.*an earlier claim of that name.*uid-1"):
        host.prepare(new, seconds=0.3)
    assert path(host, old).read_text() == before
    assert host.record(new) is None
    host.unprepare(old)
    host.prepare(new)
    assert host.metadata(new)["r0"]["metadata"]["uid"] == "uid-new"
    # What the kubelet asks for once more does not touch what is another's by now.
    host.unprepare(old)
    assert path(host, new).exists()


def test_that_is_so_for_a_request_of_another_name_too(host, users):
    old = users.give(GPU)
    host.prepare(old)
    new = namesake(users, old, "uid-new", {"device": OTHER_GPU, "request": "other"})
    with pytest.raises(errors.Retryable, match="an earlier claim of that name"):
        host.prepare(new, seconds=0.3)
    assert not path(host, new, "other").exists()


def test_an_undo_leaves_the_directory_alone_that_another_claim_has(host, users):
    old = users.give(GPU)
    host.prepare(old)
    record = host.record(old)
    host.unprepare(old)
    new = namesake(users, old, "uid-new", OTHER_GPU)
    host.prepare(new)
    before = left(host)
    host.effects.metadata.undo(record, [host.record(new)])
    assert left(host) == before
    assert path(host, new).exists()


def test_files_of_a_claim_that_no_record_tells_of_are_not_overwritten_but_swept(host, users):
    old = users.give(GPU)
    host.prepare(old)
    host.store.records.remove(old.uid)
    (host.cdi / host.cdi_name(old)).unlink()
    new = namesake(users, old, "uid-new", OTHER_GPU)
    with pytest.raises(errors.Retryable, match="describes devices of an earlier claim"):
        host.prepare(new, seconds=0.3)
    host.orphans.sweep()
    assert left(host) == []
    host.prepare(new)


# What is left over


def test_what_is_half_written_or_of_nobody_goes_and_what_is_others_stays(host, users):
    ref = users.give(GPU)
    host.prepare(ref)
    kept = left(host)
    root = host.root / "dra-device-metadata"
    (root / "default_gone" / "r0").mkdir(parents=True)
    (root / "default_damaged" / "r0").mkdir(parents=True)
    (root / "default_damaged" / "r0" / "metadata.json").write_text("{")
    (host.cdi / ".gpu.nvidia.com_metadata_uid-9_r0.json.new").write_text("{")
    (root / "note").write_text("somebody's")
    (host.cdi / "other.com_metadata_uid-9_r0.json").write_text("{}")
    assert [name for _, name in host.leftovers()] == [
        "claim uid-9",
        "default_damaged",
        "default_gone",
    ]
    host.orphans.sweep()
    others = {root / "note", host.cdi / "other.com_metadata_uid-9_r0.json"}
    assert {*left(host)} == {*kept, *others}
    assert host.leftovers() == []


def test_what_was_left_by_an_earlier_boot_goes_with_the_start(host, new_host, users):
    host.prepare(users.give(GPU))
    for one in host.cdi.iterdir():
        one.unlink()
    assert left(new_host(boot="boot-2").start()) == []


def test_a_directory_with_something_else_in_it_holds_up_no_unprepare(host, users):
    ref = users.give(GPU)
    host.prepare(ref)
    (folder(host, ref) / "note").write_text("somebody's")
    host.unprepare(ref)
    assert [one.name for one in folder(host, ref).iterdir()] == ["note"]
    assert host.record(ref) is None


def test_a_prepare_that_fails_after_the_files_were_written_takes_them_away(
    host, users, monkeypatch
):
    ref = users.give(GPU)

    def refuse(*_):
        assert path(host, ref).exists()
        raise errors.Rejected("no device node")

    monkeypatch.setattr(type(host.effects.injector), "injection", refuse)
    with pytest.raises(errors.Rejected, match="no device node"):
        host.prepare(ref)
    assert (left(host), host.files()) == ([], [])


@pytest.mark.parametrize("is_named", [True, False])
def test_a_claim_whose_record_is_lost_gets_the_same_answer_by_its_files(
    host, new_host, users, is_named
):
    ref = users.give(GPU, OTHER_GPU)
    answer, before = host.prepare(ref), host.metadata(ref)
    (host.root / "claims" / f"{ref.uid}.json").unlink()
    claim = users.known[ref.name]
    if not is_named:
        users.delete(ref)
    again = new_host().start()
    assert again.record(ref).name == (ref.name if is_named else "")
    assert again.leftovers() == []
    users.known[ref.name] = claim
    assert again.prepare(ref) == answer
    assert again.metadata(ref) == before
    again.unprepare(ref)
    assert left(again) == []


def test_a_claim_whose_record_is_lost_and_rebuilt_by_its_spec_leaves_no_file(host, new_host, users):
    ref = users.give(GPU)
    host.prepare(ref)
    (host.root / "claims" / f"{ref.uid}.json").unlink()
    users.delete(ref)
    again = new_host().start()
    again.unprepare(ref)
    assert left(again) == []


# Names


@pytest.mark.parametrize("name", ["../../evil", "a/b", "A"])
def test_a_name_that_is_not_fit_for_a_path_is_refused_before_anything_is_made(
    host, users, monkeypatch, name
):
    ref = users.give(PARTITION)
    claim = users.known[ref.name]
    users.known[ref.name] = type(claim)(
        ref=claim.ref, allocation=claim.allocation, pod_claim_name=name
    )
    untouched, made = host.hardware(), []
    monkeypatch.setattr(type(host.partitioner), "make", lambda *_: made.append(name))
    with pytest.raises(errors.Rejected, match="pod-claim-name"):
        host.prepare(ref)
    assert made == []
    assert (host.files(), host.hardware()) == ([], untouched)


def test_a_claim_with_names_too_long_for_a_directory_has_its_gpu_and_no_file(host, users):
    name = ".".join(itertools.repeat("n" * 62, 4))
    ref = claims.ClaimRef("default", name, claims.ClaimUid("uid-long"))
    users.give_anew(ref, GPU)
    assert ids(host.prepare(ref)) == []
    assert left(host) == []
    host.unprepare(ref)


def test_the_alternative_of_a_request_is_in_the_file_and_not_in_its_path(host, users):
    ref = users.give({"device": GPU, "request": "gpu/large"})
    assert ids(host.prepare(ref)) == [f"{ref.uid}_gpu"]
    said = json.loads(path(host, ref, "gpu").read_text().splitlines()[1])
    assert said["apiVersion"].endswith("/v1alpha1")
    assert said["requests"][0]["name"] == "gpu/large"


def test_a_disk_that_is_full_does_not_keep_files(host, users):
    ref = users.give(GPU)
    host.prepare(ref)
    full = disk_faults.Disk(errno.ENOSPC, disk_faults.WRITES, [host.root], opens="new")
    with full.failing():
        host.unprepare(ref)
    assert (left(host), host.files()) == ([], [])


def test_every_case_of_effects_is_described(host, users):
    for case in effect_claims.CASES.values():
        ref = users.give(case.device, configs=case.configs)
        host.prepare(ref)
        assert [one["name"] for one in host.described_in_containers(ref)] == [case.device]
        host.unprepare(ref)
    assert mig_node.FOLDERS[-1] == metadata.FOLDER
