"""The driver is killed before each step of giving names: what was published keeps its meaning."""

import itertools
import os
import shutil
import signal

import mig_node
from apps import killed_plugin

from dra_driver.sim.gpus import gpu_operations

GPUS = "t4:3"


def begin(root, api, published):
    """What the driver does when it starts: look, and publish."""
    node = mig_node.Node(root, GPUS, api)
    lines = [f"{card.name} {card.gpu.uuid}\n" for card in node.gpus.snapshot.cards]
    published.write_text("".join(lines))


def dies(root, at, action):
    """Whether it is gone before this step."""
    child = os.fork()
    if child == 0:
        try:
            names = [str(root / "names")]
            killed_plugin.Killer(names, root, root / "steps", at).install()
            action()
            os._exit(0)
        finally:
            os._exit(1)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return True
    assert os.WEXITSTATUS(status) == 0
    return False


def test_a_start_killed_before_any_step_leaves_names_that_were_published_to_their_cards(
    tmp_path, api
):
    published = tmp_path / "published"
    begin(tmp_path, api, published)
    first = mig_node.Node(tmp_path, GPUS, api)
    uuids = [first.uuid(number) for number in range(3)]
    first.held.close()
    seen = []
    for at in itertools.count(1):
        shutil.rmtree(tmp_path / "names")
        gpu_operations.renumber(tmp_path / "simulation", *uuids)
        published.write_text("")
        died = dies(tmp_path, at, lambda: begin(tmp_path, api, published))
        told = dict(line.split() for line in published.read_text().splitlines())
        seen.append(len(told))
        # The next start finds the cards elsewhere, and nobody who tells what they were called.
        gpu_operations.renumber(tmp_path / "simulation", *reversed(uuids))
        node = mig_node.Node(tmp_path, GPUS, api)
        cards = {card.name: card.gpu.uuid for card in node.gpus.snapshot.cards}
        node.held.close()
        assert cards | told == cards
        assert sorted(cards.values()) == sorted(uuids)
        assert [path for path in (tmp_path / "names").iterdir() if path.suffix != ".json"] == []
        if not died:
            break
    # Each name is written, made durable and put in place before anything is published.
    assert (seen[0], seen[-1]) == (0, 3)
    assert set(seen[:-1]) == {0}
    assert len(seen) > 10
