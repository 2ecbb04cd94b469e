"""A webhook that serves on this machine, and its clients."""

import http.client
import pathlib
from typing import Any

import trustme
import webhook_reviews

from dra_driver.apps.webhook import converting, webhook
from dra_driver.settings import webhook as webhook_settings

SERVICE = "dra-driver-webhook.dra-driver.svc"


def settings(**changes: Any) -> webhook_settings.Webhook:
    values = {
        "address": "127.0.0.1:0",
        "status_address": "127.0.0.1:0",
        "drain_seconds": 0,
        "check_seconds": 0.02,
    }
    return webhook_settings.Webhook.model_validate(values | changes)


def issue(authority: trustme.CA, directory: pathlib.Path) -> None:
    """Put a new certificate into the directory, as cert-manager's Secret is mounted."""
    issued = authority.issue_cert(SERVICE)
    (directory / "tls.key").write_bytes(issued.private_key_pem.bytes())
    (directory / "tls.crt").write_bytes(issued.cert_chain_pems[0].bytes())


class Scene:
    """A webhook with a certificate from a directory."""

    def __init__(self, directory: pathlib.Path, *, issued: bool = True, **changes: Any) -> None:
        self.authority = trustme.CA()
        self.directory = directory
        if issued:
            issue(self.authority, directory)
        config = settings(certificate_dir=directory, **changes)
        self.webhook = webhook.Webhook(
            config,
            lambda config: webhook.certificate_source(config, user_agent="test"),
            lambda config: converting.converter(config, user_agent="dra-driver/test webhook"),
        )
        self.webhook.start()

    def wait_served(self) -> None:
        assert self.webhook.wait_served(60)

    def client(self) -> webhook_reviews.Client:
        pem = self.authority.cert_pem.bytes()
        return webhook_reviews.Client(self.webhook.port, pem, SERVICE)

    def status(self, path: str, method: str = "GET") -> tuple[int, str]:
        return status(self.webhook.status_port, path, method)


def status(port: int, path: str, method: str = "GET") -> tuple[int, str]:
    """The answer at the port for probes."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request(method, path, headers={"Content-Length": "0"})
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()
