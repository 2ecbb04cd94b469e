import pytest

from dra_driver import cli


@pytest.fixture
def convert(capfdbinary, monkeypatch):
    monkeypatch.delenv("KUBECONFIG", raising=False)

    def run(*arguments):
        """Exit status, output as it was written, errors."""
        with pytest.raises(SystemExit) as ended:
            cli.main(["convert", *map(str, arguments)])
        printed = capfdbinary.readouterr()
        return ended.value.code, printed.out.decode(), printed.err.decode()

    return run


@pytest.fixture
def save(tmp_path):
    """Writes a file byte for byte, and tells where it is."""

    def write(text, name="pod.yaml"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return path

    return write
