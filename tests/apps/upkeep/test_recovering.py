"""What an earlier life of the driver left on the node, whole or damaged."""

import json
import shutil

import plugin_process
import pytest

from dra_driver.model import claims, prepared
from dra_driver.sim.api.serving import options

pytestmark = pytest.mark.sampled(13)

REBUILDING = "record of a claim cannot be read; rebuilding it"


def changed(text, **fields):
    document = json.loads(text)
    document.update(fields)
    return json.dumps(document)


DAMAGES = {
    "empty": lambda _text: b"",
    "cut off": lambda text: text[: len(text) // 2].encode(),
    "no text": lambda _text: b"\x80\x00\xff",
    "no JSON": lambda _text: b"devices: []",
    "no mapping": lambda _text: b"[]",
    "other content": lambda text: text.replace("gpu-", "gpu-1").encode(),
    "other checksum": lambda text: changed(text, checksum="sha256:0").encode(),
    "newer driver": lambda text: changed(text, version=prepared.VERSION + 1).encode(),
}


@pytest.fixture
def scene(plugin, cluster, machine):
    """A claim that is prepared, by a plugin that is gone."""
    made = Scene(plugin, cluster, machine)
    yield made
    if plugin.is_running():
        # What is taken away behind its back, it makes again.
        for path in machine.records.glob("*.json"):
            plugin.kubelet.unprepare(claims.ClaimRef("default", "any", claims.ClaimUid(path.stem)))
    for folder in (machine.records, machine.cdi):
        for path in folder.iterdir():
            path.unlink()
    if machine.boot_id.read_text() != "boot-1\n":
        plugin.kill()
        machine.boot("boot-1")


class Scene:
    def __init__(self, plugin, cluster, machine):
        self.plugin = plugin
        if not plugin.is_running():
            plugin.start()
        self.cluster = cluster
        self.machine = machine
        self.ref = cluster.claim("gpu-0", {"device": "gpu-1", "request": "second"})
        self.answer = plugin.kubelet.prepare(self.ref)
        self.plugin.kill()

    def damage(self, content=b"damaged"):
        self.machine.record_path(self.ref).write_bytes(content)

    def lose_records(self):
        shutil.rmtree(self.machine.records)

    def start(self, *, claim_list=True):
        """Start the plugin again; it has recovered when this returns."""
        refused = options.Fault(status=403, reason="Forbidden")

        def rule(call):
            listed = call.resource == "resourceclaims" and call.verb == "list"
            return refused if listed and not claim_list else None

        with self.cluster.faults.where(rule):
            self.plugin.start()
            self.plugin.kubelet.unprepare()
        return self.plugin.kubelet

    def rebuilt(self, *devices, namespace="default", name=None):
        return prepared.Record(
            uid=self.ref.uid,
            namespace=namespace,
            name=self.ref.name if name is None else name,
            phase=prepared.Phase.COMPLETED,
            boot_id="boot-1",
            devices=devices,
            rebuilt=True,
            gpus=self.gpus(),
        )

    def gpus(self):
        return {device["device"]: self.machine.uuid(device["device"]) for device in self.answer}

    def works_as_before(self, kubelet):
        """The claim keeps its devices, gives the same answer, and can be given back."""
        assert self.ref.uid in kubelet.refusal(self.cluster.claim("gpu-0"), timeout=4)
        assert kubelet.prepare(self.ref) == self.answer
        record = self.machine.record(self.ref)
        assert record.model_copy(update={"described": None}) == prepared.Record(
            uid=self.ref.uid,
            namespace="default",
            name=self.ref.name,
            phase=prepared.Phase.COMPLETED,
            boot_id="boot-1",
            devices=tuple(
                prepared.PreparedDevice(**one) for one in plugin_process.recorded(self.answer)
            ),
            gpus=self.gpus(),
            minors={"gpu-0": 0, "gpu-1": 1},
        )
        assert self.machine.spec(self.ref) is not None
        kubelet.unprepare(self.ref)
        assert self.machine.record(self.ref) is None
        assert self.machine.spec(self.ref) is None
        other = self.cluster.claim("gpu-0")
        assert kubelet.prepare(other) == [plugin_process.device(other, "gpu-0")]


def test_a_restart_finds_what_was_prepared_and_asks_the_api_server_for_nothing(scene):
    before = len(scene.cluster.faults.calls)
    kubelet = scene.start()
    # What is told of the claim's devices is compared with its status, one claim after the other.
    calls = scene.cluster.faults.calls[before:]
    assert [c for c in calls if (c.resource, c.verb) == ("resourceclaims", "list")] == []
    assert scene.plugin.log(REBUILDING, claim_uid=scene.ref.uid) == []
    scene.works_as_before(kubelet)


def test_each_kind_of_damage_is_set_aside_and_the_record_rebuilt_from_the_api(
    own_plugin, own_cluster, own_machine
):
    plugin = own_plugin(gpus=f"t4:{len(DAMAGES)}").start()
    refs = {name: own_cluster.claim(f"gpu-{n}") for n, name in enumerate(DAMAGES)}
    answers = {name: plugin.kubelet.prepare(ref) for name, ref in refs.items()}
    damaged = {}
    for name, ref in refs.items():
        path = own_machine.record_path(ref)
        damaged[name] = DAMAGES[name](path.read_text())
        path.write_bytes(damaged[name])
    plugin.kill()
    plugin.start()
    plugin.kubelet.unprepare()
    for name, ref in refs.items():
        rebuilt = own_machine.record(ref)
        assert rebuilt.rebuilt, name
        assert [one.model_dump() for one in rebuilt.devices] == plugin_process.recorded(
            answers[name]
        )
        aside = own_machine.records / f"{ref.uid}.json.damaged-0"
        assert aside.read_bytes() == damaged[name]
        lines = plugin.log(REBUILDING, claim_uid=ref.uid, set_aside=str(aside))
        assert [bool(line["reason"]) for line in lines] == [True], name
        assert plugin.kubelet.prepare(ref) == answers[name]
        plugin.kubelet.unprepare(ref)
        assert not own_machine.record_path(ref).exists()
    plugin.kill()
    plugin.start()
    plugin.kubelet.unprepare()
    assert len(plugin.log(REBUILDING)) == len(DAMAGES)


def test_a_damaged_record_is_rebuilt_from_its_spec_when_claims_cannot_be_listed(scene):
    scene.damage()
    kubelet = scene.start(claim_list=False)
    entries = [
        prepared.PreparedDevice(**one | {"requests": ()})
        for one in plugin_process.recorded(scene.answer)
    ]
    assert scene.machine.record(scene.ref) == scene.rebuilt(*entries, namespace="", name="")
    scene.works_as_before(kubelet)


def test_a_rebuilt_claim_whose_prepare_fails_keeps_its_devices(scene):
    scene.damage()
    kubelet = scene.start()
    for path in scene.machine.cdi.iterdir():
        path.unlink()
    scene.machine.block_cdi()
    refusal = kubelet.refusal(scene.ref)
    _, mount = scene.machine.metadata_paths(scene.ref)
    assert f"{mount} cannot be written: Not a directory" in refusal
    assert "restart the driver's pod" in refusal
    scene.machine.unblock_cdi()
    assert scene.machine.record(scene.ref) is not None
    scene.works_as_before(kubelet)


@pytest.mark.parametrize("claim_list", [True, False])
def test_records_that_are_all_gone_are_rebuilt(scene, claim_list):
    scene.lose_records()
    kubelet = scene.start(claim_list=claim_list)
    assert [device.device for device in scene.machine.record(scene.ref).devices] == [
        "gpu-0",
        "gpu-1",
    ]
    scene.works_as_before(kubelet)


def test_a_claim_that_nothing_tells_of_is_given_up_and_said_so(scene):
    scene.cluster.delete_claim(scene.ref)
    scene.damage()
    scene.machine.spec_path(scene.ref).write_bytes(b"\x80 damaged too")
    kubelet = scene.start()
    assert scene.machine.record(scene.ref) is None
    assert scene.machine.spec(scene.ref) is None
    scene.plugin.wait_log(
        "neither the API nor a CDI spec tells what was prepared; nothing is remembered of the "
        "claim. If its pod still runs, delete it",
        claim_uid=scene.ref.uid,
    )
    kubelet.unprepare(scene.ref)
    other = scene.cluster.claim("gpu-0")
    assert kubelet.prepare(other) == [plugin_process.device(other, "gpu-0")]


def test_a_record_that_is_damaged_while_the_driver_runs_does_not_matter(scene):
    kubelet = scene.start()
    scene.damage(b"\x80")
    assert kubelet.prepare(scene.ref) == scene.answer
    assert (scene.machine.records / f"{scene.ref.uid}.json.damaged-0").read_bytes() == b"\x80"
    scene.works_as_before(kubelet)
    scene.ref = scene.cluster.claim("gpu-1")
    kubelet.prepare(scene.ref)
    scene.damage(b"\x80")
    kubelet.unprepare(scene.ref)
    assert scene.machine.spec(scene.ref) is None
    assert not scene.machine.record_path(scene.ref).exists()


@pytest.mark.parametrize("damaged", [False, True])
def test_after_a_reboot_what_was_prepared_before_is_dropped_and_works_anew(scene, damaged):
    scene.machine.boot("boot-2")
    # The directory is usually in memory, and empty after a reboot.
    shutil.rmtree(scene.machine.cdi)
    if damaged:
        scene.damage()
    kubelet = scene.start()
    if not damaged:
        assert scene.machine.files() == []
    assert kubelet.prepare(scene.ref) == scene.answer
    assert scene.machine.record(scene.ref).boot_id == "boot-2"
    assert scene.machine.spec(scene.ref) is not None
    kubelet.unprepare(scene.ref)
    assert [name for name in scene.machine.files() if "damaged" not in name] == []


def test_after_a_reboot_an_old_claim_can_be_unprepared_and_specs_that_stayed_are_gone(scene):
    scene.machine.boot("boot-2")
    kubelet = scene.start()
    assert scene.machine.files() == []
    kubelet.unprepare(scene.ref)
    assert scene.machine.files() == []


def test_what_a_killed_driver_had_begun_to_write_goes_and_files_of_others_stay(scene):
    machine = scene.machine
    spec = machine.spec_path(scene.ref)
    unknown = machine.spec_path(claims.ClaimRef("", "", claims.ClaimUid("0-gone")))
    ours = [
        spec.with_name(f".{spec.name}.new"),
        unknown.with_name(f".{unknown.name}.new"),
        machine.records / f".{scene.ref.uid}.json.new",
        machine.records / ".0-gone.json.new",
    ]
    others = [
        machine.cdi / "nvidia.yaml",
        machine.cdi / ".nvidia.yaml.new",
        machine.cdi / "k8s.nic.example.com-claim_1.json",
        machine.cdi / ".k8s.nic.example.com-claim_1.json.new",
    ]
    for path in (*ours, *others):
        path.write_text("{")
    kubelet = scene.start()
    assert [path for path in ours if path.exists()] == []
    assert [path for path in others if not path.exists()] == []
    scene.works_as_before(kubelet)
