"""Names that no device has, in constraints and selectors, told with those that were meant."""

import dataclasses

import explain_scene
import pytest
from explain_scene import A, claim, device_class, explain, gpu, node, pool, request, wanted

from dra_driver.logic.explaining import change_kinds, explaining, targets
from dra_driver.logic.scheduling import emulation, misnamed

NODES = [
    pool("a", gpu("x", memory="8Gi", numaNode=0, productName="T4"), gpu("y", numaNode=0)),
    pool("b", gpu("x", memory="8Gi", numaNode=1, productName="T4"), gpu("y", numaNode=1)),
]


def reasons(*constraints, requests=()):
    asked = claim("mine", *(requests or (request(count=2),)), constraints=list(constraints))
    return explain("claim/mine", *NODES, asked).reasons


@pytest.mark.parametrize("field", ["matchAttribute", "distinctAttribute"])
@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("gpu.example.com/numaNod", "gpu.example.com/numaNode"),
        ("resource.kubernetes.io/numaNode", "gpu.example.com/numaNode"),
        ("gpu.example.com/numa", "gpu.example.com/numaNode"),
        ("gpu.example.com/model", "gpu.example.com/productName"),
    ],
)
def test_the_attribute_is_named_with_the_one_that_was_meant(field, written, meant):
    assert reasons({field: written}) == (
        (
            f"{field} {written} of claim default/mine: none of the 4 devices that request "
            f'"gpu" means has this attribute; they have {meant}: write {field}: {meant}'
        ),
    )


def test_a_capacity_is_told_for_what_it_is():
    assert reasons({"matchAttribute": "gpu.example.com/memory"}) == (
        (
            "matchAttribute gpu.example.com/memory of claim default/mine: none of the 4 devices "
            'that request "gpu" means has this attribute; gpu.example.com/memory is a capacity, '
            "and constraints compare attributes: ask for an amount of it with a selector, or with "
            "capacity.requests"
        ),
    )


def test_what_is_like_nothing_gets_no_wrong_hint():
    (told,) = reasons({"matchAttribute": "gpu.example.com/rack"})
    assert told.endswith(
        "has this attribute: `kubectl get resourceslices -o yaml` shows what devices have"
    )


def test_an_attribute_that_some_device_has_is_no_reason_for_all_nodes():
    assert reasons({"matchAttribute": "gpu.example.com/productName"}) == ()


def test_only_the_requests_that_it_bounds_and_whose_devices_lack_it_are_named():
    big = wanted(f"{A}.numaNode == 9")
    alternatives = [{"name": "big", **big}, {"name": "any", **wanted()}]
    requests = [
        request(f"{A}.numaNode == 0", name="left"),
        {"name": "right", "firstAvailable": alternatives},
    ]
    found = reasons(
        {"matchAttribute": "gpu.example.com/zone", "requests": ["right/any"]}, requests=requests
    )
    assert [text.partition(":")[2].partition(" means")[0] for text in found] == [
        ' none of the 4 devices that request "right/any"'
    ]


def test_devices_of_other_classes_give_no_hint():
    nic = pool("c", {"name": "n", "attributes": {"numaNode": {"int": 0}}}, driver="nic.example.com")
    asked = claim("mine", request(count=2), constraints=[{"matchAttribute": "zone.example.com/n"}])
    scene = [pool("a", gpu("x"), gpu("y")), nic, node("a"), node("c"), device_class()]
    (told,) = explain("claim/mine", *scene, asked).reasons
    assert "numaNode" not in told


class TestInSelectors:
    def told(self, text, *requests):
        asked = requests or (request(text),)
        return explain("claim/mine", *NODES, claim("mine", *asked)).reasons

    @pytest.mark.parametrize(
        "text",
        [
            f"'model' in {A} && {A}.model == 'T4'",
            f"has({A}.model)",
            f"{A}.?model.orValue('') == 'T4'",
        ],
    )
    def test_a_name_that_is_asked_for_with_care_is_told_too(self, text):
        assert self.told(text) == (
            (
                f'request "gpu": no device of class gpu has {A}.model, which its selector asks '
                f"for; they have {A}.productName"
            ),
        )

    def test_one_that_is_like_nothing_is_told_without_a_hint(self):
        assert self.told(f"has({A}.zone)") == (
            f'request "gpu": no device of class gpu has {A}.zone, which its selector asks for',
        )

    def test_one_that_some_device_has_is_not_told(self):
        assert self.told(f"has({A}.productName) && {A}.numaNode == 9") == ()

    def test_one_that_should_be_missing_is_not_told(self):
        assert self.told(f"!has({A}.shared) && {A}.numaNode == 9") == ()


class TestInCapacityRequests:
    def told(self, name):
        asked = request(capacity={"requests": {name: "3"}})
        return explain("claim/mine", *NODES, claim("mine", asked)).reasons

    def test_a_capacity_that_no_device_has_is_named_with_the_one_that_was_meant(self):
        assert self.told("vram") == (
            (
                'request "gpu": no device of class gpu has capacity vram, of which '
                "capacity.requests asks for 3; they have memory: write memory"
            ),
        )

    def test_one_that_is_like_nothing_is_named_alone(self):
        (told,) = self.told("bandwidth")
        assert told.endswith("capacity bandwidth, of which capacity.requests asks for 3")

    @pytest.mark.parametrize("name", ["memory", "gpu.example.com/memory"])
    def test_one_that_is_only_too_small_is_not_told(self, name):
        asked = request(capacity={"requests": {name: "80Gi"}})
        assert explain("claim/mine", *NODES, claim("mine", asked)).reasons == ()

    @pytest.mark.parametrize(("release", "told"), [("1.37", 1), ("1.38", 0)])
    def test_the_drivers_domain_makes_it_another_name_up_to_1_37(self, release, told):
        asked = request(capacity={"requests": {"gpu.example.com/memory": "1Gi"}})
        scene = dataclasses.replace(
            explain_scene.snapshot(*NODES, claim("mine", asked)),
            behaviour=emulation.of_release(release),
        )
        found = explaining.explain(targets.named(scene, "claim/mine", "default"), scene)
        assert len(found.reasons) == told
        assert all(reason.endswith("they have memory: write memory") for reason in found.reasons)


# Names without number


def counted(monkeypatch, name):
    calls = []
    real = getattr(misnamed, name)
    monkeypatch.setattr(misnamed, name, lambda *args: calls.append(args) or real(*args))
    return calls


def test_of_very_many_capacities_the_first_are_told_and_no_more_are_looked_for(monkeypatch):
    compared = counted(monkeypatch, "nearest")
    names = {f"n{number:03}": "1" for number in range(200)}
    found = reasons(requests=[request(capacity={"requests": names})])
    assert [text.partition(" has capacity ")[2][:4] for text in found[:10]] == sorted(names)[:10]
    assert found[10:] == ('request "gpu": and more names that none of these devices has',)
    assert len(compared) == 11


def test_of_very_many_names_in_a_selector_the_first_are_told_of_devices_looked_at_once(monkeypatch):
    looks = counted(monkeypatch, "places")
    asked = " && ".join(
        f"'n{number}' in device.attributes['gpu.example.com']" for number in range(50)
    )
    found = reasons(requests=[request(asked)])
    assert len(found) == 11
    assert len(looks) == 1


@pytest.mark.parametrize(("count", "tried"), [(2, 2), (3, 0), (200, 0)])
def test_no_change_is_tried_of_a_request_that_lacks_more_names_than_changes_go_together(
    monkeypatch, count, tried
):
    made = []
    with_capacity = change_kinds._with_capacity
    monkeypatch.setattr(
        change_kinds,
        "_with_capacity",
        lambda want, name, amount: made.append(name) or with_capacity(want, name, amount),
    )
    names = {f"n{number}": "1" for number in range(count)}
    found = explain("claim/mine", *NODES, claim("mine", request(capacity={"requests": names})))
    assert len(set(made)) == tried
    assert bool(found.nearest) == bool(tried)
