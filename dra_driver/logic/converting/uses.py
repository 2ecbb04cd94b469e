"""Which container has a claim of its own, and which uses that of another.

As Kubernetes shares extended resources: an init container that ends uses what a later container
gets, if that is enough, and those that end one after the other share what is the largest.
Source: Kubernetes 1.36 `pkg/scheduler/framework/plugins/dynamicresources/
extendeddynamicresources.go`.
"""

from collections.abc import Sequence

from dra_driver.logic.converting import asks


def owners(wishes: Sequence[asks.Wish]) -> tuple[int, ...]:
    """For each wish the place of the one whose claim its container uses, which may be itself.

    `wishes` are in the order in which their containers start.
    """
    found = list(range(len(wishes)))
    passing = []
    for place, wish in enumerate(wishes):
        if wish.container.lasts:
            continue
        later = (
            other
            for other in range(place + 1, len(wishes))
            if wishes[other].container.lasts and wishes[other].covers(wish)
        )
        lent = next(later, None)
        if lent is None:
            passing.append(place)
        else:
            found[place] = lent
    largest: list[int] = []
    for place in passing:
        if not any(wishes[one].covers(wishes[place]) for one in largest):
            largest = [one for one in largest if not wishes[place].covers(wishes[one])]
            largest.append(place)
    for place in passing:
        found[place] = next(one for one in largest if wishes[one].covers(wishes[place]))
    return tuple(found)
