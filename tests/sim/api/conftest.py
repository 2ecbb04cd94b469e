"""A server of its own for each test, and one that the rules of a module share.

Nothing is mocked: requests go over HTTP. A server starts within some milliseconds.
"""

from collections.abc import Iterator

import api_objects
import pytest


@pytest.fixture
def api() -> Iterator[api_objects.Api]:
    """A fresh server."""
    with api_objects.Api() as running:
        yield running


@pytest.fixture(scope="module")
def shared_api() -> Iterator[api_objects.Api]:
    """A server for tests that leave nothing behind, or do not mind what is there."""
    with api_objects.Api() as running:
        yield running
