"""Where devices have what an expression looked for in the wrong place or by a wrong name."""

import difflib
import json
import re
from collections.abc import Iterable

from dra_driver.logic import candidacy

_NO_SUCH_KEY = re.compile(r"no such key: (.+)", re.DOTALL)


def elsewhere(problem: str, candidates: Iterable[candidacy.Candidate]) -> tuple[str, ...]:
    """Paths to read instead, after the run-time error `no such key: NAME`.

    Those that end with the same name, upper and lower case apart; if there are none, those whose
    names are alike.
    """
    missing = _NO_SUCH_KEY.fullmatch(problem)
    if missing is None:
        return ()
    paths: dict[str, set[str]] = {}
    for candidate in candidates:
        for table, names in (
            ("attributes", candidate.device.attributes),
            ("capacity", candidate.device.capacity),
        ):
            for qualified in names:
                domain, _, name = qualified.rpartition("/")
                path = f"device.{table}[{json.dumps(domain or candidate.id.driver)}].{name}"
                paths.setdefault(name.lower(), set()).add(path)
    wanted = missing[1].lower()
    alike = [wanted] if wanted in paths else difflib.get_close_matches(wanted, sorted(paths))
    return tuple(path for name in alike for path in sorted(paths[name]))
