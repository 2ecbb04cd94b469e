import pytest
from hypothesis import given
from hypothesis import strategies as st

from dra_driver import errors
from dra_driver.model import quantities, slices

DEVICE = {
    "name": "gpu-0",
    "attributes": {
        "architecture": {"string": "Hopper"},
        "cudaComputeCapability": {"version": "9.0.0"},
        "index": {"int": 0},
        "migCapable": {"bool": True},
        "resource.kubernetes.io/pcieRoot": {"string": "pci0000:15"},
    },
    "capacity": {"memory": {"value": "81559Mi"}},
    "allowMultipleAllocations": False,
    "taints": [{"key": "gpu.nvidia.com/gpu-lost", "effect": "NoSchedule"}],
}

SLICE = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "ResourceSlice",
    "metadata": {"name": "00000-gpu.nvidia.com-node-1-x7z2k", "uid": "u1"},
    "spec": {
        "driver": "gpu.nvidia.com",
        "nodeName": "node-1",
        "pool": {"name": "node-1", "generation": 3, "resourceSliceCount": 2},
        "devices": [DEVICE],
    },
}


def test_a_slice_is_read_with_everything_in_it():
    assert slices.parse(SLICE) == slices.ResourceSlice(
        name="00000-gpu.nvidia.com-node-1-x7z2k",
        driver="gpu.nvidia.com",
        pool="node-1",
        generation=3,
        slice_count=2,
        node_name="node-1",
        devices=(
            slices.Device(
                name="gpu-0",
                attributes={
                    "architecture": "Hopper",
                    "cudaComputeCapability": slices.Version("9.0.0"),
                    "index": 0,
                    "migCapable": True,
                    "resource.kubernetes.io/pcieRoot": "pci0000:15",
                },
                capacity={"memory": quantities.parse("81559Mi")},
                extra={
                    "allowMultipleAllocations": False,
                    "taints": [{"key": "gpu.nvidia.com/gpu-lost", "effect": "NoSchedule"}],
                },
            ),
        ),
    )


def test_a_slice_without_node_name_generation_and_devices_is_read():
    body = {
        "metadata": {},
        "spec": {
            "driver": "d",
            "pool": {"name": "p", "resourceSliceCount": 1},
            "allNodes": True,
            "sharedCounters": [{"name": "gpu-0"}],
        },
    }
    assert slices.parse(body) == slices.ResourceSlice(
        name="", driver="d", pool="p", generation=0, slice_count=1, node_name=None, devices=(),
        extra={"allNodes": True, "sharedCounters": [{"name": "gpu-0"}]},
    )  # fmt: skip


def test_a_device_is_written_as_it_was_read():
    assert slices.format_device(slices.parse_device(DEVICE)) == DEVICE


def test_equal_devices_give_equal_bytes_whatever_the_order_of_their_facts():
    one = slices.Device("d", {"b": 1, "a": "x"}, {"n": quantities.parse("2"), "m": _GI},
                        {"taints": [], "bindsToNode": True})  # fmt: skip
    other = slices.Device("d", {"a": "x", "b": 1}, {"m": _GI, "n": quantities.parse("2")},
                          {"bindsToNode": True, "taints": []})  # fmt: skip
    assert repr(slices.format_device(one)) == repr(slices.format_device(other))
    assert list(slices.format_device(one)) == [
        "name", "attributes", "capacity", "bindsToNode", "taints",
    ]  # fmt: skip


_GI = quantities.parse("1Gi")


def test_a_device_without_facts_is_a_name():
    assert slices.format_device(slices.Device("gpu-0", {}, {})) == {"name": "gpu-0"}


@pytest.mark.parametrize(
    ("value", "body"),
    [
        (True, {"bool": True}),
        (False, {"bool": False}),
        (0, {"int": 0}),
        (1, {"int": 1}),
        ("1", {"string": "1"}),
        (slices.Version("1.0.0"), {"version": "1.0.0"}),
        ((2, 1), {"ints": [2, 1]}),
        ((True, False), {"bools": [True, False]}),
        ((slices.Version("1.0.0"),), {"versions": ["1.0.0"]}),
        (("b", "a"), {"strings": ["b", "a"]}),
    ],
)
def test_a_value_is_written_under_the_name_of_its_type_and_read_back(value, body):
    assert slices.format_value(value) == body
    device = slices.parse_device({"name": "gpu-0", "attributes": {"x": body}})
    assert device.attributes == {"x": value}


@pytest.mark.parametrize(
    "value",
    [{"strings": []}, {}, {"int": "1"}, {"int": True}, {"bool": 1}, {"string": 1},
     {"int": 1, "string": "x"}, {"strings": ["a", 1]}, {"ints": [True]}, {"string": ["a"]}],
)  # fmt: skip
def test_a_value_of_another_type_is_refused_by_device_and_attribute(value):
    with pytest.raises(errors.Rejected) as caught:
        slices.parse_device({"name": "gpu-7", "attributes": {"colour": value}})
    assert str(caught.value) == (
        f"device 'gpu-7', attribute 'colour': {value!r} is not supported; "
        "allowed is exactly one of int, bool, string, version, or a list: ints, bools, strings, "
        "versions"
    )


def test_a_capacity_that_is_no_quantity_is_refused():
    with pytest.raises(errors.Rejected, match="quantity '80GB' is not a number"):
        slices.parse_device({"name": "gpu-0", "capacity": {"memory": {"value": "80GB"}}})


def test_a_capacity_may_be_a_plain_number():
    device = slices.parse_device({"name": "gpu-0", "capacity": {"cores": {"value": 4}}})
    assert device.capacity == {"cores": quantities.parse("4")}


def test_a_device_id_reads_driver_pool_device_and_sorts_by_them():
    ids = [slices.DeviceId("d", "p", "b"), slices.DeviceId("d", "o", "z")]
    assert [str(item) for item in sorted(ids)] == ["d/o/z", "d/p/b"]


VALUES = st.one_of(
    st.integers(-(2**63), 2**63 - 1), st.booleans(), st.text(max_size=64),
    st.builds("{}.{}.{}".format, *[st.integers(0, 99)] * 3).map(slices.Version),
)  # fmt: skip
DEVICES = st.builds(
    slices.Device,
    name=st.from_regex(r"[a-z]([a-z0-9-]{0,20}[a-z0-9])?", fullmatch=True),
    attributes=st.dictionaries(st.sampled_from(["a", "b", "example.com/c"]), VALUES),
    capacity=st.dictionaries(
        st.sampled_from(["m", "n"]),
        st.builds(quantities.of_bytes, st.integers(0, 2**50)),
    ),
    extra=st.fixed_dictionaries({}, optional={"taints": st.just([{"key": "k", "effect": "None"}])}),
)


@given(DEVICES)
def test_any_device_is_read_back_equal(device):
    assert slices.parse_device(slices.format_device(device)) == device
