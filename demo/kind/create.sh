#!/bin/sh
# Make a kind cluster of one control plane and two workers, or one, for the demos. See README.md.
set -eu
HERE=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
# shellcheck source=demo/kind/lib.sh
. "$HERE/lib.sh"

# What partitions and shares need is on by default from 1.36 on; an API server does not start with a
# gate that it does not know.
gates() {
    case $KUBERNETES_VERSION in
    1.34.* | 1.35.*)
        echo "featureGates:"
        echo "  DRAPartitionableDevices: true"
        echo "  DRAConsumableCapacity: true"
        ;;
    1.3[6-9].* | 1.[4-9][0-9].*) ;;
    *) fail "KUBERNETES_VERSION=$KUBERNETES_VERSION: the demos need 1.34 or newer, written as 1.36.1" ;;
    esac
}

config() {
    cat <<YAML
apiVersion: kind.x-k8s.io/v1alpha4
kind: Cluster
name: $CLUSTER
$feature_gates
# How devices get into containers. With version 3 of its config containerd has CDI on by default.
containerdConfigPatches:
- |
  version = 2
  [plugins."io.containerd.grpc.v1.cri"]
    enable_cdi = true
nodes:
- role: control-plane
- role: worker
  labels:
    demo.dra-driver/gpus: "true"
    demo.dra-driver/first: "true"
$(real_gpus)
$(second_worker)
YAML
}

second_worker() {
    [ "$WORKERS" = 1 ] || cat <<YAML
- role: worker
$(simulated_gpus)
YAML
}

# NVIDIA's container runtime takes this mount for "all GPUs". One worker has them: two would hand
# out the same ones.
real_gpus() {
    [ "$GPUS" = simulated ] || cat <<YAML
  extraMounts:
  - hostPath: /dev/null
    containerPath: /var/run/nvidia-container-devices/all
YAML
}

simulated_gpus() {
    [ "$GPUS" = real ] || cat <<YAML
  labels:
    demo.dra-driver/gpus: "true"
YAML
}

check_real_gpus() {
    if [ "$GPUS" = simulated ] || is_dry; then return; fi
    [ "$ENGINE" = docker ] || fail "GPUS=real needs docker, and $ENGINE is used; set CONTAINER_ENGINE=docker"
    nvidia-smi -L || fail "GPUS=real: nvidia-smi shows no GPU on this machine; use GPUS=simulated"
    runtime=$(docker info --format '{{.DefaultRuntime}}')
    [ "$runtime" = nvidia ] ||
        fail "GPUS=real: the default runtime of docker is $runtime, and has to be nvidia; see README.md"
}

# What is masked would hide the MIG instances that are made later.
unmask_real_gpus() {
    [ "$GPUS" = real ] || return 0
    say "Unmasking /proc/driver/nvidia in the worker with the GPUs"
    change "$ENGINE" exec "$CLUSTER-worker" sh -c \
        'if mountpoint -q /proc/driver/nvidia; then umount -R /proc/driver/nvidia; fi'
}

check_cdi() {
    if is_dry; then return; fi
    second=
    [ "$WORKERS" = 1 ] || second=$CLUSTER-worker2
    for node in "$CLUSTER-worker" $second; do
        settings=$("$ENGINE" exec "$node" containerd config dump)
        case $settings in
        *'enable_cdi = false'*)
            fail "containerd of node $node has CDI switched off; take another node image (KIND_NODE_IMAGE)"
            ;;
        esac
    done
    say "CDI is switched on in all workers"
}

check_programs
feature_gates=$(gates)
made=$(config)
check_real_gpus

if ! is_dry && is_cluster_there; then
    say "The cluster $CLUSTER is there"
    if [ -f "$STATE/cluster.yaml" ] && ! printf '%s\n' "$made" | cmp -s - "$STATE/cluster.yaml"; then
        fail "it was made with another config ($STATE/cluster.yaml); first remove it with demo/kind/delete.sh"
    fi
    change kind export kubeconfig --name "$CLUSTER" --kubeconfig "$KUBECONFIG_FILE"
else
    say "Making the cluster $CLUSTER with Kubernetes $KUBERNETES_VERSION"
    change mkdir -p "$STATE"
    # Of an earlier cluster.
    change rm -f "$STATE/method"
    printf '%s\n' "$made" | write "$STATE/cluster.yaml"
    change kind create cluster --name "$CLUSTER" --config "$STATE/cluster.yaml" \
        --kubeconfig "$KUBECONFIG_FILE" --wait "${WAIT_SECONDS}s" \
        --image "${KIND_NODE_IMAGE:-kindest/node:v$KUBERNETES_VERSION}"
fi
check_cdi
unmask_real_gpus
say "To look around: export KUBECONFIG=$KUBECONFIG_FILE"
