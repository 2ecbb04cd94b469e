"""CUDA programs on a real GPU, as clients of an MPS daemon or without one."""

import json
import os
import subprocess
import sys

import mps_client

GIB = 1024**3
PERCENT_TO_SPARE = 4
"""A share of the multiprocessors is rounded to pairs of them."""


class Program:
    """A CUDA program that holds what it got until the end of the block."""

    def __init__(self, gpu, daemon, *flags, **environment):
        place = {} if daemon is None else {"CUDA_MPS_PIPE_DIRECTORY": daemon.pipe_dir}
        kept = {name: value for name, value in os.environ.items() if "CUDA" not in name}
        self.process = subprocess.Popen(
            [sys.executable, mps_client.__file__, "--hold", *flags],
            env={**kept, "CUDA_VISIBLE_DEVICES": gpu, **place, **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.seen = json.loads(self.process.stdout.readline())

    def usable(self):
        """Whether its context is usable to the end, which this is."""
        said, _ = self.process.communicate(timeout=60)
        return json.loads(said)["usable"]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate(timeout=60)


def seen(gpu, daemon, *flags, **environment):
    with Program(gpu, daemon, *flags, **environment) as program:
        return program.seen


def assert_capped(seen, alone, limits):
    if limits.memory_bytes is not None:
        # The context itself takes up to half a GiB of it.
        assert limits.memory_bytes - GIB <= seen["allocated"] <= limits.memory_bytes
    share = 100 * seen["sms"] / alone["sms"]
    wanted = limits.thread_percentage or 100
    assert wanted - PERCENT_TO_SPARE <= share <= wanted + PERCENT_TO_SPARE
