"""A pod that is looked at, what was decided before, and what is found."""

import functools

from dra_driver.logic.converting import annotations, conversion, notes, reading


class Scene:
    """What every system needs to know. Annotations are read once, when a container needs them."""

    def __init__(self, pod: reading.Pod, policy: conversion.Policy, said: notes.Notes) -> None:
        self.pod = pod
        self.policy = policy
        self.said = said

    @functools.cached_property
    def hami(self) -> annotations.Wanted:
        """What HAMi's annotations want."""
        return annotations.read(self.pod, annotations.HAMI, self.said)

    @functools.cached_property
    def volcano(self) -> annotations.Wanted:
        """What Volcano's annotations want."""
        return annotations.read(self.pod, annotations.VOLCANO, self.said)
