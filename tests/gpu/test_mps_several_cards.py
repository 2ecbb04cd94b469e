"""On two real GPUs: what one daemon for both holds programs to that turn, hide or name cards.

The driver gives a daemon the same cap for every card, and what differs to the programs by UUID. No
setting of a card is changed: compute mode, MIG mode, persistence and time slices stay as they are.
Each program is `mps_client.py --each`, which allocates on every card that it sees until it is
refused, and at most 8 GiB. A message of a failure says what it was given and what it got.
"""

import json
import os
import pathlib
import subprocess
import sys

import gpu_program
import mps_client
import mps_scene
import pytest

from dra_driver.model import mps

GIB = 1024**3
CAP = 4 * GIB
FIRST, SECOND = 2 * GIB, 3 * GIB
"""What a program's own variables say of each card."""
CONTEXT = GIB
"""More than a context takes of a limit, together with what is left of the last block."""


def _cards():
    """The UUIDs in PCI order; none without a driver."""
    try:
        listed = subprocess.run(
            ["nvidia-smi", "--query-gpu=pci.bus_id,uuid", "--format=csv,noheader"],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    except OSError:
        return []
    lines = [line for line in listed.stdout.splitlines() if "GPU-" in line]
    return [line.split(",")[1].strip() for line in sorted(lines)]


CARDS = _cards()
ORDERS = {
    "as they are": None,
    "in order": (0, 1),
    "turned": (1, 0),
    "first alone": (0,),
    "second alone": (1,),
}
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(os.geteuid() != 0, reason="a daemon for all users needs root"),
    pytest.mark.skipif(len(CARDS) < 2, reason=f"two GPUs are needed, and there are {len(CARDS)}"),
]
ALL, ALONE = ["as they are", "in order", "turned"], ["first alone", "second alone"]
NAMES = {"number": ("0", "1"), "UUID": CARDS[:2], "nothing": ()}
NO_DEVICE = 100
MOST = 8 * GIB
"""What a program takes that is not refused anything."""
in_each_order = pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS.keys())


@pytest.fixture
def scene():
    scene = mps_scene.Scene(pathlib.Path("/"))
    yield scene
    scene.close()


@pytest.fixture
def daemon(scene):
    """One daemon of both cards, with the cap for each, as the driver has it."""
    both = ",".join(CARDS[:2])
    return scene.started(scene.daemon(device=both, limits=mps.Limits(None, CAP)))


def by_uuid(limits):
    return ",".join(f"{card}={limit // mps.MIB}M" for card, limit in limits.items())


def got(daemon, order, memory=None):
    """What a program had of each card that it saw: bytes by UUID, in its order."""
    told = said(daemon, order, memory)
    assert "error" not in told, f"order {order}, variable {memory}: {told}"
    return told["allocated"]


def said(daemon, order, memory=None):
    """What a program said of itself."""
    own = {"CUDA_MPS_PIPE_DIRECTORY": daemon.pipe_dir}
    if order is not None:
        own["CUDA_VISIBLE_DEVICES"] = ",".join(CARDS[number] for number in order)
    if memory is not None:
        own["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] = memory
    kept = {name: value for name, value in os.environ.items() if "CUDA" not in name}
    done = subprocess.run(
        [sys.executable, mps_client.__file__, "--each"],
        env={**kept, **own},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    told = f"program with {own}: exit status {done.returncode}: {done.stdout}{done.stderr}"
    assert done.stdout, told
    return json.loads(done.stdout)


def seen(order):
    """The cards that a program sees of the daemon's, in its order."""
    return [CARDS[number] for number in (order or (0, 1))]


def within(limits, allocated):
    """Whether what was had of each card is just what its limit leaves."""
    assert list(allocated) == list(limits), f"cards seen: {allocated}, meant: {limits}"
    for card, limit in limits.items():
        assert limit - CONTEXT <= allocated[card] <= limit, f"had {allocated}, meant {limits}"
    return True


@in_each_order
def test_the_cap_holds_on_each_card_in_whatever_order_a_program_sees_them(daemon, order):
    assert within(dict.fromkeys(seen(order), CAP), got(daemon, order))


@pytest.mark.parametrize("order", [ORDERS[name] for name in ALL], ids=ALL)
def test_a_limit_by_uuid_is_that_of_its_card_in_whatever_order_a_program_sees_them(daemon, order):
    limits = dict(zip(CARDS, (FIRST, SECOND), strict=False))
    meant = {card: limits[card] for card in seen(order)}
    assert within(meant, got(daemon, order, by_uuid(limits)))


@pytest.mark.parametrize("order", [ORDERS[name] for name in ALONE], ids=ALONE)
def test_a_program_that_hides_a_card_and_has_variables_by_uuid_has_no_cap(daemon, order):
    """Which is why the driver gives such variables only where limits differ, and says so."""
    limits = dict(zip(CARDS, (FIRST, SECOND), strict=False))
    assert got(daemon, order, by_uuid(limits)) == dict.fromkeys(seen(order), MOST)


@pytest.mark.parametrize("order", [ORDERS[name] for name in ALL], ids=ALL)
@pytest.mark.parametrize("by", NAMES)
def test_no_variable_that_names_cards_which_a_program_sees_raises_the_cap(daemon, order, by):
    memory = ",".join(f"{name}=8G" for name in NAMES[by])
    assert within(dict.fromkeys(seen(order), CAP), got(daemon, order, memory))


@pytest.mark.parametrize("order", [ORDERS[name] for name in ALONE], ids=ALONE)
@pytest.mark.parametrize("by", ["number", "UUID"])
def test_a_variable_that_names_a_card_which_a_program_does_not_see_takes_the_cap_away(
    daemon, order, by
):
    memory = ",".join(f"{name}=8G" for name in NAMES[by])
    assert got(daemon, order, memory) == dict.fromkeys(seen(order), MOST)


@pytest.mark.parametrize("order", [ORDERS[name] for name in ALONE], ids=ALONE)
def test_an_empty_variable_leaves_the_cap_to_a_program_that_hides_a_card(daemon, order):
    assert within(dict.fromkeys(seen(order), CAP), got(daemon, order, ""))


def test_a_number_in_a_variable_is_that_of_the_programs_own_order(daemon):
    """Which is why the driver gives programs UUIDs, and daemons the same for every number."""
    memory = f"0={FIRST // mps.MIB}M,1={SECOND // mps.MIB}M"
    assert within({CARDS[0]: FIRST, CARDS[1]: SECOND}, got(daemon, (0, 1), memory))
    assert within({CARDS[1]: FIRST, CARDS[0]: SECOND}, got(daemon, (1, 0), memory))


def test_a_daemon_of_both_cards_and_one_of_a_card_of_them_hold_their_caps_at_the_same_time(scene):
    """As shares of several cards in one request have it, beside a share of one of the cards."""
    both = ",".join(CARDS[:2])
    large, small = mps.Limits(50, CAP), mps.Limits(20, 2 * GIB)
    of_both = scene.started(scene.daemon(1, large, device=both))
    of_one = scene.started(scene.daemon(2, small, device=CARDS[0]))

    with gpu_program.Program(CARDS[0], of_one) as neighbour:
        assert within(dict.fromkeys(CARDS[:2], CAP), got(of_both, None))
        assert small.memory_bytes - CONTEXT <= neighbour.seen["allocated"] <= small.memory_bytes
        scene.launcher().stop(of_both, 15)
        assert neighbour.usable()


def test_the_cap_of_a_daemon_of_the_second_card_holds_for_a_program_that_has_both(scene):
    """It has the device nodes of both: its numbers may begin with a card that is not served."""
    daemon = scene.started(scene.daemon(device=CARDS[1], limits=mps.Limits(None, CAP)))

    for order in (None, (1,)):
        allocated = got(daemon, order)
        assert allocated[CARDS[1]] <= CAP, f"order {order}: had {allocated}"


def test_a_program_that_names_a_card_which_its_daemon_does_not_serve_first_finds_none(scene):
    """It does not run without MPS, and so without limits, either."""
    daemon = scene.started(scene.daemon(device=CARDS[1], limits=mps.Limits(None, CAP)))

    assert said(daemon, (0, 1)) == {"error": f"cuInit: {NO_DEVICE}"}
