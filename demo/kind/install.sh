#!/bin/sh
# Build the images, load them into the cluster, and install the driver. See README.md.
set -eu
HERE=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
# shellcheck source=demo/kind/lib.sh
. "$HERE/lib.sh"

# An archive is what kind loads from docker and from podman alike: load NAME
load() {
    archive=$STATE/$(printf %s "$1" | tr '/:' '--').tar
    say "Loading $1 into the nodes"
    change rm -f "$archive"
    change "$ENGINE" save --output "$archive" "$1"
    change kind load image-archive "$archive" --name "$CLUSTER"
    change rm -f "$archive"
}

check_programs
check_cluster
need make "the packages of your distribution"

say "Fetching the Python packages of the image"
change make -C "$ROOT" wheels
say "Building $IMAGE with $ENGINE"
# kind takes images without attestations.
BUILDX_NO_DEFAULT_ATTESTATIONS=1
export BUILDX_NO_DEFAULT_ATTESTATIONS
change "$ENGINE" build --file "$ROOT/deploy/Dockerfile" --tag "$IMAGE" "$ROOT"
load "$IMAGE"
if [ "$GPUS" = simulated ]; then
    say "Building $POD_IMAGE, what the pods of the demos run"
    change "$ENGINE" build --file "$HERE/Dockerfile" --tag "$POD_IMAGE" "$HERE"
    load "$POD_IMAGE"
fi

was_there=no
if ! is_dry && k -n "$NAMESPACE" get daemonset "$DAEMON_SET" >/dev/null 2>&1; then was_there=yes; fi
deploy_driver "a100-40gb-sxm4:2,h100-80gb-hbm3:2,t4:2,v100-16gb-sxm2:2" all off dynamic
if [ "$was_there" = yes ]; then
    say "Restarting the driver, whose image may be another one under the same name"
    change_k -n "$NAMESPACE" rollout restart "daemonset/$DAEMON_SET"
    change_k -n "$NAMESPACE" rollout status "daemonset/$DAEMON_SET" --timeout "${WAIT_SECONDS}s"
fi
