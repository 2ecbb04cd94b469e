"""What `dra-driver doctor` asks the API server."""

import dataclasses
import re
from collections.abc import Iterator

from dra_driver import errors, settings
from dra_driver.adapters.kube import kube
from dra_driver.apps.node import counter_support, share_support
from dra_driver.logic.doctor import diagnosis
from dra_driver.logic.offering import publishing

_GROUP = kube.RESOURCE_GROUP
_DRY_RUN = "create resourceslices (dry run)"
_RIGHTS = "apply the chart's roles anew: helm upgrade, or kubectl apply -f deploy/manifests"
_POLICY = re.compile(r"ValidatingAdmissionPolicy '([^']+)'")
"""What the answer names where a policy refuses; its status is 422, or what the policy says."""
_OWN_POLICY = "-slices"
"""How the name of the chart's policy for slices ends."""
_IDENTITY = (
    "use the token of the plugin's own pod (no --kubeconfig in the pod) and the name of its node "
    "(--node-name); outside of pods set admissionPolicy.create=false in the chart's values"
)
_WEBHOOK = "an admission webhook or a policy of the cluster is in the way: let the driver pass"
_FIRST_SECONDS = 5.0
"""How long the API server may take to answer at all."""


def findings(
    config: settings.KubeletPlugin, *, partitions: bool, gates: bool = True, user_agent: str
) -> list[diagnosis.Finding]:
    """All of them, until one makes the others moot. `partitions`: the node has some to offer.

    Without `gates` the API server is not asked for feature gates without which less is offered.
    """
    source = str(config.kubeconfig) if config.kubeconfig else "service account of the pod"
    try:
        client = kube.Client(kubeconfig=config.kubeconfig, user_agent=user_agent)
    except errors.DriverError as error:
        return [
            diagnosis.problem(
                "API server",
                source,
                str(error),
                "set --kubeconfig, or run in a pod with the service account of the chart",
            )
        ]
    try:
        return list(_asked(client, config, source, partitions=partitions, gates=gates))
    finally:
        client.close()


def _asked(
    client: kube.Client,
    config: settings.KubeletPlugin,
    source: str,
    *,
    partitions: bool,
    gates: bool,
) -> Iterator[diagnosis.Finding]:
    try:
        about = client.get_path("/version", timeout=_FIRST_SECONDS)
        release = str(about.get("gitVersion", "no version"))
        yield diagnosis.fine("API server", source, f"it answers, with {release}")
        served = kube.served_versions(client, _GROUP)
        version = next((v for v in publishing.API_VERSIONS if v in served), None)
        yield _versions(served, version)
        if version is None:
            return
        yield from _slices(client, config, version, release, partitions=partitions, gates=gates)
    except kube.ApiError as error:
        yield diagnosis.problem(
            "API server",
            source,
            str(error),
            "kubectl get --raw /readyz tells whether it is up; from the node, its address must be "
            "reachable and no network policy in the way",
        )


def _versions(served: tuple[str, ...], chosen: str | None) -> diagnosis.Finding:
    check, looked_at = _GROUP, f"/apis/{_GROUP}"
    if chosen is not None:
        return diagnosis.fine(check, looked_at, f"{', '.join(served)}; {chosen} is used")
    return diagnosis.problem(
        check,
        looked_at,
        f"the API server offers {', '.join(served) or 'no version'}; needed is one of "
        f"{', '.join(publishing.API_VERSIONS)}",
        f"Kubernetes 1.34 or newer, without --runtime-config={_GROUP}/v1=false for the API server; "
        f"1.32 and 1.33 need --runtime-config={_GROUP}/v1beta1=true and their feature gate of "
        "dynamic resource allocation, for all components",
    )


def _slices(
    client: kube.Client,
    config: settings.KubeletPlugin,
    version: str,
    release: str,
    *,
    partitions: bool,
    gates: bool,
) -> Iterator[diagnosis.Finding]:
    request = f"get nodes {config.node_name}"
    try:
        node = client.get(kube.NODES, config.node_name)
    except kube.NotFound:
        yield diagnosis.problem(
            "Node object",
            request,
            "there is no Node of this name, and slices have to belong to one",
            "set --node-name to one of: kubectl get nodes",
        )
        return
    except kube.Forbidden as error:
        yield diagnosis.problem("Node object", request, str(error), _RIGHTS)
        return
    yield diagnosis.fine("Node object", request, f"UID {node['metadata']['uid']}")
    yield _published(client, config, version)
    owner = publishing.Owner(config.driver_name, config.node_name, node["metadata"]["uid"])
    written = _written(client, owner, version)
    yield written
    if written.level is diagnosis.Level.PROBLEM or not gates:
        return
    answer = counter_support.ask(client, owner, version)
    # Instances that an administrator made have no counters.
    needed = partitions and config.cuts_any
    yield diagnosis.counters(_hindrance(answer), looked_at=_DRY_RUN, needed=needed)
    if answer.hindrance is None:
        yield from diagnosis.scheduler(
            release,
            needed=needed,
            shares=config.shares_any,
            avoids=config.scheduler_defects == "avoid",
        )
    if config.shares_any:
        yield diagnosis.shares(share_support.hindrance(client, owner, version), looked_at=_DRY_RUN)


def _published(
    client: kube.Client, config: settings.KubeletPlugin, version: str
) -> diagnosis.Finding:
    selector = f"spec.driver={config.driver_name},spec.nodeName={config.node_name}"
    request = "list resourceslices"
    try:
        items, _ = client.list(
            dataclasses.replace(kube.SLICES, version=version), field_selector=selector
        )
    except kube.Forbidden as error:
        return diagnosis.problem("ResourceSlices", request, str(error), _RIGHTS)
    count = sum(len(item["spec"].get("devices") or ()) for item in items)
    return diagnosis.fine("ResourceSlices", request, f"{len(items)} with {count} devices")


def _written(client: kube.Client, owner: publishing.Owner, version: str) -> diagnosis.Finding:
    """Whether a slice of this node may be made: by the roles, and by the admission policy."""
    check, request = "writing slices", _DRY_RUN
    [empty] = publishing.reconcile(owner, publishing.contents(()), ()).create
    resource = dataclasses.replace(kube.SLICES, version=version)
    try:
        client.create(resource, publishing.to_version(empty, version), dry_run=True)
    except kube.Unavailable:
        raise
    except kube.ApiError as error:
        return diagnosis.problem(check, request, str(error), _permission(error))
    return diagnosis.fine(check, request, "they may be made")


def _permission(error: kube.ApiError) -> str:
    """What lets a slice be made that was refused."""
    policy = _POLICY.search(error.message)
    if policy is None:
        return _RIGHTS if isinstance(error, kube.Forbidden) else _WEBHOOK
    if policy[1].endswith(_OWN_POLICY):
        return _IDENTITY
    return (
        f"the policy {policy[1]} of the cluster is in the way: let the driver pass; kubectl get "
        f"validatingadmissionpolicy {policy[1]} -o yaml shows what it wants"
    )


def _hindrance(answer: counter_support.Answer) -> str | None:
    match answer.hindrance:
        case None:
            return None
        case counter_support.Hindrance.TOO_OLD:
            return f"Kubernetes 1.{answer.detail} has no counters"
        case counter_support.Hindrance.REFUSED:
            return f"the API server refuses them ({answer.detail})"
        case counter_support.Hindrance.DROPPED:
            return "the API server drops them: the feature gate DRAPartitionableDevices is off"
