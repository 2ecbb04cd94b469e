"""What containers read of their devices: the text of the files, and where they are."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dra_driver import errors
from dra_driver.logic.preparing import cdi, device_status, metadata
from dra_driver.model import claims, device_metadata, devices, mig, prepared, quantities, slices

DRIVER = "gpu.nvidia.com"
CARD = devices.Gpu(
    index=0, minor=0, uuid=devices.GpuUuid("GPU-1"), product_name="NVIDIA H100 80GB HBM3",
    pci_address=devices.PciAddress("0000:07:00.0"), driver_version="580.65.06",
    memory_bytes=80 * 2**30, numa_node=1, numa_near=(2,),
)  # fmt: skip
PROFILE = mig.Profile(
    index=0, id=19, name="1g.10gb", slices=1, instances=7, multiprocessors=16, copy_engines=1,
    decoders=1, encoders=0, jpeg_engines=1, ofa_engines=0, memory_mib=9984, placements=(),
)  # fmt: skip
SPOT = mig.Spot(19, mig.Placement(6, 1))
PART = devices.mig_device_name("gpu-0", PROFILE.name, SPOT)
SHARE = "11111111-2222-4333-8444-555555555555"
PCI = devices.Passthrough(
    address=devices.PciAddress("0000:07:00.0"), vendor=0x10DE, model=0x2330, group=14,
    modalias="pci:v000010DE", product="H100",
)  # fmt: skip
OFFERS = {
    "gpu-0": devices.Offer(CARD),
    PART: devices.Offer(CARD, profile=PROFILE, spot=SPOT),
    "gpu-vfio-0": devices.Offer(CARD, vfio=PCI),
}


def entry(device="gpu-0", requests=("gpu",), kind="gpu", **facts):
    return prepared.PreparedDevice(
        requests=requests, pool="node-1", device=device, cdi_ids=(f"a/b={device}",), kind=kind,
        **facts,
    )  # fmt: skip


def record(*entries, pod_claim_name=None, uses=(), **names):
    listed = entries or (entry(),)
    bases = dict.fromkeys(request for one in listed for request in one.requests)
    content = device_metadata.Content(
        requests={base: device_metadata.Described(name=names.get(base, base)) for base in bases},
        pod_claim_name=pod_claim_name,
    )
    made = prepared.Record(
        uid="0a1b", namespace="team-a", name="train", phase=prepared.Phase.COMPLETED,
        boot_id="b", devices=listed,
        sharing=prepared.Sharing(mps=uses),
    )  # fmt: skip
    return device_metadata.into(made, content)


def objects(made, told=()):
    """The files of a claim by request, each as its list of objects."""
    _, documents = metadata.said(DRIVER, made, OFFERS, dict(told))
    return {one.request: [json.loads(line) for line in one.text.splitlines()] for one in documents}


def attributes(made, told=()):
    [[first, _]] = objects(made, told).values()
    [device] = first["requests"][0]["devices"]
    return device["attributes"]


def test_the_same_object_is_there_for_each_version_with_the_newest_first():
    [[beta, alpha]] = objects(record()).values()
    assert beta.pop("apiVersion") == "metadata.resource.k8s.io/v1beta1"
    assert alpha.pop("apiVersion") == "metadata.resource.k8s.io/v1alpha1"
    assert beta == alpha
    [request] = beta.pop("requests")
    assert beta == {
        "kind": "DeviceMetadata",
        "metadata": {"name": "train", "namespace": "team-a", "uid": "0a1b", "generation": 1},
    }
    [device] = request.pop("devices")
    assert request == {"name": "gpu"}
    assert device.keys() == {"driver", "pool", "name", "attributes"}
    assert [device[key] for key in ("driver", "pool", "name")] == [DRIVER, "node-1", "gpu-0"]


def test_a_whole_gpu_says_what_is_published_of_it_in_the_shape_of_the_api():
    said = attributes(record())
    assert said["resource.kubernetes.io/pciBusID"] == {"string": "0000:07:00.0"}
    assert said["uuid"] == {"string": "GPU-1"}
    assert said["driverVersion"] == {"version": "580.65.6"}
    # No lists: readers of the first version know none.
    assert said["resource.kubernetes.io/numaNode"] == said["numaNode"] == {"int": 1}
    assert said["mps"] == {"bool": False}
    assert "enforcement" not in said


def test_a_partition_says_what_the_effects_tell_of_its_instance():
    told = {PART: {"uuid": "MIG-7", "parentUUID": "GPU-1", "gpuInstanceId": 3, "gone": None}}
    said = attributes(record(entry(PART, kind="mig")), told)
    assert said["uuid"] == {"string": "MIG-7"}
    assert said["parentUUID"] == {"string": "GPU-1"}
    assert (said["profile"], said["gpuInstanceId"]) == ({"string": "1g.10gb"}, {"int": 3})
    assert said["resource.kubernetes.io/pciBusID"] == {"string": "0000:07:00.0"}
    assert "gone" not in said


@pytest.mark.parametrize(
    ("limits", "enforcement"), [((20, 2**30), "MPS"), ((None, None), "None"), (None, "None")]
)
def test_a_share_says_what_it_has_and_who_holds_it_to_that(limits, enforcement):
    one = entry(share_id=SHARE, consumed={"memory": "10Gi", "cores": "20", "decoders": "0"})
    key = cdi.device_key("gpu-0", SHARE)
    uses = () if limits is None else (
        prepared.MpsUse(
            domain="d", keys=(key,), devices=("gpu-0",), percent=limits[0], memory_bytes=limits[1]
        ),
    )  # fmt: skip
    told = {key: {"deviceMemoryLimit": quantities.parse("1Gi")}}
    said = attributes(record(one, uses=uses), told)
    assert (said["memory"], said["cores"]) == ({"int": 10 * 2**30}, {"int": 20})
    assert said["deviceMemoryLimit"] == {"int": 2**30}
    assert said["enforcement"] == {"string": enforcement}
    assert said["mps"] == {"bool": bool(uses)}
    assert "decoders" not in said


def test_a_gpu_for_a_virtual_machine_says_which_card_it_is_and_is_no_mediated_device():
    made = record(entry("gpu-vfio-0", kind="vfio"))
    said = attributes(made, {"gpu-vfio-0": {"mdevUUID": "no", "iommuMode": "legacy"}})
    assert said["gpuUUID"] == {"string": "GPU-1"}
    assert said["resource.kubernetes.io/pciBusID"] == {"string": "0000:07:00.0"}
    assert (said["iommuGroup"], said["vendorID"]) == ({"int": 14}, {"string": "0x10de"})
    assert said["iommuMode"] == {"string": "legacy"}
    assert not {"mdevUUID", "mps"} & said.keys()


def test_a_request_has_one_file_with_all_its_devices_and_a_device_is_in_that_of_each_request():
    made = record(
        entry("gpu-0", ("a", "b")), entry(PART, ("b",), "mig"), b="b/large", pod_claim_name="mine"
    )
    found = objects(made)
    assert list(found) == ["a", "b"]
    requests = [found[base][0]["requests"] for base in found]
    assert [[one["name"] for one in listed] for listed in requests] == [["a"], ["b/large"]]
    names = [[device["name"] for device in listed[0]["devices"]] for listed in requests]
    assert names == [["gpu-0"], ["gpu-0", PART]]
    assert {body["podClaimName"] for bodies in found.values() for body in bodies} == {"mine"}


def test_equal_facts_have_equal_bytes_and_another_fact_the_next_generation():
    first, written = metadata.said(DRIVER, record(), OFFERS, {})
    assert metadata.said(DRIVER, first, OFFERS, {}) == (first, written)
    changed, others = metadata.said(DRIVER, first, OFFERS, {"gpu-0": {"index": 4}})
    assert '"generation": 2' in others[0].text
    assert metadata.said(DRIVER, changed, OFFERS, {"gpu-0": {"index": 4}}) == (changed, others)
    again, _ = metadata.said(DRIVER, changed, OFFERS, {})
    assert device_metadata.of(again).requests["gpu"].generation == 3


def test_of_a_record_without_files_nothing_is_said():
    bare = device_metadata.into(record(), None)
    assert metadata.said(DRIVER, bare, OFFERS, {}) == (bare, ())
    assert metadata.answered(DRIVER, bare) == bare.devices


def test_the_first_device_of_each_request_brings_its_file():
    made = record(entry("gpu-0", ("a", "b")), entry(PART, ("b", "c"), "mig"), entry("x", ("c",)))
    assert [one.cdi_ids for one in metadata.answered(DRIVER, made)] == [
        ("a/b=gpu-0", "gpu.nvidia.com/metadata=0a1b_a", "gpu.nvidia.com/metadata=0a1b_b"),
        (f"a/b={PART}", "gpu.nvidia.com/metadata=0a1b_c"),
        ("a/b=x",),
    ]


def test_the_mount_is_read_only_and_of_the_version_of_all_specs():
    spec = json.loads(metadata.cdi_spec(DRIVER, "0a1b", "gpu", host="/h", inside="/c"))
    mount = {"hostPath": "/h", "containerPath": "/c", "options": ["ro", "bind"]}
    assert spec == {
        "cdiVersion": "0.5.0",
        "kind": "gpu.nvidia.com/metadata",
        "devices": [{"name": "0a1b_gpu", "containerEdits": {"mounts": [mount]}}],
    }


def test_a_spec_is_known_by_its_name_and_those_of_others_are_not():
    assert metadata.cdi_file(DRIVER, "0a1b", "gpu") == "gpu.nvidia.com_metadata_0a1b_gpu.json"
    assert metadata.cdi_uid(DRIVER, "gpu.nvidia.com_metadata_0a1b_gpu.json") == "0a1b"
    others = (
        "k8s.gpu.nvidia.com-claim_0a1b.json",
        "other_metadata_0a1b_gpu.json",
        "gpu.nvidia.com_metadata_0a1b.json",
        "gpu.nvidia.com_metadata__gpu.json",
    )
    for name in others:
        assert metadata.cdi_uid(DRIVER, name) is None


def test_containers_find_it_by_what_their_pod_calls_the_claim():
    root = "/var/run/kubernetes.io/dra-device-attributes"
    named = device_metadata.of(record())
    made = device_metadata.of(record(pod_claim_name="mine"))
    assert [metadata.container_path(DRIVER, "train", one, "gpu") for one in (named, made)] == [
        f"{root}/resourceclaims/train/gpu/gpu.nvidia.com-metadata.json",
        f"{root}/resourceclaimtemplates/mine/gpu/gpu.nvidia.com-metadata.json",
    ]


LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
EVIL = st.one_of(
    st.sampled_from(["", ".", "..", "../x", "a/b/..", "a\n", "A", "a_b", "-a", "a-", "é", "\0"]),
    st.text(max_size=8),
).filter(lambda text: not re.fullmatch(rf"{LABEL}(\.{LABEL})*", text))


@given(EVIL)
def test_no_name_that_dns_does_not_have_gets_near_a_path(evil):
    fine = {"namespace": "team-a", "name": "train"}
    content = device_metadata.of(record())
    cases = [
        (fine | {"namespace": evil}, content),
        (fine | {"name": evil}, content),
        (fine, content.model_copy(update={"pod_claim_name": evil})),
        (fine, content.model_copy(update={"requests": {evil: content.requests["gpu"]}})),
    ]
    for names, one in cases:
        with pytest.raises(errors.Rejected, match="it would be part of a path"):
            metadata.check(claims.ClaimRef(**names, uid=claims.ClaimUid("0a1b")), one)


def test_names_of_the_api_server_are_fine_up_to_what_a_directory_can_be_called():
    content = device_metadata.of(record(entry(requests=("r" * 63,)), pod_claim_name="p" * 63))
    long = ".".join(["n" * 63] * 3)
    ref = claims.ClaimRef("s" * 63, long, claims.ClaimUid("0a1b"))
    metadata.check(ref, content)
    assert len(f"{ref.namespace}_{ref.name}") == 255
    assert not metadata.is_too_long(ref)
    assert metadata.is_too_long(claims.ClaimRef("s" * 63, long + ".a", claims.ClaimUid("0a1b")))
    assert len(metadata.cdi_file("d" * 63, "u" * 63, "r" * 63)) + len("..new") <= 255


VALUES = st.one_of(
    st.integers(-(2**63), 2**63 - 1), st.booleans(), st.text(max_size=80),
    st.just(None), st.just(device_status.Unseen.AS_TOLD), st.just((1, 2)),
    st.text(max_size=80).map(slices.Version), st.integers(0, 2**60).map(quantities.of_bytes),
)  # fmt: skip


@given(st.dictionaries(st.text("abcdef", min_size=1, max_size=4), VALUES, max_size=60))
def test_whatever_is_told_no_more_is_said_than_readers_take(told):
    said = attributes(record(), {"gpu-0": told})
    assert len(said) <= 32
    assert {"resource.kubernetes.io/pciBusID", "uuid", "type", "mps"} <= said.keys()
    for value in said.values():
        [(kind, found)] = value.items()
        assert kind in {"int", "bool", "string", "version"}
        assert not isinstance(found, str) or len(found.encode()) <= 64


def test_of_too_many_attributes_those_that_are_needed_most_stay():
    told = {f"a{number:02}": number for number in range(60)} | {"uuid": "MIG-1", "profile": "1g"}
    said = attributes(record(), {"gpu-0": told})
    assert len(said) == 32
    needed = {"resource.kubernetes.io/pciBusID", "uuid", "profile", "mps", "productName"}
    assert needed <= said.keys()
    others = [name for name in said if name.startswith("a") and name[1:].isdigit()]
    assert others == sorted(told)[: len(others)]


def test_a_file_tells_whose_it_is_also_with_the_rest_of_an_older_one():
    made = record(pod_claim_name="mine", gpu="gpu/small")
    now, [document] = metadata.said(DRIVER, made, OFFERS, {})
    content = device_metadata.of(now)
    for text in (document.text, document.text + '"rest": 1}'):
        owner = metadata.owner(text)
        assert (owner.uid, owner.devices, owner.pod_claim_name) == ("0a1b", ("gpu-0",), "mine")
        assert owner.described == content.requests["gpu"]
    for text in ("", "{}", "[1]", '{"metadata": 1}', document.text[:200]):
        assert metadata.owner(text) is None
