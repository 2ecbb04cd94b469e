"""Whether the API server takes devices that many claims consume.

Behind a feature gate that is on by default from Kubernetes 1.36 on; while it is off, the server
drops the field without a word, and each device goes to one claim, whole.
"""

import dataclasses

from dra_driver.adapters.kube import kube
from dra_driver.logic.offering import publishing
from dra_driver.model import slices

GATE = "DRAConsumableCapacity"
_FIELD = "allowMultipleAllocations"


def hindrance(client: kube.Client, owner: publishing.Owner, api_version: str) -> str | None:
    """Why the server takes none; None if it does. It is asked with a write that is not carried out.

    Raises:
        kube.Unavailable: the server does not answer.
    """
    probe = publishing.Content((slices.Device("probe", {}, {}, {_FIELD: True}),))
    [body] = publishing.reconcile(owner, publishing.contents((probe,)), ()).create
    resource = dataclasses.replace(kube.SLICES, version=api_version)
    try:
        made = client.create(resource, publishing.to_version(body, api_version), dry_run=True)
    except kube.Unavailable:
        raise
    except kube.ApiError as error:
        return f"the API server refuses them ({error})"
    [device] = publishing.from_version(made, api_version)["spec"]["devices"]
    if device.get(_FIELD):
        return None
    return f"the API server drops {_FIELD}: the feature gate {GATE} is off, or it has none"
