"""Claims in older versions of the API, where the cluster serves them."""

import dataclasses

import pytest
from e2e_site import DRIVER

from dra_driver.adapters.kube import kube


@pytest.mark.covers("e2e/dra: with v1beta1 API, with v1beta2 API: simple ResourceClaim")
@pytest.mark.parametrize("version", ["v1beta1", "v1beta2"])
def test_a_claim_of_an_older_version_is_prepared(scratch, version):
    if version not in kube.served_versions(scratch.site.client, kube.RESOURCE_GROUP):
        pytest.skip(f"the cluster does not serve resource.k8s.io/{version}")
    asked = {"deviceClassName": DRIVER}
    request = {"name": "gpu", **(asked if version == "v1beta1" else {"exactly": asked})}
    resource = dataclasses.replace(kube.CLAIMS, version=version)
    scratch.create(resource, "ResourceClaim", "old", spec={"devices": {"requests": [request]}})
    scratch.pod("pod", {"gpu": "claim/old"})
    scratch.wait_running("pod")
    assert len(scratch.sees("pod")) == 1
