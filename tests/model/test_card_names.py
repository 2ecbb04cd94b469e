import dataclasses
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dra_driver import errors
from dra_driver.model import card_names, devices, stored

NAME = card_names.CardName(gpu="GPU-a", device="gpu-12", product="NVIDIA H100 80GB HBM3")
TEXT = card_names.encode(NAME)


def test_the_file_of_a_name_is_stable():
    document = json.loads(TEXT)
    assert document.pop("checksum").startswith("sha256:")
    assert document == {
        "version": 1,
        "name": {
            "gpu": "GPU-a", "device": "gpu-12", "product": "NVIDIA H100 80GB HBM3",
            "gone_since": None,
        },
    }  # fmt: skip


SITE = devices.Site(devices.PciAddress("0000:3b:00.0"), 0x10DE, 0x2330, "boot-1")


def test_where_a_card_is_stands_beside_its_name_where_an_older_driver_does_not_look():
    text = card_names.encode(NAME.model_copy(update={"site": SITE}))
    document = json.loads(text)
    assert document.pop("more")["site"] == {
        "address": "0000:3b:00.0", "vendor": 0x10DE, "model": 0x2330, "boot_id": "boot-1"
    }  # fmt: skip
    assert document == json.loads(TEXT)
    assert card_names.decode(text).site == SITE


def test_what_else_stands_beside_a_name_is_of_a_newer_driver_and_no_matter():
    content = json.loads(TEXT)["name"]
    text = stored.encode("name", 1, content, {"later": 1, "site": dataclasses.asdict(SITE)})
    assert card_names.decode(text) == NAME.model_copy(update={"site": SITE})


@given(
    st.builds(
        card_names.CardName,
        gpu=st.text(max_size=8), device=st.integers(0, 999).map(lambda n: f"gpu-{n}"),
        product=st.text(max_size=8), gone_since=st.one_of(st.none(), st.text(max_size=8)),
        site=st.one_of(
            st.none(),
            st.builds(
                devices.Site,
                address=st.text(max_size=8), vendor=st.integers(0, 9), model=st.integers(0, 9),
                boot_id=st.text(max_size=8),
            ),
        ),
    )
)  # fmt: skip
def test_any_name_is_read_back_equal(name):
    assert card_names.decode(card_names.encode(name)) == name


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "not a name (JSONDecodeError: "),
        (TEXT[:40], "not a name (JSONDecodeError: "),
        ("[]", "not a name (TypeError: "),
        ("{}", "not a name (KeyError: "),
        (
            TEXT.replace('"version": 1', '"version": 2'),
            "version 2 is not one that ",
        ),
        (TEXT.replace("gpu-12", "gpu-1"), "checksum "),
        (TEXT.replace("GPU-a", "GPU-b"), "checksum "),
    ],
)
def test_a_damaged_file_is_refused_with_the_reason(text, reason):
    with pytest.raises(errors.Rejected) as caught:
        card_names.decode(text)
    assert str(caught.value).startswith(reason)


@pytest.mark.parametrize("device", ["gpu-", "gpu-01", "gpu-0-mig-1g5gb-19-0", "GPU-0", ""])
def test_only_a_name_of_a_whole_gpu_is_one(device):
    content = NAME.model_dump() | {"device": device}
    document = {
        "version": 1, "checksum": stored.checksum(content), "name": content,
    }  # fmt: skip
    with pytest.raises(errors.Rejected, match="content is not a name"):
        card_names.decode(json.dumps(document))


def test_a_card_is_told_by_its_product_and_its_uuid():
    assert f"{NAME}" == "NVIDIA H100 80GB HBM3 GPU-a"
    assert f"{NAME.model_copy(update={'product': ''})}" == "GPU-a"
