import pytest
import yaml

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


@pytest.fixture
def converted(convert, save):
    """The objects that come of objects, by kind and name."""

    def run(*bodies, arguments=()):
        text = yaml.safe_dump_all(bodies, sort_keys=False)
        status, out, err = convert("-f", save(text), *arguments)
        assert status == 0, err
        found = {(body["kind"], body["metadata"]["name"]): body for body in yaml.safe_load_all(out)}
        assert convert("-f", save(out), "--check")[0] == 0
        return found, err

    return run


@pytest.fixture
def refused(convert, save):
    """What is said of objects that cannot be converted."""

    def run(*bodies):
        status, out, err = convert("-f", save(yaml.safe_dump_all(bodies, sort_keys=False)))
        assert (status, out) == (1, "")
        return err

    return run
