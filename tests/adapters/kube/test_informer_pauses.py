"""How long an informer waits before it asks the API server again."""

import polling
import pytest
import served_api
from served_api import CONFIG_MAPS

from dra_driver.adapters.kube import informer
from dra_driver.sim.api.serving import options


@pytest.fixture
def api(tmp_path):
    made = served_api.ServedApi(tmp_path)
    yield made
    made.close()


def pauses_until(api, condition):
    """The pauses of an informer that has ended, after this was true; they take no time."""
    made, noted = informer.Informer(api.client, CONFIG_MAPS), []
    pause = made._worker.pause

    def pass_over(seconds):
        noted.append(seconds)
        return pause(0)

    made.chance = lambda: 1.0
    made._worker.pause = pass_over
    made.start()
    polling.until(lambda: condition(noted))
    made.stop()
    assert not made.is_alive
    return noted


def test_the_pauses_between_tries_double_up_to_a_limit(api, monkeypatch):
    monkeypatch.setattr(informer, "LAST_BACKOFF", 0.5)
    api.stop()
    pauses = pauses_until(api, lambda noted: len(noted) > 4)
    assert pauses[:4] == [0.2, 0.4, 0.5, 0.5]


def test_a_server_that_asks_for_it_is_left_alone_for_that_long(api):
    api.fail(options.Fault(status=429, retry_after=7), verb="list")
    pauses = pauses_until(api, lambda _: api.count("watch"))
    assert pauses[0] == 7 * 1.25


def test_a_server_that_ends_every_watch_at_once_is_not_asked_without_a_pause(api):
    api.store.close()
    pauses = pauses_until(api, lambda _: api.count("watch") > 4)
    assert pauses == [informer.FIRST_BACKOFF] * api.count("watch")
    assert api.count("list") == 1


def test_a_server_that_always_says_gone_is_not_asked_without_a_pause(api):
    api.rule = lambda call: options.Fault(status=410) if call.verb == "watch" else None
    pauses = pauses_until(api, lambda _: api.count("watch") > 4)
    assert pauses == [informer.FIRST_BACKOFF] * api.count("watch")
