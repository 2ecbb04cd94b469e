import dataclasses

import mig_cards
import pytest

from dra_driver import errors
from dra_driver.model import bindings, prepared

RECORD = prepared.Record(
    uid="0a1b", namespace="team-a", name="vm", phase="completed", boot_id="boot-1", devices=()
)
BINDING = bindings.Binding(
    device="gpu-vfio-0",
    gpu="GPU-1",
    address="0000:41:00.0",
    group=12,
    module="vfio_pci",
    driver="vfio-pci",
    functions=(
        bindings.Function(address="0000:41:00.0", driver="nvidia"),
        bindings.Function(address="0000:41:00.1"),
    ),
    persistence=True,
    nodes=("/dev/vfio/12",),
    facts=dataclasses.replace(mig_cards.gpu(mig_cards.H100), module_id=None),
)


def test_what_a_record_tells_of_bindings_is_read_back_from_its_file():
    text = prepared.encode(bindings.into(RECORD, (BINDING,)))
    assert bindings.of(prepared.decode(text)) == (BINDING,)


def test_a_record_without_bindings_has_no_part_for_them():
    other = {"other": prepared.Part(version=7, content={})}
    record = bindings.into(RECORD.model_copy(update={"parts": other}), (BINDING,))
    assert set(record.parts) == {"other", "vfio"}
    assert bindings.into(record, ()).parts == other
    assert bindings.of(RECORD) == ()


def test_a_part_of_a_newer_driver_is_not_guessed_at():
    part = prepared.Part(version=bindings.VERSION + 1, content={"bound": []})
    record = RECORD.model_copy(update={"parts": {"vfio": part}})
    assert bindings.of(record) == ()
    assert bindings.into(record, ()) == record
    assert bindings.into(record, (BINDING,)) == record


def test_a_damaged_part_is_refused_with_the_name_of_its_claim():
    part = prepared.Part(version=bindings.VERSION, content={"cards": [{"device": 1}]})
    with pytest.raises(errors.Rejected, match=r"claim team-a/vm .*: part 'vfio' of its record"):
        bindings.of(RECORD.model_copy(update={"parts": {"vfio": part}}))


def written(**facts):
    """What a record has of the GPU."""
    known = dataclasses.replace(BINDING.facts, **facts)
    record = bindings.into(RECORD, (BINDING.model_copy(update={"facts": known}),))
    return record.parts["vfio"].content["cards"][0]["facts"]


def with_facts(facts):
    part = bindings.into(RECORD, (BINDING,)).parts["vfio"]
    [card] = part.content["cards"]
    content = {**part.content, "cards": [{**card, "facts": facts}]}
    new = prepared.Part(version=part.version, content=content)
    return RECORD.model_copy(update={"parts": {"vfio": new}})


def test_partitions_of_the_fabric_stay_with_the_gpu():
    facts = dataclasses.replace(BINDING.facts, module_id=3, fabric=((1, 9), (8, 0)))
    record = bindings.into(RECORD, (BINDING.model_copy(update={"facts": facts}),))
    [found] = bindings.of(prepared.decode(prepared.encode(record)))
    assert found.facts == facts


def test_where_fabric_manager_is_not_asked_an_older_driver_finds_what_it_knows():
    assert {"module_id", "fabric"}.isdisjoint(written(module_id=3))
    assert written(module_id=3, fabric=())["module_id"] == 3


def test_a_record_of_an_older_driver_is_read():
    [found] = bindings.of(with_facts(written(module_id=3)))
    assert found.facts == BINDING.facts


def test_facts_that_only_a_newer_driver_knows_are_passed_over():
    [found] = bindings.of(with_facts(written() | {"colour": "green"}))
    assert found.facts == BINDING.facts
