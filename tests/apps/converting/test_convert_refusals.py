"""Files that cannot be edited without a risk for what is to stay in them."""

import converting_files
import pytest

REFUSED = {
    "a key that is there twice": (
        converting_files.PLAIN.replace("    image: busybox\n", "    image: a\n    image: b\n"),
        "line 9: the key image is there twice",
    ),
    "a template of Helm": (
        converting_files.PLAIN.replace("busybox", "{{ .Values.image }}"),
        "makes it a template of Helm",
    ),
    "directives": (f"%YAML 1.1\n---\n{converting_files.PLAIN}", "% directives: remove them"),
    "a key with a question mark": (
        converting_files.PLAIN.replace("    image: busybox", "    ? image\n    : busybox"),
        "line 8: a key is written with `?`",
    ),
    "lines that end with CR": (
        converting_files.PLAIN.replace("\n", "\r"), "a line ends with CR alone",
    ),
    "no YAML": ("a: [", "it cannot be read"),
    "no UTF-8": (b"\xff\xfe", "byte 1 is no UTF-8"),
    "a tab": ("a:\n\t- b\n", "it cannot be read"),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_be_edited_is_refused_with_the_reason(convert, save, what):
    text, reason = REFUSED[what]
    path = save(text)
    status, out, err = convert("-f", path)
    assert (status, out) == (1, "")
    assert f"dra-driver: {path}: " in err
    assert reason in err
    assert err.endswith("dra-driver: nothing was converted\n")
    content = text if isinstance(text, bytes) else text.encode()
    assert convert("--write", "-f", path)[0] == 1
    assert path.read_bytes() == content


def test_a_file_with_nothing_to_convert_is_printed_whatever_its_style(convert, save):
    text = "%YAML 1.1\n---\n? a\n: b\n\ta: 1\n".replace("\ta: 1\n", "c: &x {a: 1}\nd: *x\n")
    status, out, err = convert("-f", save(text))
    assert (status, out) == (0, text)
    assert "nothing to convert" in err
