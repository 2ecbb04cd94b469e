"""docs/install.md names values and files that exist."""

import datetime as dt
import json
import re

import chart
import pytest
import raw_http
import yaml

from dra_driver.adapters.kube import kube

TEXT = (chart.DEPLOY.parent / "docs" / "install.md").read_text("utf-8")
VALUES = yaml.safe_load((chart.PATH / "values.yaml").read_text("utf-8"))
OF_THE_OPERATOR = {"devicePlugin.enabled", "driver.enabled", "migManager.enabled"}


def named():
    """Values in `--set` of a command, and those in backquotes with a dot."""
    tops = "|".join(VALUES)
    in_commands = re.findall(r"--set ([a-zA-Z.]+)=", TEXT)
    in_text = re.findall(rf"`((?:{tops})\.[a-zA-Z.]+)(?:[=:`])", TEXT)
    return sorted({*in_commands, *in_text} - OF_THE_OPERATOR)


@pytest.mark.parametrize("name", named())
def test_each_value_is_one_of_the_chart(name):
    value = VALUES
    for part in name.split("."):
        assert part in value
        value = value[part]


def test_enough_values_are_looked_at():
    assert {"settings.driverRoot", "allowOtherDrivers", "webhook.certManager.enabled"} <= set(
        named()
    )


@pytest.mark.parametrize("path", sorted(set(re.findall(r"\bdeploy/[\w./-]*\w", TEXT))))
def test_each_file_is_there(path):
    assert (chart.DEPLOY.parent / path).exists()


def test_names_of_objects_are_those_of_the_chart():
    [name] = set(re.findall(r"daemonset/([\w-]+)", TEXT))
    assert chart.the(chart.objects(), "DaemonSet")["metadata"]["name"] == name


@pytest.mark.parametrize(
    ("root", "who"),
    [("/run/nvidia/driver", "GPU operator"), ("/home/kubernetes/bin/nvidia", "GKE")],
)
def test_the_driver_roots_are_ones_that_the_chart_takes(root, who):
    assert f"`{root}`" in TEXT
    assert who in TEXT
    assert f"--driver-root={root}" in str(chart.objects({"settings": {"driverRoot": root}}))


def test_a_token_that_is_sent_to_a_node_is_used_without_a_restart(tmp_path):
    """The user of the kubeconfig is that of the page."""
    [users] = re.findall(r"```yaml\n(users:.*?)```", TEXT, re.DOTALL)
    assert users.count("/etc/dra-driver/token") == 1
    token = tmp_path / "token"
    here = yaml.safe_load(users.replace("/etc/dra-driver/token", str(token)))

    def sent(text, minutes):
        ends = dt.datetime.now(dt.UTC) + dt.timedelta(minutes=minutes)
        status = {"token": text, "expirationTimestamp": ends.strftime("%Y-%m-%dT%H:%M:%SZ")}
        [version] = re.findall(r'\{apiVersion: "([\w./]+)", kind: "ExecCredential"', TEXT)
        body = {"apiVersion": version, "kind": "ExecCredential", "status": status}
        token.write_text(json.dumps(body))

    answer = raw_http.response(b"{}")
    with raw_http.serving(*4 * [answer]) as server:
        config = here | {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{server.port}"}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "dra-driver"}}],
            "current-context": "c",
        }
        (tmp_path / "kubeconfig").write_text(yaml.safe_dump(config))
        # The end of the first one is near: it is asked for again, and there is no newer yet.
        sent("first", minutes=4)
        client = kube.Client(kubeconfig=tmp_path / "kubeconfig", user_agent="test/1")
        client.get(kube.NODES, "n")
        client.get(kube.NODES, "n")
        sent("second", minutes=60)
        client.get(kube.NODES, "n")
        # Not asked for while the one that is known is good.
        sent("third", minutes=60)
        client.get(kube.NODES, "n")
        client.close()
    assert re.findall(r"(?i)authorization: (.*?)\r", "".join(server.requests)) == [
        *2 * ["Bearer first"],
        *2 * ["Bearer second"],
    ]


def test_the_token_for_a_node_is_for_an_hour_and_names_the_node():
    [line] = [line for line in TEXT.splitlines() if "create token" in line]
    assert "--duration 1h --bound-object-kind Node --bound-object-name NODE " in line
