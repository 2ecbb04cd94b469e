"""What the settings of all commands have."""

import pathlib
from typing import Literal

import pydantic
from pydantic import Field
from pydantic.alias_generators import to_camel


class Settings(pydantic.BaseModel):
    """What all apps have."""

    model_config = pydantic.ConfigDict(
        frozen=True, extra="forbid", alias_generator=to_camel, populate_by_name=True
    )

    kubeconfig: pathlib.Path | None = Field(
        None, description="Kubeconfig file. Default: the service account of the pod."
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="Least important level that is logged."
    )
    log_format: Literal["auto", "console", "json"] = Field(
        "auto", description="JSON lines, text, or text on a terminal and JSON elsewhere."
    )

    @pydantic.field_validator("*")
    @classmethod
    def _absolute(cls, value: object) -> object:
        """The kubelet and the container runtime are told paths, and run elsewhere."""
        return value.absolute() if isinstance(value, pathlib.Path) else value
