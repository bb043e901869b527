# Library of the tests that run the real programs: `source lib.sh BIN_DIR`. A test is a script that ends with `passed`.
# The first failure prints the command, the expected and the actual result, and ends the test.
set -uo pipefail
BIN=$1
tree=$(cd "$(dirname "${BASH_SOURCE[0]}")/../../.." && pwd)  # the source tree
LOCKSTEP=$BIN/lockstep PREP=$BIN/lockstep-prep
MPIRUN=${MPIRUN:-mpirun --allow-run-as-root --oversubscribe --bind-to none}
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1} OMPI_MCA_mpi_yield_when_idle=1 OMPI_MCA_rmaps_base_oversubscribe=1 PRTE_MCA_rmaps_default_mapping_policy=:OVERSUBSCRIBE
unset DISPLAY
work=$(mktemp -d)
cd "$work" || exit 1
trap 'code=$?; cd /; [ -n "${KEEP_WORK:-}" ] && echo "kept $work" || rm -rf "$work"; exit $code' EXIT

fail() { echo "FAILED: $*" >&2; [ -f last.out ] && { echo "--- output of the last command:"; tail -n 40 last.out last.err; } >&2; exit 1; }
# needs TOOL PACKAGE: skips the test where the tool is missing
needs() { command -v "$1" >/dev/null || { echo "skipped: no $1 ($2)"; exit 77; }; }
# not_run WHAT: a part of the test cannot run here. `passed` then reports the test as skipped.
not_run() { missing=${missing:+$missing; }$*; }
passed() { [ -z "${missing:-}" ] || { echo "skipped: $missing; the other checks passed"; exit 77; }; echo "passed: $*"; exit 0; }
# run CODE [on RANKS] COMMAND...: the exit code must be CODE; last.out and last.err get the output. 1 rank: no mpirun.
run() {
  local want=$1 code=0; shift
  if [ "$1" = on ]; then
    if [ "$2" = 1 ]; then shift 2; else local n=$2; shift 2; set -- $MPIRUN -n "$n" "$@"; fi
  fi
  timeout -k 5 "${LIMIT:-120}" "$@" >last.out 2>last.err || code=$?
  [ "$code" = "$want" ] || fail "exit code $code instead of $want: $*"
}
ok() { run 0 "$@"; }
# says TEXT...: the last output contains each text (an extended regular expression)
says() { for t in "$@"; do grep -qE -- "$t" last.out last.err || fail "no '$t' in the output"; done; }
# says_once TEXT: exactly one line contains it, for any number of ranks
says_once() { local n; n=$(cat last.out last.err | grep -cE -- "$1"); [ "$n" = 1 ] || fail "$n lines with '$1' instead of one"; }
# await JOB LOG WHAT COMMAND...: waits until the command succeeds. The job, which writes to LOG, must not end before.
await() {
  local job=$1 log=$2 what=$3; shift 3
  for _ in $(seq 6000); do
    "$@" >/dev/null 2>&1 && return
    kill -0 "$job" 2>/dev/null || { wait "$job"; fail "the job ended with $? before $what: $(tail -n 3 "$log")"; }
    sleep 0.01
  done
  fail "no $what after a minute: $(tail -n 3 "$log")"
}
exists() { for f in "$@"; do [ -s "$f" ] || fail "$f is missing or empty"; done; }
same_model() { h5diff "$1" "$2" /model >diff.out 2>&1 || { head -5 diff.out >&2; fail "/model differs: $1 $2"; }; }
differing_model() { h5diff -q "$1" "$2" /model >/dev/null 2>&1; [ $? = 1 ] || fail "/model does not differ: $1 $2"; }  # 2: an error
# close_model A B DELTA: the same arrays, and all weights within an absolute difference
close_model() {
  "$LOCKSTEP" checkpoint diff --under /model "$1" "$2" >diff.out 2>&1
  grep -qE 'datasets (are equal|differ)' diff.out || fail "no comparison of $1 and $2: $(cat diff.out)"
  ! grep -vE 'by at most|datasets (are equal|differ)' diff.out || fail "$1 and $2 are not alike"
  awk -v d="$3" 'match($0, /by at most [-+0-9.e]+/) {if (substr($0, RSTART + 11, RLENGTH - 11) + 0 > d + 0) {print; bad = 1}} END {exit bad}' diff.out ||
    fail "/model differs by more than $3: $1 $2"
}
# number KEY FILE: the first number under this key of a JSON file
number() { grep -oE "\"$1\": ?[-+0-9.eE]+" "$2" | head -1 | sed -E 's/.*: ?//'; }
below() { awk -v a="$1" -v b="$2" 'BEGIN {exit !(a != "" && a + 0 < b + 0)}' || fail "${3:-value} is '$1', expected below $2"; }
