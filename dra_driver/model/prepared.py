"""What the driver remembers of a claim, and what it answers to the kubelet.

A record is enough, alone, to undo what was done for its claim. Format policy: `VERSION` rises when
an older driver could no longer undo from the file; a record of a higher version is refused, not
guessed at. What came later and an older driver undoes without stands beside the record, where that
driver does not look, with a checksum of its own.
"""

import enum
from collections.abc import Mapping
from typing import Any, Literal

import pydantic

from dra_driver import errors
from dra_driver.model import claims, devices, mig, stored

VERSION = 3
_FIRST_VERSION = 1
_VERSION_OF_PARTITIONS = 2
_FIELDS_SINCE_2 = frozenset({"partitions", "sharing"})
_DEVICE_FIELDS_SINCE_2 = frozenset({"consumed"})
_FIELDS_BESIDE = frozenset({"gpus", "minors", "parts", "described"})


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
    kind: Literal["gpu", "mig", "vfio"] = "gpu"
    consumed: Mapping[str, str] = pydantic.Field(default_factory=dict)
    """What a share takes of each capacity, as quantities."""


class Partition(_Frozen):
    """A MIG instance of a claim.

    `made` ones are created for the claim and destroyed with it; the others were there before, and
    stay. `gi`, `ci` and `uuid` are known once the instance exists.
    """

    device: str
    gpu: str
    minor: int
    profile: str
    profile_id: int
    start: int
    size: int
    made: bool = True
    gi: int | None = None
    ci: int | None = None
    uuid: str | None = None

    @property
    def spot(self) -> mig.Spot:
        """Its profile and place."""
        return mig.Spot(self.profile_id, mig.Placement(self.start, self.size))

    @property
    def instance(self) -> mig.Instance | None:
        """The instance behind it, once it exists."""
        if self.gi is None or self.ci is None or self.uuid is None:
            return None
        return mig.Instance(self.gi, self.spot, self.ci, mig.MigUuid(self.uuid))


class MpsUse(_Frozen):
    """Devices, or a share of one, that a claim uses through an MPS daemon.

    `keys` tell devices and shares apart (`cdi.device_key`); `devices` are their names. `percent`
    and `memory_bytes` are what each client process may take, of memory on each of the devices at
    most; None is all there is. With `exclusive`
    the whole GPUs among them are in the compute mode EXCLUSIVE_PROCESS meanwhile.
    """

    domain: str
    keys: tuple[str, ...]
    devices: tuple[str, ...]
    percent: int | None = None
    memory_bytes: int | None = None
    exclusive: bool = False
    gpus: tuple[str, ...] = ()
    """UUIDs of the whole GPUs among the devices, in PCI order."""


class TimeSlice(_Frozen):
    """A whole GPU whose time slice a claim has set: 0 is the default, 3 the longest."""

    device: str
    gpu: str
    number: int


class Sharing(_Frozen):
    """What was set up so that processes share the devices of a claim."""

    mps: tuple[MpsUse, ...] = ()
    time_slices: tuple[TimeSlice, ...] = ()

    def __bool__(self) -> bool:
        """Whether anything was."""
        return bool(self.mps or self.time_slices)


class Part(_Frozen):
    """What is remembered of a claim for one effect, and the version of how that is written."""

    version: int
    content: Mapping[str, Any]


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
    partitions: tuple[Partition, ...] = ()
    sharing: Sharing = Sharing()
    gpus: Mapping[str, str] = pydantic.Field(default_factory=dict)
    """UUIDs of the whole GPUs that the devices are, or are part of, by name (`gpu-0`)."""
    minors: Mapping[str, int] = pydantic.Field(default_factory=dict)
    """The numbers of their device nodes when the CDI spec was made, by name."""
    parts: Mapping[str, Part] = pydantic.Field(default_factory=dict)
    """Of effects that have no field of their own here, by the name of the part."""
    described: Part | None = None
    """How its devices are described in its containers. It is no part: an older driver undoes all
    else without it, and what it leaves is found by the next one that knows of it."""

    @property
    def ref(self) -> claims.ClaimRef:
        """The claim that the record is of."""
        return claims.ClaimRef(self.namespace, self.name, claims.ClaimUid(self.uid))

    @property
    def cards(self) -> dict[str, str]:
        """As `gpus`; of a record of an older driver, as far as it tells in other places."""
        partitions = {devices.card_of(one.device): one.gpu for one in self.partitions}
        slices = {devices.card_of(one.device): one.gpu for one in self.sharing.time_slices}
        return partitions | slices | dict(self.gpus)


def encode(record: Record) -> str:
    """The text of a record's file: version, checksum over the record, record.

    What came with a later version is written where there is something to say only, so that an
    older driver can still undo what it would have done itself.
    """
    body = record.model_dump(mode="json")
    beside = {field: body.pop(field) for field in _FIELDS_BESIDE}
    listed = [_said(device, _DEVICE_FIELDS_SINCE_2) for device in body["devices"]]
    sharing = body["sharing"] if record.sharing else {}
    said = _said(body | {"devices": listed, "sharing": sharing}, _FIELDS_SINCE_2)
    later = said.keys() & _FIELDS_SINCE_2 or any(d.keys() & _DEVICE_FIELDS_SINCE_2 for d in listed)
    version = _VERSION_OF_PARTITIONS if later else _FIRST_VERSION
    if any(device.kind == "vfio" for device in record.devices):
        # An older driver would forget the claim, and leave its GPUs bound.
        version = VERSION
    return stored.encode("record", version, said, _said(beside, _FIELDS_BESIDE))


def _said(body: dict[str, Any], optional: frozenset[str]) -> dict[str, Any]:
    return {key: value for key, value in body.items() if value or key not in optional}


def decode(text: str) -> Record:
    """The record in a file's text.

    Raises:
        errors.Rejected: the text is damaged, or of a newer driver.
    """
    body = stored.decode(text, "record", (_FIRST_VERSION, _VERSION_OF_PARTITIONS, VERSION))
    beside = {key: value for key, value in stored.beside(text).items() if key in _FIELDS_BESIDE}
    try:
        record = Record.model_validate(body | beside)
    except pydantic.ValidationError as error:
        raise errors.Rejected(f"content is not a record: {error}") from error
    for device in record.devices:
        # An older driver puts what it makes of the claim's spec in the place of such a record.
        if devices.is_vfio(device.device) and device.kind != "vfio":
            raise errors.Rejected(
                f"device {device.device!r} is said to be of kind {device.kind!r}: an older driver "
                "has written this, and it does not tell what is bound"
            )
    return record
