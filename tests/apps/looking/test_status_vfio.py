"""`dra-driver status` with GPUs that go to virtual machines, as the driver publishes them."""

import gpu_slices
import mig_cards
import passed_cards

from dra_driver.adapters.console import terminal
from dra_driver.apps.looking import status_view
from dra_driver.logic.offering import publishing
from dra_driver.logic.picturing import occupancy

OWNER = publishing.Owner("gpu.nvidia.com", "n", "uid-n")


def slices(cards):
    bodies = publishing.reconcile(OWNER, publishing.contents(mig_cards.offer(cards)), ()).create
    return [
        body | {"metadata": {"name": f"slice-{number:02}"}} for number, body in enumerate(bodies)
    ]


STATUS = """\
Node n: 2 x NVIDIA H100 80GB HBM3
gpu      0    1    2    3    4    5    6    7       free   largest fit   frag
-----------------------------------------------------------------------------
gpu-0   |a vfio virt-launcher                   |   0/8    none          0%
gpu-1   |b 3g.40gb train    |····:····:····:····|   4/8    3g.40gb       0%

Node n: 1 x Tesla T4
gpu     whole GPU                                      free   largest fit   frag
--------------------------------------------------------------------------------
gpu-2   |··········································|   1/1    whole         0%

Node n: 1 x GH100
gpu          whole GPU                                 free   largest fit   frag
--------------------------------------------------------------------------------
gpu-vfio-7   |vfio·································|   1/1    vfio          0%

Claims on n
key   claim           pods            has
---------------------------------------------------
a     default/vm      virt-launcher   gpu-vfio-0
b     default/train   train           gpu-1 3g.40gb

Node n: 4 GPUs, 2 idle, 4 of 16 memory slices free, largest fit whole, fragmentation 0%
"""


def test_a_card_that_a_virtual_machine_has_is_drawn_with_its_claim(capsys, monkeypatch):
    monkeypatch.setattr(terminal, "PIPE_WIDTH", 80)
    cards = passed_cards.passed(mig_cards.dynamic("h100-80gb-hbm3:2,t4:1"))
    cards[0] = passed_cards.claimed(cards[0])
    seen = gpu_slices.snapshot(
        *slices([*cards, passed_cards.found_bound(7)]),
        gpu_slices.held("vm", "gpu-vfio-0", pods=("virt-launcher",)),
        gpu_slices.held("train", gpu_slices.name(1, "3g.40gb", 0), pods=("train",)),
        gpu_slices.pod("virt-launcher"),
        gpu_slices.pod("train"),
    )
    status_view.show(occupancy.of(seen), terminal.Terminal(), as_json=False)
    assert capsys.readouterr().out.strip() == STATUS.strip()
