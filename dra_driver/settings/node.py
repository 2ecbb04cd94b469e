"""Settings of the kubelet plugin as a process on its node: its names, its directories."""

import pathlib
from typing import Annotated

from pydantic import Field

from dra_driver.settings import base, types


class Node(base.Settings):
    """Where it runs, and where the kubelet and the container runtime look for what it writes."""

    node_name: Annotated[str, Field(pattern=types.DNS_NAME, max_length=253)] = Field(
        description="Name of the Node object of this machine. Required."
    )
    driver_name: Annotated[str, Field(pattern=types.DNS_NAME, max_length=63)] = Field(
        "gpu.nvidia.com",
        description="Name of the driver, as in DeviceClasses and slices. Another name lets it run "
        "beside the vendor's driver.",
    )
    pod_namespace: Annotated[str, Field(pattern=rf"{types.DNS_NAME}|^$", max_length=63)] = Field(
        "", description="Namespace of the driver's pod, and of the pods of MPS daemons."
    )
    kubelet_root: pathlib.Path = Field(
        pathlib.Path("/var/lib/kubelet"), description="The kubelet's --root-dir."
    )
    registry_dir: pathlib.Path | None = Field(
        None,
        description="Where the kubelet looks for plugins. Default: KUBELET_ROOT/plugins_registry.",
    )
    plugin_dir: pathlib.Path | None = Field(
        None,
        description="Where the service socket is. Default: KUBELET_ROOT/plugins/DRIVER_NAME.",
    )
    state_dir: pathlib.Path | None = Field(
        None, description="Where prepared claims are remembered. Default: the plugin directory."
    )
    cdi_dir: pathlib.Path = Field(
        pathlib.Path("/var/run/cdi"),
        description="Where CDI specs are written; the container runtime must look there.",
    )
    device_metadata: bool = Field(
        default=True,
        description="Describe each claim's devices in a file inside its containers "
        "(KEP-5304, docs/metadata.md).",
    )
    proc_root: pathlib.Path = Field(pathlib.Path("/proc"), description="Where procfs is mounted.")
    boot_id_file: pathlib.Path = Field(
        pathlib.Path("/proc/sys/kernel/random/boot_id"),
        description="File whose content changes with each boot of the node.",
    )
    rolling_update_uid: Annotated[str, Field(pattern=r"^[0-9A-Za-z-]{1,63}$")] | None = Field(
        None,
        description="UID of the pod (downward API) when the DaemonSet updates with surge: old and "
        "new instance then have sockets of their own. Needs Kubernetes 1.33.",
    )
    metrics_address: Annotated[str, Field(pattern=r"^(.*:\d{1,5})?$")] = Field(
        "",
        description="HOST:PORT to serve Prometheus /metrics at, for example :8080 or [::]:8080; "
        "empty: not served.",
    )
    health_address: Annotated[str, Field(pattern=r"^(.*:\d{1,5})?$")] = Field(
        "",
        description="HOST:PORT to serve gRPC health (grpc.health.v1) at, for probes of the kind "
        "grpc: service liveness, and the empty one, which is about readiness; empty: not served.",
    )

    @property
    def registry(self) -> pathlib.Path:
        """The directory of registration sockets."""
        return self.registry_dir or self.kubelet_root / "plugins_registry"

    @property
    def plugin(self) -> pathlib.Path:
        """The directory of the service socket."""
        return self.plugin_dir or self.kubelet_root / "plugins" / self.driver_name

    @property
    def state(self) -> pathlib.Path:
        """The directory of records."""
        return self.state_dir or self.plugin

    @property
    def registration_socket(self) -> pathlib.Path:
        """Named as the Go helper names it."""
        return self.registry / f"{self.driver_name}{self._instance}-reg.sock"

    @property
    def service_socket(self) -> pathlib.Path:
        """Named as the Go helper names it."""
        return self.plugin / f"dra{self._instance}.sock"

    @property
    def _instance(self) -> str:
        return f"-{self.rolling_update_uid}" if self.rolling_update_uid else ""
