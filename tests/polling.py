"""Waiting for what other threads and processes do."""

import time


def until(condition, *, seconds=60.0, what="the condition"):
    """The first true value of `condition()`; fails when there is none within `seconds`."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, f"{what} did not come true within {seconds} s"
        time.sleep(0.005)
    return value
