"""What the kubelet's probe of the kind `grpc` asks, in bytes of its own.

Kubernetes 1.36 `pkg/probe/grpc`: one call of `Check`; only SERVING passes.
"""

import grpc

SERVING, NOT_SERVING = "SERVING", "NOT_SERVING"
_STATUS = {b"\x08\x01": SERVING, b"\x08\x02": NOT_SERVING}


def check(port: int, service: str, *, seconds: float = 10.0) -> str:
    """The status that is answered, or the name of the code of the refusal."""
    name = service.encode()
    request = bytes((0x0A, len(name))) + name if name else b""
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        try:
            answer = channel.unary_unary("/grpc.health.v1.Health/Check")(request, timeout=seconds)
        except grpc.RpcError as error:
            return str(error.code().name)
    return _STATUS[answer]
