"""An API server with clients of it, and room for a socket: what several modules here need."""

import json
import pathlib
import tempfile

import pytest
import served_api
from served_api import CONFIG_MAPS

from dra_driver.adapters.kube import kube


@pytest.fixture(scope="module")
def shared_api(tmp_path_factory):
    made = served_api.ServedApi(tmp_path_factory.mktemp("api"), resource_versions=("v1", "v1beta1"))
    yield made
    made.close()


@pytest.fixture
def api(shared_api):
    """A server without ConfigMaps, calls and faults."""
    shared_api.rule = lambda _call: None
    for namespace in ("default", "kube-system"):
        shared_api.client.delete_collection(
            CONFIG_MAPS, namespace, field_selector="metadata.name!=x"
        )
    shared_api.calls.clear()
    return shared_api


@pytest.fixture
def client(api):
    return api.client


@pytest.fixture
def raw_client(tmp_path):
    """Makes clients of a server at a port of this machine that is no API server."""
    made = []

    def make(port, user=None):
        path = tmp_path / "raw"
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{port}/"}}],
            "users": [{"name": "u", "user": user or {}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        }
        path.write_text(json.dumps(config))
        made.append(kube.Client(kubeconfig=path, user_agent="test/1"))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture
def socket_path():
    """In a directory of its own; those of pytest may be longer than the path of a socket."""
    with tempfile.TemporaryDirectory(prefix="dra-", dir="/tmp") as directory:
        yield pathlib.Path(directory) / "dra.sock"
