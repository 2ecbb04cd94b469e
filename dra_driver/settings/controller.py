"""Settings of the controller; see `settings` for where they come from."""

from typing import Annotated

import pydantic
from pydantic import Field

from dra_driver.settings import base

_DNS_NAME = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"
_Name = Annotated[str, Field(pattern=_DNS_NAME, max_length=253)]


class Controller(base.Settings):
    """Settings of `dra-driver controller`."""

    driver_name: Annotated[str, Field(pattern=_DNS_NAME, max_length=63)] = Field(
        "gpu.nvidia.com", description="Name of the driver whose leftovers are removed."
    )
    namespace: _Name = Field(
        "dra-driver", description="Namespace of the Lease, and of the pods of MPS daemons."
    )
    lease: _Name = Field(
        "dra-driver-controller", description="Lease that one controller at a time has."
    )
    identity: Annotated[str, Field(min_length=1, max_length=253)] = Field(
        description="Name of this controller among the candidates, as a rule its pod's. Required."
    )
    status_address: Annotated[str, Field(pattern=r"^.*:\d{1,5}$")] = Field(
        ":8080", description="HOST:PORT to serve /healthz and /metrics at, without TLS."
    )
    lease_seconds: Annotated[int, Field(ge=1, le=3600)] = Field(
        15, description="Seconds after which another one takes over from a controller that is gone."
    )
    retry_seconds: Annotated[float, Field(gt=0, le=3600)] = Field(
        2.0,
        validate_default=True,
        description="Seconds between two tries to take the Lease, or to renew it.",
    )
    sweep_seconds: Annotated[float, Field(gt=0, le=86400)] = Field(
        60.0, description="Seconds between two looks for leftovers."
    )
    grace_seconds: Annotated[float, Field(ge=0, le=86400)] = Field(
        300.0,
        description="Seconds that a node has to be gone until what it left is removed: time for "
        "the garbage collector, and for a node that comes back.",
    )

    converted_templates: bool = Field(
        default=False,
        description="Remove ResourceClaimTemplates that the webhook has made for converted pods "
        "and that no pod names any more.",
    )
    unused_seconds: Annotated[float, Field(ge=60, le=31536000)] = Field(
        86400.0,
        description="Seconds that such a template has to be unused until it is removed.",
    )
    parameters: bool = Field(
        default=True,
        description="Keep a ResourceClaimTemplate beside each object of "
        "gpu.resource.nvidia.com/v1alpha1, where these kinds are installed.",
    )
    parameters_seconds: Annotated[float, Field(gt=0, le=3600)] = Field(
        5.0, description="Seconds between two looks for parameter objects that changed."
    )
    matching_seconds: Annotated[float, Field(gt=0, le=86400)] = Field(
        60.0,
        description="Seconds between two counts of the devices that match them; six times as often "
        "where new ones are to be counted. Each reads all ResourceSlices of the driver.",
    )

    @pydantic.field_validator("retry_seconds")
    @classmethod
    def _renews_in_time(cls, value: float, info: pydantic.ValidationInfo) -> float:
        held = info.data.get("lease_seconds")
        if held is not None and value >= held:
            raise ValueError(
                f"it has to be less than leaseSeconds {held}, or the Lease runs out between two "
                "tries to renew it"
            )
        return value
