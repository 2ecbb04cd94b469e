"""Settings of the webhook; see `settings` for where they come from."""

import pathlib
from typing import Annotated

from pydantic import Field

from dra_driver.settings import base

_DNS_NAME = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"
_ADDRESS = r"^.*:\d{1,5}$"
_Name = Annotated[str, Field(pattern=_DNS_NAME, max_length=253)]
_Address = Annotated[str, Field(pattern=_ADDRESS)]


class Webhook(base.Settings):
    """Settings of `dra-driver webhook`."""

    driver_name: Annotated[str, Field(pattern=_DNS_NAME, max_length=63)] = Field(
        "gpu.nvidia.com", description="Name of the driver whose configs are checked."
    )
    address: _Address = Field(
        ":8443", description="HOST:PORT to answer the API server at, with TLS."
    )
    status_address: _Address = Field(
        ":8080", description="HOST:PORT to serve /healthz, /readyz and /metrics at, without TLS."
    )
    certificate_dir: pathlib.Path | None = Field(
        None,
        description="Directory with tls.crt and tls.key, as cert-manager's Secret is mounted; they "
        "are read again when they change. Default: the webhook makes its own certificate and keeps "
        "it in a Secret.",
    )
    service: _Name = Field(
        "dra-driver-webhook", description="Service that the own certificate is for."
    )
    namespace: _Name = Field("dra-driver", description="Namespace of the Service and the Secret.")
    secret: _Name = Field(
        "dra-driver-webhook-certificate", description="Secret that keeps the own certificate."
    )
    configuration: _Name = Field(
        "dra-driver-webhook",
        description="ValidatingWebhookConfiguration that is told the own certificate's authority.",
    )
    check_seconds: Annotated[float, Field(gt=0, le=3600)] = Field(
        10.0,
        description="Seconds between two looks at the certificate, and at what the API server "
        "trusts.",
    )
    drain_seconds: Annotated[float, Field(ge=0, le=60)] = Field(
        5.0,
        description="Seconds to go on answering after SIGTERM, until API servers send nothing any "
        "more.",
    )
    convert: bool = Field(
        default=False,
        description="Answer at /convert too: pods that ask as older systems had it get claims "
        "instead, in the namespaces that the MutatingWebhookConfiguration selects.",
    )
    mutating_configuration: _Name = Field(
        "dra-driver-webhook",
        description="MutatingWebhookConfiguration that is told the own certificate's authority, "
        "with --convert.",
    )
    share_class: _Name | None = Field(
        None,
        description="DeviceClass that shares of GPUs are asked of. Default: shared-mps.DRIVER.",
    )
    convert_whole_gpus: bool = Field(
        default=False,
        description="Convert pods that ask for nothing but nvidia.com/gpu too: where no extended "
        "resource of a DeviceClass serves them.",
    )
    convert_replicas: Annotated[int, Field(ge=1, le=100)] = Field(
        10,
        description="Pods that share a GPU where they ask for nvidia.com/gpu.shared, on GPUs that "
        "are shared by memory.",
    )
    fleet_seconds: Annotated[float, Field(gt=0, le=86400)] = Field(
        300.0,
        description="Seconds that the sizes of the cluster's GPUs, as read from ResourceSlices, "
        "are good for.",
    )
