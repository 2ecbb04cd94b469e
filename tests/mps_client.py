"""A CUDA program, by ctypes alone: what it sees of a GPU, and how much memory it gets.

Run as a process of its own: `python mps_client.py [--uid N] [--hold]`. It writes one JSON object
on a line: `sms` multiprocessors that it sees, `free` and `total` bytes that it is told of,
`allocated` bytes until it was refused, or `error`. With `--hold` it keeps all that until its
standard input is closed, and then says in a second line whether its context is still usable.
With `--each` it says of each GPU that it sees, in its order, what is `allocated` by its UUID.
"""

import argparse
import ctypes
import json
import os
import sys
import uuid

BLOCK = 256 * 1024**2
MULTIPROCESSOR_COUNT = 16
OUT_OF_MEMORY = 2


class CudaError(Exception):
    pass


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--uid", type=int)
    parser.add_argument("--hold", action="store_true")
    parser.add_argument("--each", action="store_true")
    parser.add_argument("--most", type=int, default=8 * 1024**3)
    options = parser.parse_args()
    if options.uid is not None:
        os.setgroups([])
        os.setgid(options.uid)
        os.setuid(options.uid)
    cuda = ctypes.CDLL("libcuda.so.1")
    try:
        say((use_each if options.each else use)(cuda, options.most))
    except CudaError as error:
        say({"error": str(error)})
        return
    if options.hold:
        sys.stdin.read()
        say({"usable": cuda.cuCtxSynchronize() == 0})


def use(cuda, most):
    device, context = ctypes.c_int(), ctypes.c_void_p()
    sms, free, total = ctypes.c_int(), ctypes.c_size_t(), ctypes.c_size_t()
    check(cuda, "cuInit", 0)
    check(cuda, "cuDeviceGet", ctypes.byref(device), 0)
    check(cuda, "cuCtxCreate_v2", ctypes.byref(context), 0, device)
    check(cuda, "cuDeviceGetAttribute", ctypes.byref(sms), MULTIPROCESSOR_COUNT, device)
    check(cuda, "cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
    allocated = take(cuda, most)
    return {"sms": sms.value, "free": free.value, "total": total.value, "allocated": allocated}


def use_each(cuda, most):
    device, context, count = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_int()
    check(cuda, "cuInit", 0)
    check(cuda, "cuDeviceGetCount", ctypes.byref(count))
    allocated = {}
    for number in range(count.value):
        name = (ctypes.c_ubyte * 16)()
        check(cuda, "cuDeviceGet", ctypes.byref(device), number)
        check(cuda, "cuDeviceGetUuid_v2", name, device)
        check(cuda, "cuCtxCreate_v2", ctypes.byref(context), 0, device)
        allocated[f"GPU-{uuid.UUID(bytes=bytes(name))}"] = take(cuda, most)
    return {"allocated": allocated}


def take(cuda, most):
    """Allocate until that is refused, or enough; how much it was."""
    allocated = 0
    while allocated < most:
        pointer = ctypes.c_void_p()
        answer = cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(BLOCK))
        if answer == OUT_OF_MEMORY:
            break
        if answer != 0:
            raise CudaError(f"cuMemAlloc: {answer}")
        allocated += BLOCK
    return allocated


def check(cuda, name, *arguments):
    answer = getattr(cuda, name)(*arguments)
    if answer != 0:
        raise CudaError(f"{name}: {answer}")


def say(document):
    sys.stdout.write(json.dumps(document) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
