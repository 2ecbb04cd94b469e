"""Reading a claim from an API server that stumbles."""

import dataclasses
import threading

import api_cluster
import plugin_process
import pytest

from dra_driver.adapters.kube import kube
from dra_driver.adapters.system import patience
from dra_driver.apps.preparing import fetching
from dra_driver.logic.preparing import planning
from dra_driver.model import claims
from dra_driver.sim.api.serving import options

pytestmark = pytest.mark.sampled(7)

UNAVAILABLE = options.Fault(status=503, reason="ServiceUnavailable")
BUSY = options.Fault(status=429, reason="TooManyRequests", retry_after=1)
BROKEN = options.Fault(status=500, reason="InternalError")
CUT_OFF = options.Fault(drop="before")
CUT_OFF_AFTER = options.Fault(drop="after")


@pytest.mark.parametrize(
    "faults",
    [[UNAVAILABLE], [BUSY], [BROKEN], [CUT_OFF] * 3, [CUT_OFF_AFTER], [UNAVAILABLE, CUT_OFF] * 2],
    ids=["unavailable", "busy", "broken", "cut off", "cut off after", "mixed"],
)
def test_a_transient_error_is_tried_again_inside_the_call(kubelet, cluster, faults):
    ref = cluster.claim("gpu-0")
    with cluster.faults.claims_of(ref.name, *faults) as happened:
        assert kubelet.prepare(ref) == [plugin_process.device(ref, "gpu-0")]
    assert happened == faults


def test_a_right_that_the_driver_lacks_is_told_at_once(kubelet, cluster, machine):
    ref = cluster.claim("gpu-0")
    forbidden = options.Fault(status=403, reason="Forbidden", message="cannot get resourceclaims")
    with cluster.faults.claims_of(ref.name, *[forbidden] * 3) as happened:
        error = kubelet.refusal(ref)
    assert "403 Forbidden: cannot get resourceclaims" in error
    assert happened == [forbidden]
    assert machine.files() == []


def test_an_api_server_that_stays_away_is_an_error_before_the_call_ends(kubelet, cluster, machine):
    ref = cluster.claim("gpu-0")
    with cluster.faults.claims_of(ref.name, *[UNAVAILABLE] * 100):
        assert "503" in kubelet.refusal(ref, timeout=4)
    assert machine.files() == []


def test_an_api_server_that_never_answers_is_an_error_before_the_call_ends(kubelet, cluster):
    ref = cluster.claim("gpu-0")
    with cluster.faults.claims_of(ref.name, *[options.Fault(delay_seconds=4.6)] * 100):
        assert str(ref.name) in kubelet.refusal(ref, timeout=4)


def test_a_claim_whose_read_never_ends_does_not_lose_the_answers_of_the_others(kubelet, cluster):
    stuck, good = cluster.claim("gpu-0"), cluster.claim("gpu-1")

    def answered():
        answers = kubelet.ask_prepare(stuck, good, timeout=4.5)
        assert answers[stuck.uid].error
        return answers[good.uid].devices

    with cluster.faults.claims_of(stuck.name, *[options.Fault(delay_seconds=4.6)] * 100):
        # What is left for the other one is half a second, which a busy machine may take.
        assert [one.device for one in api_cluster.wait_for(answered, "its devices")] == ["gpu-1"]


def test_a_plugin_that_starts_without_an_api_server_answers_and_then_works(
    own_cluster, own_machine, own_plugin
):
    own_cluster.stop()
    plugin = own_plugin().start()
    with plugin.registration() as registration:
        assert registration.get_info(api_cluster.DEADLINE).name == api_cluster.DRIVER
    plugin.wait_log("ResourceSlices not published")
    own_cluster.start()
    own_cluster.create_node()
    ref = own_cluster.claim("gpu-0")
    assert plugin.kubelet.prepare(ref) == [plugin_process.device(ref, "gpu-0")]
    own_cluster.wait_devices("gpu-0", "gpu-1")


def test_a_call_that_comes_before_the_api_server_waits_for_it(own_cluster, own_plugin):
    ref = own_cluster.claim("gpu-0")
    body = own_cluster.get_claim(ref)
    assert body["metadata"]["uid"] == ref.uid
    plugin = own_plugin().start()
    with own_cluster.faults.where(lambda _call: options.Fault(drop="before")):
        answer = []
        calling = plugin_process.in_background(lambda: answer.append(plugin.kubelet.prepare(ref)))
        plugin.wait_log("claim not read; trying again", claim_uid=ref.uid)
    calling.join(api_cluster.DEADLINE)
    assert answer == [[plugin_process.device(ref, "gpu-0")]]


class AwayForEver:
    """A client whose API server never answers."""

    def get_path(self, path, **_options):
        raise kube.Unavailable(f"GET {path}", 0, "no answer", "it is away")


class ForgottenByAnother(fetching.ApiClaims):
    """Another thread finds, after each look at the version, that it is no longer offered."""

    @property
    def _resource(self):
        value, self._kept = self._kept, None
        return value

    @_resource.setter
    def _resource(self, value):
        self._kept = value


def test_a_version_that_another_thread_forgets_meanwhile_is_learnt_anew(own_cluster):
    ref = own_cluster.claim("gpu-0")
    source = ForgottenByAnother(own_cluster.client, threading.Event())
    source._resource = kube.CLAIMS
    for _ in range(2):
        found = source.fetch(ref, patience.Patience(api_cluster.DEADLINE))
        assert found.ref == ref


def test_once_the_driver_stops_nothing_is_tried_again():
    stopping = threading.Event()
    stopping.set()
    source = fetching.ApiClaims(AwayForEver(), stopping)
    ref = claims.ClaimRef("default", "claim", claims.ClaimUid("uid-1"))
    with pytest.raises(kube.Unavailable, match="it is away"):
        source.fetch(ref, patience.Patience(3600))


def test_a_server_that_asks_for_more_time_than_there_is_is_not_asked_again(own_cluster):
    source = fetching.ApiClaims(own_cluster.client, threading.Event(), chance=lambda: 0.0)
    ref = own_cluster.claim("gpu-0")
    busy = options.Fault(status=429, reason="TooManyRequests", retry_after=30)
    with (
        own_cluster.faults.claims_of(ref.name, *[busy] * 3) as happened,
        pytest.raises(kube.Unavailable, match="429"),
    ):
        source.fetch(ref, patience.Patience(29))
    assert happened == [busy]


def test_the_pauses_between_tries_are_spread(own_cluster):
    pauses = []

    class Waiting(patience.Patience):
        def sleep(self, seconds):
            pauses.append(seconds)

    source = fetching.ApiClaims(own_cluster.client, threading.Event(), chance=lambda: 0.5)
    ref = own_cluster.claim("gpu-0")
    with own_cluster.faults.claims_of(ref.name, *[UNAVAILABLE] * 6):
        source.fetch(ref, Waiting(api_cluster.DEADLINE))
    assert [round(pause, 3) for pause in pauses] == [0.075, 0.15, 0.3, 0.6, 1.2, 1.5]


def test_of_all_claims_those_are_kept_that_are_of_the_node_or_asked_for(own_cluster, monkeypatch):
    monkeypatch.setattr(kube, "PAGE", 2)
    here = [own_cluster.claim("gpu-0"), own_cluster.claim("gpu-1", namespace="admin")]
    elsewhere = [own_cluster.claim({"device": "gpu-0", "pool": "node-2"}) for _ in range(3)]
    others = own_cluster.claim({"device": "gpu-0", "driver": "nic.example.com"})
    free = own_cluster.claim(allocate=False)
    source = fetching.ApiClaims(own_cluster.client, threading.Event())
    node = planning.Node(api_cluster.DRIVER, api_cluster.NODE)

    def kept(*uids):
        return {claim.ref for claim in source.concerning(node, {*uids})}

    assert kept() == {*here}
    assert kept(elsewhere[1].uid, free.uid, "unknown") == {*here, elsewhere[1], free}
    assert kept(others.uid) == {*here, others}
    [found] = [one for one in source.concerning(node, ()) if one.ref == here[0]]
    assert found == source.fetch(here[0], patience.Patience(api_cluster.DEADLINE))
    # One page is in memory at a time.
    lists = [call for call in own_cluster.faults.calls if call.verb == "list"]
    assert len(lists) == 4 * 4


def test_a_version_that_is_no_longer_offered_is_learnt_anew_by_a_list_too(own_cluster):
    source = fetching.ApiClaims(own_cluster.client, threading.Event())
    source._resource = dataclasses.replace(kube.CLAIMS, version="v1beta1")
    node = planning.Node(api_cluster.DRIVER, api_cluster.NODE)
    with pytest.raises(kube.NotFound):
        source.concerning(node, ())
    assert source.concerning(node, ()) == []
