"""The Helm chart, rendered by Helm's own engine."""

import json
import pathlib
from collections.abc import Iterable, Mapping
from typing import Any

import foreign_schemas
import jsonschema
import kubernetes
import pytest
import yaml

from dra_driver import cli, settings
from dra_driver.settings import resolving

helm = pytest.importorskip("helm_python", reason="no wheel of Helm's engine for this machine")

Json = dict[str, Any]

DEPLOY = pathlib.Path(__file__).parents[1] / "deploy"
PATH = DEPLOY / "helm" / "dra-driver"
NAMESPACE = "dra-driver"

LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""The same as `SafeLoader`, many times faster, where PyYAML comes with libyaml."""

COMPONENT = "app.kubernetes.io/component"


def texts(
    values: Mapping[str, Any] | None = None,
    *,
    name: str = "dra-driver",
    namespace: str = NAMESPACE,
) -> dict[str, str]:
    """What each template renders to, without a cluster (as of Helm's newest Kubernetes)."""
    with helm.Chart.load(PATH) as chart:
        chart.validate_schema(dict(values or {}))
        rendered = chart.render(dict(values or {}), name=name, namespace=namespace)
    return {path.removeprefix("dra-driver/templates/"): text for path, text in rendered.items()}


def objects(values: Mapping[str, Any] | None = None, **options: Any) -> list[Json]:
    """All objects of the chart."""
    return [
        body
        for path, text in texts(values, **options).items()
        if path.endswith(".yaml")
        for body in yaml.load_all(text, Loader=LOADER)
        if body
    ]


def manifests() -> list[Json]:
    """All objects of deploy/manifests."""
    return [
        body
        for path in sorted((DEPLOY / "manifests").glob("*.yaml"))
        for body in yaml.load_all(path.read_text(encoding="utf-8"), Loader=LOADER)
    ]


def the(bodies: Iterable[Json], kind: str, suffix: str = "") -> Json:
    """The only object of a kind, or the one whose name ends so."""
    [found] = [
        body
        for body in bodies
        if body["kind"] == kind and body["metadata"]["name"].endswith(suffix)
    ]
    return found


def part(bodies: Iterable[Json], component: str) -> list[Json]:
    """The objects of the kubelet plugin, the webhook or the controller."""
    return [
        body for body in bodies if body["metadata"].get("labels", {}).get(COMPONENT) == component
    ]


def container(bodies: Iterable[Json]) -> Json:
    """The container of the kubelet plugin."""
    [found] = the(bodies, "DaemonSet")["spec"]["template"]["spec"]["containers"]
    return found


def deployed(component: str, values: Mapping[str, Any] | None = None, **options: Any) -> Json:
    """The template of the pods of the webhook or the controller."""
    template: Json = the(part(objects(values, **options), component), "Deployment")["spec"][
        "template"
    ]
    return template


def deployed_settings(
    component: str,
    model: type[resolving.T],
    values: Mapping[str, Any] | None = None,
    *,
    environment: Mapping[str, str] | None = None,
    **options: Any,
) -> resolving.T:
    """What the arguments of such a pod make, as the command reads them."""
    [container] = deployed(component, values, **options)["spec"]["containers"]
    assert container["command"] == ["dra-driver", component]
    read = cli._parser().parse_args([component, *container["args"]])
    flags = {name: getattr(read, name) for name in model.model_fields}
    return settings.resolve(model, environment=environment or {}, flags=flags)


def plugin_settings(values: Mapping[str, Any] | None = None) -> settings.KubeletPlugin:
    """What the container's arguments and variables make, as the kubelet plugin reads them."""
    options = cli._parser().parse_args(["kubelet-plugin", *container(objects(values))["args"]])
    fields = settings.KubeletPlugin.model_fields
    return settings.resolve(
        settings.KubeletPlugin,
        environment={"NODE_NAME": "node-1", "POD_NAMESPACE": NAMESPACE},
        flags={name: getattr(options, name) for name in fields},
    )


def check(body: Json) -> None:
    """Fail if the object is not as Kubernetes has it: a field that is unknown, missing, or wrong.

    A field that a model does not have would be lost on the way through it.
    """
    if body["kind"] in foreign_schemas.SCHEMAS:
        jsonschema.validate(body, foreign_schemas.SCHEMAS[body["kind"]])
        return
    api = kubernetes.client.ApiClient()
    version = body["apiVersion"].rpartition("/")[2]
    model = f"{version[0].upper()}{version[1:]}{body['kind']}"
    read = api.deserialize(json.dumps(body), model, "application/json")
    assert api.sanitize_for_serialization(read) == body
