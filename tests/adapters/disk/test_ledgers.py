import errno
import json
import os
import stat

import pytest

from dra_driver.adapters.disk import ledgers
from dra_driver.model import ledgers as models
from dra_driver.model import mig

GPU = "GPU-c5726ad2-d34b-8cef-760b-3ddf171d7f19"
SPOT = mig.Spot(9, mig.Placement(4, 4))
OTHER_SPOT = mig.Spot(19, mig.Placement(0, 1))
BOOT = models.tag("boot-1")
PAGES = [
    f"{GPU}.{BOOT}.compute-mode-0.json",
    f"{GPU}.{BOOT}.made-19-0-1.json",
    f"{GPU}.{BOOT}.made-9-4-4.json",
    f"{GPU}.{BOOT}.mig-mode.json",
    f"{GPU}.{BOOT}.time-slice-2.json",
]
OLD = """{
 "version": 1,
 "ledger": {
  "gpu": "GPU-c5726ad2-d34b-8cef-760b-3ddf171d7f19",
  "boot_id": "boot-1",
  "made": [
   {
    "profile_id": 9,
    "start": 4,
    "size": 4
   },
   {
    "profile_id": 19,
    "start": 0,
    "size": 1
   }
  ],
  "mode_switched": true,
  "time_slice_before": 2,
  "compute_mode_before": 0
 }
}
"""
"""The file of a driver that had one for all that it had done to a GPU."""


@pytest.fixture
def directory(tmp_path):
    return tmp_path / "ledgers"


def opened(directory, boot="boot-1"):
    return ledgers.Ledgers(directory, boot_id=boot)


def ledger(boot="boot-1", gpu=GPU):
    return models.Ledger(gpu=gpu, boot_id=boot).adding(SPOT).switched(on=True)


def full():
    told = ledger().adding(OTHER_SPOT)
    return told.model_copy(update={"time_slice_before": 2, "compute_mode_before": 0})


def names(directory):
    return sorted(path.name for path in directory.iterdir())


def same(one, other):
    """Whether they tell the same; the order of places does not matter."""
    assert one.spots == other.spots
    assert one.model_copy(update={"made": ()}) == other.model_copy(update={"made": ()})
    return True


def test_a_gpu_that_nothing_was_done_to_has_a_blank_ledger_of_this_boot(directory):
    assert opened(directory).get(GPU) == models.Ledger(gpu=GPU, boot_id="boot-1")
    assert names(directory) == []


def test_what_was_put_is_there_for_who_comes_next_with_a_page_for_each_thing(directory):
    opened(directory).put(full())
    assert same(opened(directory).get(GPU), full())
    assert names(directory) == PAGES


def test_each_gpu_has_a_ledger_of_its_own(directory):
    books = opened(directory)
    for gpu in ("GPU-1", "GPU-11"):
        books.put(ledger(gpu=gpu))
    books.put(ledger(gpu="GPU-1").without(SPOT))
    assert books.get("GPU-11") == ledger(gpu="GPU-11")
    assert books.get("GPU-1").spots == frozenset()
    assert books.get("GPU").is_blank


def test_the_directory_is_for_the_driver_alone(directory):
    opened(directory)
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    opened(directory)


def test_after_a_reboot_nothing_that_was_done_before_counts_and_its_pages_go(directory):
    opened(directory).put(ledger())
    after = opened(directory, "boot-2")
    assert after.get(GPU) == models.Ledger(gpu=GPU, boot_id="boot-2")
    after.put(after.get(GPU).adding(OTHER_SPOT))
    assert after.get(GPU).spots == {OTHER_SPOT}
    assert not after.get(GPU).mode_switched
    assert names(directory) == [f"{GPU}.{models.tag('boot-2')}.made-19-0-1.json"]


def test_what_was_handed_over_in_this_boot_is_listed_alone(directory):
    for boot, gpu in (("boot-0", "GPU-0"), ("boot-1", GPU)):
        given = models.Ledger(gpu=gpu, boot_id=boot, handed_over="0000:41:00.0")
        opened(directory, boot).put(given)

    assert opened(directory).handed_over() == {GPU: "0000:41:00.0"}


def test_pages_of_earlier_boots_are_dropped_also_those_that_are_damaged(directory):
    opened(directory).put(full())
    (directory / PAGES[0]).write_text("damaged")
    opened(directory, "boot-1").drop_earlier_boots()
    assert names(directory) == PAGES
    opened(directory, "boot-2").drop_earlier_boots()
    assert names(directory) == []


@pytest.mark.parametrize("step", ["write", "fsync", "rename", "link"])
def test_what_is_told_no_more_goes_without_any_space(directory, monkeypatch, step):
    books = opened(directory)
    books.put(full())

    def full_disk(*_arguments, **_options):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, step, full_disk)
    left = full()
    for change in (
        lambda told: told.without(SPOT),
        lambda told: told.switched(on=False),
        lambda told: told.model_copy(update={"time_slice_before": None}),
        lambda told: told.model_copy(update={"compute_mode_before": None}),
    ):
        left = change(left)
        books.put(change(books.get(GPU)))
        assert same(books.get(GPU), left)
    books.put(books.get(GPU).without(OTHER_SPOT))
    assert names(directory) == []


def test_a_ledger_that_tells_nothing_any_more_leaves_no_file(directory):
    books = opened(directory)
    books.put(ledger())
    books.put(books.get(GPU).without(SPOT))
    assert names(directory) == [f"{GPU}.{BOOT}.mig-mode.json"]
    books.put(books.get(GPU).switched(on=False))
    assert names(directory) == []
    books.put(books.get(GPU))
    assert names(directory) == []


def test_what_killed_processes_had_begun_to_write_of_a_gpu_goes_with_the_next_change(directory):
    books = opened(directory)
    (directory / f".{PAGES[2]}.new").write_text("half")
    (directory / f".{PAGES[2].replace('GPU-c', 'GPU-d')}.new").write_text("of another GPU")
    books.put(ledger().without(SPOT))
    assert names(directory) == [
        f".{PAGES[2].replace('GPU-c', 'GPU-d')}.new", f"{GPU}.{BOOT}.mig-mode.json",
    ]  # fmt: skip


# Files of an earlier driver


def test_the_file_of_an_earlier_driver_is_read_and_becomes_pages_with_the_next_change(directory):
    books = opened(directory)
    (directory / f"{GPU}.json").write_text(OLD)
    assert same(books.get(GPU), full())
    assert books.has_old(GPU)
    books.put(books.get(GPU))
    assert names(directory) == PAGES
    assert same(books.get(GPU), full())
    assert not books.has_old(GPU)


def test_what_an_earlier_driver_writes_beside_pages_counts_as_well(directory):
    books = opened(directory)
    books.put(full().without(SPOT))
    alone = json.loads(OLD)
    alone["ledger"] |= {"made": alone["ledger"]["made"][:1], "mode_switched": False}
    (directory / f"{GPU}.json").write_text(json.dumps(alone))
    assert same(books.get(GPU), full())
    books.put(books.get(GPU).without(OTHER_SPOT))
    assert same(books.get(GPU), full().without(OTHER_SPOT))
    assert f"{GPU}.json" not in names(directory)


# Damage


DAMAGE = {
    "empty": b"",
    "cut off": models.encode(ledger()).encode()[:50],
    "no text": b"\xff\xfe\x00",
    "of a newer driver": models.encode(ledger()).replace('"version": 1', '"version": 9').encode(),
    "with a wrong checksum": models.encode(ledger()).replace("boot-1", "boot-2").encode(),
    "of another GPU": models.encode(ledger(gpu="GPU-2")).encode(),
}


@pytest.mark.parametrize("content", DAMAGE.values(), ids=DAMAGE)
@pytest.mark.parametrize("number", range(len(PAGES)))
def test_of_a_damaged_page_its_name_tells_and_it_is_mended_with_that(directory, content, number):
    books = opened(directory)
    books.put(full())
    (directory / PAGES[number]).write_bytes(content)
    assert same(books.get(GPU), full())
    [key] = books.damaged(GPU)
    assert key == PAGES[number].removesuffix(".json")
    page, aside = books.mend(key)
    assert [page] == [one for one in models.pages(full()) if one.key == key]
    assert aside.read_bytes() == content
    assert not books.damaged(GPU)
    assert same(books.get(GPU), full())


@pytest.mark.parametrize("content", DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_page_goes_like_any_other_once_its_thing_is_undone(directory, content):
    books = opened(directory)
    books.put(ledger())
    (directory / f"{GPU}.{BOOT}.made-9-4-4.json").write_bytes(content)
    books.put(books.get(GPU).without(SPOT))
    assert names(directory) == [f"{GPU}.{BOOT}.mig-mode.json"]


def test_a_damaged_page_is_left_to_be_mended_when_something_else_changes(directory, monkeypatch):
    books = opened(directory)
    books.put(full())
    (directory / PAGES[2]).write_text("damaged")

    def full_disk(*_arguments, **_options):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "write", full_disk)
    books.put(books.get(GPU).without(OTHER_SPOT))
    assert same(books.get(GPU), full().without(OTHER_SPOT))
    assert (directory / PAGES[2]).read_text() == "damaged"


@pytest.mark.parametrize("content", DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_file_of_an_earlier_driver_is_set_aside_and_makes_nothing_ours(
    directory, content
):
    books = opened(directory)
    (directory / f"{GPU}.json").write_bytes(content)
    assert books.get(GPU).is_blank
    books.put(ledger())
    assert books.get(GPU) == ledger()
    assert list(books.damaged(GPU)) == [GPU]
    page, aside = books.mend(GPU)
    assert page is None
    assert aside == directory / f"{GPU}.json.damaged-0"
    assert aside.read_bytes() == content
    assert books.get(GPU) == ledger()
    assert not books.damaged(GPU)


def test_damage_stays_with_its_gpu(directory):
    books = opened(directory)
    books.put(ledger(gpu="GPU-2"))
    (directory / "GPU-3.json").write_text("damaged")
    assert books.get("GPU-2") == ledger(gpu="GPU-2")
    assert not books.damaged("GPU-2")
    assert list(books.damaged("GPU-3")) == ["GPU-3"]
