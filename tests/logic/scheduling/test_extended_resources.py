"""The claim for `nvidia.com/gpu: 1`: its requests, who uses them, and which class serves."""

import collections
import random

import pytest
from explain_scene import device_class, pod

from dra_driver.logic.scheduling import extended_resources
from dra_driver.model import claims

GPU = "example.com/gpu"
PART = "example.com/part"
CLASSES = extended_resources.Classes({GPU: "gpu", PART: "mig"}, {"gpu", "mig"})


def container(name="main", count=1, *, resource=GPU, field="limits", **fields):
    return {"name": name, "resources": {field: {resource: f"{count}", "cpu": "1"}}, **fields}


def sidecar(name="side", count=1):
    return container(name, count, restartPolicy="Always")


def asking(*containers, init=()):
    body = pod("train", initContainers=list(init))
    body["spec"]["containers"] = list(containers) or [container()]
    body["metadata"]["namespace"] = "default"
    return body


class TestTheClaimThatIsMade:
    def requests(self, *containers, init=(), leave=()):
        made = extended_resources.claim(asking(*containers, init=init), CLASSES, leave)
        return [
            (one["name"], one["exactly"]["deviceClassName"], one["exactly"]["count"])
            for one in (made["spec"]["devices"]["requests"] if made else ())
        ]

    def test_has_a_request_for_each_container_and_resource(self):
        both = {"cpu": "1", GPU: "2", PART: "1", "zone.example.com/x": "1"}
        first = {"name": "first", "resources": {"requests": both}}
        assert self.requests(first, container("second", 3)) == [
            ("container-0-request-1", "gpu", 2),
            ("container-0-request-2", "mig", 1),
            ("container-1-request-1", "gpu", 3),
        ]

    def test_serves_the_resource_that_every_class_has_by_its_own_name(self):
        resource = f"{extended_resources.IMPLICIT}mig"
        assert self.requests(container(resource=resource)) == [("container-0-request-1", "mig", 1)]
        assert self.requests(container(resource=f"{resource}s")) == []

    def test_lends_init_containers_what_later_ones_get(self):
        assert self.requests(container(count=2), init=[container("i", 2)]) == [
            ("container-1-request-1", "gpu", 2)
        ]

    def test_has_more_for_an_init_container_that_needs_more_and_the_most_of_several(self):
        init = [container("one", 3), container("two", 5), container("three", 4)]
        assert self.requests(container(count=2), init=init) == [
            ("container-1-request-1", "gpu", 3),
            ("container-3-request-1", "gpu", 2),
        ]

    def test_lends_nothing_of_a_sidecar_that_runs_already(self):
        assert self.requests(container(count=1), init=[sidecar(), container("i", 2)]) == [
            ("container-0-request-1", "gpu", 1),
            ("container-1-request-1", "gpu", 1),
            ("container-2-request-1", "gpu", 1),
        ]

    def test_leaves_out_what_a_device_plugin_serves_and_what_is_none(self):
        assert self.requests(container(), leave=[GPU]) == []
        assert self.requests(container(count=0)) == []

    @pytest.mark.parametrize(("amount", "count"), [("2", 2), (3, 3), ("1k", 1000), ("2e0", 2)])
    def test_counts_whole_amounts_however_they_are_written(self, amount, count):
        assert self.requests(container(count=amount)) == [("container-0-request-1", "gpu", count)]

    @pytest.mark.parametrize("amount", ["0.5", "500m", "many", "-1"])
    def test_has_nothing_for_what_is_no_number_of_devices(self, amount):
        assert self.requests(container(count=amount)) == []

    def test_is_one_that_can_be_read(self):
        made = extended_resources.claim(asking(container(count=2)), CLASSES)
        (request,) = claims.parse(made).requests
        assert request.alternatives[0].count == 2


class TestWhoUsesItsRequests:
    def uses(self, *containers, init=(), leave=()):
        body = asking(*containers, init=init)
        return [
            (use.container, use.resource, use.request)
            for use in extended_resources.uses(body, CLASSES, leave)
        ]

    def test_each_container_its_own(self):
        assert self.uses(container("a"), container("b")) == [
            ("a", GPU, "container-0-request-1"),
            ("b", GPU, "container-1-request-1"),
        ]

    def test_they_are_told_by_resource(self):
        both = {"name": "a", "resources": {"limits": {PART: "1", GPU: "1"}}}
        assert self.uses(both, container("b"), leave=()) == [
            ("a", GPU, "container-0-request-0"),
            ("b", GPU, "container-1-request-1"),
            ("a", PART, "container-0-request-1"),
        ]
        assert self.uses(both, container("b"), leave=[GPU]) == [
            ("a", PART, "container-0-request-1")
        ]

    def test_an_init_container_uses_as_many_of_later_ones_as_it_needs(self):
        init = [container("i", 3)]
        assert self.uses(container("a", 2), container("b", 2), container("c"), init=init) == [
            ("a", GPU, "container-1-request-1"),
            ("b", GPU, "container-2-request-1"),
            ("c", GPU, "container-3-request-1"),
            ("i", GPU, "container-1-request-1"),
            ("i", GPU, "container-2-request-1"),
        ]

    def test_init_containers_that_need_more_share_the_largest_request(self):
        init = [container("one", 3), container("two", 5), container("three", 5)]
        found = self.uses(container("main", 2), init=init)
        assert [use for use in found if use[0] != "main"] == [
            ("one", GPU, "container-3-request-1"),
            ("one", GPU, "container-1-request-1"),
            ("two", GPU, "container-3-request-1"),
            ("two", GPU, "container-1-request-1"),
            ("three", GPU, "container-3-request-1"),
            ("three", GPU, "container-1-request-1"),
        ]

    def test_a_sidecar_keeps_its_own_and_lends_to_those_before_it(self):
        init = [container("before"), sidecar(), container("after")]
        assert self.uses({"name": "main"}, init=init) == [
            ("side", GPU, "container-1-request-1"),
            ("before", GPU, "container-1-request-1"),
            ("after", GPU, "container-2-request-1"),
        ]

    def test_once_made_the_status_says_it_and_only_of_what_a_container_asks_for(self):
        body = asking(container("a"), container("b", resource=PART))
        mapped = [("a", GPU, "x"), ("b", GPU, "y"), ("b", PART, "z"), ("b", PART, "w")]
        body["status"] = {
            "extendedResourceClaimStatus": {
                "resourceClaimName": "made",
                "requestMappings": [
                    {"containerName": name, "resourceName": resource, "requestName": request}
                    for name, resource, request in mapped
                ],
            }
        }
        a, b = body["spec"]["containers"]
        assert extended_resources.requests_of(body, a) == ("x",)
        assert extended_resources.requests_of(body, b) == ("z", "w")
        del body["status"]
        assert extended_resources.requests_of(body, a) == ()


@pytest.mark.parametrize("seed", range(40))
def test_a_claim_has_what_the_pod_needs_at_a_time_and_each_container_its_number(seed):
    rng = random.Random(seed)
    init = [
        (sidecar if rng.random() < 0.4 else container)(f"i{n}", rng.randrange(5))
        for n in range(rng.randrange(5))
    ]
    body = asking(*(container(f"c{n}", rng.randrange(5)) for n in range(1, 4)), init=init)
    made = extended_resources.claim(body, CLASSES)
    counts = {
        one["name"]: one["exactly"]["count"]
        for one in (made["spec"]["devices"]["requests"] if made else ())
    }
    assert sum(counts.values()) == extended_resources.needs(body).get(GPU, 0)
    got = collections.Counter()
    for use in extended_resources.uses(body, CLASSES):
        got[use.container] += counts[use.request]
    for each in (*init, *body["spec"]["containers"]):
        asked = int(each["resources"]["limits"][GPU])
        lasts = each not in init or "restartPolicy" in each
        assert got[each["name"]] == asked if lasts else got[each["name"]] >= asked


class TestWhichClassServes:
    def served_by(self, *classes):
        return extended_resources.classes(classes).of(GPU)

    def made(self, name, at=None):
        body = device_class(name=name, extendedResourceName=GPU)
        body["metadata"] |= {"creationTimestamp": at} if at else {}
        return body

    def test_of_two_the_newer_one(self):
        old, new = self.made("a", "2026-01-01T00:00:00Z"), self.made("b", "2026-02-01T00:00:00Z")
        assert self.served_by(new, old) == self.served_by(old, new) == "b"

    def test_of_two_as_old_that_with_the_lower_name(self):
        assert self.served_by(self.made("b"), self.made("a")) == "a"

    def test_none_without_the_name(self):
        assert self.served_by(device_class()) is None


class TestHowMuchAPodNeeds:
    @pytest.mark.parametrize(
        ("init", "count"),
        [
            ([], 3),
            ([container("i", 2)], 3),
            ([container("i", 5)], 5),
            ([sidecar("side", 2)], 5),
            ([sidecar("side", 2), container("i", 4)], 6),
        ],
    )
    def test_is_what_runs_at_a_time_at_most(self, init, count):
        body = asking(container(count=1), container("more", 2), init=init)
        assert extended_resources.needs(body) == {GPU: count}

    @pytest.mark.parametrize(
        ("resource", "counts"),
        [
            ("cpu", False),
            ("hugepages-2Mi", False),
            ("kubernetes.io/batteries", False),
            ("node.kubernetes.io/x", False),
            ("requests.example.com/gpu", False),
            (GPU, True),
            (f"{extended_resources.IMPLICIT}gpu", True),
        ],
    )
    def test_counts_what_is_no_resource_of_kubernetes_itself(self, resource, counts):
        assert extended_resources.is_extended(resource) is counts
