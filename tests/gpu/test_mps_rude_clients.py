"""On a real GPU: clients that connect to a daemon and say nothing, or rubbish; and what variables
of a client do to its limits. No setting of the card is changed.
"""

import contextlib
import os
import pathlib
import socket

import gpu_program
import mps_scene
import polling
import pytest

from dra_driver.adapters.mps import mps_local
from dra_driver.model import mps

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(os.geteuid() != 0, reason="a daemon for all users needs root"),
]
GIB = 1024**3
LIMITS = mps.Limits(30, 3 * GIB)
MOST = 8 * GIB
"""What a program takes that is not refused anything."""
SILENT = 20
"""More clients at once than one look of the guard takes care of."""
NO_SUCH_CARD = "GPU-12345678-0000-0000-0000-000000000001"


@contextlib.contextmanager
def connected(daemon):
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as client:
        client.settimeout(60)
        client.connect(f"{daemon.pipe_dir}/control")
        yield client


def is_cut(client):
    """Waits until it is; what the daemon says first may be there still."""
    with contextlib.suppress(ConnectionResetError):
        while client.recv(64):
            pass
    return True


def test_silent_clients_are_cut_off_while_programs_go_on_and_others_can_begin(scene, gpu, alone):
    daemon = scene.started(scene.daemon(device=gpu, limits=LIMITS))
    process = mps_scene.process(daemon)
    with gpu_program.Program(gpu, daemon) as running, contextlib.ExitStack() as stack:
        clients = [stack.enter_context(connected(daemon)) for _ in range(SILENT)]
        assert all(is_cut(client) for client in clients)
        polling.until(lambda: scene.launcher().state(daemon) is mps_local.State.READY)
        gpu_program.assert_capped(gpu_program.seen(gpu, daemon), alone, LIMITS)
        assert mps_scene.process(daemon) == process
        assert running.usable()


def test_rubbish_fills_no_disk_and_keeps_nobody_out(scene, gpu, alone):
    daemon = scene.started(scene.daemon(device=gpu, limits=LIMITS))
    process = mps_scene.process(daemon)
    for _ in range(200):
        with connected(daemon) as client, contextlib.suppress(OSError):
            client.settimeout(0.05)
            for _ in range(20):
                client.send(os.urandom(4096))
    polling.until(lambda: scene.launcher().state(daemon) is mps_local.State.READY)
    gpu_program.assert_capped(gpu_program.seen(gpu, daemon), alone, LIMITS)
    assert mps_scene.process(daemon) == process
    logs = sum(path.stat().st_size for path in pathlib.Path(daemon.log_dir).iterdir())
    assert logs < 4 * mps.MIB


@pytest.mark.parametrize("value", ["100", "200", "0", "abc"])
def test_no_value_of_its_variable_gives_a_program_more_of_the_multiprocessors(
    scene, gpu, alone, value
):
    daemon = scene.started(scene.daemon(device=gpu, limits=LIMITS))
    found = gpu_program.seen(gpu, daemon, CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=value)
    gpu_program.assert_capped(found, alone, LIMITS)


@pytest.mark.parametrize("value", ["7=1G", f"{NO_SUCH_CARD}=1G", "abc", "0=", "0=1G,7=1G"])
def test_a_variable_that_names_nothing_that_it_sees_takes_the_memory_limit_of_a_program_away(
    scene, gpu, value
):
    """What docs/security.md says of such programs: no setting of the daemon prevents it."""
    daemon = scene.started(scene.daemon(device=gpu, limits=LIMITS))
    found = gpu_program.seen(gpu, daemon, CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=value)
    assert found["allocated"] == MOST
