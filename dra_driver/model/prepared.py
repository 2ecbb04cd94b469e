"""What the driver remembers of a claim, and what it answers to the kubelet.

A record is enough, alone, to undo what was done for its claim. Format policy: `VERSION` rises when
an older driver could no longer undo from the file; a record of a higher version is refused, not
guessed at. Fields may be added with a default without raising it.
"""

import enum
import hashlib
import json
from typing import Any, Literal

import pydantic

from dra_driver import errors
from dra_driver.model import claims, slices

VERSION = 1


class Phase(enum.StrEnum):
    """How far a prepare got. STARTED is written before the first effect."""

    STARTED = "started"
    COMPLETED = "completed"


class _Frozen(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(frozen=True, extra="forbid")


class PreparedDevice(_Frozen):
    """One device of a claim as the kubelet is told of it.

    `requests` are base request names (no `firstAvailable` alternative); `cdi_ids` are fully
    qualified CDI names.
    """

    requests: tuple[str, ...]
    pool: str
    device: str
    cdi_ids: tuple[str, ...]
    share_id: str | None = None
    admin_access: bool = False
    kind: Literal["gpu"] = "gpu"


class Record(_Frozen):
    """What is remembered of one claim.

    `rebuilt` marks a record that was made anew because its file was unreadable.
    """

    uid: str
    namespace: str
    name: str
    phase: Phase
    boot_id: str
    devices: tuple[PreparedDevice, ...]
    rebuilt: bool = False

    @property
    def ref(self) -> claims.ClaimRef:
        """The claim that the record is of."""
        return claims.ClaimRef(self.namespace, self.name, claims.ClaimUid(self.uid))

    def holds(self, device: slices.DeviceId | PreparedDevice) -> bool:
        """Whether the claim has the device for itself (admin access holds nothing)."""
        return any(
            (held.pool, held.device) == (device.pool, device.device) and not held.admin_access
            for held in self.devices
        )


def encode(record: Record) -> str:
    """The text of a record's file: version, checksum over the record, record."""
    body = record.model_dump(mode="json")
    document = {"version": VERSION, "checksum": _checksum(body), "record": body}
    return json.dumps(document, indent=1, sort_keys=True) + "\n"


def decode(text: str) -> Record:
    """The record in a file's text.

    Raises:
        errors.Rejected: the text is damaged, or of a newer driver.
    """
    try:
        document: dict[str, Any] = json.loads(text)
        version, checksum, body = document["version"], document["checksum"], document["record"]
    except (ValueError, KeyError, TypeError) as error:
        raise errors.Rejected(f"not a record ({type(error).__name__}: {error})") from error
    if version != VERSION:
        raise errors.Rejected(
            f"version {version!r} is not {VERSION}, the one that this driver reads: "
            "was it written by a newer driver?"
        )
    if checksum != _checksum(body):
        raise errors.Rejected(f"checksum {checksum!r} does not match the content")
    try:
        return Record.model_validate(body)
    except pydantic.ValidationError as error:
        raise errors.Rejected(f"content is not a record: {error}") from error


def _checksum(body: Any) -> str:
    canonical = json.dumps(body, sort_keys=True, separators=(",", ":"))
    return "sha256:" + hashlib.sha256(canonical.encode()).hexdigest()
