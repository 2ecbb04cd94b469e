import subprocess
import sys

import pytest

_TELL = """
import resource
from dra_driver.adapters.system import open_files
resource.setrlimit(resource.RLIMIT_NOFILE, ({soft}, {hard}))
print(open_files.allow_many({most}), *resource.getrlimit(resource.RLIMIT_NOFILE))
"""


@pytest.mark.parametrize(
    ("soft", "hard", "most", "now"),
    [(256, 1024, 65536, 1024), (256, 1024, 512, 512), (1000, 1024, 512, 1000), (64, 64, 512, 64)],
)
def test_the_soft_limit_is_raised_to_the_hard_one_within_bounds_and_never_lowered(
    soft, hard, most, now
):
    # In a process of its own: a hard limit cannot be raised again.
    done = subprocess.run(
        [sys.executable, "-c", _TELL.format(soft=soft, hard=hard, most=most)],
        capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    assert done.stdout == f"{now} {now} {hard}\n"
