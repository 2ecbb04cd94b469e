"""What the kubelet knows of claims: a real API server, and plugins on real sockets."""

import threading

import kubelet_node
import pytest
import scripted_plugin
from polling import until

from dra_driver import errors
from dra_driver.adapters.kube import kube
from dra_driver.adapters.kubelet import dra_grpc
from dra_driver.model import claims, prepared
from dra_driver.sim.cluster import claim_cache, plugins

OTHER_DRIVER = "net.example.com"


@pytest.fixture(scope="module")
def node():
    made = kubelet_node.OneNode()
    yield made
    made.close()


@pytest.fixture
def manager(node):
    made = plugins.Plugins(node.registry, on_gone=lambda _driver: None)
    made.start()
    yield made
    made.stop()


@pytest.fixture
def plugin(node, manager):
    made = scripted_plugin.ScriptedPlugin(node.registry).start()
    assert manager.wait_registered(made.name, 60)
    yield made
    made.stop()


@pytest.fixture
def other(node, manager):
    """A plugin of another driver."""
    made = scripted_plugin.ScriptedPlugin(node.registry, name=OTHER_DRIVER).start()
    assert manager.wait_registered(made.name, 60)
    yield made
    made.stop()


@pytest.fixture
def cache(node, manager):
    yield claim_cache.ClaimCache(node.client, manager)
    node.client.delete_collection(kube.PODS, "default", field_selector="")
    node.client.delete_collection(kube.CLAIMS, "default", field_selector="")
    for body in node.client.list(kube.CLAIMS)[0]:
        node.client.patch(
            kube.CLAIMS, body["metadata"]["name"], {"metadata": {"finalizers": None}}, "default"
        )


@pytest.fixture
def pod(node, cache):
    """Makes pods that have claims reserved for them."""

    def pod(name, *claim_names):
        made = node.add_pod(name, {claim: claim for claim in claim_names})
        for claim in claim_names:
            node.reserve(claim, made)
        return kubelet_node.pod_claims(made, **{claim: claim for claim in claim_names})

    return pod


def ids(claim):
    return [cdi_id for _, device in claim.devices for cdi_id in device.cdi_ids]


# Prepare


def test_the_claims_of_a_pod_are_prepared_in_one_call_a_driver(node, plugin, other, cache, pod):
    node.add_claim("one")
    node.add_claim("two")
    node.add_claim("net", driver=OTHER_DRIVER)
    done = cache.prepare(pod("train", "one", "two", "net"))
    assert plugin.calls == [("prepare", ["one", "two"])]
    assert other.calls == [("prepare", ["net"])]
    assert list(done) == ["one", "two", "net"]
    assert [len(ids(claim)) for claim in done.values()] == [1, 1, 1]
    assert done["net"].devices[0][0] == OTHER_DRIVER
    assert done["one"].ref.name == "one"


def test_a_claim_with_devices_of_two_drivers_goes_to_both(node, plugin, other, cache, pod):
    node.add_claim(
        "both",
        kubelet_node.result(),
        kubelet_node.result("eth0", "net", driver=OTHER_DRIVER),
    )
    done = cache.prepare(pod("train", "both"))
    assert [driver for driver, _ in done["both"].devices] == [plugin.name, OTHER_DRIVER]
    assert plugin.calls == other.calls == [("prepare", ["both"])]
    cache.unprepare(node.pod("train")["metadata"]["uid"])
    assert plugin.calls == other.calls == [("prepare", ["both"]), ("unprepare", ["both"])]


def test_a_claim_that_two_of_the_pod_s_names_stand_for_is_asked_for_once(node, plugin, cache):
    node.add_claim("one")
    body = node.add_pod("train", {"a": "one", "b": "one"})
    node.reserve("one", body)
    done = cache.prepare(kubelet_node.pod_claims(body, a="one", b="one"))
    assert plugin.calls == [("prepare", ["one"])]
    assert done["a"] == done["b"]


def test_a_pod_without_claims_needs_no_plugin(node, plugin, cache, pod):
    assert cache.prepare(pod("train")) == {}
    cache.unprepare(node.pod("train")["metadata"]["uid"])
    assert plugin.calls == []


def test_a_claim_that_the_pod_does_not_need_after_all_is_passed_over(node, plugin, cache):
    body = node.add_pod("train")
    assert cache.prepare(kubelet_node.pod_claims(body, gpu="")) == {}


# What a container gets of a claim


def prepared_claim(*devices):
    ref = claims.ClaimRef("default", "one", claims.ClaimUid("uid"))
    return claim_cache.PreparedClaim(
        ref,
        tuple(
            (
                "driver",
                prepared.PreparedDevice(
                    requests=requests, pool="p", device=name, cdi_ids=(f"id-{name}",)
                ),
            )
            for name, requests in devices
        ),
    )


DEVICES = prepared_claim(
    ("a", ("small",)), ("b", ("large",)), ("c", ("small", "large")), ("everywhere", ())
)


@pytest.mark.parametrize(
    ("request_name", "expected"),
    [
        (None, "id-a id-b id-c id-everywhere"),
        ("", "id-a id-b id-c id-everywhere"),
        ("small", "id-a id-c id-everywhere"),
        ("large", "id-b id-c id-everywhere"),
        ("none-such", "id-everywhere"),
    ],
)
def test_a_container_gets_the_devices_of_its_request(request_name, expected):
    assert " ".join(DEVICES.cdi_ids(request_name)) == expected


# Claims that are not ready


@pytest.mark.parametrize(
    ("made", "reserved", "told"),
    [
        (None, False, '404 NotFound: resourceclaims.resource.k8s.io "one" not found'),
        ({"allocate": False}, False, "is not allocated"),
        ({}, False, "is not reserved for the pod"),
    ],
)
def test_a_claim_that_is_not_ready_for_the_pod_is_not_prepared(
    node, plugin, cache, made, reserved, told
):
    if made is not None:
        node.add_claim("one", **made)
    body = node.add_pod("train", {"gpu": "one"})
    with pytest.raises(errors.DriverError) as refused:
        cache.prepare(kubelet_node.pod_claims(body, gpu="one"))
    assert told in str(refused.value)
    assert plugin.calls == []


def test_a_claim_whose_template_was_not_carried_out_yet_is_waited_for(node, plugin, cache):
    body = node.add_pod("train", {"gpu": "one"})
    with pytest.raises(errors.Retryable, match="template claim 'gpu' is not made yet"):
        cache.prepare(kubelet_node.pod_claims(body, gpu=None))


def test_a_claim_of_a_driver_that_is_not_registered_cannot_be_prepared(node, plugin, cache, pod):
    node.add_claim("one", driver="absent.example.com")
    with pytest.raises(errors.Retryable, match=r"absent\.example\.com is not registered"):
        cache.prepare(pod("train", "one"))


# Failures


def test_after_the_failure_of_one_claim_all_claims_of_the_pod_are_asked_for_again(
    node, plugin, cache, pod
):
    node.add_claim("good")
    ref = claims.parse(node.add_claim("bad")).ref
    train = pod("train", "good", "bad")
    working = plugin.on_prepare
    plugin.on_prepare = lambda ref: (
        dra_grpc.Answer(error="GPU is on fire") if ref.name == "bad" else working(ref)
    )
    with pytest.raises(errors.Retryable) as refused:
        cache.prepare(train)
    assert str(refused.value) == f"NodePrepareResources failed for claim {ref}: GPU is on fire"
    plugin.on_prepare = working
    done = cache.prepare(train)
    assert plugin.names("prepare") == [["good", "bad"], ["good", "bad"]]
    assert [len(ids(claim)) for claim in done.values()] == [1, 1]


def test_a_pod_that_goes_while_its_prepare_fails_is_unprepared_all_the_same(
    node, plugin, cache, pod
):
    node.add_claim("one")
    train = pod("train", "one")
    plugin.on_prepare = lambda _ref: dra_grpc.Answer(error="no")
    with pytest.raises(errors.Retryable):
        cache.prepare(train)
    cache.unprepare(train.pod_uid)
    assert plugin.names("unprepare") == [["one"]]
    cache.unprepare(train.pod_uid)
    assert plugin.names("unprepare") == [["one"]]


def test_an_unprepare_that_fails_is_asked_for_again_and_keeps_the_claim_from_others(
    node, plugin, cache, pod
):
    ref = claims.parse(node.add_claim("one")).ref
    train = pod("train", "one")
    cache.prepare(train)
    plugin.on_unprepare = lambda _ref: dra_grpc.Answer(error="busy")
    with pytest.raises(errors.Retryable) as refused:
        cache.unprepare(train.pod_uid)
    assert str(refused.value) == f"NodeUnprepareResources failed for claim {ref}: busy"
    later = pod("later", "one")
    with pytest.raises(errors.Retryable, match="being unprepared for another pod"):
        cache.prepare(later)
    plugin.on_unprepare = lambda _ref: dra_grpc.Answer()
    cache.unprepare(train.pod_uid)
    cache.prepare(later)
    assert [method for method, _ in plugin.calls] == [
        "prepare",
        "unprepare",
        "unprepare",
        "prepare",
    ]


# Shared claims


def shared(node, claim, *names):
    """Pods for which one claim is reserved, as the cache takes them."""
    pods = [node.add_pod(name, {"gpu": claim}) for name in names]
    node.reserve(claim, *pods)
    return [kubelet_node.pod_claims(pod, gpu=claim) for pod in pods]


def test_a_shared_claim_is_prepared_once_and_unprepared_after_the_last_pod(node, plugin, cache):
    node.add_claim("one")
    first, second = shared(node, "one", "first", "second")
    assert cache.prepare(first) == cache.prepare(second)
    cache.unprepare(first.pod_uid)
    assert plugin.calls == [("prepare", ["one"])]
    cache.unprepare(second.pod_uid)
    assert plugin.calls == [("prepare", ["one"]), ("unprepare", ["one"])]


def test_the_claims_that_go_with_a_pod_are_unprepared_in_one_call(node, plugin, cache, pod):
    node.add_claim("one")
    node.add_claim("two")
    node.add_claim("kept")
    train = pod("train", "one", "two", "kept")
    user = node.add_pod("user", {"gpu": "kept"})
    node.reserve("kept", user, node.pod("train"))
    cache.prepare(train)
    cache.prepare(kubelet_node.pod_claims(user, gpu="kept"))
    cache.unprepare(train.pod_uid)
    assert plugin.names("unprepare") == [["one", "two"]]


def test_two_pods_may_ask_for_a_claim_at_once_and_get_the_same(node, plugin, cache):
    node.add_claim("one")
    pods = shared(node, "one", "first", "second")
    found = []
    callers = [
        threading.Thread(target=lambda pod=pod: found.append(cache.prepare(pod))) for pod in pods
    ]
    with plugin.holding():
        for caller in callers:
            caller.start()
        until(lambda: len(plugin.calls) == 2, what="both calls are under way")
    for caller in callers:
        caller.join(60)
    assert found[0]["gpu"] is found[1]["gpu"]
    assert len(ids(found[0]["gpu"])) == 1


def test_of_pods_that_end_at_the_same_time_the_last_one_has_the_claim_unprepared(
    node, plugin, cache
):
    node.add_claim("one")
    node.add_claim("own")
    node.add_claim("other")
    first, second = (
        kubelet_node.pod_claims(node.add_pod(name), gpu="one", more=more)
        for name, more in (("first", "own"), ("second", "other"))
    )
    node.reserve("one", node.pod("first"), node.pod("second"))
    node.reserve("own", node.pod("first"))
    node.reserve("other", node.pod("second"))
    for pod in (first, second):
        cache.prepare(pod)
    leavers = [
        threading.Thread(target=cache.unprepare, args=(pod.pod_uid,)) for pod in (first, second)
    ]
    with plugin.holding():
        for leaver in leavers:
            leaver.start()
        until(lambda: len(plugin.names("unprepare")) == 2, what="both are under way")
    for leaver in leavers:
        leaver.join(60)
    assert sorted(name for names in plugin.names("unprepare") for name in names) == [
        "one", "other", "own",
    ]  # fmt: skip


def test_a_pod_that_comes_while_the_claim_is_unprepared_waits_and_then_gets_it_anew(
    node, plugin, cache
):
    node.add_claim("one")
    first, second = shared(node, "one", "first", "second")
    cache.prepare(first)
    leaver = threading.Thread(target=cache.unprepare, args=(first.pod_uid,))
    with plugin.holding():
        leaver.start()
        until(lambda: plugin.names("unprepare"), what="the unprepare is under way")
        with pytest.raises(errors.Retryable, match="is being unprepared for another pod"):
            cache.prepare(second)
    leaver.join(60)
    cache.prepare(second)
    assert [method for method, _ in plugin.calls] == ["prepare", "unprepare", "prepare"]


# A claim that comes again


def test_a_new_claim_of_the_same_name_waits_until_the_old_one_is_unprepared(node, plugin, cache):
    old = node.add_claim("one")
    [first] = shared(node, "one", "first")
    cache.prepare(first)
    node.client.patch(kube.CLAIMS, "one", {"metadata": {"finalizers": None}}, "default")
    node.client.delete(kube.CLAIMS, "one", "default")
    new = node.add_claim("one")
    [second] = shared(node, "one", "second")
    with pytest.raises(errors.Retryable) as refused:
        cache.prepare(second)
    assert str(refused.value) == (
        f"old ResourceClaim with same name as {claims.parse(new).ref} still in use"
    )
    cache.unprepare(first.pod_uid)
    done = cache.prepare(second)
    assert done["gpu"].ref.uid == new["metadata"]["uid"] != old["metadata"]["uid"]
    assert plugin.names("prepare") == [["one"], ["one"]]


def test_a_claim_that_is_gone_from_the_api_is_unprepared_from_memory(node, plugin, cache, pod):
    node.add_claim("one")
    train = pod("train", "one")
    cache.prepare(train)
    node.client.patch(kube.CLAIMS, "one", {"metadata": {"finalizers": None}}, "default")
    node.client.delete(kube.CLAIMS, "one", "default")
    cache.unprepare(train.pod_uid)
    assert plugin.names("unprepare") == [["one"]]
