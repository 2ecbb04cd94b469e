"""When Fabric Manager is asked, and what counts while it does not answer."""

import threading

import mig_cards
import pytest
import structlog

from dra_driver import errors, settings
from dra_driver.adapters.driver import driver_root
from dra_driver.apps.offering import fabric as asking
from dra_driver.model import devices, fabric

ONE = (fabric.Partition(7, (fabric.Member(1),)),)
OTHER = (fabric.Partition(9, (fabric.Member(1),)),)


@pytest.fixture
def log():
    with structlog.testing.capture_logs() as lines:
        yield lines


class Manager:
    """Gives one answer after the other; an error is raised."""

    def __init__(self, *answers):
        self.answers = list(answers)

    def __call__(self):
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def gpu(**facts):
    known = mig_cards.gpu(mig_cards.H100)
    return devices.Gpu(
        **{name: getattr(known, name) for name in known.__slots__} | {"module_id": 1} | facts
    )


def seen(subject, **facts):
    [found] = subject.placed([gpu(**facts)])
    return found.fabric


DOWN = errors.Retryable("nobody answers")


def test_before_an_answer_there_is_no_partition_but_what_a_record_tells():
    subject = asking.Fabric(Manager(DOWN))
    assert seen(subject) == ()
    assert not subject.ask()
    assert seen(subject) == ()
    assert seen(subject, fabric=((1, 3),)) == ((1, 3),)


def test_an_answer_counts_until_the_next_one():
    subject = asking.Fabric(Manager(ONE, DOWN, OTHER, ()))
    for expected in (((1, 7),), ((1, 7),), ((1, 9),), ()):
        subject.ask()
        assert seen(subject) == seen(subject, fabric=((1, 3),)) == expected


def test_the_log_tells_of_each_answer_and_each_reason_once(log):
    other = errors.Rejected("nonsense")
    subject = asking.Fabric(Manager(DOWN, DOWN, ONE, ONE, DOWN, other, OTHER))
    assert [subject.ask() for _ in range(7)] == [False, False, True, True, False, False, True]
    told = [line.get("reason", line.get("partitions")) for line in log]
    assert told == ["nobody answers", 1, "nobody answers", "nonsense", 1]


def test_what_is_odd_about_an_answer_is_said_once(log):
    twice = (*ONE, fabric.Partition(8, (fabric.Member(1),)))
    subject = asking.Fabric(Manager(twice))
    subject.ask()
    assert seen(subject) == seen(subject) == ()
    assert [line["event"] for line in log if line["log_level"] == "warning"] == [
        "attributes are left out"
    ]


def test_the_first_answer_is_there_when_it_has_started():
    subject = asking.Fabric(Manager(ONE))
    subject.start()
    assert seen(subject) == ((1, 7),)
    subject.stop()


def test_it_asks_again_soon_where_there_was_no_answer():
    there = threading.Event()

    def ask(answers=Manager(DOWN, ValueError("a bug"), ONE)):  # noqa: B008 - one for all calls
        found = answers()
        there.set()
        return found

    subject = asking.Fabric(ask, again=0.0)
    subject.start()
    assert there.wait(30)
    subject.stop()
    assert seen(subject) == ((1, 7),)


def of_node(**flags):
    config = settings.KubeletPlugin(node_name="node-1", **flags)
    return asking.of_node(config, driver_root.Layout(driver_root.Root("/", config.host_root)))


def test_where_nobody_is_asked_nothing_is_published(log):
    subject = of_node(vfio="on")
    subject.start()
    assert seen(subject) is None
    assert seen(subject, fabric=((1, 3),)) is None
    subject.stop()
    assert log == []


def test_where_no_gpu_is_for_virtual_machines_the_setting_is_said_to_be_without_effect(log):
    assert seen(of_node(fabric_manager="127.0.0.1:6666")) is None
    assert [line["reason"] for line in log] == ["--fabric-manager: vfio is off for all GPUs"]
    assert seen(of_node(fabric_manager="127.0.0.1:6666", vfio="on")) == ()
