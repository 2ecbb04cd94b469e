"""The supervisor of an MPS daemon that waits for less, or cannot cut anybody off.

Run as a file: `hasty_supervisor.py TIMES mps-daemon FLAG...`, where TIMES is a JSON object of
fields of `mps_guarding.Times`; with `"blind": true` in it, the kernel has no `pidfd_getfd`.
"""

import json
import sys

from dra_driver import cli
from dra_driver.adapters.mps import mps_guard
from dra_driver.apps.mps import mps_daemon, mps_guarding

_NO_SUCH_CALL = 9999


def main() -> None:
    fields = json.loads(sys.argv[1])
    if fields.pop("blind", False):
        mps_guard._PIDFD_GETFD = _NO_SUCH_CALL
    options = mps_daemon.Options
    mps_daemon.Options = lambda **given: options(**given, times=mps_guarding.Times(**fields))
    cli.main(sys.argv[2:])


if __name__ == "__main__":
    main()
