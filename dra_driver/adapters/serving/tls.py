"""The certificate that a server shows, which can be changed while it serves."""

import os
import ssl
import threading

from dra_driver import errors

_CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20"
"""For TLS 1.2; those of TLS 1.3 are all good."""


class Certificate:
    """A certificate chain with its key, for new connections. Those that are open keep theirs.

    Each change makes a context of its own: OpenSSL does not promise that one can be changed while
    another thread starts a connection from it.
    """

    def __init__(self) -> None:
        self._context: ssl.SSLContext | None = None
        self._usable = threading.Event()

    @property
    def context(self) -> ssl.SSLContext | None:
        """What to serve with now; None while there is no certificate."""
        return self._context

    @property
    def usable(self) -> bool:
        """Whether there is a certificate."""
        return self._usable.is_set()

    def wait(self, seconds: float) -> bool:
        """Wait until there is a certificate; False if the time is up before."""
        return self._usable.wait(seconds)

    def use(self, chain: bytes, key: bytes) -> None:
        """Show this from now on; both are PEM, the chain with the server's certificate first.

        Raises:
            errors.Rejected: they are no certificate with its key; what was used before still is.
        """
        self._context = _context(chain, key)
        self._usable.set()


def _context(chain: bytes, key: bytes) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.set_ciphers(_CIPHERS)
    context.set_alpn_protocols(["http/1.1"])
    # OpenSSL reads files only; one in memory leaves the key on no disk.
    descriptor = os.memfd_create("certificate", os.MFD_CLOEXEC)
    try:
        with open(descriptor, "wb", closefd=False) as stream:
            stream.write(key.rstrip() + b"\n" + chain)
        # Without a password a terminal would be asked for one.
        context.load_cert_chain(f"/proc/self/fd/{descriptor}", password="")
    except (ssl.SSLError, OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or str(error)
        raise errors.Rejected(
            f"the certificate and its key cannot be used: {reason}: both have to be PEM, the key "
            "without a password, and belong together"
        ) from error
    finally:
        os.close(descriptor)
    return context
