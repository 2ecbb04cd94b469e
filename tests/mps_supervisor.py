"""Supervisors of MPS daemons, as processes of their own, and programs for them to run."""

import contextlib
import json
import pathlib
import signal
import subprocess
import sys

import mps_scene
import polling


class Supervisor:
    """One process of `dra-driver mps-daemon`."""

    def __init__(
        self, place, daemon, *flags, shm=False, command=(sys.executable, "-m", "dra_driver")
    ):
        self.daemon = daemon
        self.domain = mps_scene.domain(daemon)
        self.domain.create(daemon, shm=shm)
        self._log = pathlib.Path(daemon.log_dir) / "supervisor.log"
        command = [*command, "mps-daemon"]
        place = ["--file", self.domain.description, "--driver-root", place.driver_root]
        with self._log.open("ab") as log:
            self.process = subprocess.Popen([*command, *place, *flags], stdout=log, stderr=log)

    def log(self, event):
        # The last line may be written at this moment.
        whole = self._log.read_text(encoding="utf-8").rpartition("\n")[0].splitlines()
        return [line for line in map(json.loads, whole) if line["event"] == event]

    def wait_log(self, event, count=1):
        return polling.until(
            lambda: len(found := self.log(event)) >= count and found, what=f"log of {event!r}"
        )

    def wait_ready(self):
        polling.until(self.domain.ready, what="a ready daemon")
        return self

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)


@contextlib.contextmanager
def starting(place):
    """What starts supervisors; those that are left at the end are killed."""
    started = []

    def start(daemon, *flags, **options):
        started.append(Supervisor(place, daemon, *flags, **options))
        return started[-1]

    yield start
    for each in started:
        if each.process.poll() is None:
            each.process.kill()
        each.process.wait(60)


def wrap(place, script):
    """Put a script between the supervisor and the control program, `$real`."""
    real = place.program.with_name("real")
    place.program.rename(real)
    place.program.write_text(f'#!/bin/sh\nreal="{real}"\n{script}\n', encoding="utf-8")
    place.program.chmod(0o755)
