"""What sources of the webhook's certificate say where something is missing."""

import pytest
import served_api
import webhook_scene

from dra_driver import errors
from dra_driver.apps.webhook import webhook, webhook_certificates


def test_files_that_are_missing_are_told(tmp_path):
    with pytest.raises(
        errors.Retryable, match=r"--certificate-dir has to hold tls\.crt and tls\.key"
    ):
        webhook_certificates.Directory(tmp_path).get()


def test_it_needs_a_way_to_the_api_server(tmp_path):
    config = webhook_scene.settings(kubeconfig=tmp_path / "none")
    with pytest.raises(errors.Fatal, match="kubeconfig"):
        webhook.certificate_source(config, user_agent="test")


def test_a_namespace_that_is_missing_is_told_with_what_makes_it(tmp_path):
    api = served_api.ServedApi(tmp_path)
    config = webhook_scene.settings(namespace="nowhere")
    told = r'namespaces "nowhere" not found.*kubectl create namespace nowhere;'
    try:
        with pytest.raises(errors.Retryable, match=told):
            webhook_certificates.SelfManaged(config, api.client).get()
    finally:
        api.close()
