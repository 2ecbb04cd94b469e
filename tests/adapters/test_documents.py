import pytest

from dra_driver import errors
from dra_driver.adapters import documents


@pytest.fixture
def path(tmp_path):
    return tmp_path / "manifest.yaml"


def test_documents_are_read_in_order_without_empty_ones(path):
    path.write_text("---\na: 1\n---\n# nothing\n---\n- b\n- ü\n---\n", encoding="utf-8")
    assert documents.load_all(path) == [{"a": 1}, ["b", "ü"]]


def test_the_single_document_is_read(path):
    path.write_text("nodeName: node-1\nrescanSeconds: 2.5\n")
    assert documents.load_one(path) == {"nodeName": "node-1", "rescanSeconds": 2.5}


@pytest.mark.parametrize("text", ["", "# a comment\n", "---\n"])
def test_an_empty_file_is_none(path, text):
    path.write_text(text)
    assert documents.load_one(path) is None
    assert documents.load_all(path) == []


def test_two_documents_are_one_too_many(path):
    path.write_text("a: 1\n---\nb: 2\n")
    with pytest.raises(errors.Fatal) as caught:
        documents.load_one(path)
    assert str(caught.value) == f"{path}: one YAML document is expected, it has 2"


def test_an_absent_file_is_told_by_name(path):
    with pytest.raises(errors.Fatal) as caught:
        documents.load_all(path)
    assert str(caught.value) == (
        f"{path} cannot be read: [Errno 2] No such file or directory: '{path}'"
    )


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"a: [1\n", "expected ',' or ']'"),
        (b"a: \xff\xfe\n", "codec can't decode byte 0xff"),
        (b"!!python/object/apply:os.getcwd []\n", "could not determine a constructor"),
        (b"a: \x07\n", "special characters are not allowed"),
    ],
)
def test_what_is_no_yaml_is_refused_with_file_and_reason(path, content, reason):
    path.write_bytes(content)
    with pytest.raises(errors.Fatal) as caught:
        documents.load_all(path)
    assert str(caught.value).startswith(f"{path} cannot be read: ")
    assert reason in str(caught.value)
