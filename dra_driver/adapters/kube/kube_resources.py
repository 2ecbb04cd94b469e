"""Where the API keeps objects of a kind."""

import dataclasses
from urllib.parse import quote


@dataclasses.dataclass(frozen=True, slots=True)
class Resource:
    """A kind as the API addresses it: group (empty for core), version, plural."""

    group: str
    version: str
    plural: str
    namespaced: bool = True

    def path(self, namespace: str | None = None, name: str | None = None) -> str:
        """The URL path of the collection, or of one object in it."""
        parts = ["apis", self.group] if self.group else ["api"]
        parts.append(self.version)
        if self.namespaced and namespace is not None:
            parts += ["namespaces", namespace]
        parts.append(self.plural)
        if name is not None:
            parts.append(name)
        return "/" + "/".join(quote(part, safe="") for part in parts)


def selectors(field_selector: str | None, label_selector: str | None) -> dict[str, str]:
    """The part of a list's query that says which objects are meant."""
    query = {"fieldSelector": field_selector, "labelSelector": label_selector}
    return {key: value for key, value in query.items() if value}
