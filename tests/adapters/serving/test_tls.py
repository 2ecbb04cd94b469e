import contextlib
import gc
import pathlib
import socket
import ssl
import threading

import pytest
import trustme
from cryptography.hazmat.primitives import serialization

from dra_driver import errors
from dra_driver.adapters.serving import tls

NAME = "webhook.dra.svc"


@pytest.fixture(scope="module")
def authority():
    return trustme.CA()


def issue(authority, name=NAME):
    issued = authority.issue_cert(name)
    return issued.cert_chain_pems[0].bytes(), issued.private_key_pem.bytes()


def shake_hands(certificate, authority, **limits):
    """Connect to a server with the certificate; the connection as the client has it."""
    ours, theirs = socket.socketpair()
    client = ssl.create_default_context()
    authority.configure_trust(client)
    for name, value in limits.items():
        setattr(client, name, value)
    context = certificate.context

    def serve():
        try:
            with context.wrap_socket(theirs, server_side=True) as served:
                served.recv(1)
        except OSError:
            theirs.close()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        with client.wrap_socket(ours, server_hostname=NAME) as connection:
            return connection.getpeercert(binary_form=True), connection.version()
    finally:
        ours.close()
        thread.join()


def test_there_is_nothing_to_serve_with_before_there_is_a_certificate(authority):
    certificate = tls.Certificate()
    assert (certificate.context, certificate.usable) == (None, False)
    assert not certificate.wait(0)
    certificate.use(*issue(authority))
    assert certificate.usable
    assert certificate.wait(0)


def test_new_connections_get_the_newest_certificate(authority):
    certificate = tls.Certificate()
    certificate.use(*issue(authority))
    first, version = shake_hands(certificate, authority)
    assert version == "TLSv1.3"
    certificate.use(*issue(authority))
    assert shake_hands(certificate, authority)[0] != first


def test_tls_1_2_is_spoken_and_nothing_older(authority, recwarn):
    certificate = tls.Certificate()
    certificate.use(*issue(authority))
    _, version = shake_hands(certificate, authority, maximum_version=ssl.TLSVersion.TLSv1_2)
    assert version == "TLSv1.2"
    assert certificate.context.minimum_version is ssl.TLSVersion.TLSv1_2
    recwarn.clear()


@pytest.mark.parametrize("case", ["other key", "no key", "garbage", "password"])
def test_what_does_not_belong_together_is_refused_and_changes_nothing(authority, case):
    chain, key = issue(authority)
    certificate = tls.Certificate()
    certificate.use(chain, key)
    before = certificate.context
    secret = serialization.load_pem_private_key(key, None).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"secret"),
    )
    wrong = {
        "other key": (chain, issue(authority)[1]),
        "no key": (chain, b""),
        "garbage": (b"x", b"y"),
        "password": (chain, secret),
    }[case]
    with pytest.raises(errors.Rejected, match=r"cannot be used: .* belong together") as caught:
        certificate.use(*wrong)
    assert certificate.context is before
    assert "PRIVATE" not in str(caught.value)


def open_files():
    """Of this process; sockets and the like may come and go with its other threads."""
    found = []
    for path in pathlib.Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            found.append(str(path.readlink()))
    return sorted(name for name in found if name.startswith("/") and "/fd" not in name)


def test_the_key_is_left_in_no_file(authority):
    gc.collect()
    before = open_files()
    tls.Certificate().use(*issue(authority))
    gc.collect()
    assert open_files() == before
