import stat

import pytest

from dra_driver.adapters import ledgers
from dra_driver.model import ledgers as models
from dra_driver.model import mig

GPU = "GPU-c5726ad2-d34b-8cef-760b-3ddf171d7f19"
SPOT = mig.Spot(9, mig.Placement(4, 4))


@pytest.fixture
def directory(tmp_path):
    return tmp_path / "ledgers"


def opened(directory, boot="boot-1"):
    return ledgers.Ledgers(directory, boot_id=boot)


def ledger(boot="boot-1", gpu=GPU):
    return models.Ledger(gpu=gpu, boot_id=boot).adding(SPOT).switched(on=True)


def file_of(directory, gpu=GPU):
    return directory / f"{gpu}.json"


def test_a_gpu_that_nothing_was_done_to_has_a_blank_ledger_of_this_boot(directory):
    assert opened(directory).get(GPU) == models.Ledger(gpu=GPU, boot_id="boot-1")
    assert list(directory.iterdir()) == []


def test_what_was_put_is_there_for_who_comes_next(directory):
    opened(directory).put(ledger())
    assert opened(directory).get(GPU) == ledger()
    assert [path.name for path in directory.iterdir()] == [f"{GPU}.json"]


def test_each_gpu_has_a_ledger_of_its_own(directory):
    books = opened(directory)
    books.put(ledger())
    books.put(ledger(gpu="GPU-2").without(SPOT))
    assert books.get(GPU) == ledger()
    assert books.get("GPU-2").spots == frozenset()
    assert books.get("GPU-3").is_blank


def test_the_directory_is_for_the_driver_alone(directory):
    opened(directory)
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    opened(directory)


def test_after_a_reboot_nothing_that_was_done_before_counts(directory):
    opened(directory).put(ledger())
    after = opened(directory, "boot-2")
    assert after.get(GPU) == models.Ledger(gpu=GPU, boot_id="boot-2")
    after.put(after.get(GPU).adding(SPOT))
    assert after.get(GPU).spots == {SPOT}
    assert not after.get(GPU).mode_switched


DAMAGED = {
    "empty": b"",
    "cut off": models.encode(ledger()).encode()[:50],
    "no text": b"\xff\xfe\x00",
    "of a newer driver": models.encode(ledger()).replace('"version": 1', '"version": 9').encode(),
    "of another GPU": models.encode(ledger(gpu="GPU-2")).encode(),
}


@pytest.mark.parametrize("content", DAMAGED.values(), ids=DAMAGED)
def test_a_file_that_tells_nothing_sure_counts_as_none_and_can_be_written_over(directory, content):
    books = opened(directory)
    file_of(directory).write_bytes(content)
    assert books.get(GPU) == models.Ledger(gpu=GPU, boot_id="boot-1")
    books.put(ledger())
    assert books.get(GPU) == ledger()


def test_a_ledger_that_tells_nothing_any_more_leaves_no_file(directory):
    books = opened(directory)
    books.put(ledger())
    books.put(books.get(GPU).without(SPOT))
    assert file_of(directory).exists()
    books.put(books.get(GPU).switched(on=False))
    assert list(directory.iterdir()) == []
    books.put(books.get(GPU))
    assert list(directory.iterdir()) == []
