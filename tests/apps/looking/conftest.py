import pytest
import yaml

from dra_driver import cli


@pytest.fixture
def explain(capsys, monkeypatch):
    monkeypatch.delenv("KUBECONFIG", raising=False)

    def run(*arguments):
        """Exit status, output, errors."""
        with pytest.raises(SystemExit) as ended:
            cli.main(["explain", *map(str, arguments)])
        printed = capsys.readouterr()
        return ended.value.code, printed.out, printed.err

    return run


@pytest.fixture
def write(tmp_path):
    def save(name, *bodies, as_list=False):
        path = tmp_path / name
        listed = (
            [{"apiVersion": "v1", "kind": "List", "items": list(bodies)}] if as_list else bodies
        )
        path.write_text(yaml.safe_dump_all(listed))
        return path

    return save
