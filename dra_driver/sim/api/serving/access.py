"""Who may talk to a server on loopback: whoever has the token, and calls it by a name of loopback.

Every user of the machine reaches such a port, and so does every page in a browser on it, by a name
that it has pointed there. A name of loopback in `Host` shows that no such name was used. The token
is sent with TLS only: kubectl sends none without (client-go, `tools/clientcmd/client_config.go`).
"""

import dataclasses
import datetime as dt
import hmac
import ipaddress
import secrets
from collections.abc import Sequence

from dra_driver.adapters.serving import certificates
from dra_driver.sim.api.kinds import problems

ADDRESS = "127.0.0.1"
_NAMES = ("localhost",)
_TOKEN_BYTES = 32


@dataclasses.dataclass(frozen=True, slots=True)
class Access:
    """What a client has to send, and what it can tell the server by; PEM."""

    token: str = dataclasses.field(repr=False)
    authority: bytes
    certificate: bytes
    key: bytes = dataclasses.field(repr=False)


def make() -> Access:
    """A token that nobody can guess, and a certificate for `ADDRESS`."""
    kept = certificates.renew({}, (ADDRESS, *_NAMES), dt.datetime.now(dt.UTC)).kept
    return Access(
        token=secrets.token_urlsafe(_TOKEN_BYTES),
        authority=kept[certificates.AUTHORITIES],
        certificate=kept[certificates.CERTIFICATE],
        key=kept[certificates.KEY],
    )


def refusal(headers: Sequence[tuple[str, str]], access: Access | None) -> problems.ApiError | None:
    """Why a request is not answered; None if it is. Names of headers are in lower case.

    Without `access` no token is asked for.
    """
    hosts = [value for name, value in headers if name == "host"]
    if len(hosts) != 1 or not _is_loopback(hosts[0]):
        return problems.wrong_host(", ".join(hosts))
    if access is None:
        return None
    given = [value for name, value in headers if name == "authorization"]
    scheme, _, token = (given[0] if len(given) == 1 else "").partition(" ")
    # Compared in constant time, as bytes: a header may have any.
    known = hmac.compare_digest(token.strip().encode(), access.token.encode())
    return None if scheme.lower() == "bearer" and known else problems.unauthorized()


def _is_loopback(host: str) -> bool:
    name, colon, port = host.rpartition(":")
    if not (colon and port.isdecimal()):
        name = host
    if name.lower() in _NAMES:
        return True
    try:
        return ipaddress.ip_address(name.removeprefix("[").removesuffix("]")).is_loopback
    except ValueError:
        return False
