"""A stand-in for NVIDIA's `libnvfm`, compiled from C, so that structures cross a real C ABI.

The layout is NVIDIA's (`nv_fm_types.h`, see `adapters.driver.fabric_library`), written here by
itself: sizes and offsets come from the C compiler.
"""

import dataclasses
import shutil
import subprocess

import pytest

TYPES = """
#include <stdio.h>
#include <string.h>
#include <unistd.h>

typedef struct {
    unsigned int version;
    char addressInfo[256];
    unsigned int timeoutMs;
    unsigned int addressIsUnixSocket;
} Connect1;
typedef struct {
    unsigned int version;
    char addressInfo[256];
    unsigned int timeoutMs;
    unsigned int addressIsUnixSocket;
    enum { UNKNOWN, INET, UNIX, VSOCK } addressType;
} Connect2;
typedef struct {
    unsigned int physicalId;
    char uuid[80];
    char pciBusId[32];
    unsigned int numNvLinksAvailable;
    unsigned int maxNumNvLinks;
    unsigned int nvlinkLineRateMBps;
} Gpu;
typedef struct {
    unsigned int partitionId;
    unsigned int isActive;
    unsigned int numGpus;
    Gpu gpuInfo[16];
} Partition;
typedef struct {
    unsigned int version;
    unsigned int numPartitions;
    unsigned int maxNumPartitions;
    Partition partitionInfo[64];
} List;
#define VERSION(type, number) (unsigned int)(sizeof(type) | ((number) << 24))
enum { BADPARAM = -1, NOT_SUPPORTED = -3, UNINITIALIZED = -4, MISMATCH = -6, NOT_VALID = -9 };
"""

FUNCTIONS = """
static int is_open, handle;

int fmLibInit(void) { puts("libnvfm talks on standard output"); is_open = 1; return 0; }
int fmLibShutdown(void) { if (!is_open) return UNINITIALIZED; is_open = 0; return 0; }
int fmDisconnect(void *given) { return given == &handle ? 0 : BADPARAM; }

int fmConnect(void *given, void **out) {
    Connect1 *first = given;
    Connect2 *second = given;
    if (!is_open) return UNINITIALIZED;
    if (HANGS) { for (;;) pause(); }
    if (KNOWS == 2 && first->version == VERSION(Connect2, 2)) {
        if (second->addressType != (IS_SOCKET ? UNIX : INET)) return BADPARAM;
    } else if (!(KNOWS == 1 && first->version == VERSION(Connect1, 1))) {
        return MISMATCH;
    }
    if (first->timeoutMs == 0 || first->addressIsUnixSocket != IS_SOCKET) return BADPARAM;
    if (strcmp(first->addressInfo, ADDRESS) != 0) return NOT_VALID;
    *out = &handle;
    return 0;
}

static void put(List *list, unsigned int id, unsigned int count, const unsigned int *gpus) {
    Partition *one = &list->partitionInfo[list->numPartitions++];
    one->partitionId = id;
    one->numGpus = count;
    for (unsigned int i = 0; i < count; i++) {
        Gpu *gpu = &one->gpuInfo[i];
        gpu->physicalId = gpus[i];
        snprintf(gpu->uuid, sizeof gpu->uuid, UUID, gpus[i]);
        snprintf(gpu->pciBusId, sizeof gpu->pciBusId, BUS_ID, gpus[i]);
        gpu->numNvLinksAvailable = gpu->maxNumNvLinks = 18;
        gpu->nvlinkLineRateMBps = 25781;
    }
}

int fmGetSupportedFabricPartitions(void *given, void *out) {
    List *list = out;
    if (given != &handle) return BADPARAM;
    if (list->version != VERSION(List, LIST)) return MISMATCH;
    if (REFUSES) return REFUSES;
    list->maxNumPartitions = 64;
    PARTITIONS
    if (COUNT) list->numPartitions = COUNT;
    return 0;
}
"""


@dataclasses.dataclass(frozen=True)
class Library:
    """What it answers. `partitions` are module ids by the id of their partition.

    `knows` is the newest form of fmConnect's parameters that it knows, and of those alone;
    `list_version` that of a list. `refuses` is a return value. `count` lies about the number of
    partitions. `uuid` and `bus_id` are forms of which %u is the module id; empty from Hopper on.
    """

    address: str = "127.0.0.1:6666"
    partitions: tuple[tuple[int, tuple[int, ...]], ...] = ()
    is_socket: bool = False
    knows: int = 2
    list_version: int = 1
    refuses: int = 0
    hangs: bool = False
    count: int = 0
    uuid: str = ""
    bus_id: str = ""

    def compile(self, path):
        """Put it there; a test is skipped where there is no compiler."""
        compiler = shutil.which("cc") or shutil.which("gcc")
        if compiler is None:
            pytest.skip("no C compiler")
        puts = "".join(
            f"put(list, {number}, {len(gpus)}, (unsigned int[]){{{', '.join(map(str, gpus))}}});"
            for number, gpus in self.partitions
        )
        values = {
            "HANGS": int(self.hangs),
            "KNOWS": self.knows,
            "IS_SOCKET": int(self.is_socket),
            "ADDRESS": f'"{self.address}"',
            "UUID": f'"{self.uuid}"',
            "BUS_ID": f'"{self.bus_id}"',
            "LIST": self.list_version,
            "REFUSES": self.refuses,
            "COUNT": self.count,
            "PARTITIONS": puts,
        }
        lines = [f"#define {name} {value}" for name, value in values.items()]
        source = path.with_suffix(".c")
        path.parent.mkdir(parents=True, exist_ok=True)
        source.write_text("\n".join([TYPES, *lines, FUNCTIONS]))
        command = [compiler, "-w", "-shared", "-fPIC", "-o", path, source]
        subprocess.run(command, check=True, timeout=60)
        return path


def sizes(directory):
    """Sizes and versions as the C compiler has them, by name."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler")
    kinds = {"Connect1": 1, "Connect2": 2, "Gpu": 0, "Partition": 0, "List": 1}
    prints = "".join(
        f'printf("{kind} %zu %u\\n", sizeof({kind}), VERSION({kind}, {number}u));'
        for kind, number in kinds.items()
    )
    source, program = directory / "sizes.c", directory / "sizes"
    source.write_text(f"{TYPES}int main(void) {{ {prints} return 0; }}\n")
    subprocess.run([compiler, "-w", "-o", program, source], check=True, timeout=60)
    done = subprocess.run([program], check=True, capture_output=True, text=True, timeout=60)
    rows = [line.split() for line in done.stdout.splitlines()]
    return {kind: (int(size), int(version)) for kind, size, version in rows}
