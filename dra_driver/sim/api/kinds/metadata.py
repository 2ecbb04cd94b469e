"""Rules for `metadata`, common to all kinds.

Source: `k8s.io/apimachinery/pkg/api/validation/objectmeta.go`.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

from dra_driver.sim.api.kinds import core_schemas, fields, kinds

Json = dict[str, Any]

LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_QUALIFIED = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
_LABEL_VALUE = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?")

SUBDOMAIN_TEXT = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or "
    "'.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used "
    "for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
LABEL_TEXT = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and "
    "must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used "
    "for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
_QUALIFIED_TEXT = (
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end "
    "with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for "
    "validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
_VALUE_TEXT = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or "
    "'.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  "
    "or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
_ANNOTATIONS_BYTES = 256 * 1024
_IN_TEMPLATES = ("labels", "annotations")


def size(text: str) -> int:
    """How long Go finds it: in bytes."""
    return len(text.encode())


def subdomain_problems(value: str, limit: int = 253) -> list[str]:
    """What keeps `value` from being a DNS subdomain."""
    found = [f"must be no more than {limit} characters"] if size(value) > limit else []
    return found if SUBDOMAIN.fullmatch(value) else [*found, SUBDOMAIN_TEXT]


def label_problems(value: str) -> list[str]:
    """What keeps `value` from being a DNS label."""
    found = ["must be no more than 63 characters"] if size(value) > 63 else []
    if LABEL.fullmatch(value):
        return found
    return [*found, "must not contain dots" if SUBDOMAIN.fullmatch(value) else LABEL_TEXT]


def label_key_problems(key: str) -> list[str]:
    """What keeps `key` from being the key of a label: `[prefix/]name`."""
    parts = key.split("/")
    if len(parts) > 2:
        example = "with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
        return [f"a valid label key {_QUALIFIED_TEXT} {example}"]
    found = []
    if len(parts) == 2:
        if parts[0]:
            found += [f"prefix part {text}" for text in subdomain_problems(parts[0])]
        else:
            found.append("prefix part must be non-empty")
    name = parts[-1]
    if not name:
        found.append("name part must be non-empty")
    elif size(name) > 63:
        found.append("name part must be no more than 63 bytes")
    if not _QUALIFIED.fullmatch(name):
        found.append(f"name part {_QUALIFIED_TEXT}")
    return found


def label_value_problems(value: str) -> list[str]:
    """What keeps `value` from being the value of a label."""
    found = ["must be no more than 63 bytes"] if size(value) > 63 else []
    return found if _LABEL_VALUE.fullmatch(value) else [*found, _VALUE_TEXT]


def segment_problems(value: str) -> list[str]:
    """What keeps `value` from being one part of a path.

    Source: `k8s.io/apimachinery/pkg/api/validation/path`, IsValidPathSegmentName.
    """
    if value in (".", ".."):
        return [f"may not be '{value}'"]
    return [f"may not contain '{letter}'" for letter in "/%" if letter in value]


_NAME_RULES: Mapping[str, Callable[[str], list[str]]] = {
    kinds.DNS_LABEL: label_problems,
    kinds.DNS_SUBDOMAIN: subdomain_problems,
    kinds.PATH_SEGMENT: segment_problems,
}


def validate(kind: kinds.Kind, metadata: Json) -> fields.Errors:
    """Everything that is wrong with the metadata of a new state of an object."""
    return [
        *_name_errors(kind, metadata),
        *_label_errors(metadata.get("labels") or {}, "metadata.labels"),
        *_annotation_errors(metadata.get("annotations") or {}, "metadata.annotations"),
        *_owner_errors(metadata.get("ownerReferences") or ()),
        *_finalizer_errors(metadata.get("finalizers") or ()),
    ]


def _name_errors(kind: kinds.Kind, metadata: Json) -> fields.Errors:
    check = _NAME_RULES[kind.name_rule]
    found = []
    if prefix := metadata.get("generateName"):
        texts = check(prefix.removesuffix("-"))
        found += [fields.invalid("metadata.generateName", prefix, text) for text in texts]
    name = metadata.get("name")
    if not name:
        detail = "name or generateName is required"
        return [*found, fields.required("metadata.name", detail)]
    return [*found, *(fields.invalid("metadata.name", name, text) for text in check(name))]


def validate_labels(metadata: Json, path: str) -> fields.Errors:
    """What is wrong with labels and annotations of the metadata at `path`."""
    return [
        *_annotation_errors(metadata.get("annotations") or {}, f"{path}.annotations"),
        *_label_errors(metadata.get("labels") or {}, f"{path}.labels"),
    ]


def validate_template(metadata: Json, path: str) -> fields.Errors:
    """What is wrong with the metadata at `path`, of the objects that a template makes."""
    return validate_labels(metadata, path) + [
        fields.forbidden(f"{path}.{name}", "cannot be set")
        for name in core_schemas.METADATA.fields or ()
        if name not in _IN_TEMPLATES and metadata.get(name)
    ]


def _label_errors(labels: Json, path: str) -> fields.Errors:
    found = []
    for key, value in sorted(labels.items()):
        found += [fields.invalid(path, key, text) for text in label_key_problems(key)]
        found += [fields.invalid(path, value, text) for text in label_value_problems(value)]
    return found


def _annotation_errors(annotations: Json, path: str) -> fields.Errors:
    found = []
    for key in sorted(annotations):
        found += [fields.invalid(path, key, text) for text in label_key_problems(key.lower())]
    size = sum(len(key.encode()) + len(value.encode()) for key, value in annotations.items())
    if size > _ANNOTATIONS_BYTES:
        found.append(fields.too_long(path, _ANNOTATIONS_BYTES))
    return found


def _owner_errors(references: Any) -> fields.Errors:
    found = []
    controllers = []
    for index, reference in enumerate(references):
        path = f"metadata.ownerReferences[{index}]"
        for name in ("apiVersion", "kind", "name", "uid"):
            if not reference.get(name):
                detail = (
                    "version must not be empty" if name == "apiVersion" else "must not be empty"
                )
                found.append(fields.invalid(f"{path}.{name}", reference.get(name, ""), detail))
        if reference.get("controller"):
            controllers.append(str(reference.get("kind")))
    if len(controllers) > 1:
        detail = (
            'Only one reference can have Controller set to true. Found "true" in references for '
            + " and ".join(controllers)
        )
        found.append(fields.invalid("metadata.ownerReferences", references, detail))
    return found


def _finalizer_errors(finalizers: Any) -> fields.Errors:
    path = "metadata.finalizers"
    return [
        fields.invalid(f"{path}[{index}]", name, text)
        for index, name in enumerate(finalizers)
        for text in label_key_problems(name)
    ]


def validate_update(new: Json, old: Json) -> fields.Errors:
    """What is wrong with the step from `old` to `new` metadata."""
    found = []
    if old.get("deletionTimestamp"):
        before = old.get("finalizers") or ()
        added = [name for name in new.get("finalizers") or () if name not in before]
        if added:
            detail = (
                "no new finalizers can be added if the object is being deleted, "
                f"found new finalizers {added!r}"
            )
            found.append(fields.forbidden("metadata.finalizers", detail))
    return found
