#!/bin/sh
# Record a model of two checkouts, on this machine's CPU and for a GPU that is not here, and compare them.
#   gate.sh BASE HEAD MODEL.py       BASE and HEAD are folders; MODEL.py is a path in both
# $TARGETS: where to record, "cpu" or a GPU of `fusionscope record --target` (default: "cpu H100").
# $POLICY: the budgets (default: policy.toml beside this script). $REPORTS: where reports go (default: ./reports).
set -u
base=$1 head=$2 model=$3
here=$(cd "$(dirname "$0")" && pwd)
policy=${POLICY:-$here/policy.toml} reports=${REPORTS:-reports}
mkdir -p "$reports"
export FUSIONSCOPE_STORE="$(cd "$reports" && pwd)/store"  # absolute: recording changes the folder

record() {  # NAME FOLDER TARGET: no measuring, since a shared machine's times say nothing of a change
    case $3 in cpu) where=--no-measure ;; *) where="--no-measure --target $3" ;; esac
    (cd "$2" && fusionscope record "$model" --name "$1" $where) || exit 2
}

outcome=0
for target in ${TARGETS:-cpu H100}; do
    record "base-$target" "$base" "$target"
    record "head-$target" "$head" "$target"
    fusionscope diff "base-$target" "head-$target" --policy "$policy" \
        --markdown "$reports/$target.md" --junit "$reports/$target.xml" --html "$reports/$target.html"
    code=$?
    [ "$code" -gt "$outcome" ] && outcome=$code
done
exit "$outcome"
