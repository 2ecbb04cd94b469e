"""`dra-driver explain` decides as the scheduler of a Kubernetes release."""

import contextlib

import pytest
from control_plane import ControlPlane
from explain_scene import claim, device_class, gpu, node, pool

from dra_driver.apps.looking import reading


class TestTheReleaseOfTheScheduler:
    """A tainted card leaves its counters taken in 1.36.2, and one behind it is not found."""

    @staticmethod
    def fleet():
        def consuming(amount):
            counters = {"c": {"value": f"{amount}"}}
            return {"consumesCounters": [{"counterSet": "s", "counters": counters}]}

        counters = {"sharedCounters": [{"name": "s", "counters": {"c": {"value": "4"}}}]}
        cards = gpu("ill", taint="ill", extra=consuming(4)), gpu("well", extra=consuming(1))
        without_devices = pool("a", count=2, **counters) | {"metadata": {"name": "counters"}}
        del without_devices["spec"]["devices"]
        return [
            pool("a", *cards, count=2),
            without_devices,
            device_class("device.driver == 'gpu.example.com'"),
            node("a"),
        ]

    @pytest.mark.parametrize(
        ("release", "status", "told"),
        [
            ((), 0, None),
            (("--emulate", "1.37"), 0, "decided as by kube-scheduler 1.37, with its known"),
            (("--emulate", "1.36.2"), 2, "decided as by kube-scheduler 1.36.2, with its known"),
        ],
    )
    def test_one_that_is_named_decides(self, explain, write, release, status, told):
        saved = write("fleet.yaml", *self.fleet())
        manifest = write("claim.yaml", claim("c"))
        found, out, err = explain("-f", manifest, "--slices", saved, *release)
        assert not err, err
        assert found == status
        assert ("decided as by" in out) is (told is not None)
        assert told is None or f"{told} defects (--emulate)" in out

    def test_one_that_is_not_known_is_refused_before_anything_is_read(self, explain, write):
        manifest = write("claim.yaml", claim("c"))
        status, _, err = explain("-f", manifest, "--slices", "nowhere", "--emulate", "1.2")
        assert status == 1
        assert (
            "--emulate 1.2: this release is not known; known: 1.34, 1.35, 1.36.2, 1.37, 1.38" in err
        )

    @pytest.mark.parametrize(
        ("version", "status"), [("v1.36.2", 2), ("v1.37.1", 0), ("v1.36.2-sim", 0)]
    )
    def test_else_that_of_the_cluster_does(self, explain, write, tmp_path, version, status):
        with contextlib.closing(ControlPlane(tmp_path, kubernetes_version=version)) as plane:
            for body in self.fleet():
                plane.client.create(reading.KINDS[body["kind"]], body)
            manifest = write("claim.yaml", claim("c"))
            found, out, _ = explain("-f", manifest, "--kubeconfig", tmp_path / "kubeconfig")
        assert found == status
        assert (f"(the server is {version})" in out) is (not version.endswith("-sim"))
