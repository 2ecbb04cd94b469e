"""How the API server is reached, and as whom, which is the `kubernetes` package's to say."""

import pathlib
import socket
from typing import Any

import kubernetes

from dra_driver import errors

_CONNECTIONS = 16
_GONE_SECONDS = 45
"""After so many without a sign of life a server is gone; client-go takes as long."""
_SOCKET_OPTIONS = (
    (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
    # Nothing is sent on the connection of a watch: without these a server that has gone without a
    # word would be noticed by the end of the watch, minutes later.
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 15),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 10),
    # Also where the request for a watch went into a connection that was dead by then.
    (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _GONE_SECONDS * 1000),
)


def configuration(kubeconfig: pathlib.Path | None) -> Any:
    """A `kubernetes.client.Configuration` as `kubeconfig` says; None: a pod's service account.

    Raises:
        errors.Fatal: neither works.
    """
    made = kubernetes.client.Configuration()
    try:
        if kubeconfig is not None:
            kubernetes.config.load_kube_config(str(kubeconfig), client_configuration=made)
        else:
            kubernetes.config.load_incluster_config(client_configuration=made)
    except Exception as error:
        # A malformed file raises whatever the package stumbles over first.
        raise _no_connection(kubeconfig, error) from error
    made.connection_pool_maxsize = _CONNECTIONS
    made.socket_options = list(_SOCKET_OPTIONS)
    return made


def pool(of: Any) -> Any:
    """The `urllib3.PoolManager` with the TLS settings of a configuration."""
    return kubernetes.client.ApiClient(of).rest_client.pool_manager


def _no_connection(kubeconfig: pathlib.Path | None, error: Exception) -> errors.Fatal:
    """What the `kubernetes` package says of a kubeconfig; None: of the service account of a pod."""
    reason = str(error).rstrip(".") or type(error).__name__
    # It says so of a file that is not there, too.
    reason = reason.replace(
        "Invalid kube-config file. No configuration found", "the file is absent or empty"
    )
    return errors.Fatal(
        f"kubeconfig {kubeconfig or '(in cluster)'}: {reason}. Pass --kubeconfig FILE, "
        "or run in a pod with a service account"
    )
