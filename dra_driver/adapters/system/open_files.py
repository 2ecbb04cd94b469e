"""How many files and connections this process may have open at once."""

import contextlib
import resource

MOST = 65536
"""More are never needed, and programs that are started inherit it: some go through all numbers."""


def allow_many(most: int = MOST) -> int:
    """Raise the soft limit to the hard one, up to `most`; the soft limit from now on.

    Service managers start programs with 1024 for those that use select(2), and leave it to the
    others to ask for more. A limit that is higher stays.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = most if hard == resource.RLIM_INFINITY else min(hard, most)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return soft
    with contextlib.suppress(ValueError, OSError):
        # Forbidden by a policy, say: what there is has to do then.
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]
