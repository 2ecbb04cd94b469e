"""Values of JSON written as YAML in the ways that people write it: a style for each draw."""

import json

from hypothesis import strategies

WORDS = ("a", "b-c", "name", "nvidia.com/gpu", "10Gi", "yes", "1", "x: y", "", "#no", "it's",
         'say "so"', "- dash", "ä€😀", "null", "two  x", "back\\slash", "{b}", "end:")  # fmt: skip
_TEXTS = strategies.sampled_from((*WORDS, "two\nlines", "ends\n", "\n", "  led", "a\n\nb\n\n"))
SCALARS = strategies.one_of(
    _TEXTS, strategies.integers(-5, 2**40), strategies.booleans(), strategies.none()
)
KEYS = strategies.sampled_from(WORDS)


def _inside(values):
    return strategies.one_of(
        strategies.lists(values, max_size=4), strategies.dictionaries(KEYS, values, max_size=4)
    )


VALUES = strategies.recursive(SCALARS, _inside, max_leaves=12)
OBJECTS = strategies.dictionaries(KEYS, VALUES, min_size=1, max_size=5)


class Writer:
    """Writes values in a style that is drawn anew at each step."""

    def __init__(self, draw, *, names=False):
        """With `names` values have anchors, and equal ones may be aliases of them."""
        self._draw = draw
        self._names = {} if names else None
        self._step = draw(strategies.integers(1, 4))
        self._dash = draw(strategies.sampled_from((0, 2, self._step)))
        self._gap = draw(strategies.sampled_from((1, 1, 3)))
        self.made = 0

    def lines(self, value):
        """Lines of an object or a list that is not empty, in block style."""
        found = []
        if isinstance(value, dict):
            for key, inner in value.items():
                found += self._between()
                found += self._entry(f"{self._scalar(key)}:", inner, value)
            return found
        for inner in value:
            found += self._between()
            if _is_filled(inner) and not self._is_flow():
                first, *rest = self._led(self.lines(inner))
                found.append(f"-{' ' * self._gap}{first}")
                found += [f" {' ' * self._gap}{line}" if line else line for line in rest]
            else:
                found += self._entry("-", inner, value)
        return found

    def _led(self, lines):
        """Without comments before the first one that is none: a dash stands there."""
        while not lines[0].strip() or lines[0].strip().startswith("#"):
            lines = lines[1:]
        return lines

    def _entry(self, head, value, holder):
        indent = self._step
        named = self._named(value)
        if named.startswith(" *"):
            return [f"{head}{named}{self._behind()}"]
        if _is_filled(value) and not self._is_flow():
            if isinstance(value, list):
                indent = self._dash if isinstance(holder, dict) else self._step
            found = [f"{head}{named}{self._behind()}", *_moved(self.lines(value), indent)]
        elif isinstance(value, str) and _fits_block(value) and self._draw(strategies.booleans()):
            found = [f"{head}{named} {self._mark(value)}", *_moved(self._body(value), indent)]
        elif value is None and self._draw(strategies.booleans()):
            found = [f"{head}{named}{self._behind()}"]
        else:
            found = f"{head}{named} {self._flow(value, '    ')}{self._behind()}".split("\n")
        if named:
            # From here on: inside of itself it has no name yet.
            self._names[json.dumps(value)] = named[2:]
        return found

    def _mark(self, value):
        self._folds = self._draw(strategies.sampled_from((False, False, True)))
        indent = self._draw(strategies.sampled_from(("", "", str(self._step))))
        return f"{'>' if self._folds else '|'}{indent}{'' if value.endswith(chr(10)) else '-'}"

    def _body(self, value):
        # What is folded has an empty line where one ends.
        return value.removesuffix("\n").replace("\n", "\n\n" if self._folds else "\n").split("\n")

    def _named(self, value):
        """An anchor, the alias of one, or neither."""
        if self._names is None or not self._draw(strategies.sampled_from((0, 0, 1))):
            return ""
        known = self._names.get(json.dumps(value))
        self.made += 1
        return f" *{known}" if known else f" &n{self.made}"

    def _is_flow(self):
        return self._draw(strategies.sampled_from((True, False, False, False)))

    def _flow(self, value, level):
        """In brackets; what of it stands in lines of its own is indented by `level`."""
        if isinstance(value, dict):
            parts = [f"{self._quoted(k)}: {self._flow(v, level + '  ')}" for k, v in value.items()]
            return self._brackets("{}", parts, level)
        if isinstance(value, list):
            return self._brackets("[]", [self._flow(v, level + "  ") for v in value], level)
        return self._quoted(value)

    def _brackets(self, pair, parts, level):
        how = self._draw(strategies.sampled_from(("", "", " ", "lines", "comma")))
        if not parts:
            return "".join(pair)
        if not how.strip():
            return f"{pair[0]}{how}{', '.join(parts)}{how}{pair[1]}"
        # Each in a line of its own.
        end = "," if how == "comma" else ""
        inside = "".join(
            f"{level}{part}{end if place == len(parts) else ','}{self._behind()}\n"
            for place, part in enumerate(parts, start=1)
        )
        return f"{pair[0]}\n{inside}{level[2:]}{pair[1]}"

    def _scalar(self, value):
        if value in ("a", "b-c", "name", "nvidia.com/gpu", "10Gi") and self._draw(
            strategies.booleans()
        ):
            return value
        return self._quoted(value)

    def _quoted(self, value):
        if isinstance(value, str) and "\n" not in value and self._draw(strategies.booleans()):
            return "'" + value.replace("'", "''") + "'"
        return json.dumps(value, ensure_ascii=False)

    def _behind(self):
        return self._draw(strategies.sampled_from(("", "", "", "  # why", " # {x: - y}")))

    def _between(self):
        if not self._draw(strategies.sampled_from((0, 0, 0, 1))):
            return []
        self.made += 1
        return self._draw(strategies.sampled_from(([f"# note {self.made}"], [""])))


def _is_filled(value):
    return isinstance(value, dict | list) and bool(value)


def _fits_block(value):
    inner = value.removesuffix("\n").split("\n")
    return all(line.strip() == line and line for line in inner) and value.strip()


def _moved(lines, columns):
    return [" " * columns + line if line else line for line in lines]
