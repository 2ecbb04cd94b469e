import pathlib

import pytest

from dra_driver import cli, errors, settings
from dra_driver.settings import controller as controller_settings
from dra_driver.settings import webhook as webhook_settings


def resolve(environment=None, flags=None, file=None):
    return settings.resolve(
        webhook_settings.Webhook, file=file, environment=environment or {}, flags=flags or {}
    )


def test_nothing_has_to_be_set():
    config = resolve()
    assert (config.driver_name, config.address, config.status_address) == (
        "gpu.nvidia.com",
        ":8443",
        ":8080",
    )
    assert config.certificate_dir is None


def test_flags_variables_and_the_file_are_read():
    config = resolve(
        environment={"DRA_DRIVER_NAMESPACE": "gpus"},
        flags={"certificate_dir": "certificates"},
        file={"checkSeconds": 5},
    )
    assert (config.namespace, config.check_seconds) == ("gpus", 5)
    assert config.certificate_dir == pathlib.Path("certificates").absolute()


@pytest.mark.parametrize(
    "flags",
    [
        {"address": "8443"},
        {"address": ""},
        {"status_address": "host"},
        {"namespace": "Upper"},
        {"secret": ""},
        {"check_seconds": "0"},
        {"drain_seconds": "-1"},
        {"driver_name": "x" * 64},
    ],
)
def test_a_value_that_is_not_allowed_is_told_with_its_source(flags):
    (name,) = flags
    with pytest.raises(errors.Fatal, match=f"flag --{name.replace('_', '-')}: "):
        resolve(flags=flags)


@pytest.mark.parametrize(
    ("flags", "source"),
    [
        ({"lease_seconds": "5", "retry_seconds": "5"}, "flag --retry-seconds: '5': "),
        ({"lease_seconds": "1"}, "default of --retry-seconds: 2.0: "),
    ],
)
def test_a_controller_that_would_lose_its_lease_between_two_tries_is_refused(flags, source):
    with pytest.raises(errors.Fatal) as caught:
        settings.resolve(
            controller_settings.Controller, environment={}, flags={"identity": "x"} | flags
        )
    assert str(caught.value).startswith(
        f"{source}it has to be less than leaseSeconds {flags['lease_seconds']}, or the Lease runs "
    )


def test_a_service_of_the_same_name_is_no_setting():
    port = {"DRA_DRIVER_WEBHOOK_PORT": "tcp://10.0.0.1:443", "DRA_DRIVER_WEBHOOK_SERVICE_HOST": "x"}
    assert resolve(environment=port) == resolve()


def test_the_command_says_what_is_in_its_way(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(cli, "_stop_on_signals", lambda: None)
    with pytest.raises(SystemExit) as caught:
        cli.main(["webhook", "--certificate-dir", str(tmp_path / "none")])
    assert caught.value.code == 1
    assert "none: it is no directory" in capsys.readouterr().err


def test_help_lists_the_command_and_its_settings(capsys):
    for arguments, text in ([["--help"], "webhook"], [["webhook", "--help"], "--certificate-dir"]):
        with pytest.raises(SystemExit):
            cli.main(arguments)
        assert text in capsys.readouterr().out
