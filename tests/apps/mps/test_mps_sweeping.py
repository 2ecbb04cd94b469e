"""Pods of MPS daemons that have ended, and the marks by which they are known."""

import errno
import pathlib
import threading

import disk_faults
import polling
import pytest
import structlog

from dra_driver import errors
from dra_driver.adapters.disk import files
from dra_driver.apps.mps import mps_sweeping

DOMAIN, OTHER = "0" * 16, "1" * 16


class Place:
    """A sweeper, which daemons are wanted, and which pods there are."""

    def __init__(self, root):
        self.directory = root / "mps-pods"
        self.wanted, self.pods = set(), set()
        self.refusal = None
        self.asked, self.answer = threading.Event(), threading.Event()
        self.answer.set()
        self.sweeper = mps_sweeping.Sweeper(
            self.directory, is_wanted=self.wanted.__contains__, remove=self.remove
        )

    def remove(self, domain):
        """Whether there was no pod when this was asked; the answer may come late."""
        is_gone = domain not in self.pods
        self.asked.set()
        assert self.answer.wait(60)
        if self.refusal is not None:
            raise self.refusal
        self.pods.discard(domain)
        return is_gone

    def begin(self, domain):
        """A daemon that is wanted, with its pod."""
        self.sweeper.mark(domain, lambda: self.wanted.add(domain))
        with self.sweeper.making(domain):
            self.pods.add(domain)

    def marks(self):
        return files.names(self.directory)


@pytest.fixture
def place(tmp_path):
    return Place(tmp_path)


@pytest.fixture
def log():
    with structlog.testing.capture_logs() as lines:
        yield lines


def test_without_a_mark_nothing_is_swept(place):
    place.pods.add(DOMAIN)
    assert place.sweeper.sweep()
    assert place.pods == {DOMAIN}


def test_a_pod_whose_daemon_is_wanted_stays(place):
    place.begin(DOMAIN)
    assert place.sweeper.sweep()
    assert (place.pods, place.marks()) == ({DOMAIN}, [DOMAIN])


def test_a_pod_of_an_ended_daemon_is_deleted_and_its_mark_goes_once_it_is_gone(place):
    for domain in (DOMAIN, OTHER):
        place.begin(domain)
    place.wanted.remove(DOMAIN)
    # It is being deleted; the next look finds it gone.
    assert not place.sweeper.sweep()
    assert place.marks() == [DOMAIN, OTHER]
    assert place.sweeper.sweep()
    assert (place.pods, place.marks()) == ({OTHER}, [OTHER])


def test_a_pod_that_is_made_while_it_was_seen_that_there_is_none_keeps_its_mark(place):
    place.sweeper.mark(DOMAIN)
    place.answer.clear()
    swept = []
    sweeping = threading.Thread(target=lambda: swept.append(place.sweeper.sweep()))
    sweeping.start()
    assert place.asked.wait(60)
    place.begin(DOMAIN)
    place.wanted.clear()
    place.answer.set()
    sweeping.join(60)
    assert (swept, place.marks()) == ([False], [DOMAIN])
    while not place.sweeper.sweep():
        pass
    assert (place.pods, place.marks()) == (set(), [])


def test_what_the_api_refuses_is_told_once_and_tried_again(place, log):
    place.begin(DOMAIN)
    place.wanted.clear()
    place.refusal = errors.Retryable("no API server")
    assert not place.sweeper.sweep()
    assert not place.sweeper.sweep()
    [line] = log
    assert (line["mps"], line["reason"]) == (DOMAIN, "no API server")
    place.refusal = None
    assert not place.sweeper.sweep()
    assert place.sweeper.sweep()
    assert place.marks() == []


def test_files_of_others_among_the_marks_are_left_alone(place):
    place.sweeper.mark(DOMAIN, lambda: place.wanted.add(DOMAIN))
    (place.directory / "README").touch()
    assert place.sweeper.sweep()
    assert place.marks() == [DOMAIN, "README"]


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS], ids=errno.errorcode.get)
@pytest.mark.parametrize("function", [(pathlib.Path, "mkdir"), (files.os, "open")])
def test_a_mark_that_the_disk_refuses_is_an_answer_and_wants_nothing(
    place, monkeypatch, code, function
):
    owner, name = function
    usual = getattr(owner, name)

    def refuse(path, *arguments, **options):
        if pathlib.Path(path).is_relative_to(place.directory):
            raise OSError(code, "refused", str(path))
        return usual(path, *arguments, **options)

    monkeypatch.setattr(owner, name, refuse)
    with pytest.raises(files.TROUBLE, match=str(place.directory)):
        place.sweeper.mark(DOMAIN, lambda: place.wanted.add(DOMAIN))
    assert place.wanted == set()


def test_a_directory_that_cannot_be_listed_is_tried_again(place):
    place.begin(DOMAIN)
    place.wanted.clear()
    disk = disk_faults.Disk(errno.EIO, disk_faults.READS, [place.directory], opens="all")
    with disk.failing(), pytest.raises(files.TROUBLE):
        place.sweeper.sweep()
    assert not place.sweeper.sweep()


def test_its_thread_sweeps_as_soon_as_something_has_changed(place):
    place.begin(DOMAIN)
    place.sweeper.start()
    try:
        place.wanted.clear()
        place.sweeper.changed()
        polling.until(lambda: not place.marks())
    finally:
        place.sweeper.stop()
    assert place.pods == set()
