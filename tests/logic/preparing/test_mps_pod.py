"""The Pod object of an MPS daemon."""

import dataclasses
import json
import re

import kubernetes
import pytest

from dra_driver.logic.preparing import mps_pod
from dra_driver.model import mps

SITE = mps_pod.Site(
    namespace="dra-driver",
    node_name="gpu-node-1.example.com",
    image="registry.example.com/dra-driver:1.0",
    driver_root="/run/nvidia/driver",
    driver_root_seen="/driver-root",
    cpu="10m",
    memory="128Mi",
)
ROOT = "/var/lib/kubelet/plugins/gpu.nvidia.com/mps"
DAEMON = mps.daemon(
    root=ROOT, daemon_id="00112233445566aa", device="GPU-1", shm_bytes=2**30,
    limits=mps.Limits(30, 4 * 2**30),
)  # fmt: skip
DIRECTORY = f"{ROOT}/00112233445566aa"


def pod(site=SITE, daemon=DAEMON, *, node_uid="node-uid", private_shm=True):
    return mps_pod.body(site, daemon, node_uid=node_uid, private_shm=private_shm)


def there(body=None, *, phase="Running", **metadata):
    """A pod as the API has it."""
    body = body or pod()
    return body | {"metadata": body["metadata"] | metadata, "status": {"phase": phase}}


def test_kubernetes_knows_every_field_of_it_by_that_name_and_type():
    api, body = kubernetes.client.ApiClient(), pod()
    understood = api.deserialize(json.dumps(body), "V1Pod", "application/json")
    assert api.sanitize_for_serialization(understood) == body


def test_it_runs_on_its_node_whatever_the_node_s_taints_and_belongs_to_it():
    spec, metadata = pod()["spec"], pod()["metadata"]
    assert spec["nodeName"] == "gpu-node-1.example.com"
    assert spec["tolerations"] == [{"operator": "Exists"}]
    [owner] = metadata["ownerReferences"]
    assert (owner["kind"], owner["name"]) == ("Node", "gpu-node-1.example.com")
    assert (owner["uid"], owner["controller"]) == ("node-uid", True)


def test_it_has_the_priority_class_of_its_site_and_none_of_its_own():
    assert "priorityClassName" not in pod()["spec"]
    site = dataclasses.replace(SITE, priority_class="mps")
    assert pod(site)["spec"]["priorityClassName"] == "mps"


@pytest.mark.parametrize(
    ("phase", "reason", "expected"),
    [
        ("Failed", "OutOfcpu", True),
        ("Failed", "OutOfpods", True),
        ("Failed", "Evicted", False),
        ("Failed", None, False),
        ("Running", None, False),
    ],
)
def test_a_pod_that_a_full_node_refuses_is_known_by_its_reason(phase, reason, expected):
    body = there(phase=phase)
    status = {"phase": phase} | ({} if reason is None else {"reason": reason})
    assert mps_pod.has_no_room(body | {"status": status}) is expected


def test_its_container_runs_the_supervisor_and_is_ready_when_the_daemon_is():
    [container] = pod()["spec"]["containers"]
    command = ["dra-driver", "mps-daemon", "--file", f"{DIRECTORY}/daemon.json"]
    assert container["command"] == [*command, "--driver-root", "/driver-root"]
    assert container["readinessProbe"]["exec"]["command"] == [*command, "--check"]


def test_it_looks_for_the_driver_where_the_settings_say_that_its_libraries_are():
    [container] = pod(dataclasses.replace(SITE, library_dirs=("/opt/a", "/opt/b")))["spec"][
        "containers"
    ]
    assert container["command"][-4:] == [
        *("--driver-root", "/driver-root"),
        *("--library-dirs", "/opt/a,/opt/b"),
    ]
    assert container["image"] == "registry.example.com/dra-driver:1.0"
    assert container["resources"] == {"requests": {"cpu": "10m", "memory": "128Mi"}}


def test_it_sees_the_daemon_s_directory_where_it_is_and_the_driver_where_the_plugin_sees_it():
    spec = pod()["spec"]
    paths = {one["name"]: one["hostPath"]["path"] for one in spec["volumes"] if "hostPath" in one}
    mounts = {
        mount["mountPath"]: (paths[mount["name"]], mount.get("readOnly", False))
        for mount in spec["containers"][0]["volumeMounts"]
        if mount["name"] in paths
    }
    assert mounts == {
        DIRECTORY: (DIRECTORY, False),
        "/driver-root": ("/run/nvidia/driver", True),
        "/dev/shm": (f"{DIRECTORY}/shm", False),
    }


def test_without_a_memory_of_its_own_it_keeps_that_of_its_pod():
    spec = pod(private_shm=False)["spec"]
    assert [one["name"] for one in spec["volumes"]] == ["daemon", "driver", "tmp"]
    assert "/dev/shm" not in {one["mountPath"] for one in spec["containers"][0]["volumeMounts"]}


def test_it_has_no_credentials():
    spec = pod(dataclasses.replace(SITE, service_account="mps"))["spec"]
    assert spec["automountServiceAccountToken"] is False
    assert spec["serviceAccountName"] == "mps"
    assert "serviceAccountName" not in pod()["spec"]


def test_it_is_pulled_with_the_secrets_of_its_namespace():
    spec = pod(dataclasses.replace(SITE, image_pull_secrets=("one", "two")))["spec"]
    assert spec["imagePullSecrets"] == [{"name": "one"}, {"name": "two"}]
    assert "imagePullSecrets" not in pod()["spec"]


@pytest.mark.parametrize("policy", ["Always", "IfNotPresent", "Never"])
def test_it_is_pulled_when_the_driver_s_own_image_is(policy):
    [container] = pod(dataclasses.replace(SITE, image_pull_policy=policy))["spec"]["containers"]
    assert container["imagePullPolicy"] == policy
    [container] = pod()["spec"]["containers"]
    assert container["imagePullPolicy"] == "IfNotPresent"


def test_what_it_may_write_is_its_daemon_s_directory_and_memory():
    spec = pod()["spec"]
    [container] = spec["containers"]
    assert container["securityContext"] == {
        "privileged": True,
        "runAsUser": 0,
        "readOnlyRootFilesystem": True,
    }
    writable = {one["name"] for one in container["volumeMounts"] if not one.get("readOnly")}
    assert writable == {"daemon", "tmp", "shm"}
    [tmp] = [one for one in spec["volumes"] if one["name"] == "tmp"]
    assert tmp["emptyDir"] == {"medium": "Memory", "sizeLimit": "16Mi"}


def test_of_the_host_it_has_no_more_than_processes_and_directories():
    spec = pod()["spec"]
    assert spec["hostPID"] is True
    assert not {"hostNetwork", "hostIPC", "hostUsers"} & spec.keys()


def test_its_name_is_one_for_a_label_too_and_tells_nodes_and_drivers_apart():
    elsewhere = dataclasses.replace(SITE, node_name="gpu-node-2.example.com")
    beside = dataclasses.replace(DAEMON, directory="/var/lib/other/mps/00112233445566aa")
    names = {
        mps_pod.name(SITE, DAEMON), mps_pod.name(elsewhere, DAEMON), mps_pod.name(SITE, beside)
    }  # fmt: skip
    assert len(names) == 3
    for name in names:
        assert re.fullmatch(r"mps-00112233445566aa-[0-9a-f]{8}", name)
    assert mps_pod.name(SITE, DAEMON.limited(mps.Limits())) == mps_pod.name(SITE, DAEMON)


def test_a_pod_is_kept_for_other_limits():
    assert mps_pod.fate(there(), pod(daemon=DAEMON.limited(mps.Limits(50)))) is mps_pod.Fate.KEEP


@pytest.mark.parametrize("phase", ["Pending", "Running"])
def test_a_pod_that_is_as_it_would_be_made_now_is_kept(phase):
    assert mps_pod.fate(there(phase=phase), pod()) is mps_pod.Fate.KEEP


@pytest.mark.parametrize(
    "found",
    [
        there(phase="Failed"),
        there(phase="Succeeded"),
        there(pod(dataclasses.replace(SITE, image="older"))),
        there(pod(dataclasses.replace(SITE, driver_root="/"))),
        there(pod(dataclasses.replace(SITE, service_account="another"))),
        there(pod(dataclasses.replace(SITE, image_pull_secrets=("another",)))),
        there(pod(node_uid="the node was made again")),
        there(annotations=None),
    ],
)
def test_a_pod_that_has_ended_or_is_another_is_replaced(found):
    assert mps_pod.fate(found, pod()) is mps_pod.Fate.REPLACE


def test_a_pod_that_is_being_deleted_is_waited_for_even_if_it_has_failed():
    found = there(phase="Failed", deletionTimestamp="2026-01-01T00:00:00Z")
    assert mps_pod.fate(found, pod()) is mps_pod.Fate.WAIT
    assert mps_pod.is_over(found)


@pytest.mark.parametrize(
    "labels",
    [
        None,
        {mps_pod.MANAGED_BY: mps_pod.MANAGER},
        {mps_pod.MANAGED_BY: "helm", mps_pod.DOMAIN: DAEMON.id},
        {mps_pod.MANAGED_BY: mps_pod.MANAGER, mps_pod.DOMAIN: "ffffffffffffffff"},
    ],
)
def test_a_pod_without_the_labels_is_somebody_else_s(labels):
    found = there(labels=labels)
    assert mps_pod.fate(found, pod()) is mps_pod.Fate.STRANGER
    assert not mps_pod.is_ours(found, DAEMON.id)


def test_what_is_in_a_pod_s_way_is_told():
    waiting = {"waiting": {"reason": "ErrImagePull", "message": "not found"}}
    found = there(phase="Pending") | {
        "status": {"phase": "Pending", "containerStatuses": [{"state": waiting}]}
    }
    assert mps_pod.described(found) == "Pending, ErrImagePull, not found"
    evicted = {"phase": "Failed", "reason": "Evicted", "message": "low on memory"}
    assert mps_pod.described(there() | {"status": evicted}) == "Failed, Evicted, low on memory"
    gone = there(deletionTimestamp="2026-01-01T00:00:00Z")
    assert mps_pod.described(gone) == "Running, being deleted"
    assert mps_pod.described(there() | {"status": {}}) == "Pending"
