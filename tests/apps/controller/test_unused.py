"""Templates of converted pods that nobody uses, in an API server: marked first, then removed."""

import datetime as dt

import pytest

from dra_driver import errors, telemetry
from dra_driver.adapters.kube import kube
from dra_driver.apps.controller import controller, unused
from dra_driver.logic.converting import marks
from dra_driver.settings import controller as controller_settings
from dra_driver.sim.api.serving import options

LABELS = {"dra-driver.dev/converted": "webhook"}
START = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
DAY = 86400.0


class Clock:
    """The time of day, which somebody puts forward."""

    def __init__(self):
        self.now = START

    def __call__(self):
        return self.now

    def forward(self, seconds):
        self.now += dt.timedelta(seconds=seconds)


@pytest.fixture
def clock():
    return Clock()


def configured(**changes):
    values = {
        "identity": "c",
        "converted_templates": True,
        "status_address": "127.0.0.1:0",
        "sweep_seconds": 0.001,
        "retry_seconds": 0.01,
    }
    return controller_settings.Controller.model_validate(values | changes)


@pytest.fixture
def cleaner(own_cluster, clock):
    return made(own_cluster, clock)


def made(cluster, clock):
    metrics = telemetry.ControllerMetrics("gpu.nvidia.com")
    return unused.Cleaner(configured(), cluster.client, metrics, clock)


def look(cleaner, may_go_on=lambda: True):
    cleaner.forget()
    cleaner.clean(0.0, may_go_on)


def put(cluster, name="converted-1", labels=None, namespace="default"):
    requests = [{"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}}]
    body = {
        "metadata": {"name": name, "labels": LABELS if labels is None else labels},
        "spec": {"spec": {"devices": {"requests": requests}}},
    }
    return cluster.client.create(kube.TEMPLATES, body, namespace)


def put_pod(cluster, template="converted-1", name="p", namespace="default"):
    claims = [{"name": "gpu", "resourceClaimTemplateName": template}]
    spec = {"containers": [{"name": "c", "image": "i"}], "resourceClaims": claims}
    cluster.client.create(kube.PODS, {"metadata": {"name": name}, "spec": spec}, namespace)


def found(cluster, namespace=None):
    """The marks of the templates, by name."""
    items, _ = cluster.client.list(kube.TEMPLATES, namespace)
    return {each["metadata"]["name"]: marks.unused_since(each) for each in items}


def test_what_no_pod_names_is_marked_and_removed_when_the_mark_is_old(own_cluster, cleaner, clock):
    put(own_cluster)
    look(cleaner)
    assert found(own_cluster) == {"converted-1": "2026-01-01T00:00:00Z"}
    clock.forward(DAY - 1)
    look(cleaner)
    assert found(own_cluster) == {"converted-1": "2026-01-01T00:00:00Z"}
    clock.forward(1)
    look(cleaner)
    assert found(own_cluster) == {}
    told = cleaner._metrics.text()[0].decode()
    assert 'removed_total{driver="gpu.nvidia.com",kind="ResourceClaimTemplate"} 1.0' in told


def test_what_a_pod_names_stays_and_loses_its_mark(own_cluster, cleaner, clock):
    put(own_cluster)
    look(cleaner)
    put_pod(own_cluster)
    clock.forward(2 * DAY)
    look(cleaner)
    assert found(own_cluster) == {"converted-1": None}
    # Unused again, its time begins anew.
    own_cluster.client.delete(kube.PODS, "p", "default", grace_period=0)
    look(cleaner)
    assert found(own_cluster) == {"converted-1": "2026-01-03T00:00:00Z"}


def test_a_pod_of_another_namespace_does_not_count(own_cluster, cleaner, clock):
    own_cluster.client.create(kube.NAMESPACES, {"metadata": {"name": "other"}})
    put(own_cluster)
    put(own_cluster, namespace="other")
    put_pod(own_cluster, namespace="other")
    for _ in range(2):
        look(cleaner)
        clock.forward(DAY)
    assert found(own_cluster, "default") == {}
    assert found(own_cluster, "other") == {"converted-1": None}


@pytest.mark.parametrize("labels", [{}, {"dra-driver.dev/converted": "command"}], ids=str)
def test_templates_that_the_webhook_has_not_made_are_left_alone(
    own_cluster, cleaner, clock, labels
):
    put(own_cluster, labels=labels)
    for _ in range(2):
        look(cleaner)
        clock.forward(DAY)
    assert found(own_cluster) == {"converted-1": None}


def test_a_mark_outlives_the_controller(own_cluster, cleaner, clock):
    put(own_cluster)
    look(cleaner)
    clock.forward(DAY)
    look(made(own_cluster, clock))
    assert found(own_cluster) == {}


def test_one_that_is_used_after_the_look_at_pods_is_not_removed(own_cluster, cleaner, clock):
    """As the webhook does it: the mark goes before the pod is let in."""
    put(own_cluster)
    look(cleaner)
    clock.forward(DAY)

    def used():
        """Asked before each write, that is after all was read."""
        items, _ = own_cluster.client.list(kube.TEMPLATES, "default")
        if own_cluster.faults.calls[-2].resource == "pods" and marks.unused_since(items[0]):
            patch = {"metadata": {"annotations": {marks.UNUSED_SINCE: None}}}
            own_cluster.client.patch(kube.TEMPLATES, "converted-1", patch, "default")
            taken.append(True)
        return True

    taken = []
    look(cleaner, used)
    assert taken == [True]
    assert found(own_cluster) == {"converted-1": None}


def test_one_that_was_made_anew_under_the_name_is_not_removed(own_cluster, cleaner, clock):
    put(own_cluster)
    look(cleaner)
    clock.forward(DAY)
    replaced = []

    def anew(call):
        if (call.resource, call.verb) == ("resourceclaimtemplates", "delete") and not replaced:
            replaced.append(True)
            objects = own_cluster._api.store
            old = objects.remove("resourceclaimtemplates.resource.k8s.io", ("default", call.name))
            metadata = old["metadata"] | {"uid": "another", "annotations": {}}
            objects.put("resourceclaimtemplates.resource.k8s.io", old | {"metadata": metadata})

    with own_cluster.faults.where(anew):
        look(cleaner)
    assert replaced
    assert found(own_cluster) == {"converted-1": None}


def test_a_controller_that_loses_the_lease_in_the_middle_changes_nothing_more(own_cluster, cleaner):
    put(own_cluster)
    look(cleaner, lambda: False)
    assert found(own_cluster) == {"converted-1": None}


def test_what_is_refused_for_one_is_in_no_other_s_way(own_cluster, cleaner):
    put(own_cluster, "converted-1")
    put(own_cluster, "converted-2")
    fault = options.Fault(status=403, reason="Forbidden", message="no way")
    with (
        own_cluster.faults.where(
            lambda call: fault if (call.verb, call.name) == ("patch", "converted-1") else None
        ),
        pytest.raises(errors.Retryable, match=r"1 templates stay; of the first: .*no way"),
    ):
        look(cleaner)
    assert found(own_cluster) == {"converted-1": None, "converted-2": "2026-01-01T00:00:00Z"}


def test_pods_that_cannot_be_read_keep_everything_as_it_is(own_cluster, cleaner, clock):
    put(own_cluster)
    look(cleaner)
    clock.forward(DAY)
    with (
        own_cluster.faults.where(
            lambda call: options.Fault(status=503) if call.resource == "pods" else None
        ),
        pytest.raises(errors.DriverError),
    ):
        look(cleaner)
    assert found(own_cluster) == {"converted-1": "2026-01-01T00:00:00Z"}


def test_it_looks_some_times_within_the_time_and_reads_no_pods_without_templates(
    own_cluster, cleaner
):
    def lists(resource):
        calls = own_cluster.faults.calls
        return sum((call.resource, call.verb) == (resource, "list") for call in calls)

    for now in (0.0, 60.0, 3599.0, 3600.0):
        cleaner.clean(now, lambda: True)
    assert lists("resourceclaimtemplates") == 2
    assert lists("pods") == 0


# In the controller


@pytest.fixture
def controllers(own_cluster):
    """Makes controllers, which are not started."""
    own_cluster.client.create(kube.NAMESPACES, {"metadata": {"name": "dra-driver"}})
    running = []

    def make(**changes):
        client = kube.Client(kubeconfig=own_cluster.kubeconfig, user_agent="test controller")
        running.append(controller.Controller(configured(**changes), client))
        return running[-1]

    yield make
    for each in running:
        each.stop()


def test_only_the_controller_that_leads_touches_them(own_cluster, controllers):
    put(own_cluster)
    leader, other = controllers(), controllers(identity="other", converted_templates=True)
    leader.round()
    [mark] = found(own_cluster).values()
    assert mark is not None
    seen = len(own_cluster.faults.calls)
    other.round()
    later = own_cluster.faults.calls[seen:]
    assert {call.resource for call in later} == {"leases"}
    leader._candidate.release()
    other.round()
    assert found(own_cluster) == {"converted-1": mark}
    # Who leads again looks at once.
    leader.round()
    assert leader._cleaner._looked is None


def test_without_conversions_templates_are_not_looked_at(own_cluster, controllers):
    put(own_cluster)
    controllers(converted_templates=False).round()
    assert found(own_cluster) == {"converted-1": None}
    assert "resourceclaimtemplates" not in {
        call.resource for call in own_cluster.faults.calls if call.user_agent == "test controller"
    }


def test_a_look_for_leftovers_that_fails_keeps_no_template(own_cluster, controllers):
    put(own_cluster)
    one = controllers()
    with own_cluster.faults.where(
        lambda call: options.Fault(status=503) if call.resource == "nodes" else None
    ):
        one.round()
    assert 'sweep_errors_total{driver="gpu.nvidia.com"} 1.0' in one._metrics.text()[0].decode()
    [mark] = found(own_cluster).values()
    assert mark is not None
