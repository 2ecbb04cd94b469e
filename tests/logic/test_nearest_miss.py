"""The smallest changes that would make claims fit, and what agreeing devices are free."""

from explain_scene import A, C, claim, device_class, explain, gpu, held, pool, request

BIG = f"{C}.memory.compareTo(quantity('16Gi')) >= 0"
HOPPER = f"{A}.architecture == 'Hopper'"
NEW = f"{A}.index > 10"


def changes(*bodies):
    return [miss.change for miss in explain("claim/mine", *bodies).nearest]


def test_one_part_of_a_selector_is_dropped():
    about = explain(
        "claim/mine",
        pool("a", gpu("x", memory="15Gi", architecture="Hopper")),
        claim("mine", request(f"{BIG} && {HOPPER}")),
    )
    (miss,) = about.nearest
    assert miss.change == (
        f'drop `{BIG}` from request "gpu" (gpu.example.com/a/x: memory 15Gi < 16Gi)'
    )
    assert (miss.node, miss.devices, miss.size) == ("a", ("gpu.example.com/a/x",), 1)


def test_a_change_of_fewer_parts_comes_first():
    found = explain(
        "claim/mine",
        pool("a", gpu("x", memory="8Gi", architecture="Ampere", index=11),
             gpu("y", memory="80Gi", architecture="Hopper", index=1)),
        claim("mine", request(f"{BIG} && {HOPPER}", NEW)),
    ).nearest  # fmt: skip
    assert [(miss.size, miss.devices) for miss in found] == [
        (1, ("gpu.example.com/a/y",)),
        (2, ("gpu.example.com/a/x",)),
    ]


def test_more_than_is_enough_is_not_dropped():
    found = explain(
        "claim/mine",
        pool("a", gpu("x", memory="80Gi", architecture="Ampere"),
             gpu("y", memory="8Gi", architecture="Ampere")),
        claim("mine", request(f"{BIG} && {HOPPER}")),
    ).nearest  # fmt: skip
    assert [(miss.size, miss.devices) for miss in found] == [(1, ("gpu.example.com/a/x",))]


def test_a_part_with_an_or_keeps_its_meaning_beside_what_is_left():
    either = f"({A}.index == 9 || {A}.index == 2)"
    found = explain(
        "claim/mine",
        pool("a", gpu("x", memory="8Gi", index=9, new=False),
             gpu("y", memory="8Gi", index=2, new=True)),
        claim("mine", request(f"{either} && {A}.new && {BIG}")),
    ).nearest  # fmt: skip
    assert found[0].devices == ("gpu.example.com/a/y",)


def test_a_binding_is_not_taken_apart():
    bound = f"cel.bind(gpu, {A}, gpu.index == 1 && gpu.architecture == 'Hopper')"
    scene = pool("a", gpu("x", index=1, architecture="Ampere"))
    assert changes(scene, claim("mine", request(bound))) == []


def test_the_end_of_one_pod_frees_a_device():
    found = changes(
        pool("a", gpu("x"), gpu("y")),
        held("one", "a/x", pods=("train",)),
        held("two", "a/y"),
        claim("mine"),
    )
    assert found == [
        "free once pod train ends (claim default/one)",
        "free once claim default/two is deleted (no pod uses it)",
    ]


def test_the_end_of_several_pods_is_told_where_one_is_not_enough():
    about = explain(
        "claim/mine",
        pool("a", gpu("x"), gpu("y"), gpu("z")),
        pool("b", gpu("x")),
        held("one", "a/x", pods=("p1",)),
        held("two", "a/y", pods=("p2", "p3")),
        held("elsewhere", "b/x", pods=("p4",)),
        claim("mine", request(count=3)),
    )
    assert [miss.change for miss in about.nearest] == [
        'ask for 1 rather than 3 in request "gpu"',
        "free once pod p1 ends (claim default/one) and pods p2, p3 end (claim default/two)",
    ]
    assert [miss.size for miss in about.nearest] == [1, 2]


def test_a_device_taint_is_tolerated():
    assert changes(pool("a", gpu("x", taint="broken")), claim("mine")) == [
        'tolerate the device taint broken:NoSchedule in request "gpu"'
    ]


def test_less_of_a_capacity_is_asked_for():
    asked = request(capacity={"requests": {"memory": "16Gi"}})
    assert changes(pool("a", gpu("x", memory="8Gi")), claim("mine", asked)) == [
        'ask for less than 16Gi of capacity memory in request "gpu"'
    ]


def test_another_class_is_asked_for():
    found = changes(
        device_class(f"{A}.type == 'mig'", name="mig"),
        device_class(f"{A}.type == 'gpu'"),
        pool("a", gpu("x", type="gpu")),
        claim("mine", request(of_class="mig")),
    )
    assert found == ['ask for class gpu rather than mig in request "gpu"']


def test_of_classes_with_the_same_devices_the_one_with_the_shortest_name_is_asked_for():
    found = changes(
        device_class(f"{A}.type == 'mig'", name="mig"),
        device_class(f"{A}.type == 'gpu' && !('shared' in {A})", name="alone.gpu"),
        device_class(f"{A}.type == 'gpu'"),
        device_class(f"{A}.type == 'spare'", name="spare"),
        pool("a", gpu("x", type="gpu"), gpu("y", type="spare")),
        claim("mine", request(of_class="mig")),
    )
    assert found == [
        'ask for class gpu rather than mig in request "gpu"',
        'ask for class spare rather than mig in request "gpu"',
    ]


def test_how_many_devices_agree_and_are_free_is_told_beside_dropping_the_constraint():
    about = explain(
        "claim/mine",
        pool(
            "a",
            *[gpu(f"g{index}", index=index, root=f"r{index // 4}") for index in range(8)],
            gpu("other", index=99, root="r0"),
        ),
        held("one", "a/g0", "a/g1", pods=("p1",)),
        held("two", "a/g5", "a/g6", "a/g7", pods=("p2",)),
        claim(
            "mine",
            request(f"{A}.index < 50", count=3),
            constraints=[{"matchAttribute": "gpu.example.com/root"}],
        ),
    )
    assert about.groups == (
        'node a: 2 of 4 devices with root "r0" are free; the claim needs 3 with one root',
    )
    assert [miss.change for miss in about.nearest] == [
        f'drop `{A}.index < 50` from request "gpu" (gpu.example.com/a/other: index 99 >= 50)',
        "free once pod p1 ends (claim default/one)",
        "free once pod p2 ends (claim default/two)",
        "drop matchAttribute gpu.example.com/root from claim mine",
        'ask for 2 rather than 3 in request "gpu"',
    ]


def test_where_nothing_helps_nothing_is_told():
    assert changes(pool("a"), claim("mine")) == []
