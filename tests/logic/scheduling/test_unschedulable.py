"""What a person reads in the condition of a pod that does not fit."""

from dra_objects import (
    NODE,
    allocate,
    alternative,
    claim,
    device,
    exactly,
    first_available,
    gpus,
    match,
    slice_of,
)

from dra_driver.logic.scheduling import unschedulable

A = 'device.attributes["gpu.example.com"]'
H100 = f'{A}.model == "h100"'


def told(pending, *published, **options):
    outcome = allocate(pending, *published, **options)
    assert outcome.allocations is None
    return unschedulable.message({NODE.name: outcome.shortfalls})


def test_devices_are_counted_by_the_hurdle_at_which_they_fall():
    published = slice_of(*gpus(2, model="t4"), device("x", model="h100"), device("y", model="h100"))
    assert told([claim(exactly("gpu", H100))], published, in_use={"x", "y"}) == (
        '0/1 nodes are available: 1 cannot allocate request "gpu" of claim claim: 4 devices: '
        f'2 not matched by selector "{H100}", 2 in use.'
    )


def test_devices_of_other_classes_are_told_by_the_class():
    other = slice_of(*gpus(3), driver="other.example.com")
    assert '3 devices: 3 not matched by class "gpu"' in told([claim(exactly())], other)


def test_a_node_without_devices_has_no_devices():
    assert told([claim(exactly())]) == (
        '0/1 nodes are available: 1 cannot allocate request "gpu" of claim claim: no devices.'
    )


def test_a_taint_is_named():
    tainted = device("a", extra={"taints": [{"key": "ill", "effect": "NoExecute"}]})
    assert "1 device: 1 tainted ill:NoExecute" in told([claim(exactly())], slice_of(tainted))


def test_a_device_that_is_too_small_is_told_with_both_amounts():
    published = slice_of(device("a", capacity={"memory": "16Gi"}))
    pending = claim(exactly(extra={"capacity": {"requests": {"memory": "40Gi"}}}))
    assert "1 too small (memory 16Gi < 40Gi)" in told([pending], published)


def test_partitions_that_do_not_fit_beside_what_is_in_use_are_told_apart():
    extra = {"consumesCounters": [{"counterSet": "s", "counters": {"c": {"value": "1"}}}]}
    published = slice_of(
        device("a", extra=extra), device("b", extra=extra),
        extra={"sharedCounters": [{"name": "s", "counters": {"c": {"value": "1"}}}]},
    )  # fmt: skip
    assert "2 devices: 1 in use, 1 no room beside what is in use" in told(
        [claim(exactly())], published, in_use={"a"}
    )


def test_how_many_are_wanted_is_told_when_it_is_not_one():
    text = told([claim(exactly(count=3))], slice_of(*gpus(2)))
    assert 'request "gpu" (3 devices) of claim claim: 2 devices: 2 free, which is too few' in text


def test_devices_that_fit_alone_but_not_together_are_told_as_such():
    published = slice_of(device("a", numa=0), device("b", numa=1))
    pending = claim(exactly(count=2), constraints=[match("gpu.example.com/numa")])
    assert "2 usable alone, but not together with the rest of the claim" in told(
        [pending], published
    )


def test_only_the_request_that_is_short_is_told():
    text = told([claim(exactly("a"), exactly("b", H100))], slice_of(*gpus(3, model="t4")))
    assert 'request "b"' in text
    assert 'request "a"' not in text


def test_a_request_that_gets_some_of_its_devices_is_short_as_well():
    pending = claim(exactly("a"), exactly("b", f"{A}.index > 0", count=3))
    text = told([pending], slice_of(*gpus(3)))
    assert 'request "b" (3 devices)' in text
    assert 'request "a"' not in text


def test_each_alternative_of_a_list_is_told():
    request = first_available("gpu", alternative("x", H100), alternative("y", f"{A}.index > 9"))
    text = told([claim(request)], slice_of(*gpus(1, model="t4")))
    assert 'request "gpu/x"' in text
    assert 'request "gpu/y"' in text


def test_a_list_with_one_alternative_that_would_do_is_not_what_is_short():
    request = first_available("gpu", alternative("x", H100), alternative("y"))
    text = told([claim(request, exactly("b", "false"))], slice_of(*gpus(2, model="t4")))
    assert 'request "gpu' not in text


def test_an_incomplete_pool_is_named():
    text = told([claim(exactly())], slice_of(*gpus(1), count=2))
    assert text.endswith("no devices; pool gpu.example.com/node-a is incomplete: 1 of 2 slices.")


def test_an_expression_that_fails_on_a_device_in_use_does_not_hide_the_message():
    published = slice_of(device("a"), device("b", x=0))
    assert "2 devices: 1 not matched by selector" in told(
        [claim(exactly("gpu", f"{A}.x > 0"))], published, in_use={"a"}
    )


def test_nodes_with_the_same_trouble_are_told_together():
    outcome = allocate([claim(exactly("gpu", H100))], slice_of(*gpus(2, model="t4")))
    verdicts = {
        "a": outcome.shortfalls, "b": outcome.shortfalls, "c": "node is unschedulable",
        "d": allocate([claim(exactly("gpu", H100))]).shortfalls,
    }  # fmt: skip
    assert unschedulable.message(verdicts) == (
        "0/4 nodes are available: 1 node is unschedulable; "
        '3 cannot allocate request "gpu" of claim claim: 4 devices: '
        f'4 not matched by selector "{H100}".'
    )


def test_no_nodes_at_all():
    assert unschedulable.message({}) == "0/0 nodes are available."


def test_all_devices_with_one_in_use_is_short_of_that_one():
    text = told([claim(exactly(all_devices=True))], slice_of(*gpus(3)), in_use={"gpu-1"})
    assert "3 devices: 1 in use, 2 free, which is too few" in text
