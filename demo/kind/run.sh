#!/bin/sh
# Run demos one after the other, and print what became of their pods. See README.md.
#   run.sh [MANIFEST...]   default: all of demo/quickstart, demo/mig and demo/sharing
#   run.sh --list          only show with which settings of the driver each is run
# The exit status is 0 only if each pod became what its annotation demo.dra-driver/expect says.
set -eu
HERE=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
# shellcheck source=demo/kind/lib.sh
. "$HERE/lib.sh"

DEMOS=$STATE/demos
# Pods that end by themselves do so after this time: later than all pods of their step have started.
END_SECONDS=${END_SECONDS:-20}

# Workers with GPUs, the GPUs of each, shares and MIG mode, as the READMEs of the demos have them.
settings_of() {
    case $1 in
    */quickstart/*) echo "all a100-40gb-sxm4:2,h100-80gb-hbm3:2,t4:2,v100-16gb-sxm2:2 off dynamic" ;;
    */mig/3-* | */mig/4-* | */sharing/6-*) echo "one h100-80gb-hbm3:2 off dynamic" ;;
    */sharing/4-*) echo "one h100-80gb-hbm3:1 memory dynamic" ;;
    */sharing/5-*) echo "one h100-80gb-hbm3:1 memory off" ;;
    */mig/* | */sharing/*) echo "one h100-80gb-hbm3:1 off dynamic" ;;
    *) fail "$1: only manifests of demo/quickstart, demo/mig and demo/sharing are run" ;;
    esac
}

# Demos by settings, as each change of these takes half a minute: SETTINGS MANIFEST
plan() {
    # Not in a pipe, where a refusal would end one part of it alone.
    planned=
    for manifest; do
        [ -f "$manifest" ] || fail "$manifest: no such file"
        path=$(CDPATH='' cd -- "$(dirname -- "$manifest")" && pwd)/$(basename -- "$manifest")
        settings=$(settings_of "$path") || exit 1
        planned="$planned$settings $path
"
    done
    printf %s "$planned" | LC_ALL=C sort
}

# A manifest as it is run here: with an image that the nodes have, and with later ends.
rendered() {
    if [ "$GPUS" = real ]; then
        sed "s/sleep 4\"/sleep $END_SECONDS\"/" "$1"
    else
        sed -e "s#image: nvidia/cuda:.*#image: $POD_IMAGE#" -e "s/sleep 4\"/sleep $END_SECONDS\"/" "$1"
    fi
}

# The objects of one step, from standard input: step_of NUMBER
step_of() {
    awk -v wanted="$1" '
        function flush() { if (step == wanted && text ~ /kind:/) printf "---\n%s", text; text = ""; step = 1 }
        BEGIN { step = 1 }
        /^---/ { flush(); next }
        $1 == "demo.dra-driver/step:" { step = $2; gsub(/"/, "", step) }
        { text = text $0 "\n" }
        END { flush() }'
}

namespaces_of() { awk '$1 == "namespace:" { print $2 }' "$1" | sort -u; }

# Pods end at once, so that their claims are unprepared before the namespace goes.
clean() {
    for namespace in $1; do
        if is_dry || k get namespace "$namespace" >/dev/null 2>&1; then
            change_k -n "$namespace" delete pods --all --grace-period=1 --timeout "${WAIT_SECONDS}s" --ignore-not-found
            change_k delete namespace "$namespace" --timeout "${WAIT_SECONDS}s" --ignore-not-found
        fi
    done
}

# What pods are now, a line each: NAMESPACE|NAME|EXPECTED|BECAME|NODE|yes or no: as expected
# $DEMOS/waited and $DEMOS/ran remember what was seen of pods, by namespace and name.
look() {
    for namespace in $1; do
        failed_scheduling "$namespace" >>"$DEMOS/waited"
        k -n "$namespace" get events --field-selector reason=FailedPrepareDynamicResources -o jsonpath='{range .items[*]}{.involvedObject.name}{"|"}{.message}{"\n"}{end}' |
            awk -F'|' -v ns="$namespace" '/NodePrepareResources failed/ { print ns "/" $1 }' >"$DEMOS/refused"
        k -n "$namespace" get pods -o jsonpath='{range .items[*]}{.metadata.namespace}{"|"}{.metadata.name}{"|"}{.metadata.annotations.demo\.dra-driver/expect}{"|"}{.status.phase}{"|"}{.spec.nodeName}{"|"}{.status.conditions[?(@.type=="PodScheduled")].reason}{"\n"}{end}' |
            judge
    done
}

failed_scheduling() {
    k -n "$1" get events --field-selector reason=FailedScheduling -o jsonpath='{range .items[*]}{.involvedObject.namespace}{"/"}{.involvedObject.name}{"\n"}{end}'
}

judge() {
    awk -F'|' -v OFS='|' -v waited="$DEMOS/waited" -v refused="$DEMOS/refused" -v ran="$DEMOS/ran" '
        BEGIN {
            while ((getline line <waited) > 0) has_waited[line] = 1
            while ((getline line <refused) > 0) is_refused[line] = 1
        }
        NF {
            name = $1 "/" $2; expected = $3 == "" ? "Running" : $3; became = $4
            runs = became == "Running" || became == "Succeeded"
            if (became == "Pending" && $6 == "Unschedulable") { became = $6; print name >>waited }
            if (became == "Pending" && $5 != "" && is_refused[name]) became = "Refused"
            ok = "no"
            if (expected == "Running") ok = runs ? "yes" : "no"
            else if (expected == "Unschedulable" || expected == "Refused") ok = became == expected ? "yes" : "no"
            else if (expected == "Unschedulable, then Running") {
                ok = runs && has_waited[name] ? "yes" : "no"
                if (runs && has_waited[name]) became = became " (was Unschedulable)"
            } else became = "what nobody can expect: " expected
            if (runs) print name >>ran
            print $1, $2, expected, became, $5 == "" ? "-" : $5, ok
        }'
}

# Whether all pods are ready for the next step: as expected, or have run.
have_run() {
    awk -F'|' -v ran="$DEMOS/ran" '
        BEGIN { while ((getline line <ran) > 0) has_run[line] = 1 }
        $6 != "yes" && !has_run[$1 "/" $2] { bad = 1 }
        END { exit bad || !NR }' "$DEMOS/pods"
}

as_expected() { awk -F'|' '$6 != "yes" { bad = 1 } END { exit bad || !NR }' "$DEMOS/pods"; }

# Wait until pods are as they should be at two looks: settle NAMESPACES as_expected|have_run
settle() {
    left=$WAIT_SECONDS
    good=0
    while :; do
        look "$1" >"$DEMOS/pods"
        if "$2"; then good=$((good + 1)); else good=0; fi
        # For the next step there is no time to lose: those pods end.
        if [ "$good" -ge 2 ] || { [ "$good" -eq 1 ] && [ "$2" = have_run ]; }; then return 0; fi
        [ "$left" -gt 0 ] || return 1
        sleep "$LOOK_SECONDS"
        left=$((left - LOOK_SECONDS))
    done
}

# What nvidia-smi -L printed in the containers of a pod, as a list of models and MIG profiles.
seen() {
    k -n "$1" logs "$2" --all-containers 2>/dev/null | awk '
        /^GPU [0-9]+: .*UUID: GPU-/ { if (gpu != "") add(gpu); gpu = $0; sub(/^GPU [0-9]+: /, "", gpu); sub(/ \(UUID.*/, "", gpu) }
        /^ +MIG .*UUID: MIG-/ { add($2 " of " gpu_name()); gpu = "" }
        function gpu_name() { if (gpu != "") last = gpu; return last }
        function add(what) { list = list (list == "" ? "" : ", ") what }
        END { if (gpu != "") add(gpu); print list }'
}

# Rows of the table; a pod that runs without seeing a GPU is not what it should be.
report() {
    while IFS='|' read -r namespace name expected became node ok; do
        devices=-
        case $became in
        Running* | Succeeded*)
            devices=$(seen "$namespace" "$name")
            if [ -z "$devices" ]; then
                devices="no GPU in its log"
                ok=no
            fi
            ;;
        esac
        printf '%s|%s|%s|%s|%s|%s\n' "$namespace/$name" "$expected" "$became" "$node" "$devices" "$ok"
    done <"$DEMOS/pods" >>"$DEMOS/table"
}

play() {
    say "Running ${1#"$ROOT"/}"
    file=$DEMOS/$(basename -- "$(dirname -- "$1")")-$(basename -- "$1")
    namespaces=$(namespaces_of "$1")
    clean "$namespaces"
    change rm -f "$DEMOS/waited" "$DEMOS/ran" "$DEMOS/refused"
    is_dry || : >"$DEMOS/waited"
    number=1
    objects=$(rendered "$1" | step_of 1)
    while [ -n "$objects" ]; do
        printf '%s\n' "$objects" | write "$file" | sed '2,$d'
        change_k apply -f "$file"
        number=$((number + 1))
        objects=$(rendered "$1" | step_of "$number")
        if is_dry; then
            echo "(would wait for the pods)"
        elif [ -n "$objects" ]; then
            settle "$namespaces" have_run || break
        else
            settle "$namespaces" as_expected || :
        fi
    done
    is_dry || report
    clean "$namespaces"
}

print_table() {
    [ -s "$DEMOS/table" ] || fail "no pod was there to look at"
    echo
    { echo "POD|EXPECTED|BECAME|NODE|SEES|"; cat "$DEMOS/table"; } | awk -F'|' '
        { for (i = 1; i <= 5; i++) { cell[NR, i] = $i; if (length($i) > width[i]) width[i] = length($i) }
          bad[NR] = $6 == "no"; wrong += bad[NR] }
        END {
            for (row = 1; row <= NR; row++) {
                line = bad[row] ? "! " : "  "
                for (i = 1; i <= 4; i++) line = line sprintf("%-" width[i] + 2 "s", cell[row, i])
                print line cell[row, 5]
            }
            printf "\n%d of %d pods are as expected.\n", NR - 1 - wrong, NR - 1
            exit wrong > 0
        }'
}

list_only=no
if [ "${1-}" = --list ]; then
    list_only=yes
    shift
fi
if [ "$#" -eq 0 ]; then
    [ "$GPUS" = simulated ] || fail "GPUS=real: name the manifests that the cards of this machine can meet"
    set -- "$ROOT"/demo/quickstart/*.yaml "$ROOT"/demo/mig/*.yaml "$ROOT"/demo/sharing/*.yaml
fi
todo=$(plan "$@")
if [ "$list_only" = yes ]; then
    printf '%s\n' "$todo" | sed "s#$ROOT/##"
    exit
fi

seconds END_SECONDS "$END_SECONDS"
check_programs
check_cluster
change mkdir -p "$DEMOS"
change rm -f "$DEMOS/table"
before=
while read -r workers gpus shares mig_mode manifest; do
    if [ "$before" != "$workers $gpus $shares $mig_mode" ]; then
        deploy_driver "$gpus" "$workers" "$shares" "$mig_mode" </dev/null
        before="$workers $gpus $shares $mig_mode"
    fi
    play "$manifest" </dev/null
done <<LIST
$todo
LIST
is_dry || print_table
