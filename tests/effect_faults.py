"""Makes and undoes of effects that fail, whichever they are; and the order of those that do not."""

import dataclasses

import effect_claims


@dataclasses.dataclass
class _Fault:
    kind: type
    method: str
    error: BaseException
    is_late: bool
    times: int | None


class Faults:
    """Stands before `make` and `undo` of all effects in the list, of all nodes of this process."""

    def __init__(self, monkeypatch):
        self.calls = []
        self._fault = None
        for kind in effect_claims.CASES:
            for method in ("make", "undo"):
                self._stand_before(monkeypatch, kind, method)

    def inject(self, kind, method, error, *, is_late=False, times=None):
        """Have it raise; `is_late`: once all is done, as far as it goes."""
        self._fault = _Fault(kind, method, error, is_late, times)

    def clear(self):
        self._fault = None

    def order(self, method):
        """The effects in the order in which they were made, or undone, since the last question."""
        found = [kind for kind, called in self.calls if called == method]
        self.calls.clear()
        return found

    def _stand_before(self, monkeypatch, kind, method):
        original = getattr(kind, method)

        def call(itself, *arguments):
            self.calls.append((kind, method))
            fault = self._taken(kind, method)
            if fault is not None and not fault.is_late:
                raise fault.error
            answer = original(itself, *arguments)
            if fault is not None:
                raise fault.error
            return answer

        monkeypatch.setattr(kind, method, call)

    def _taken(self, kind, method):
        fault = self._fault
        if fault is None or (fault.kind, fault.method) != (kind, method):
            return None
        if fault.times is not None:
            fault.times -= 1
            if fault.times <= 0:
                self._fault = None
        return fault
