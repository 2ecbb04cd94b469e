"""Parameter objects -> the claims that they meant, as `resource.k8s.io/v1`."""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

from dra_driver import errors
from dra_driver.logic.cel import quoting, selection
from dra_driver.logic.offering import classes, shares
from dra_driver.logic.parameters import selecting
from dra_driver.logic.preparing import configs
from dra_driver.model import configs as config_model
from dra_driver.model import parameter_specs, parameters, sharing

Json = dict[str, Any]
_PER_DEVICE = "defaultPerDevicePinnedMemoryLimit"
_OLD_LIMITS = ("pinnedDeviceMemoryLimit", "perDevicePinnedMemoryLimit")


@dataclasses.dataclass(frozen=True, slots=True)
class Made:
    """What becomes of parameters. With problems there is no `request`.

    `request` is what is in `exactly`, `config` the parameters of the opaque config, if there is
    one. `conditions` are the selectors of the request, in order. `spec` is that of the claim, but
    with a `gpu_claim_name` there is none: the partitions are of the GPU of another claim of the
    pod, and one claim is to be made of both.
    """

    kind: parameters.Kind
    driver: str
    request: Json | None = None
    config: Json | None = None
    conditions: tuple[selecting.Condition, ...] = ()
    problems: tuple[parameters.Fault, ...] = ()
    left_out: int = 0
    """How many more problems there are."""
    gpu_claim_name: str | None = None

    @property
    def name(self) -> str:
        """What the request is called."""
        return str(self.kind.device_type)

    @property
    def expressions(self) -> tuple[str, ...]:
        """The CEL that was written, one text for each selector."""
        return tuple(each.expression for each in self.conditions)

    @property
    def spec(self) -> Json | None:
        """The spec of the claim; None with problems, or where another claim is needed for it."""
        return None if self.gpu_claim_name else self.spec_without_gpu_claim

    @property
    def spec_without_gpu_claim(self) -> Json | None:
        """The spec, on whichever GPU."""
        if self.request is None:
            return None
        devices: Json = {"requests": [{"name": self.name, "exactly": self.request}]}
        if self.config is not None:
            opaque = {"driver": self.driver, "parameters": self.config}
            devices["config"] = [{"requests": [self.name], "opaque": opaque}]
        return {"devices": devices}


def of(kind: str, spec: object, driver: str, *, gpu_spec: object = None) -> Made:
    """What the `spec` of an object of that kind becomes. `driver` is the name of the driver.

    `gpu_spec` is the spec of the GpuClaimParameters of the claim that `gpuClaimName` names: what is
    asked of that GPU is then asked of the GPU of the partition.

    Raises:
        errors.Rejected: the kind is none of `parameters.Kind`.
    """
    if kind not in set(parameters.Kind):
        raise errors.Rejected(f"kind {kind!r}: allowed are {', '.join(parameters.Kind)}")
    known = parameters.Kind(kind)
    made = Made(known, driver)
    try:
        read = parameter_specs.read(known, spec)
        gpu = parameter_specs.read(parameters.Kind.GPU, gpu_spec) if gpu_spec is not None else None
    except parameters.Refused as refused:
        return _refused(made, refused)
    selectors = [each.selector for each in (read, gpu) if each and each.selector]
    problems = [fault for each in selectors for fault in selecting.faults(each, known.device_type)]
    config, left_out = None, 0
    try:
        config = _config(read)
    except parameters.Refused as refused:
        problems += refused.faults
        left_out = refused.left_out
    if problems:
        return _refused(made, parameters.Refused(problems, left_out))
    found = tuple(_conditions(read, selectors, driver, config))
    return _checked(
        dataclasses.replace(
            made,
            request=_request(read, found, driver),
            config=config,
            conditions=found,
            gpu_claim_name=read.gpu_claim_name,
        )
    )


def _request(
    read: parameters.Parameters, found: tuple[selecting.Condition, ...], driver: str
) -> Json:
    types = classes.types(driver).items()
    body: Json = {
        "deviceClassName": next(
            name for name, device_type in types if device_type is read.kind.device_type
        ),
        "allocationMode": "ExactCount",
        "count": read.count,
    }
    if found:
        body["selectors"] = [{"cel": {"expression": each.expression}} for each in found]
    return body


def _conditions(
    read: parameters.Parameters,
    selectors: list[parameters.Selector],
    driver: str,
    config: Json | None,
) -> Iterator[selecting.Condition]:
    device_type = read.kind.device_type
    if read.profile is not None:
        name = quoting.attribute(driver, "profile")
        guard = f"'profile' in {quoting.attributes(driver)}"
        cel = f"{guard} && {name} == {quoting.literal(read.profile)}"
        yield selecting.Condition("spec.profile", f"profile {read.profile}", cel)
    for each in selectors:
        yield from selecting.conditions(each, device_type, driver)
    if device_type is sharing.DeviceType.VFIO:
        return
    # What was asked for is the whole device. Of one whose shares are counted a claim would get one
    # share; of one that is shared by amounts it gets all, which has no time slice of its own.
    if config is not None and config["sharing"]["strategy"] == "TimeSlicing":
        cel = f"!('{shares.ENFORCEMENT}' in {quoting.attributes(driver)})"
        yield selecting.Condition("spec.sharing", "a device that claims do not share", cel)
    else:
        cel = f"!('{shares.SHARES}' in {quoting.capacities(driver)})"
        yield selecting.Condition("spec", "a device that is not shared by count", cel)


def _config(read: parameters.Parameters) -> Json | None:
    """The config of today that says what `sharing` did; None where nothing has to be set up.

    Raises:
        parameters.Refused: what is wrong with it.
    """
    if read.sharing is None:
        return None
    is_mig = read.kind.device_type is sharing.DeviceType.MIG
    body = _renamed(read.sharing)
    if is_mig and body.get("strategy") == "TimeSlicing":
        # It was allowed, and did nothing: processes on a partition take turns by themselves.
        body.pop("strategy")
        if body.get("timeSlicingConfig") == {}:
            body.pop("timeSlicingConfig")
    given = {
        "apiVersion": config_model.API_VERSION,
        "kind": sharing.Kind.of(read.kind.device_type).value,
        "sharing": body,
    }
    try:
        config = configs.decode(given, path="spec.sharing")
    except configs.InvalidConfig as invalid:
        faults = [
            parameters.Fault(f"spec.{each.field}", _placed(each.message, each.field))
            for each in invalid.problems
        ]
        raise parameters.Refused(faults, invalid.left_out) from invalid
    return None if config.settings is None else configs.encode(config)


def _placed(message: str, field: str) -> str:
    return message.replace(field, f"spec.{field}", 1) if field else message


def _renamed(written: Mapping[str, Any]) -> Json:
    """With today's name for limits of single devices: the older ones had a map too."""
    mps = written.get("mpsConfig")
    if not isinstance(mps, Mapping):
        return dict(written)
    body = dict(mps)
    for old in _OLD_LIMITS:
        if isinstance(body.get(old), Mapping) or (old in body and old == _OLD_LIMITS[1]):
            if body.get(_PER_DEVICE) is not None:
                field = f"spec.sharing.mpsConfig.{old}"
                text = f"{field}: not allowed together with {_PER_DEVICE}, which means the same"
                raise parameters.Refused([parameters.Fault(field, f"{text}: remove {old}")])
            body[_PER_DEVICE] = body.pop(old)
    return {**written, "mpsConfig": body}


def _checked(made: Made) -> Made:
    """With what is wrong with the CEL that was written, if anything is."""
    problems = [
        parameters.Fault(each.field, f"{each.field}: {problem}; write less, or a shorter text")
        for each in made.conditions
        if (problem := selection.check(each.expression, lists=False))
    ]
    if not problems:
        return made
    return _refused(Made(made.kind, made.driver), parameters.Refused(problems))


def _refused(made: Made, refused: parameters.Refused) -> Made:
    return dataclasses.replace(made, problems=refused.faults, left_out=refused.left_out)
