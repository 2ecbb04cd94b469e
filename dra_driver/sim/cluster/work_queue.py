"""A queue of keys to look at: each key is in it once, and a failed one comes back later."""

import collections
import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

Key = TypeVar("Key")

FIRST_BACKOFF = 0.1
LAST_BACKOFF = 10.0
"""Seconds until a failed key comes back: at first, and longest after doubling."""


class WorkQueue(Generic[Key]):
    """First in, first out, for any number of producers.

    With `rank` keys of a higher one come first. It is asked when a key is taken, and must not call
    the queue.
    """

    def __init__(self, rank: Callable[[Key], int] | None = None) -> None:
        self._rank = rank
        self._changed = threading.Condition()
        self._ready: collections.OrderedDict[Key, None] = collections.OrderedDict()
        self._later: dict[Key, float] = {}
        self._failures: collections.Counter[Key] = collections.Counter()
        self._closed = False

    def put(self, key: Key) -> None:
        """Look at the key soon."""
        with self._changed:
            self._later.pop(key, None)
            self._ready.setdefault(key)
            self._changed.notify()

    def failed(self, key: Key) -> None:
        """Look at the key again after a while, longer each time, unless it is put before."""
        with self._changed:
            delay = min(FIRST_BACKOFF * 2 ** self._failures[key], LAST_BACKOFF)
            self._failures[key] += 1
            if key not in self._ready:
                self._later[key] = time.monotonic() + delay
            self._changed.notify()

    def put_in(self, key: Key, seconds: float) -> None:
        """Look at the key after a while, or when it comes back anyway if that is sooner."""
        with self._changed:
            if key not in self._ready:
                due = time.monotonic() + seconds
                self._later[key] = min(due, self._later.get(key, due))
            self._changed.notify()

    def succeeded(self, key: Key) -> None:
        """Forget that the key has failed."""
        with self._changed:
            self._failures.pop(key, None)

    def get(self) -> Key | None:
        """The next key, waiting for one; None when the queue is closed."""
        with self._changed:
            while not self._closed:
                now = time.monotonic()
                for key in [key for key, due in self._later.items() if due <= now]:
                    del self._later[key]
                    self._ready.setdefault(key)
                if self._ready:
                    return self._next()
                due = min(self._later.values(), default=None)
                self._changed.wait(None if due is None else due - now)
            return None

    def _next(self) -> Key:
        if self._rank is None:
            return self._ready.popitem(last=False)[0]
        # Of equals the first, which has waited longest.
        key = max(self._ready, key=self._rank)
        del self._ready[key]
        return key

    @property
    def closed(self) -> bool:
        """Whether it is."""
        return self._closed

    def close(self) -> None:
        """Wake and end whoever waits."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
