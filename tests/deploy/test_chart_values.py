"""Values that the chart refuses with a reason, before Kubernetes or a pod's log would."""

import json

import chart
import pytest
import yaml

from dra_driver import settings

pytestmark = pytest.mark.sampled(11)

SCHEMA = json.loads((chart.PATH / "values.schema.json").read_text("utf-8"))
VALUES = yaml.safe_load((chart.PATH / "values.yaml").read_text("utf-8"))
MAY_BE_LEFT_OUT = {"affinity", "nodeSelector", "resources", "tolerations"}
UID = "0" * 36


def paths(values=VALUES, above=()):
    """Each value and each part, as its keys."""
    for key, value in values.items():
        yield (*above, key)
        if isinstance(value, dict) and key not in MAY_BE_LEFT_OUT:
            yield from paths(value, (*above, key))


def nested(path, value):
    for key in reversed(path):
        value = {key: value}
    return value


# Nothing in place of a value


def needed(above):
    """What the schema says that this part must have."""
    part = SCHEMA
    for key in above:
        part = part["properties"][key]
    return part.get("required", [])


@pytest.mark.parametrize("path", list(paths()), ids=".".join)
def test_a_value_that_is_null_is_refused_by_the_schema_or_not_needed(path):
    """Helm takes the default away then, and templates would end at what is not there."""
    values = nested(path, None)
    if path[-1] in needed(path[:-1]):
        with pytest.raises(chart.helm.HelmValuesError, match=path[-1]):
            chart.texts(values)
    else:
        for body in chart.objects(values):
            chart.check(body)


@pytest.mark.parametrize("part", [key for key, value in VALUES.items() if isinstance(value, dict)])
def test_a_part_that_is_null_is_refused(part):
    with pytest.raises(chart.helm.HelmValuesError, match=part):
        chart.texts({part: None})


@pytest.mark.parametrize("name", sorted(MAY_BE_LEFT_OUT))
@pytest.mark.parametrize("part", ["kubeletPlugin", "webhook", "controller"])
def test_where_pods_go_and_what_they_request_may_be_left_out(part, name):
    assert chart.objects({part: {name: None}})


# Names of objects


@pytest.mark.parametrize("name", ["UPPER", "My_Name", "a.b", "-a", "a-", "a b"])
@pytest.mark.parametrize("key", ["nameOverride", "fullnameOverride"])
def test_names_that_kubernetes_would_refuse_are_refused(key, name):
    with pytest.raises(chart.helm.HelmValuesError, match=key):
        chart.texts({key: name})


@pytest.mark.parametrize("name", ["gpus", "g", "gpu-driver-2"])
@pytest.mark.parametrize("key", ["nameOverride", "fullnameOverride"])
def test_other_names_are_taken(key, name):
    bodies = chart.objects({key: name})
    assert name in chart.the(bodies, "DaemonSet")["metadata"]["name"]


@pytest.mark.parametrize(("key", "refused"), [("fullnameOverride", True), ("nameOverride", False)])
def test_the_name_of_a_service_begins_with_a_letter(key, refused):
    if refused:
        with pytest.raises(chart.helm.HelmValuesError, match=key):
            chart.texts({key: "2gpus"})
    else:
        services = [b for b in chart.objects({key: "2gpus"}) if b["kind"] == "Service"]
        assert {body["metadata"]["name"].partition("-2gpus")[0] for body in services} == {
            "dra-driver"
        }


@pytest.mark.parametrize("name", ["2nd-dra-driver", "gpus.dra-driver"])
def test_a_release_whose_name_is_no_service_s_needs_another_name_for_objects(name):
    with pytest.raises(chart.helm.HelmRenderError, match="set fullnameOverride"):
        chart.texts(name=name)
    assert chart.texts({"fullnameOverride": "gpus"}, name=name)


@pytest.mark.parametrize("text", ["true", "on", "null", "123", "1e3"])
@pytest.mark.parametrize(
    "name",
    [
        "namespace",
        "nameOverride",
        "priorityClass.name",
        "serviceAccount.name",
        "settings.driverName",
        "webhook.priorityClassName",
        "controller.priorityClassName",
    ],
)
def test_a_name_that_yaml_takes_for_something_else_is_refused(name, text):
    """Kubernetes would refuse it with "cannot unmarshal number into Go struct field"."""
    is_value = name != "namespace"
    values = nested(name.split("."), text) if is_value else {}
    options = {} if is_value else {"namespace": text}
    with pytest.raises(chart.helm.HelmRenderError, match=rf'{name} "{text}": YAML reads'):
        chart.texts(values, **options)


@pytest.mark.parametrize("text", ["true", "on", "null"])
def test_so_is_the_name_of_a_release(text):
    with pytest.raises(chart.helm.HelmRenderError, match=rf'of the release "{text}": YAML reads'):
        chart.texts(name=text)


@pytest.mark.parametrize("share", ["101%", "1000%", "0%"])
def test_more_than_all_nodes_cannot_be_updated_at_once(share):
    with pytest.raises(chart.helm.HelmValuesError, match="updateAtOnce"):
        chart.texts({"kubeletPlugin": {"updateAtOnce": share}})
    assert chart.objects({"kubeletPlugin": {"updateAtOnce": "100%"}})


@pytest.mark.parametrize("secret", [{}, {"name": ""}, "name"], ids=str)
def test_a_secret_to_pull_images_with_has_a_name(secret):
    with pytest.raises(chart.helm.HelmValuesError, match="imagePullSecrets"):
        chart.texts({"imagePullSecrets": [secret]})


def test_two_classes_cannot_have_one_extended_resource():
    """The scheduler would take one of them, whichever was made last."""
    values = {"deviceClasses": {"sharedExtendedResourceName": "nvidia.com/gpu"}}
    with pytest.raises(chart.helm.HelmRenderError, match="sharedExtendedResourceName"):
        chart.texts(values)
    values["deviceClasses"]["extendedResourceName"] = ""
    assert chart.objects(values)


# Sockets


def socket(root, name):
    config = settings.KubeletPlugin(
        node_name="n", kubelet_root=root, driver_name=name, rolling_update_uid=UID
    )
    return str(config.registration_socket)


@pytest.mark.parametrize(
    ("root", "most"), [("/var/lib/kubelet", 27), ("/var/lib/k0s/kubelet", 23), ("/k", 41)]
)
def test_of_a_driver_s_name_there_is_as_much_as_the_socket_has_room_for(root, most):
    """A unix socket's path has 107 bytes at most."""
    longest = "g" * most
    assert len(socket(root, longest)) == 107
    assert chart.objects({"settings": {"driverName": longest, "kubeletRoot": root}})
    with pytest.raises(chart.helm.HelmRenderError, match=rf"at most {most} letters .*{root}"):
        chart.texts({"settings": {"driverName": f"{longest}g", "kubeletRoot": root}})


def test_a_kubelet_root_that_leaves_no_room_for_a_name_is_not_told_of_letters_below_none():
    with pytest.raises(chart.helm.HelmRenderError, match="at most 0 letters with settings"):
        chart.texts({"settings": {"kubeletRoot": f"/{'r' * 80}"}})


def test_without_the_uid_in_it_a_name_may_be_longer():
    values = {"settings": {"driverName": "g" * 63}, "kubeletPlugin": {"surge": False}}
    assert chart.objects(values)
    values["settings"]["driverName"] += "g"
    with pytest.raises(chart.helm.HelmValuesError, match="driverName"):
        chart.texts(values)
