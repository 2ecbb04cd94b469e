#!/bin/sh
# Remove the cluster and what the scripts wrote. Images stay with docker or podman. See README.md.
set -eu
HERE=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
# shellcheck source=demo/kind/lib.sh
. "$HERE/lib.sh"

need kind https://kind.sigs.k8s.io
choose_engine
if is_dry || is_cluster_there; then
    say "Removing the cluster $CLUSTER"
    change kind delete cluster --name "$CLUSTER" --kubeconfig "$KUBECONFIG_FILE"
else
    say "There is no cluster $CLUSTER"
fi
say "Removing what was written to $STATE"
for name in kubeconfig kubeconfig.lock cluster.yaml values.yaml method manifests demos; do
    change rm -rf "${STATE:?}/$name"
done
# Others may have put something there.
is_dry || [ ! -d "$STATE" ] || rmdir "$STATE" 2>/dev/null || say "$STATE has more in it, and stays"
