"""What the settings make of the machine."""

import pytest

from dra_driver import errors, settings
from dra_driver.adapters.system import patience
from dra_driver.apps.node import host
from dra_driver.model import mps

TABLE = """\
+-------------------------------------+
| GPU compute policies:               |
| GPU     Name           Value        |
|=====================================|
|   0   Timeslice       Medium        |
+-------------------------------------+
"""


def test_nvidia_smi_is_that_of_the_driver_root_with_the_libraries_of_the_settings(tmp_path):
    program = tmp_path / "usr/bin/nvidia-smi"
    library = tmp_path / "opt/mine/libnvidia-ml.so.1"
    for path in (program, library):
        path.parent.mkdir(parents=True)
    library.touch()
    environ = tmp_path / "environ"
    program.write_text(f"#!/bin/sh\ncat /proc/$$/environ >{environ}\ncat <<'END'\n{TABLE}END\n")
    program.chmod(0o755)
    config = settings.KubeletPlugin(
        node_name="here",
        driver_root="/run/nvidia/driver",
        driver_root_seen=tmp_path,
        library_dirs=("/opt/mine",),
    )

    assert host.hardware(config).nvidia_smi.time_slice("GPU-1") == 2
    assert environ.read_bytes() == f"LD_LIBRARY_PATH={library.parent}\0".encode()


def test_device_nodes_that_cannot_be_looked_for_are_a_reason_and_no_failure(tmp_path):
    """As behind a mount that has gone."""
    config = settings.KubeletPlugin(node_name="here", driver_root_seen=tmp_path / ("x" * 300))
    assert "File name too long" in host.missing(host.installed_driver(config), [])


def test_what_runs_mps_daemons_has_the_directories_of_the_settings(own_machine):
    """So has a pod; see the tests of the chart."""
    config = settings.KubeletPlugin(
        node_name="here", driver_root_seen=own_machine.root, library_dirs="/opt/mine/lib"
    )
    launcher = host.hardware(config).launcher
    daemon = mps.daemon(
        root=str(own_machine.root), daemon_id="1" * 16, device="GPU-1", shm_bytes=mps.MIB
    )
    # There is no driver: the supervisor says where it looked.
    try:
        launcher.start(daemon)
        with pytest.raises(errors.Retryable) as caught:
            launcher.wait_ready(daemon, patience.Patience(60))
    finally:
        launcher.stop(daemon, 10)

    assert "no nvidia-cuda-mps-control in /opt/mine/bin, " in str(caught.value)
