"""A small cluster whose GPUs are in use in every way that `dra-driver status` shows."""

from gpu_slices import A100, T4, Json, held, instance, name, on_demand, pod, published, whole

NOTEBOOKS = [(0, "1g.10gb"), (1, "1g.10gb"), (2, "1g.10gb"), (4, "1g.10gb"), (5, "1g.10gb")]


def share(device: str, number: int, memory: str) -> Json:
    share_id = f"00000000-0000-4000-8000-{number:012}"
    return {"device": device, "shareID": share_id, "consumedCapacity": {"memory": memory}}


def hopper() -> list[Json]:
    """A node with eight H100 that are cut on demand."""
    shareable = on_demand("hopper", 8)
    for device in shareable[1]["spec"]["devices"]:
        device["allowMultipleAllocations"] = device["name"] == "gpu-5"
    return [
        *shareable,
        _held("training", name(0, "3g.40gb", 0)),
        _held("small-a", name(0, "1g.10gb", 4)),
        _held("small-b", name(0, "1g.10gb", 6), name(1, "1g.10gb", 0)),
        held("big", "gpu-2", node="hopper", pods=("llm-0", "llm-1")),
        *(_held(f"notebook-{i}", name(3, of, i)) for i, of in NOTEBOOKS),
        held("reserved", name(4, "4g.40gb", 0), node="hopper"),
        _held("monitor", {"device": "gpu-4", "adminAccess": True}),
        _held("share-1", share("gpu-5", 1, "10Gi")),
        _held("share-2", share("gpu-5", 2, "20Gi")),
        pod("training"),
        pod("small-a", "Pending"),
        *(pod(f"notebook-{i}") for i, _ in NOTEBOOKS),
    ]


def mixed() -> list[Json]:
    """A node with T4s, of which one is lost, and an A100 with instances that stay."""
    lost = whole("mixed", 1, model=T4)
    lost["taints"] = [
        {
            "key": "gpu.nvidia.com/gpu-lost",
            "effect": "NoSchedule",
            "timeAdded": "2026-11-28T10:00:00Z",
        }
    ]
    instances = [("3g.20gb", 0), ("1g.5gb", 5), ("1g.5gb", 6)]
    return [
        *published(
            "mixed",
            whole("mixed", 0, model=T4),
            lost,
            *(instance("mixed", 2, of, start, model=A100) for of, start in instances),
        ),
        held("infer", "gpu-0", node="mixed", pods=("infer",)),
        held("tiny", name(2, "1g.5gb", 5, model=A100), node="mixed", pods=("tiny",)),
    ]


def _held(pod_name: str, *devices: str | Json) -> Json:
    return held(f"{pod_name}-gpu-x7k2q", *devices, node="hopper", pods=(pod_name,))
