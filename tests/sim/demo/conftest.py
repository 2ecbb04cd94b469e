"""`dra-driver demo` in this process, with a directory for temporary files of its own."""

import pathlib
import tempfile
import threading

import pytest
import structlog
from demo_manifests import NODES

from dra_driver import telemetry
from dra_driver.adapters.console import terminal
from dra_driver.sim.demo import demo


@pytest.fixture
def temporary(monkeypatch):
    """The directory for temporary files, at a short path."""
    with tempfile.TemporaryDirectory(prefix="t-", dir="/tmp") as name:
        monkeypatch.setattr(tempfile, "tempdir", name)
        yield pathlib.Path(name)


@pytest.fixture
def play(capsys, tmp_path, temporary):
    """Runs a manifest; gives the exit status, standard output and standard error."""

    def play(text, stop=None, **options):
        path = tmp_path / "manifest.yaml"
        path.write_text(text)
        asked = demo.Options(**({"files": (path,), "nodes": NODES} | options))
        # As the command line does: what is left of the log goes to standard error.
        telemetry.configure(level="error", log_format="console")
        status = demo.run(asked, stop or threading.Event(), terminal.Terminal())
        captured = capsys.readouterr()
        assert list(temporary.iterdir()) == []
        return status, captured.out, captured.err

    yield play
    structlog.reset_defaults()
