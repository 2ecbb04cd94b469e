import pytest

from dra_driver import errors
from dra_driver.model import fabric


@pytest.mark.parametrize(
    ("text", "where", "is_socket"),
    [
        ("unix:/run/nvidia-fabricmanager/socket", "/run/nvidia-fabricmanager/socket", True),
        ("127.0.0.1:6666", "127.0.0.1:6666", False),
        ("10.1.2.3:65535", "10.1.2.3:65535", False),
    ],
)
def test_an_address_is_a_socket_or_an_address_and_a_port(text, where, is_socket):
    found = fabric.parse_address(text)
    assert (found.text, found.is_socket, str(found)) == (where, is_socket, text)


@pytest.mark.parametrize(
    "text",
    [
        "", "unix:", "unix:run/socket", "unix:/a\0b", "/run/socket", "127.0.0.1", "127.0.0.1:",
        "127.0.0.1:0", "127.0.0.1:65536", "localhost:6666", "[::1]:6666", "1.2.3:6666",
    ],
)  # fmt: skip
def test_anything_else_is_refused_with_what_to_write(text):
    with pytest.raises(errors.Rejected, match=r"write unix:PATH .* or an IPv4 address and a port"):
        fabric.parse_address(text)


def test_one_that_is_longer_than_the_structure_has_room_for_is_refused():
    assert fabric.parse_address(f"unix:/{'x' * 254}").text == f"/{'x' * 254}"
    with pytest.raises(errors.Rejected, match="at most 255 bytes"):
        fabric.parse_address(f"unix:/{'x' * 253}é")
