#!/bin/sh
# Run the end-to-end cases of docs/e2e.md in the cluster. See README.md.
#   e2e.sh [FLAG...]   flags of tests/e2e/run.py, for example: e2e.sh -- -k faults
set -eu
HERE=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
# shellcheck source=demo/kind/lib.sh
. "$HERE/lib.sh"

# The cases install their own, with other settings.
uninstall() {
    if ! is_dry && ! k -n "$NAMESPACE" get daemonset "$DAEMON_SET" >/dev/null 2>&1; then return; fi
    say "Removing the driver that install.sh has installed"
    if [ "$(install_method)" = helm ]; then
        change helm uninstall dra-driver --kubeconfig "$KUBECONFIG_FILE" \
            --kube-context "kind-$CLUSTER" --namespace "$NAMESPACE" --wait
    else
        change_k delete -k "$STATE/manifests" --ignore-not-found --timeout "${WAIT_SECONDS}s"
    fi
}

check_programs
[ "$GPUS" = simulated ] || fail "GPUS=$GPUS: the end-to-end cases simulate their GPUs; leave it out"
seconds WAIT_SECONDS "$WAIT_SECONDS"
check_cluster
need make "the packages of your distribution"
uninstall
flags="--kubeconfig $KUBECONFIG_FILE --label demo.dra-driver/gpus --image $IMAGE"
change make -C "$ROOT" e2e "E2E=$flags --pod-image $POD_IMAGE --seconds $WAIT_SECONDS $*"
