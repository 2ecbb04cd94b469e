"""The pods of MPS daemons that the plugin makes with the chart's flags."""

import chart

from dra_driver.adapters.kube import kube
from dra_driver.adapters.mps import mps_local
from dra_driver.apps.mps import mps_pods
from dra_driver.apps.node import host
from dra_driver.logic.preparing import mps_pod
from dra_driver.model import mps

_DAEMON = mps.daemon(
    root="/var/lib/kubelet/plugins/gpu.nvidia.com/mps",
    daemon_id="00112233445566aa",
    device="GPU-1",
    shm_bytes=2**30,
    limits=mps.Limits(30, 2**30),
)


def pod(values: chart.Json | None = None) -> chart.Json:
    """One of them, on the node node-1."""
    config = chart.plugin_settings(values)
    layout = host.layout_of_driver(config)
    processes = mps_local.LocalLauncher(layout.root.seen, private_shm=True)
    client = kube.Client.__new__(kube.Client)  # It is not asked anything.
    site = mps_pods.launcher(config, client, layout, processes)._site
    return mps_pod.body(site, _DAEMON, node_uid="node-uid", private_shm=True)
