"""What a claim's status tells of the devices that it has: whole GPUs, partitions and shares."""

import api_cluster
import sharing_claims

GPUS = "h100-80gb-hbm3:2"
PARTITION = "gpu-1-mig-1g10gb-19-0"


def data(cluster, ref):
    """`data` of each device of a claim, by its name, once it is told of all of them."""

    def told():
        return (cluster.get_claim(ref).get("status") or {}).get("devices") or ()

    api_cluster.wait_for(lambda: told() or None, lambda: f"devices of {ref} to be told of")
    return {entry["device"]: entry["data"] for entry in told()}


def attributes(cluster, name):
    """The attributes that a device has in the slices, once it is there."""

    def found():
        return [
            device["attributes"]
            for piece in cluster.slices()
            for device in piece["spec"].get("devices") or ()
            if device["name"] == name
        ]

    return api_cluster.wait_for(found, f"a slice with {name}")[0]


def card(published):
    """What is told of the card of a device, as its slice has it."""
    return {
        "schemaVersion": {"version": "1.0.0"},
        "productName": {"string": "NVIDIA H100 80GB HBM3"},
        "driverVersion": published["driverVersion"],
        "pciBusID": published["resource.kubernetes.io/pciBusID"],
    }


def test_whole_gpus_and_partitions_are_told_with_the_identity_of_their_card(
    own_plugin, own_cluster
):
    plugin = own_plugin(mig_mode="dynamic", gpus=GPUS).start()
    ref = own_cluster.claim("gpu-0", PARTITION)
    plugin.kubelet.prepare(ref)

    found = data(own_cluster, ref)

    whole, partition = attributes(own_cluster, "gpu-0"), attributes(own_cluster, PARTITION)
    assert found["gpu-0"] == card(whole) | {"type": {"string": "gpu"}, "uuid": whole["uuid"]}
    uuid = found[PARTITION].pop("uuid")["string"]
    assert uuid.startswith("MIG-")
    assert found[PARTITION] == card(partition) | {
        "type": {"string": "mig"},
        "parentUUID": partition["parentUUID"],
        "profile": {"string": "1g.10gb"},
        "placement": {"string": "0:1"},
        "gpuInstanceId": {"int": found[PARTITION]["gpuInstanceId"]["int"]},
        "computeInstanceId": {"int": 0},
    }


def test_a_share_is_told_with_what_it_holds_and_forgotten_when_it_is_given_back(
    own_plugin, own_cluster
):
    plugin = own_plugin(
        shares="memory", share_enforcement="None", mig_mode="off", gpus=GPUS
    ).start()
    share = sharing_claims.share("gpu-0", memory=10, cores=25, decoders=0)
    ref = own_cluster.claim(share | {"request": "gpu"})
    plugin.kubelet.prepare(ref)

    whole = attributes(own_cluster, "gpu-0")
    assert data(own_cluster, ref)["gpu-0"] == card(whole) | {
        "type": {"string": "gpu"},
        "uuid": whole["uuid"],
        "memory": {"value": "10Gi"},
        "cores": {"value": "25"},
    }
    managers = [
        (one["operation"], one.get("subresource"))
        for one in own_cluster.get_claim(ref)["metadata"]["managedFields"]
        if one["manager"] == api_cluster.DRIVER
    ]
    assert managers == [("Apply", "status")]

    plugin.kubelet.unprepare(ref)
    api_cluster.wait_for(
        lambda: not (own_cluster.get_claim(ref)["status"].get("devices")),
        lambda: f"no devices in {own_cluster.get_claim(ref)['status']}",
    )
