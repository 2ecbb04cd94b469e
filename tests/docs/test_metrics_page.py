"""docs/metrics.md lists the metrics that there are, and its alerts use no others."""

import re

import chart
import prometheus_client
import prometheus_client.parser
import pytest
import yaml

from dra_driver import health_metrics, telemetry

PAGE = (chart.DEPLOY.parent / "docs" / "metrics.md").read_text("utf-8")
PACKAGE = chart.DEPLOY.parent / "dra_driver"
DRIVER, NODE = "gpu.nvidia.com", "node-1"


def kubelet_plugin():
    metrics = telemetry.Metrics(DRIVER, NODE)
    # What is told of GPUs has no series before there are some.
    metrics.health.known(["gpu-0"])
    for number in ("79", "other"):
        metrics.health.heard("gpu-0", "xid", xid=number)
    seconds = {("gpu-0", state): 0.0 for state in health_metrics.STATES}
    metrics.health.now_is(lambda: health_metrics.Now(seconds=seconds))
    return prometheus_client.generate_latest(metrics.registry).decode()


def webhook():
    metrics = telemetry.WebhookMetrics(DRIVER, converts=True)
    with metrics.review():
        pass  # What is malformed has no series before it happens.
    return metrics.text()[0].decode()


def controller():
    return telemetry.ControllerMetrics(DRIVER).text()[0].decode()


PARTS = {"Kubelet plugin": kubelet_plugin, "Webhook": webhook, "Controller": controller}
BUILD = ("version", "python")
"""Labels whose values change with every release; the page has none of them."""
COMMON = {"Kubelet plugin": {"driver", "node"}, "Webhook": {"driver"}, "Controller": {"driver"}}


def families(part):
    return [
        family
        for family in prometheus_client.parser.text_string_to_metric_families(PARTS[part]())
        if not family.name.endswith("_created")
    ]


def samples():
    """Label values of every series that can be asked for, by name of the sample and label."""
    found = {}
    for part in PARTS:
        for sample in (sample for family in families(part) for sample in family.samples):
            labels = found.setdefault(sample.name, {})
            for label, value in sample.labels.items():
                labels.setdefault(label, set()).add(value)
    return found


def made(part):
    """Each metric: type and labels with their values, as the code makes them."""
    found = {}
    for family in families(part):
        name = f"{family.name}_total" if family.type == "counter" else family.name
        labels = {}
        for sample in family.samples:
            assert sample.labels.keys() >= COMMON[part]
            for label in sample.labels.keys() - COMMON[part] - {"le"}:
                told = set() if label in BUILD else {sample.labels[label]}
                labels.setdefault(label, set()).update(told)
        found[name] = (family.type, labels)
    return found


def told(part):
    """The same, as the page has it."""
    [text] = re.findall(rf"^## {part}$(.*?)^## ", PAGE, re.MULTILINE | re.DOTALL)
    [all_have] = re.findall(r"^All have the labels? (.*)\.$", text, re.MULTILINE)
    assert set(re.findall(r"`(\w+)`", all_have)) == COMMON[part]
    found = {}
    for line in re.findall(r"^\| `dra_.*$", text, re.MULTILINE):
        name, kind, unit, labels, what = (cell.strip() for cell in line.split("|")[1:-1])
        assert unit
        assert what
        found[name.strip("`")] = (
            kind,
            {
                label: set(re.findall(r"`([\w-]+)`", values))
                for label, values in re.findall(r"`(\w+)` \((.*?)\)", labels)
            },
        )
    return found


def rules():
    [block] = re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    [group] = yaml.safe_load(block)["groups"]
    return {rule["alert"]: rule for rule in group["rules"]}


def test_all_parts_that_have_metrics_are_looked_at():
    classes = {name for name in vars(telemetry) if name.endswith("Metrics")}
    assert classes == {"Metrics", "WebhookMetrics", "ControllerMetrics"}


@pytest.mark.parametrize("part", PARTS)
def test_the_metrics_of_a_part_are_told_with_their_types_and_labels(part):
    assert told(part) == made(part)


def test_the_names_of_the_services_are_those_of_the_chart():
    bodies = chart.objects({"webhook": {"enabled": True}, "controller": {"enabled": True}})
    made = {
        body["metadata"]["name"]
        for body in bodies
        if body["kind"] == "Service" and body["metadata"]["name"].endswith("-metrics")
    }
    assert set(re.findall(r"Service `([\w-]+)`", PAGE)) == made
    jobs = {job for rule in rules().values() for job in re.findall(r'job="(.*?)"', rule["expr"])}
    assert jobs <= made


@pytest.mark.parametrize("name", rules())
def test_an_alert_asks_for_series_that_there_are(name):
    known = samples()
    expression = rules()[name]["expr"]
    asked = re.findall(r"\b((?:dra_driver|up)\w*)(?:\{(.*?)\})?", expression)
    assert asked
    for metric, matchers in asked:
        for label, text in re.findall(r'(\w+)=~?"(.*?)"', matchers):
            if metric != "up":
                assert set(text.split("|")) <= known[metric][label]
        assert metric == "up" or metric in known
    for labels in re.findall(r"by \((.*?)\)", expression):
        assert set(labels.split(", ")) <= {"le", *known[asked[0][0]]}


@pytest.mark.parametrize("name", rules())
def test_an_alert_says_how_bad_it_is_and_what_to_do_with_labels_that_it_has(name):
    rule = rules()[name]
    assert rule["labels"]["severity"] in ("critical", "warning")
    assert set(rule["annotations"]) == {"summary", "description"}
    used = set(re.findall(r"\$labels\.(\w+)", str(rule["annotations"])))
    [metric, *_] = re.findall(r"\b(?:dra_driver|up)\w*", rule["expr"])
    of_the_target = {"instance", "namespace", "pod"} if metric == "up" else set()
    assert used <= of_the_target | set(samples().get(metric, {}))


def test_what_is_looked_for_in_the_log_is_what_is_logged():
    code = "".join(path.read_text("utf-8") for path in PACKAGE.rglob("*.py"))
    told = re.findall(r"(?:reason|claims): ([\w ]+\w)[.;]", PAGE)
    assert len(told) >= 6
    for text in told:
        assert text in code or re.sub("(un)?prepare", "{operation}", text) in code
    [event] = re.findall(r"reason=(\w+)", PAGE)
    assert event in code


def test_what_operators_must_know_of_is_watched():
    watched = {
        metric for rule in rules().values() for metric in re.findall(r"dra_\w+", rule["expr"])
    }
    assert watched >= {
        "dra_driver_slices_published",
        "dra_driver_calls_total",
        "dra_driver_call_duration_seconds_bucket",
        "dra_driver_mps_daemons",
        "dra_driver_webhook_certificate_not_after_seconds",
        "dra_driver_controller_stale_claims",
    }
