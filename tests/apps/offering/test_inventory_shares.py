"""How the devices of a node are divided, as the settings say for each GPU."""

import dataclasses

import pytest

from dra_driver import errors
from dra_driver.apps.offering import inventory
from dra_driver.model import mig, shares

KIND = shares.Shares(4)


def looked(node, shares_of):
    """What is seen with these settings."""
    before = node.gpus._looking_at
    looking = inventory.Looking(
        before.source, before.place, before.ledgers, lambda _: mig.Mode.DYNAMIC, shares_of
    )
    return inventory.Inventory(looking, interval=3600, on_change=lambda: None).look()


def test_without_settings_no_device_is_divided(node):
    assert node.gpus.snapshot.offered
    assert node.gpus.snapshot.divisions == {}


@pytest.mark.parametrize("minor", [0, 1])
def test_each_device_of_a_gpu_that_is_divided_is_divided_alike(node, minor):
    seen = looked(node, lambda gpu: KIND if gpu.minor == minor else None)
    own = {name for name, offer in seen.offered.items() if offer.gpu.minor == minor}
    assert seen.divisions == dict.fromkeys(own, KIND)
    assert {f"gpu-{minor}", f"gpu-{minor}-mig-3g40gb-9-4"} <= own


def test_a_gpu_that_nobody_can_say_how_to_divide_is_not_offered(node):
    def of(gpu):
        if gpu.minor == 0:
            raise errors.Rejected("setting gpus[0].selector: no answer")
        return KIND

    seen = looked(node, of)
    assert {card.name for card in seen.cards} == {"gpu-1"}
    (failure,) = seen.failures
    assert failure.endswith("is not offered: setting gpus[0].selector: no answer")


def test_a_gpu_too_old_for_limits_is_offered_whole_instead_of_in_shares(node, monkeypatch):
    source = node.gpus._looking_at.source
    found = source.discover()
    first, *others = found.gpus
    old = dataclasses.replace(first, compute_capability=(6, 0), mig_capable=False, profiles=())
    aged = dataclasses.replace(found, gpus=(old, *others))
    monkeypatch.setattr(source, "discover", lambda: aged, raising=False)
    seen = looked(node, lambda _: KIND)
    assert {offer.gpu.minor for offer in seen.offered.values()} == {0, 1}
    assert "gpu-0" not in seen.divisions
    assert seen.divisions["gpu-1"] == KIND
    assert "it has 6.0" in {card.name: card.note for card in seen.cards}["gpu-0"]


@pytest.mark.parametrize("kind", [shares.Shares(), shares.Shares(2)])
def test_a_gpu_that_is_divided_otherwise_has_changed(node, kind):
    assert looked(node, lambda _: KIND) != looked(node, lambda _: kind)
