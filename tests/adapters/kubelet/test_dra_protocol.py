"""Wire bytes, put together by hand from the field numbers of Kubernetes' api.proto files."""

import pytest

from dra_driver.adapters.kubelet import dra_protocol

V1 = dra_protocol.dra["v1.DRAPlugin"]
V1BETA1 = dra_protocol.dra["v1beta1.DRAPlugin"]
REGISTRATION = dra_protocol.registration


def field(number, content):
    """A length-delimited field: a text, or an embedded message."""
    data = content.encode() if isinstance(content, str) else content
    return bytes([number << 3 | 2, len(data)]) + data


def true(number):
    return bytes([number << 3, 1])


def check(message, wire):
    assert message.SerializeToString(deterministic=True) == wire
    assert type(message).FromString(wire) == message


def test_plugin_info():
    message = REGISTRATION.PluginInfo(
        type="DRAPlugin", name="gpu.nvidia.com", endpoint="/p/dra.sock",
        supported_versions=["v1.DRAPlugin", "v1beta1.DRAPlugin"],
    )  # fmt: skip
    check(
        message,
        field(1, "DRAPlugin") + field(2, "gpu.nvidia.com") + field(3, "/p/dra.sock")
        + field(4, "v1.DRAPlugin") + field(4, "v1beta1.DRAPlugin"),
    )  # fmt: skip


def test_registration_status():
    check(REGISTRATION.RegistrationStatus(plugin_registered=True), true(1))
    check(REGISTRATION.RegistrationStatus(error="no"), field(2, "no"))


def test_empty_messages():
    check(REGISTRATION.InfoRequest(), b"")
    check(REGISTRATION.RegistrationStatusResponse(), b"")


@pytest.mark.parametrize("messages", [V1, V1BETA1])
@pytest.mark.parametrize("name", ["NodePrepareResourcesRequest", "NodeUnprepareResourcesRequest"])
def test_requests_have_the_uid_before_the_name(messages, name):
    message = getattr(messages, name)()
    message.claims.add(namespace="ns", uid="u-1", name="claim")
    message.claims.add(uid="u-2")
    check(
        message,
        field(1, field(1, "ns") + field(2, "u-1") + field(3, "claim"))
        + field(1, field(2, "u-2")),
    )  # fmt: skip


DEVICE = (
    field(1, "gpu") + field(1, "other") + field(2, "node-1") + field(3, "gpu-0")
    + field(4, "a/b=c") + field(4, "a/b=d")
)  # fmt: skip


def device(messages, **more):
    return messages.Device(
        request_names=["gpu", "other"], pool_name="node-1", device_name="gpu-0",
        cdi_device_ids=["a/b=c", "a/b=d"], **more,
    )  # fmt: skip


@pytest.mark.parametrize("messages", [V1, V1BETA1])
def test_a_device(messages):
    check(device(messages), DEVICE)


def test_the_share_id_is_field_5_of_v1_and_absent_is_not_empty():
    check(device(V1, share_id="s"), DEVICE + field(5, "s"))
    check(device(V1, share_id=""), DEVICE + field(5, ""))
    assert V1.Device(share_id="").HasField("share_id")
    assert not V1.Device().HasField("share_id")


def test_v1beta1_has_no_share_id():
    with pytest.raises(ValueError, match="share_id"):
        V1BETA1.Device(share_id="s")


@pytest.mark.parametrize("messages", [V1, V1BETA1])
def test_the_answer_to_prepare_is_a_map_from_uid(messages):
    message = messages.NodePrepareResourcesResponse()
    message.claims["u-1"].devices.append(device(messages))
    message.claims["u-2"].error = "no"
    check(
        message,
        field(1, field(1, "u-1") + field(2, field(1, DEVICE)))
        + field(1, field(1, "u-2") + field(2, field(2, "no"))),
    )  # fmt: skip


@pytest.mark.parametrize("messages", [V1, V1BETA1])
def test_the_answer_to_unprepare_is_a_map_from_uid(messages):
    message = messages.NodeUnprepareResourcesResponse()
    message.claims["u-1"].error = "no"
    check(message, field(1, field(1, "u-1") + field(2, field(1, "no"))))
    message = messages.NodeUnprepareResourcesResponse()
    message.claims["u-1"].SetInParent()
    check(message, field(1, field(1, "u-1") + field(2, b"")))


def test_messages_are_named_as_in_their_packages():
    assert V1.Claim.DESCRIPTOR.full_name == "k8s.io.kubelet.pkg.apis.dra.v1.Claim"
    assert V1BETA1.Claim.DESCRIPTOR.full_name == "k8s.io.kubelet.pkg.apis.dra.v1beta1.Claim"
    assert REGISTRATION.PluginInfo.DESCRIPTOR.full_name == "pluginregistration.PluginInfo"
    assert not hasattr(V1, "Health")


def test_v1_is_preferred():
    assert list(dra_protocol.DRA_PACKAGES) == ["v1.DRAPlugin", "v1beta1.DRAPlugin"]


def test_fields_of_a_newer_kubelet_are_passed_over():
    newer = field(1, field(1, "ns") + field(2, "u-1") + field(9, "later")) + field(8, "later")
    request = V1.NodePrepareResourcesRequest.FromString(newer)
    assert [(claim.namespace, claim.uid, claim.name) for claim in request.claims] == [
        ("ns", "u-1", "")
    ]
