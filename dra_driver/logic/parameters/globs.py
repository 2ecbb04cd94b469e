"""Globs -> CEL: `*` stands for any characters, `?` for one; all others stand for themselves.

In NVIDIA's driver they were that at first, but found anywhere in the value; then as a whole, with
`?` as here, and brackets and braces as in a shell, of which no name of a product has any.
"""

from dra_driver.logic.cel import quoting

_ANY, _ONE = "*", "?"
_LOWERED = str.maketrans("ABCDEFGHIJKLMNOPQRSTUVWXYZ", "abcdefghijklmnopqrstuvwxyz")


def condition(operand: str, pattern: str) -> str | None:
    """The CEL that is true of a text that matches; None where every text does.

    `operand` is CEL, a text. Capital and small letters A to Z are the same: CEL has no more.
    """
    lowered = pattern.translate(_LOWERED)
    subject = f"{operand}.lowerAscii()"
    body = lowered.strip(_ANY)
    head, tail = lowered.startswith(_ANY), lowered.endswith(_ANY)
    if not body:
        return None
    if _ANY in body or _ONE in body:
        return f"{subject}.matches({quoting.literal(regular_expression(lowered))})"
    text = quoting.literal(body)
    if head and tail:
        return f"{subject}.contains({text})"
    if head or tail:
        return f"{subject}.{'endsWith' if head else 'startsWith'}({text})"
    return f"{subject} == {text}"


def regular_expression(pattern: str) -> str:
    """The same for RE2, of the whole text."""
    parts: list[str] = []
    for character in pattern:
        if character == _ANY:
            # Several are as good as one, and take longer.
            parts += [] if parts and parts[-1] == ".*" else [".*"]
        elif character == _ONE:
            parts.append(".")
        else:
            is_plain = not character.isascii() or character.isalnum() or character in " _"
            parts.append(character if is_plain else f"\\{character}")
    return f"(?s)^{''.join(parts)}$"
