"""The file that tells clients where the server is."""

import json
import pathlib

from dra_driver.adapters.disk import files
from dra_driver.sim.api.serving import access


def write(path: pathlib.Path, url: str, needed: access.Access | None) -> None:
    """Writes a kubeconfig, which nobody else may read: it has the token. JSON is YAML as well.

    The authority is in a file beside it. Clients in Python would put what is inside into a
    temporary file, which one that is killed leaves.
    """
    name = "dra-driver"
    cluster, user = {"server": url}, {}
    if needed is not None:
        authority = path.absolute().with_suffix(".crt")
        files.write(authority, needed.authority.decode(), durable=False)
        cluster["certificate-authority"] = str(authority)
        user["token"] = needed.token
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": cluster}],
        "users": [{"name": name, "user": user}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        "current-context": name,
    }
    files.write(path, json.dumps(config, indent=2) + "\n", mode=0o600, durable=False)
