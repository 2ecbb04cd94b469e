"""`make bench`: what it costs the kubelet plugin to go through all claims of a large cluster.

It does so where names do not tell enough: after a record was lost, or for MIG instances without a
claim. The claims are served by another process, page by page, as they are.
"""

import json
import multiprocessing
import pathlib
import re
import sys
import threading
import time
import uuid
from http import server
from urllib import parse

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))

import api_cluster

from dra_driver.adapters.console import terminal
from dra_driver.adapters.kube import kube
from dra_driver.apps.preparing import fetching
from dra_driver.logic.preparing import planning
from dra_driver.sim.api.serving import kubeconfig

CLAIMS = 40_000
HERE = 8
"""Claims with devices of this node."""
GROUP = "/apis/resource.k8s.io"


def main():
    """Measure, and print a table."""
    shown = terminal.Terminal()
    with shown.progress(f"Measuring: {CLAIMS} claims"):
        rows = _measured()
    shown.table(terminal.Table("All claims of a cluster", ("WHAT", "MEASURED"), tuple(rows)))


def _measured():
    made = [json.dumps(_claim(number)).encode() for number in range(CLAIMS)]
    served = server.ThreadingHTTPServer(("127.0.0.1", 0), _handler(made))
    threading.Thread(target=served.serve_forever, daemon=True).start()
    config = pathlib.Path(f"/tmp/dra-bench-{uuid.uuid4()}")
    kubeconfig.write(config, f"http://127.0.0.1:{served.server_port}", None)
    context = multiprocessing.get_context("spawn")
    try:
        with context.Pool(1) as pool:
            found, seconds, cpu, more = pool.apply(_gone_through, (config,))
    finally:
        config.unlink()
        served.shutdown()
    size = sum(map(len, made)) / CLAIMS / 1000
    return [
        (f"claims of {size:.1f} KB, of this node", f"{CLAIMS}, {found}"),
        ("time, of that CPU of the plugin", f"{seconds:.1f} s, {cpu:.1f} s"),
        ("more resident memory at the peak", f"{more:.0f} MB"),
    ]


def _gone_through(config):
    """In a process of its own, as the peak of its memory is what counts."""
    source = fetching.ApiClaims(
        kube.Client(kubeconfig=config, user_agent="bench"), threading.Event()
    )
    before = _peak()
    start, cpu = time.perf_counter(), time.process_time()
    found = _listed(source)
    seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
    return len(found), seconds, cpu, (_peak() - before) / 1000


def _peak():
    """Of the resident memory, in KB; `getrusage` counts what the parent had, too."""
    status = pathlib.Path("/proc/self/status").read_text()
    return int(re.search(r"VmHWM:\s+(\d+)", status)[1])


def _listed(source):
    node = planning.Node(api_cluster.DRIVER, api_cluster.NODE)
    return source.concerning(node, frozenset())


def _handler(claims):
    class Handler(server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self):
            url = parse.urlsplit(self.path)
            if url.path == GROUP:
                self._answer(b'{"versions": [{"version": "v1"}]}')
                return
            query = dict(parse.parse_qsl(url.query))
            start, limit = int(query.get("continue", 0)), int(query.get("limit", CLAIMS))
            page = claims[start : start + limit]
            more = start + limit < len(claims)
            metadata = {"resourceVersion": "1"} | ({"continue": str(start + limit)} if more else {})
            self._answer(
                b'{"metadata": %s, "items": [%s]}'
                % (json.dumps(metadata).encode(), b",".join(page))
            )

        def _answer(self, body):
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_arguments):
            pass

    return Handler


def _claim(number):
    """As it is in a cluster, with what was written by whom."""
    node = api_cluster.NODE if number % (CLAIMS // HERE) == 0 else f"other-{number % 5000}"
    result = {"request": "gpu", "driver": api_cluster.DRIVER, "pool": node, "device": "gpu-0"}
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    fields = {f"f:field-{n}": {".": {}, "f:status": {}, "f:reason": {}} for n in range(12)}
    manager = {
        "manager": "kube-scheduler",
        "operation": "Update",
        "apiVersion": "resource.k8s.io/v1",
    }
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {
            "name": f"train-{number}-gpu",
            "namespace": f"team-{number % 200}",
            "uid": str(uuid.UUID(int=number)),
            "resourceVersion": str(number),
            "annotations": {"resource.kubernetes.io/pod-claim-name": "gpu"},
            "ownerReferences": [
                {"apiVersion": "v1", "kind": "Pod", "name": f"train-{number}", "controller": True,
                 "uid": str(uuid.UUID(int=2**100 + number))},
            ],
            "managedFields": [manager | {"fieldsType": "FieldsV1", "fieldsV1": fields}] * 2,
        },
        "spec": {"devices": {"requests": [
            {"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com", "count": 1,
                                        "allocationMode": "ExactCount"}},
        ]}},
        "status": {
            "allocation": {
                "devices": {"results": [result]},
                "nodeSelector": {"nodeSelectorTerms": [term]},
            },
            "reservedFor": [{"resource": "pods", "name": f"train-{number}",
                             "uid": str(uuid.UUID(int=2**100 + number))}],
            "devices": [{"driver": api_cluster.DRIVER, "pool": node, "device": "gpu-0",
                         "conditions": [{"type": "Ready", "status": "True", "reason": "Prepared",
                                         "message": "ready for containers"}]}],
        },
    }  # fmt: skip


if __name__ == "__main__":
    main()
