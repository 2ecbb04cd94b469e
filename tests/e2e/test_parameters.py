"""Parameter objects of DRA's first API, from an object to what a container sees."""

import threading

import e2e_installing
import pytest
from e2e_site import DRIVER

from dra_driver.adapters.kube import kube
from dra_driver.apps.controller import controller
from dra_driver.model import parameters
from dra_driver.settings import controller as controller_settings


@pytest.fixture(scope="module", autouse=True)
def _controller(site, driver, machine):
    """Where the chart's pods are no processes, one that does the same."""
    if machine is None:
        yield
        return
    config = controller_settings.Controller.model_validate(
        {
            "identity": "one",
            "namespace": site.options.namespace,
            "lease": f"{e2e_installing.RELEASE}-controller",
            "status_address": "127.0.0.1:0",
            "retry_seconds": 0.1,
            "parameters_seconds": 0.1,
            "matching_seconds": 0.6,
        }
    )
    client = kube.Client(kubeconfig=machine.kubeconfig, user_agent="controller")
    stop = threading.Event()
    thread = threading.Thread(target=controller.Controller(config, client).run, args=(stop,))
    thread.start()
    yield
    stop.set()
    thread.join()


def resource(kind):
    return kube.Resource(parameters.GROUP, parameters.VERSION, kind.plural)


def put(scratch, kind, name, spec):
    body = {
        "apiVersion": parameters.API_VERSION,
        "kind": kind.value,
        "metadata": {"name": name, "namespace": scratch.namespace},
        "spec": spec,
    }
    return scratch.site.client.create(resource(kind), body, scratch.namespace)


def status(scratch, kind, name):
    body = scratch.site.client.get(resource(kind), name, scratch.namespace)
    return body.get("status") or {}


def wait_ready(scratch, kind, name):
    def look():
        found = status(scratch, kind, name)
        conditions = {each["type"]: each["status"] for each in found.get("conditions", ())}
        return found if conditions == {"Ready": "True", "Matching": "True"} else None

    return scratch.site.wait(look, lambda: f"{name}: {status(scratch, kind, name)}")


def products(scratch):
    [claim] = scratch.claims()
    return {
        scratch.site.devices()[each["pool"], each["device"]]["attributes"]["productName"]["string"]
        for each in claim["status"]["allocation"]["devices"]["results"]
        if each["driver"] == DRIVER
    }


def test_a_pod_names_the_template_of_its_parameters_and_gets_such_a_gpu(scratch):
    # A T4 has 16.1 billion bytes: more than 16G.
    memory = {"value": "16Gi", "operator": "LessThanOrEqualTo"}
    spec = {"selector": {"andExpression": [{"memory": memory}, {"productName": "*t4*"}]}}
    put(scratch, parameters.Kind.GPU, "inference-gpu", spec)
    assert wait_ready(scratch, parameters.Kind.GPU, "inference-gpu")["matching"] >= 1
    scratch.pod("pod", {"gpu": "template/inference-gpu"})
    scratch.wait_running("pod")
    assert len(scratch.sees("pod")) == 1
    assert {"T4" in name for name in products(scratch)} == {True}


def test_a_profile_becomes_a_partition_that_processes_share(scratch):
    spec = {"profile": "1g.10gb", "selector": {"productName": "*H100*"}}
    put(scratch, parameters.Kind.MIG, "mig", spec)
    wait_ready(scratch, parameters.Kind.MIG, "mig")
    scratch.pod("pod", {"gpu": "template/mig"})
    scratch.wait_running("pod")
    [uuid] = scratch.sees("pod")
    assert uuid.startswith("MIG-")


def test_templates_go_with_their_parameters(scratch):
    put(scratch, parameters.Kind.GPU, "gone", {})
    wait_ready(scratch, parameters.Kind.GPU, "gone")
    scratch.site.client.delete(resource(parameters.Kind.GPU), "gone", scratch.namespace)
    scratch.site.wait(
        lambda: scratch.site.is_gone(kube.TEMPLATES, "gone", scratch.namespace),
        "the template to go with its parameters",
    )
