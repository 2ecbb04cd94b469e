"""What functions there are, and for which types: the environment of Kubernetes 1.36.

`number`, `comparable` and `ordered` stand for one type of those each, the same in the whole
signature. Names with `@` are for what macros are made of; `@in` is the operator. Where types are
still open the first overload that fits decides on them, so the order of operators is cel-go's.

Sources: `staging/src/k8s.io/apiserver/pkg/cel/environment/base.go` and `../library`; cel-go
`common/stdlib/standard.go` and `ext`; `dynamic-resource-allocation/cel/compile.go`.
"""

import dataclasses
import re
from collections.abc import Iterator, Mapping

from dra_driver.logic.cel import kinds

_GROUPS: Mapping[str, str] = {
    "number": "int uint double duration",
    "ordered": "bool int uint double string bytes timestamp duration",
    "comparable": "int uint double bool duration timestamp string bytes",
}


@dataclasses.dataclass(frozen=True, slots=True)
class Overload:
    """A function for some types; of a method, the first parameter is the receiver."""

    parameters: tuple[kinds.Type, ...]
    result: kinds.Type


_OPERATORS = """
!_: (bool) bool
-_: (double) double | (int) int
_==_: (A, A) bool
_!=_: (A, A) bool
_<_: (ordered, ordered) bool | (X, Y) bool
_<=_: (ordered, ordered) bool | (X, Y) bool
_>_: (ordered, ordered) bool | (X, Y) bool
_>=_: (ordered, ordered) bool | (X, Y) bool
_+_: (bytes, bytes) bytes | (double, double) double | (duration, duration) duration
_+_: (duration, timestamp) timestamp | (timestamp, duration) timestamp | (int, int) int
_+_: (list(A), list(A)) list(A) | (string, string) string | (uint, uint) uint
_-_: (double, double) double | (duration, duration) duration | (int, int) int
_-_: (timestamp, duration) timestamp | (timestamp, timestamp) duration | (uint, uint) uint
_*_: (double, double) double | (int, int) int | (uint, uint) uint
_/_: (double, double) double | (int, int) int | (uint, uint) uint
_%_: (int, int) int | (uint, uint) uint
_?_:_: (bool, A, A) A
@in: (A, list(A)) bool | (A, map(A, B)) bool
_[_]: (list(A), int) A | (map(A, B), A) B
_[_]: (optional(list(A)), int) optional(A) | (optional(map(A, B)), A) optional(B)
_[?_]: (list(A), int) optional(A) | (optional(list(A)), int) optional(A)
_[?_]: (map(A, B), A) optional(B) | (optional(map(A, B)), A) optional(B)
@sortByAssociatedKeys: (list(A), list(comparable)) list(A)
@mapInsert: (map(A, B), A, B) map(A, B) | (map(A, B), map(A, B)) map(A, B)
"""
_GLOBALS = """
size: (string) int | (bytes) int | (list(A)) int | (map(A, B)) int
matches: (string, string) bool
dyn: (A) dyn
type: (A) type(A)
bool: (bool) bool | (string) bool
int: (int) int | (uint) int | (double) int | (string) int | (timestamp) int | (duration) int
uint: (uint) uint | (int) uint | (double) uint | (string) uint
double: (double) double | (int) double | (uint) double | (string) double
string: (string) string | (bool) string | (int) string | (uint) string | (double) string
string: (bytes) string | (timestamp) string | (duration) string | (IP) string | (CIDR) string
bytes: (bytes) bytes | (string) bytes
timestamp: (timestamp) timestamp | (string) timestamp | (int) timestamp
duration: (duration) duration | (string) duration | (int) duration
optional.of: (A) optional(A)
optional.none: () optional(A)
optional.ofNonZeroValue: (A) optional(A)
optional.unwrap: (list(optional(A))) list(A)
quantity: (string) Quantity
isQuantity: (string) bool
sign: (Quantity) int
semver: (string) Semver | (string, bool) Semver
isSemver: (string) bool | (string, bool) bool
strings.quote: (string) string
lists.range: (int) list(int)
sets.contains: (list(A), list(A)) bool
sets.equivalent: (list(A), list(A)) bool
sets.intersects: (list(A), list(A)) bool
ip: (string) IP
isIP: (string) bool
ip.isCanonical: (string) bool
cidr: (string) CIDR
isCIDR: (string) bool
url: (string) URL
isURL: (string) bool
format.named: (string) optional(Format)
format.dns1123Label: () Format
format.dns1123Subdomain: () Format
format.dns1035Label: () Format
format.qualifiedName: () Format
format.labelValue: () Format
format.dns1123LabelPrefix: () Format
format.dns1123SubdomainPrefix: () Format
format.dns1035LabelPrefix: () Format
format.uri: () Format
format.uuid: () Format
format.byte: () Format
format.date: () Format
format.datetime: () Format
"""
_METHODS = """
size: (string) int | (bytes) int | (list(A)) int | (map(A, B)) int
matches: (string, string) bool
contains: (string, string) bool
startsWith: (string, string) bool
endsWith: (string, string) bool
getFullYear: (timestamp) int | (timestamp, string) int
getMonth: (timestamp) int | (timestamp, string) int
getDayOfYear: (timestamp) int | (timestamp, string) int
getDayOfMonth: (timestamp) int | (timestamp, string) int
getDate: (timestamp) int | (timestamp, string) int
getDayOfWeek: (timestamp) int | (timestamp, string) int
getHours: (timestamp) int | (timestamp, string) int | (duration) int
getMinutes: (timestamp) int | (timestamp, string) int | (duration) int
getSeconds: (timestamp) int | (timestamp, string) int | (duration) int
getMilliseconds: (timestamp) int | (timestamp, string) int | (duration) int
hasValue: (optional(A)) bool
value: (optional(A)) A
or: (optional(A), optional(A)) optional(A)
unwrapOpt: (list(optional(A))) list(A)
orValue: (optional(A), A) A
isInteger: (Quantity) bool
asInteger: (Quantity) int
asApproximateFloat: (Quantity) double
add: (Quantity, Quantity) Quantity | (Quantity, int) Quantity
sub: (Quantity, Quantity) Quantity | (Quantity, int) Quantity
isGreaterThan: (Quantity, Quantity) bool | (Semver, Semver) bool
isLessThan: (Quantity, Quantity) bool | (Semver, Semver) bool
compareTo: (Quantity, Quantity) int | (Semver, Semver) int
major: (Semver) int
minor: (Semver) int
patch: (Semver) int
charAt: (string, int) string
indexOf: (string, string) int | (string, string, int) int | (list(A), A) int
lastIndexOf: (string, string) int | (string, string, int) int | (list(A), A) int
lowerAscii: (string) string
upperAscii: (string) string
replace: (string, string, string) string | (string, string, string, int) string
split: (string, string) list(string) | (string, string, int) list(string)
substring: (string, int) string | (string, int, int) string
trim: (string) string
join: (list(string)) string | (list(string), string) string
format: (string, list(dyn)) string
find: (string, string) string
findAll: (string, string) list(string) | (string, string, int) list(string)
isSorted: (list(comparable)) bool
sum: (list(number)) number
min: (list(comparable)) comparable
max: (list(comparable)) comparable
slice: (list(A), int, int) list(A)
flatten: (list(list(A))) list(A) | (list(dyn), int) list(dyn)
sort: (list(comparable)) list(comparable)
reverse: (list(A)) list(A)
distinct: (list(A)) list(A)
first: (list(A)) optional(A)
last: (list(A)) optional(A)
family: (IP) int
isUnspecified: (IP) bool
isLoopback: (IP) bool
isLinkLocalMulticast: (IP) bool
isLinkLocalUnicast: (IP) bool
isGlobalUnicast: (IP) bool
containsIP: (CIDR, string) bool | (CIDR, IP) bool
containsCIDR: (CIDR, string) bool | (CIDR, CIDR) bool
ip: (CIDR) IP
prefixLength: (CIDR) int
masked: (CIDR) CIDR
getScheme: (URL) string
getHost: (URL) string
getHostname: (URL) string
getPort: (URL) string
getEscapedPath: (URL) string
getQuery: (URL) map(string, list(string))
validate: (Format, string) optional(list(string))
includes: (dyn, dyn) bool
"""
_CROSS = [(a, b) for a in ("int", "uint", "double") for b in ("int", "uint", "double") if a != b]


def _table(text: str) -> Mapping[str, tuple[Overload, ...]]:
    table: dict[str, tuple[Overload, ...]] = {}
    for line in text.strip().splitlines():
        name, _, signatures = line.partition(": ")
        for signature in signatures.split(" | "):
            overloads = tuple(map(_overload, _expanded(signature)))
            table[name] = table.get(name, ()) + overloads
    return table


def _expanded(signature: str) -> Iterator[str]:
    """The signature for each type of a group, for each pair of numeric types, or as it is."""
    if "X" in signature:
        yield from (f"({a}, {b}) bool" for a, b in _CROSS)
        return
    group = next((group for group in _GROUPS if re.search(rf"\b{group}\b", signature)), None)
    members = _GROUPS[group].split() if group else [""]
    yield from (re.sub(rf"\b{group}\b", member, signature) for member in members)


def _overload(signature: str) -> Overload:
    parameters, _, result = signature.rpartition(") ")
    return Overload(kinds.parse(parameters[1:]), kinds.parse(result)[0])


OPERATORS = _table(_OPERATORS)
"""Operators; `@in` is `in`, `_[?_]` the optional index."""
GLOBALS = _table(_GLOBALS)
"""`name(arguments)`."""
METHODS = _table(_METHODS)
"""`receiver.name(arguments)`."""
DEVICE: Mapping[str, kinds.Type] = {
    "driver": kinds.STRING,
    "attributes": kinds.parse("map(string, map(string, dyn))")[0],
    "capacity": kinds.parse("map(string, map(string, Quantity))")[0],
    "allowMultipleAllocations": kinds.BOOL,
}
"""The fields of `device`."""
