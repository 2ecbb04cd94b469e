import pytest

from dra_driver.logic.passthrough import modules

H100 = "pci:v000010DEd00002330sv000010DEsd000016C1bc03sc02i00"
GRACE = "pci:v000010DEd00002342sv000010DEsd000016EBbc03sc02i00"
LINES = (
    "# Aliases extracted from modules themselves.",
    "alias pci:v000010DEd*sv*sd*bc03sc02i00* nvidia",
    "alias vfio_pci:v*d*sv*sd*bc*sc*i* vfio-pci",
    "alias vfio_pci:v000010DEd00002342sv*sd*bc*sc*i* nvgrace_gpu_vfio_pci",
    "alias vfio_pci:v000015B3d0000101Esv*sd*bc*sc*i* mlx5_vfio_pci",
    "alias",
    "",
)


@pytest.mark.parametrize(
    ("modalias", "module"),
    [(H100, "vfio_pci"), (GRACE, "nvgrace_gpu_vfio_pci")],
    ids=["any card", "a card with a driver of its own"],
)
@pytest.mark.parametrize("lines", [LINES, LINES[::-1]], ids=["in order", "backwards"])
def test_the_module_is_the_one_that_fits_best(modalias, module, lines):
    assert modules.best(modalias, lines) == module


def test_the_generic_one_serves_where_the_kernel_tells_nothing():
    assert modules.best(GRACE, ()) == "vfio_pci"
