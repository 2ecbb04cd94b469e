"""The syntax of names and values in the kinds of `resource.k8s.io`.

Each check gives what is wrong with a value at a path.
Source: Kubernetes 1.36, `pkg/apis/resource/validation/validation.go`.
"""

import ipaddress
import json
import re
from typing import Any

from dra_driver.sim.api.kinds import fields, metadata

Json = dict[str, Any]

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_IDENTIFIER_TEXT = (
    "a valid C identifier must start with alphabetic character or '_', followed by a string of "
    "alphanumeric characters or '_' (e.g. 'my_name',  or 'MY_NAME',  or 'MyName', regex used for "
    "validation is '[A-Za-z_][A-Za-z0-9_]*')"
)
_LONGEST_IDENTIFIER = 32
_LONGEST_DRIVER = 63
_LONGEST_POOL = 253
_ONE_SLASH_SINCE = 38
"""The minor version of Kubernetes from which on names with more slashes are refused:
kubernetes/kubernetes#141644."""
LONGEST_LABEL = 63
LONGEST_QUALIFIED_NAME = _LONGEST_DRIVER + len("/") + _LONGEST_IDENTIFIER
_NUMBER = r"(0|[1-9]\d*)"
_PRE = r"(0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*)"
_SEMVER = re.compile(
    rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}(-{_PRE}(\.{_PRE})*)?(\+[0-9a-zA-Z-]+(\.[0-9a-zA-Z-]+)*)?",
    re.ASCII,
)
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")


def label(value: str, path: str) -> fields.Errors:
    """A DNS label: the name of a device, a request, a counter, a counter set."""
    return [fields.invalid(path, value, text) for text in metadata.label_problems(value)]


def subdomain(value: str, path: str) -> fields.Errors:
    """A DNS subdomain: the name of a DeviceClass."""
    return [fields.invalid(path, value, text) for text in metadata.subdomain_problems(value)]


def required_label(value: str | None, path: str) -> fields.Errors:
    """A DNS label that must not be missing."""
    return label(value, path) if value else [fields.required(path)]


def driver(value: str | None, path: str) -> fields.Errors:
    """The name of a driver: a DNS subdomain of at most 63 characters, in any case."""
    if not value:
        return [fields.required(path)]
    found = []
    if metadata.size(value) > _LONGEST_DRIVER:
        found.append(fields.too_long(path, _LONGEST_DRIVER))
    texts = metadata.subdomain_problems(value.lower())
    return found + [fields.invalid(path, value, text) for text in texts]


def pool(value: str | None, path: str) -> fields.Errors:
    """The name of a pool: DNS subdomains, separated by slashes."""
    if not value:
        return [fields.required(path)]
    found = []
    if metadata.size(value) > _LONGEST_POOL:
        found.append(fields.too_long(path, _LONGEST_POOL))
    for part in value.split("/"):
        found += subdomain(part, path)
    return found


def qualified_name(value: str, path: str, *, minor: int) -> fields.Errors:
    """The name of an attribute or a capacity: `[domain/]identifier`, in Kubernetes 1.`minor`."""
    parts = value.split("/")
    if len(parts) == 1:
        return _identifier(value, path)
    if len(parts) > 2 and minor < _ONE_SLASH_SINCE:
        return []  # The real server lets it pass.
    if len(parts) > 2:
        detail = "a qualified name must be an identifier, or a domain and one with a slash between"
        return [fields.invalid(path, value, detail)]
    domain, name = parts
    found = (
        driver(domain, path)
        if domain
        else [fields.invalid(path, "", "the domain must not be empty")]
    )
    if not name:
        return [*found, fields.invalid(path, "", "the name must not be empty")]
    return found + _identifier(name, path)


def fully_qualified_name(value: str, path: str, *, minor: int) -> fields.Errors:
    """The name of an attribute, with its domain."""
    found = qualified_name(value, path, minor=minor)
    if "/" not in value:
        detail = "a fully qualified name must be a domain and a name separated by a slash"
        found.append(fields.invalid(path, value, detail))
    return found


def _identifier(value: str, path: str) -> fields.Errors:
    found = []
    if metadata.size(value) > _LONGEST_IDENTIFIER:
        found.append(fields.too_long(path, _LONGEST_IDENTIFIER))
    if not _IDENTIFIER.fullmatch(value):
        found.append(fields.invalid(path, value, _IDENTIFIER_TEXT))
    return found


def text(value: str, path: str, limit: int) -> fields.Errors:
    """A text of at most `limit` bytes."""
    return [fields.too_long(path, limit)] if metadata.size(value) > limit else []


def version(value: str, path: str) -> fields.Errors:
    """A semantic version."""
    if _SEMVER.fullmatch(value):
        return []
    return [fields.invalid(path, value, "must be a string compatible with semver.org spec 2.0.0")]


def uuid(value: str, path: str) -> fields.Errors:
    """A UUID in lower case."""
    if _UUID.fullmatch(value):
        return []
    detail = (
        "uid must be in RFC 4122 normalized form, `xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx` with "
        "lowercase hexadecimal characters"
    )
    return [fields.invalid(path, value, detail)]


def label_key(value: str | None, path: str) -> fields.Errors:
    """The key of a label: of a taint, a toleration, a binding condition."""
    texts = metadata.label_key_problems(value or "")
    return [fields.invalid(path, value or "", problem) for problem in texts]


def label_value(value: str | None, path: str) -> fields.Errors:
    """The value of a label."""
    texts = metadata.label_value_problems(value or "")
    return [fields.invalid(path, value or "", problem) for problem in texts]


def json_object(value: Any, path: str, limit: int) -> fields.Errors:
    """A JSON object of at most `limit` bytes."""
    if value is None:
        return [fields.required(path)]
    if metadata.size(json.dumps(value, separators=(",", ":"), ensure_ascii=False)) > limit:
        return [fields.too_long(path, limit)]
    if not isinstance(value, dict):
        return [fields.invalid(path, "<value omitted>", "must be a valid JSON object")]
    return []


def interface_address(value: str, path: str) -> fields.Errors:
    """An address with its prefix length, as an interface has it: `192.0.2.5/24`."""
    try:
        # Python would take a zone, `%eth0`.
        address = ipaddress.ip_interface(value) if "/" in value and "%" not in value else None
    except ValueError:
        address = None
    if address is None:
        detail = "must be a valid address in CIDR form, (e.g. 10.9.8.7/24 or 2001:db8::1/64)"
        return [fields.invalid(path, value, detail)]
    if str(address) != value:
        detail = f'must be in canonical form ("{address}")'
        return [fields.invalid(path, value, detail)]
    return []


def extended_resource(value: str, path: str) -> fields.Errors:
    """The name of an extended resource: qualified, and in no domain of Kubernetes itself."""
    native = "/" not in value or "kubernetes.io/" in value
    # As the name of a quota it has this prefix, and has to be a qualified name too.
    prefix = "requests."
    quota = prefix + value
    if not native and not value.startswith(prefix) and not metadata.label_key_problems(quota):
        return []
    return [fields.invalid(path, value, "must be a valid extended resource name")]


def node_selector(value: Json, path: str) -> fields.Errors:
    """A selector of nodes."""
    place = f"{path}.nodeSelectorTerms"
    terms = value.get("nodeSelectorTerms")
    if not terms:
        return [fields.required(place, "must have at least one node selector term")]
    return fields.each(terms, place, _node_selector_term)


def _node_selector_term(term: Json, path: str) -> fields.Errors:
    return [
        *fields.each(term.get("matchExpressions"), f"{path}.matchExpressions", _label_requirement),
        *fields.each(term.get("matchFields"), f"{path}.matchFields", _field_requirement),
    ]


def _label_requirement(requirement: Json, path: str) -> fields.Errors:
    operator, values = requirement.get("operator"), requirement.get("values") or ()
    place = f"{path}.values"
    found: fields.Errors = []
    if operator in ("In", "NotIn"):
        if not values:
            detail = "must be specified when `operator` is 'In' or 'NotIn'"
            found.append(fields.required(place, detail))
    elif operator in ("Exists", "DoesNotExist"):
        if values:
            detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
            found.append(fields.forbidden(place, detail))
    elif operator in ("Gt", "Lt"):
        if len(values) != 1:
            detail = "must be specified single value when `operator` is 'Lt' or 'Gt'"
            found.append(fields.required(place, detail))
    else:
        found.append(
            fields.invalid(f"{path}.operator", operator or "", "not a valid selector operator")
        )
    found += label_key(requirement.get("key"), f"{path}.key")
    return found + fields.each(values, place, label_value)


def _field_requirement(requirement: Json, path: str) -> fields.Errors:
    operator, values = requirement.get("operator"), requirement.get("values") or ()
    found: fields.Errors = []
    if operator not in ("In", "NotIn"):
        found.append(
            fields.invalid(f"{path}.operator", operator or "", "not a valid selector operator")
        )
    elif len(values) != 1:
        detail = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector"
        found.append(fields.required(f"{path}.values", detail))
    if requirement.get("key") == "metadata.name":
        return found + fields.each(values, f"{path}.values", subdomain)
    key = requirement.get("key") or ""
    return [*found, fields.invalid(f"{path}.key", key, "not a valid field selector key")]
