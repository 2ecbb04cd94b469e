# What the scripts of this directory have in common; they read it with `.` after setting HERE.
# shellcheck shell=sh disable=SC2034

ROOT=$(CDPATH='' cd -- "$HERE/../.." && pwd)
CLUSTER=dra-driver-demo
NAMESPACE=dra-driver
DAEMON_SET=dra-driver-kubelet-plugin
IMAGE=localhost/dra-driver:0.1.0
POD_IMAGE=localhost/dra-driver-demo:busybox

STATE=${STATE_DIR:-$ROOT/build/kind}
KUBECONFIG_FILE=$STATE/kubeconfig
DRY_RUN=${DRY_RUN:-0}
GPUS=${GPUS:-simulated}
WORKERS=${WORKERS:-2}
KUBERNETES_VERSION=${KUBERNETES_VERSION:-1.36.1}
WAIT_SECONDS=${WAIT_SECONDS:-180}
LOOK_SECONDS=${LOOK_SECONDS:-3}

say() { printf '==> %s\n' "$*"; }

fail() {
    printf '%s: %s\n' "$(basename -- "$0")" "$*" >&2
    exit 1
}

is_dry() { [ "$DRY_RUN" = 1 ]; }

# Run a command that changes something; only show it with DRY_RUN=1.
change() {
    if is_dry; then
        printf '+'
        for word; do
            case $word in
            '' | *[!A-Za-z0-9_./:=@%,+-]*) printf " '%s'" "$word" ;;
            *) printf ' %s' "$word" ;;
            esac
        done
        printf '\n'
    else
        "$@"
    fi
}

# Write standard input to a file; only show it with DRY_RUN=1.
write() {
    if is_dry; then
        printf '+ write %s\n' "$1"
        sed 's/^/    /'
    else
        mkdir -p "$(dirname -- "$1")"
        cat >"$1"
    fi
}

# need PROGRAM WHERE_IT_IS_FROM
need() {
    is_dry || command -v "$1" >/dev/null 2>&1 || fail "$1 is not installed; get it from $2"
}

# Sets ENGINE to docker or podman, and tells kind.
choose_engine() {
    ENGINE=
    there=
    for candidate in ${CONTAINER_ENGINE:-docker podman}; do
        command -v "$candidate" >/dev/null 2>&1 || continue
        there="$there $candidate"
        if is_dry || "$candidate" info >/dev/null 2>&1; then
            ENGINE=$candidate
            break
        fi
    done
    if is_dry; then
        ENGINE=${ENGINE:-docker}
    elif [ -z "$there" ]; then
        fail "neither docker nor podman is installed; get one from https://docs.docker.com or https://podman.io"
    elif [ -z "$ENGINE" ]; then
        fail "none of these works:$there; is its daemon started, and may you use it? Look at: ${there# } info"
    fi
    if [ "$ENGINE" = podman ]; then
        KIND_EXPERIMENTAL_PROVIDER=podman
        export KIND_EXPERIMENTAL_PROVIDER
    fi
}

# seconds NAME VALUE
seconds() {
    case $2 in
    '' | 0?* | *[!0-9]*) fail "$1=$2: write a whole number of seconds" ;;
    esac
}

check_programs() {
    seconds WAIT_SECONDS "$WAIT_SECONDS"
    seconds LOOK_SECONDS "$LOOK_SECONDS"
    case $WORKERS in
    1 | 2) ;;
    *) fail "WORKERS=$WORKERS: write 1 or 2" ;;
    esac
    case $GPUS in
    simulated | real) ;;
    *) fail "GPUS=$GPUS: write simulated or real" ;;
    esac
    need kind https://kind.sigs.k8s.io
    need kubectl https://kubernetes.io/docs/tasks/tools
    choose_engine
}

# kubectl and helm for this cluster: its own kubeconfig, and by name the context in it.
k() { kubectl --kubeconfig "$KUBECONFIG_FILE" --context "kind-$CLUSTER" "$@"; }
change_k() { change kubectl --kubeconfig "$KUBECONFIG_FILE" --context "kind-$CLUSTER" "$@"; }

is_cluster_there() { kind get clusters 2>/dev/null | grep -qx -- "$CLUSTER"; }

check_cluster() {
    if is_dry; then return; fi
    is_cluster_there || fail "there is no kind cluster $CLUSTER; make it with demo/kind/create.sh"
    [ -f "$KUBECONFIG_FILE" ] || kind export kubeconfig --name "$CLUSTER" --kubeconfig "$KUBECONFIG_FILE"
}

# Install the driver, or set it anew: deploy_driver GPUS_OF_A_NODE all|one SHARES MIG_MODE
# GPUS_OF_A_NODE is MODEL:COUNT,... of simulated ones; `all` workers have them, or `one`.
deploy_driver() {
    label=demo.dra-driver/gpus
    [ "$2" = all ] || label=demo.dra-driver/first
    if [ "$GPUS" = real ]; then
        say "Installing the driver for the GPUs of this machine, shares $3, MIG mode $4"
    else
        say "Installing the driver with $1 simulated on $2 of the workers, shares $3, MIG mode $4"
    fi
    change_k apply -f "$ROOT/deploy/manifests/0-namespace.yaml"
    if [ "$(install_method)" = helm ]; then
        values "$1" "$label" "$3" "$4" | write "$STATE/values.yaml"
        change helm upgrade --install dra-driver "$ROOT/deploy/helm/dra-driver" \
            --kubeconfig "$KUBECONFIG_FILE" --kube-context "kind-$CLUSTER" \
            --namespace "$NAMESPACE" --values "$STATE/values.yaml"
    else
        change rm -rf "$STATE/manifests"
        change mkdir -p "$STATE/manifests"
        change cp -R "$ROOT/deploy/manifests/." "$STATE/manifests"
        kustomization "$1" "$label" "$3" "$4" | write "$STATE/manifests/kustomization.yaml"
        change_k apply -k "$STATE/manifests"
    fi
    change_k -n "$NAMESPACE" rollout status "daemonset/$DAEMON_SET" --timeout "${WAIT_SECONDS}s"
    wait_devices "$1" "$2" "$3"
}

# helm or manifests. What has been installed with one cannot be changed with the other.
install_method() {
    if [ ! -f "$STATE/method" ]; then
        method=manifests
        if command -v helm >/dev/null 2>&1; then method=helm; fi
        if is_dry; then
            echo "$method"
            return
        fi
        mkdir -p "$STATE"
        echo "$method" >"$STATE/method"
    fi
    cat "$STATE/method"
}

# Values of the chart: values GPUS_OF_A_NODE LABEL_OF_ITS_NODES SHARES MIG_MODE
values() {
    echo "settings:"
    if [ "$GPUS" = simulated ]; then
        printf '  simulateGpus: "%s"\n' "$1"
    fi
    cat <<YAML
  shares: "$3"
  migMode: "$4"
kubeletPlugin:
  affinity: null
  nodeSelector:
    $2: "true"
# It would refuse the manifest whose pods show what the driver itself refuses.
webhook:
  enabled: false
YAML
}

# The same for the rendered manifests, in which the doctor, an init container, has the flags of the
# plugin too. The last of two flags counts.
kustomization() {
    echo "resources:"
    for file in "$ROOT"/deploy/manifests/*.yaml; do
        # As above.
        case $file in */webhook.yaml) ;; *) echo "- $(basename -- "$file")" ;; esac
    done
    cat <<YAML
patches:
- target: {kind: DaemonSet, name: $DAEMON_SET}
  patch: |
    - {op: remove, path: /spec/template/spec/affinity}
    - {op: add, path: /spec/template/spec/nodeSelector/$(printf %s "$2" | sed 's#/#~1#'), value: "true"}
YAML
    for container in initContainers/0 containers/0; do
        add_flag "$container" "--shares=$3"
        add_flag "$container" "--mig-mode=$4"
        [ "$GPUS" = real ] || add_flag "$container" "--simulate-gpus=$1"
    done
}

# An operation of a patch: add_flag CONTAINER FLAG
add_flag() {
    printf '    - {op: add, path: /spec/template/spec/%s/args/-, value: "%s"}\n' "$1" "$2"
}

# Wait until slices have the whole GPUs that they should have, and no others: the kubelet removes
# those of a node without plugin after 30 s.
wait_devices() {
    per_node=$(printf '%s\n' "$1" | tr ',' '\n' | awk -F: '{ n += $2 } END { print n }')
    want=$per_node
    [ "$2" = one ] || want=$((per_node * $(workers_with_gpus)))
    [ "$GPUS" = simulated ] || want=any
    if is_dry; then
        echo "(would wait for the slices of $want whole GPUs)"
        return
    fi
    left=$WAIT_SECONDS
    have=$(whole_gpus "$3")
    while ! is_enough "$have" "$want"; do
        [ "$left" -gt 0 ] ||
            fail "$have whole GPUs are published after $WAIT_SECONDS s, and not $want; look at: kubectl --kubeconfig $KUBECONFIG_FILE -n $NAMESPACE logs daemonset/$DAEMON_SET"
        sleep "$LOOK_SECONDS"
        left=$((left - LOOK_SECONDS))
        have=$(whole_gpus "$3")
    done
    say "$have whole GPUs are published"
}

# How many nodes have the driver, where all have it that have GPUs.
workers_with_gpus() {
    if is_dry; then
        echo "$WORKERS"
    else
        k get nodes -l demo.dra-driver/gpus=true -o name | awk 'END { print NR }'
    fi
}

# is_enough HAVE WANT|any
is_enough() { [ "$1" = "$2" ] || { [ "$2" = any ] && [ "$1" -gt 0 ]; }; }

# How many GPUs slices have; with shares only those that many claims may consume: whole_gpus SHARES
whole_gpus() {
    k get resourceslices --field-selector spec.driver=gpu.nvidia.com -o jsonpath='{range .items[*].spec.devices[*]}{.name}{"|"}{.allowMultipleAllocations}{"\n"}{end}' |
        awk -F'|' -v shares="$1" '
            $1 ~ /^gpu-[0-9]+$/ && (shares == "off") == ($2 != "true") { n++ }
            END { print n + 0 }'
}
