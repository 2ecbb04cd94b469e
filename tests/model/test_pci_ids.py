"""What devices are called, by the PCI id database."""

import hypothesis
from hypothesis import strategies

from dra_driver.model import pci_ids

TEXT = """\
#
#\tList of PCI ID's
#

10dd  Evans & Sutherland
\t0100  Lightning 1200
10de  NVIDIA Corporation
\t0008  NV1 [STG2000X-B]
# a remark
\t2330  GH100 [H100 SXM5 80GB]
\t\t10de 16c1  DGX H100
\t\t10de 2335  a card that is called like a device
\t2335  GH100 [H200 SXM 141GB]

\t23zz  no number
\t2336
\t233600  too long
10df  Emulex Corporation
\t2330  another vendor's
\t0720  OneConnect NIC
C 03  Display controller
\t00  VGA compatible controller
"""


def test_the_devices_of_one_vendor_have_their_names():
    assert pci_ids.products(TEXT.splitlines(keepends=True), 0x10DE) == {
        0x0008: "NV1 [STG2000X-B]",
        0x2330: "GH100 [H100 SXM5 80GB]",
        0x2335: "GH100 [H200 SXM 141GB]",
    }


def test_a_vendor_that_is_not_there_has_none():
    assert pci_ids.products(TEXT.splitlines(), 0x1234) == {}


def test_nothing_is_read_after_the_vendor():
    lines = iter(TEXT.splitlines())

    pci_ids.products(lines, 0x10DE)

    assert next(lines) == "\t2330  another vendor's"


@hypothesis.given(strategies.text())
def test_no_text_is_too_odd(text):
    lines = text.splitlines()

    assert pci_ids.products(lines, 0x10DE) == {}
    assert isinstance(pci_ids.products(["10de  NVIDIA", *lines], 0x10DE), dict)
