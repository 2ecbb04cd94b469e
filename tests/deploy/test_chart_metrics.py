"""Who reaches the pods of the chart: Services of metrics, ServiceMonitors, NetworkPolicies."""

import chart
import pytest

ALL = {
    "metrics": {"serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}}},
    "networkPolicy": {"enabled": True, "apiServerPorts": [443, 6443]},
}
PORTS = {"kubelet-plugin": "metrics", "webhook": "status", "controller": "status"}
"""The port of each part's containers at which metrics are served."""
PARTS = pytest.mark.parametrize("component", PORTS)
API_SERVERS = [
    {"ports": [{"port": 443, "protocol": "TCP"}, {"port": 6443, "protocol": "TCP"}]},
    {"ports": [{"port": 53, "protocol": "UDP"}, {"port": 53, "protocol": "TCP"}]},
]
"""At any address; and DNS, for clusters that name their API server."""


def parts(component, values=None):
    return chart.part(chart.objects(ALL | (values or {})), component)


def template(bodies):
    [found] = [body for body in bodies if body["kind"] in ("DaemonSet", "Deployment")]
    return found["spec"]["template"]


@PARTS
def test_the_service_finds_the_pods_and_their_port(component):
    bodies = parts(component)
    labels = template(bodies)["metadata"]["labels"]
    service = chart.the(bodies, "Service", "-metrics")
    policy = chart.the(bodies, "NetworkPolicy")["spec"]
    for selector in (service["spec"]["selector"], policy["podSelector"]["matchLabels"]):
        assert selector.items() <= labels.items()
        assert selector[chart.COMPONENT] == component
    [container] = template(bodies)["spec"]["containers"]
    [port] = service["spec"]["ports"]
    assert port["targetPort"] == PORTS[component]
    assert port["targetPort"] in {port["name"] for port in container["ports"]}


@PARTS
def test_pods_that_are_not_ready_are_asked_for_figures_and_for_nothing_else(component):
    services = [body for body in parts(component) if body["kind"] == "Service"]
    published = {
        body["metadata"]["name"]: body["spec"].get("publishNotReadyAddresses", False)
        for body in services
    }
    assert published
    for name, also_not_ready in published.items():
        assert also_not_ready is name.endswith("-metrics"), name


@PARTS
def test_each_pod_is_asked_for_its_own_figures(component):
    assert chart.the(parts(component), "Service", "-metrics")["spec"]["clusterIP"] == "None"


@PARTS
def test_prometheus_asks_each_pod_once(component):
    """By the name of the port, which one of the Services with the labels has."""
    bodies = parts(component)
    monitor = chart.the(bodies, "ServiceMonitor")
    assert monitor["metadata"]["labels"]["release"] == "prometheus"
    [endpoint] = monitor["spec"]["endpoints"]
    assert (endpoint["path"], endpoint["interval"]) == ("/metrics", "30s")
    wanted = monitor["spec"]["selector"]["matchLabels"].items()
    found = [
        (body["metadata"]["name"], port["name"])
        for body in chart.objects(ALL)
        if body["kind"] == "Service" and wanted <= body["metadata"]["labels"].items()
        for port in body["spec"]["ports"]
        if port["name"] == endpoint["port"]
    ]
    assert found == [(chart.the(bodies, "Service", "-metrics")["metadata"]["name"], "metrics")]


def test_without_metrics_there_is_no_service_for_them_and_no_way_in():
    values = {"metrics": {"enabled": False}}
    bodies = chart.objects({"networkPolicy": ALL["networkPolicy"]} | values)
    assert [body["metadata"]["name"] for body in bodies if body["kind"] == "Service"] == [
        "dra-driver-webhook"
    ]
    for component, ingress in (
        ("kubelet-plugin", None),
        ("webhook", [{"ports": [{"port": "https", "protocol": "TCP"}]}]),
        ("controller", None),
    ):
        policy = chart.the(chart.part(bodies, component), "NetworkPolicy")["spec"]
        assert policy.get("ingress") == ingress
        assert policy["policyTypes"] == ["Ingress", "Egress"]


@PARTS
def test_who_may_read_metrics_can_be_chosen_and_api_servers_reach_the_webhook_all_the_same(
    component,
):
    peers = [{"namespaceSelector": {"matchLabels": {"name": "monitoring"}}}]
    values = {"networkPolicy": ALL["networkPolicy"] | {"metricsFrom": peers}}
    policy = chart.the(parts(component, values), "NetworkPolicy")["spec"]
    metrics = {"ports": [{"port": PORTS[component], "protocol": "TCP"}], "from": peers}
    asked = [{"ports": [{"port": "https", "protocol": "TCP"}]}] if component == "webhook" else []
    assert policy["ingress"] == [*asked, metrics]
    assert policy["egress"] == API_SERVERS


def test_with_cert_manager_the_webhook_asks_nobody():
    values = ALL | {"webhook": {"certManager": {"enabled": True}}}
    policy = chart.the(chart.part(chart.objects(values), "webhook"), "NetworkPolicy")["spec"]
    assert "egress" not in policy
    assert policy["policyTypes"] == ["Ingress", "Egress"]


@PARTS
def test_where_the_ports_of_api_servers_are_not_known_connections_out_are_not_limited(component):
    """As in deploy/manifests: a wrong port would keep the pods from their work."""
    policy = chart.the(chart.part(chart.objects(), component), "NetworkPolicy")["spec"]
    assert policy["policyTypes"] == ["Ingress"]
    assert "egress" not in policy
    metrics = {"ports": [{"port": PORTS[component], "protocol": "TCP"}]}
    asked = [{"ports": [{"port": "https", "protocol": "TCP"}]}] if component == "webhook" else []
    # From everywhere: an API server that calls the webhook comes from its node's own network.
    assert policy["ingress"] == [*asked, metrics]


def test_without_policies_there_are_none():
    values = {"networkPolicy": {"enabled": False}}
    assert "NetworkPolicy" not in {body["kind"] for body in chart.objects(values)}


def test_what_is_switched_off_has_no_policy_and_no_service():
    values = ALL | {"webhook": {"enabled": False}, "controller": {"enabled": False}}
    components = {
        body["metadata"]["labels"][chart.COMPONENT]
        for body in chart.objects(values)
        if body["kind"] in ("NetworkPolicy", "Service", "ServiceMonitor")
    }
    assert components.isdisjoint({"webhook", "controller"})
    assert "kubelet-plugin" in components
