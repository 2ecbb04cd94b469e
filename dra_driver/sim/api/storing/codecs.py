"""From the bytes of a request to an object in its stored form, and back to its versions."""

import dataclasses
import json
from typing import Any

from dra_driver.sim.api.kinds import (
    catalog,
    conversion,
    custom_fitting,
    kinds,
    problems,
    schemas,
)

Json = dict[str, Any]


@dataclasses.dataclass(frozen=True, slots=True)
class Decoded:
    """An object in its stored form, and what is worth a warning about how it came."""

    body: Json
    warnings: tuple[str, ...] = ()


def dumps(body: Any) -> bytes:
    """The bytes of a JSON value, without blanks."""
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()


def loads(data: bytes) -> Any:
    """The JSON value in the bytes.

    Raises:
        problems.ApiError: 400.
    """
    try:
        value = json.loads(data)
        if b"\\u" not in data:
            return value
        # Half of a pair is no character: Go makes U+FFFD of it, Python keeps it.
        text = json.dumps(value, ensure_ascii=False).encode("utf-16-le", "surrogatepass")
        return json.loads(text.decode("utf-16-le", "replace"))
    except ValueError as error:
        raise problems.bad_request(
            f"couldn't get version/kind; json parse error: {error}"
        ) from error


def decode(
    kind: kinds.Kind, version: str, value: Any, *, field_validation: str, minor: int
) -> Decoded:
    """The stored form of an object that came as `version`.

    Args:
        kind: What the URL says it is.
        version: The version in the URL.
        value: The object, as JSON; it becomes property of the caller of the result.
        field_validation: `Strict`, `Warn` or `Ignore`: what becomes of unknown fields.
        minor: Which fields are known: those of Kubernetes 1.`minor`.

    Raises:
        problems.ApiError: 400, it is not such an object.
    """
    body, unknown = _fit(kind, version, value, field_validation, minor)
    body.setdefault("metadata", {})
    if schema := _custom_schema(kind, version):
        custom_fitting.fill(schema, body)
    warnings = () if field_validation == "Ignore" else unknown
    return Decoded(conversion.to_stored(kind, version, body), warnings)


def fitted(
    kind: kinds.Kind, version: str, value: Any, *, field_validation: str, minor: int
) -> Json:
    """The object as it came, without unknown fields; for the arguments see `decode`.

    Raises:
        problems.ApiError: 400, it is not such an object.
    """
    body, _ = _fit(kind, version, value, field_validation, minor)
    return body | {"apiVersion": kind.api_version(version), "kind": kind.kind}


def _fit(
    kind: kinds.Kind, version: str, value: Any, field_validation: str, minor: int
) -> tuple[Json, tuple[str, ...]]:
    """The value without unknown fields, and what is to be said of those."""
    if not isinstance(value, dict):
        raise problems.bad_request(f"{kind.kind}: the body is not a JSON object")
    expected = kind.api_version(version)
    if value.get("apiVersion", expected) != expected:
        raise problems.bad_request(
            f"the API version in the data ({value['apiVersion']}) does not match the expected "
            f"API version ({expected})"
        )
    if value.get("kind", kind.kind) != kind.kind:
        raise problems.bad_request(
            f"the object provided is unrecognized (must be of type {kind.kind}): "
            f"it is a {value['kind']}"
        )
    try:
        found = schemas.fit(catalog.schema_of(kind, version), value, minor)
    except schemas.MisfitError as error:
        raise _undecodable(kind, version, str(error)) from error
    paths = found.unknown
    if schema := _custom_schema(kind, version):
        paths = (*paths, *custom_fitting.prune(schema, found.value))
    unknown = tuple(f"unknown field {dumps(path).decode()}" for path in paths)
    if unknown and field_validation == "Strict":
        raise _undecodable(kind, version, f"strict decoding error: {', '.join(unknown)}")
    return found.value, unknown


def encode(kind: kinds.Kind, version: str, body: Json) -> Json:
    """The object as `version` has it. The result shares parts with `body`."""
    return conversion.from_stored(kind, version, body)


def _custom_schema(kind: kinds.Kind, version: str) -> Json | None:
    return None if kind.custom is None else kind.custom[version].schema


def _undecodable(kind: kinds.Kind, version: str, why: str) -> problems.ApiError:
    return problems.bad_request(
        f'{kind.kind} in version "{version}" cannot be handled as a {kind.kind}: {why}'
    )
