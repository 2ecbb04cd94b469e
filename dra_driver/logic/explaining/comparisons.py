"""A comparison that does not hold, said with the value that was met: `memory 15Gi < 16Gi`."""

import re

Reads = tuple[tuple[str, str], ...]
"""Path and value of what an expression looked at."""

_OPPOSITE = {">=": "<", ">": "<=", "<=": ">", "<": ">=", "==": "!=", "!=": "=="}
_METHODS = {"isGreaterThan": "<=", "isLessThan": ">="}
_LITERAL = r"(?:quantity|semver)\(\s*(?P<quote>['\"])(?P<value>[^'\"]*)(?P=quote)\s*\)"
_PATH = r"device\.[^()=<>!&|?]+"
_COMPARE = re.compile(
    rf"{_PATH}\.compareTo\(\s*{_LITERAL}\s*\)\s*(?P<operator>>=|<=|==|!=|>|<)\s*0"
)
_METHOD = re.compile(rf"{_PATH}\.(?P<method>isGreaterThan|isLessThan)\(\s*{_LITERAL}\s*\)")
_PLAIN = re.compile(
    rf"{_PATH}?\s*(?P<operator>>=|<=|==|!=|>|<)\s*"
    r"(?:(?P<quote>['\"])(?P<value>[^'\"]*)(?P=quote)|(?P<bare>-?\d+|true|false))"
)


def told(source: str, reads: Reads) -> str:
    """Why a part of a selector is false on a device, from its text and what it looked at.

    A comparison of one value with a constant is turned round; of anything else the values are
    listed.
    """
    if len(reads) == 1 and (rest := _turned(source.strip())):
        path, value = reads[0]
        return f"{name(path)} {value} {rest}"
    return ", ".join(f"{name(path)} {value}" for path, value in reads)


def name(path: str) -> str:
    """A path by its last name: `device.capacity["d"].memory` is `memory`."""
    return path if path.endswith("]") else path.rpartition(".")[2]


def _turned(source: str) -> str:
    if match := _COMPARE.fullmatch(source):
        return f"{_OPPOSITE[match['operator']]} {match['value']}"
    if match := _METHOD.fullmatch(source):
        return f"{_METHODS[match['method']]} {match['value']}"
    if match := _PLAIN.fullmatch(source):
        constant = match["bare"] or f'"{match["value"]}"'
        return f"{_OPPOSITE[match['operator']]} {constant}"
    return ""
