"""Tests that need a GPU or podman say so by a marker, and are skipped where there is none."""

import os
import pathlib
import shutil

import effort
import pytest
import structlog

# In the child of a fork gRPC's handlers start threads, and those abort the process once what closes
# descriptors before it runs a program has closed theirs. gRPC reads this when it is first used.
os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "0"

_PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin:/bin"
_PODMAN_TOOLS = ("podman", "runc", "busybox", "unshare")


def pytest_configure(config):
    effort.choose(config.option.markexpr)


# Before those are left out that are not asked for by their markers.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    effort.mark(items)
    no_gpu = pytest.mark.skip(reason="no NVIDIA driver: /dev/nvidiactl is absent")
    no_podman = pytest.mark.skip(reason="podman, runc, busybox-static and root are needed")
    has_gpu = pathlib.Path("/dev/nvidiactl").exists()
    has_podman = os.geteuid() == 0 and all(shutil.which(tool, path=_PATH) for tool in _PODMAN_TOOLS)
    for item in items:
        if "gpu" in item.keywords and not has_gpu:
            item.add_marker(no_gpu)
        if "podman" in item.keywords and not has_podman:
            item.add_marker(no_podman)


@pytest.fixture(autouse=True)
def _logging_as_it_was():
    """A test that sets logging up writes to a stream that is closed after it."""
    yield
    structlog.reset_defaults()
