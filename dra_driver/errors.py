"""Every error that the driver raises on purpose. The class is the retry policy.

A message names the object, the field, the value, what is allowed, and the next step.
"""


class DriverError(Exception):
    """Base of all errors that are raised on purpose; the text is fit to be shown to a user."""


class Rejected(DriverError):  # noqa: N818 - the outcome, as the API server would call it
    """What was asked for is wrong and stays wrong: asking again does not help."""


class Retryable(DriverError):  # noqa: N818 - says what may be done about it
    """What was asked for may work in a moment: a busy device, an API server that is away."""


class Abandoned(Retryable):
    """Nobody waits for the answer any more: what was begun for it stops, and is undone."""


class Fatal(DriverError):  # noqa: N818 - says what follows from it
    """The process cannot go on as it was configured."""
