#!/usr/bin/env bash
# KGAT against PyTorch on prepared graphs: the ratio for each job. Both sides alternate over several rounds on the same
# cores.
#
#   LOCKSTEP_PYTHON=python3 tests/bench/compare_kgat.sh kgat-ml1m.h5 [amazon-book-sized.h5 ...]
#
# Variables: BUILD, CORES, ROUNDS, SECONDS_EACH, JOBS; LOCKSTEP_PEER_PRELOAD as in compare_emulator.sh.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
BUILD=${BUILD:-$here/../../build} CORES=${CORES:-$(nproc)} ROUNDS=${ROUNDS:-3} SECONDS_EACH=${SECONDS_EACH:-2}
JOBS=${JOBS:-cf kg attention evaluation}
PYTHON=${LOCKSTEP_PYTHON:-} PEER=$here/../peers/kgat_peer.py BENCH=$BUILD/bin/bench_kgat
MPIRUN=${MPIRUN:-mpirun --allow-run-as-root --oversubscribe --bind-to none}
[ $# -gt 0 ] || { echo "usage: compare_kgat.sh GRAPH.h5 ..." >&2; exit 2; }
[ -x "$BENCH" ] || { echo "compare_kgat: $BENCH does not exist; configure with -DLOCKSTEP_BENCH=ON" >&2; exit 2; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
number() { grep -oE "\"$1\": ?[-+0-9.eE]+" | head -1 | sed -E 's/.*: ?//'; }
text() { grep -oE "\"$1\": ?\"[^\"]*\"" | head -1 | sed -E 's/.*: ?"(.*)"/\1/'; }
spread() { sort -g | awk '{v[NR] = $1} END {if (NR) {m = NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2; print m, v[1], v[NR]}}'; }
ms() { read -r m lo hi < <(spread <"$1"); awk -v m="$m" -v lo="$lo" -v hi="$hi" 'BEGIN {printf "%.1f (%.1f to %.1f)", 1e3 * m, 1e3 * lo, 1e3 * hi}'; }
of_job() { grep "\"job\": \"$1\""; }  # the line about one job
echo "Machine: $CORES x $(sed -n 's/^model name[^:]*: *//p' /proc/cpuinfo | head -1), load average $(cut -d' ' -f1 /proc/loadavg) at the start; $ROUNDS alternating rounds of $SECONDS_EACH s."
echo
echo "| graph | job | lockstep, ms | PyTorch: variant | ms | ratio, median (rounds) |"
echo "|---|---|---|---|---|---|"
for data in "$@"; do
  name=$(basename "$data" .h5)
  for round in $(seq "$ROUNDS"); do
    "$BENCH" --data "$data" --jobs "${JOBS// /,}" --threads "$CORES" --seconds "$SECONDS_EACH" >"$work/out" || exit 1
    for job in $JOBS; do of_job "$job" <"$work/out" | number seconds >>"$work/ours.$job"; done
    [ -n "$PYTHON" ] || continue
    LD_PRELOAD=${LOCKSTEP_PEER_PRELOAD:-} "$PYTHON" "$PEER" --bench "${JOBS// /,}" --data "$data" --threads "$CORES" --seconds "$SECONDS_EACH" >"$work/out" || exit 1
    for job in $JOBS; do
      of_job "$job" <"$work/out" | number seconds >>"$work/peer.$job"
      of_job "$job" <"$work/out" | text best_variant >"$work/variant.$job"
    done
  done
  for job in $JOBS; do
    if [ -n "$PYTHON" ]; then
      ratio=$(paste "$work/peer.$job" "$work/ours.$job" | awk '{print $1 / $2}' | spread | awk '{printf "**%.2f** (%.2f to %.2f)", $1, $2, $3}')
      echo "| $name | $job | $(ms "$work/ours.$job") | $(cat "$work/variant.$job") | $(ms "$work/peer.$job") | $ratio |"
    else
      echo "| $name | $job | $(ms "$work/ours.$job") | not measured | | |"
    fi
  done
  rm -f "$work"/{ours,peer,variant}.*
  for shape in "" --bf16; do
    "$BENCH" --data "$data" --jobs spmm --threads "$CORES" --seconds "$SECONDS_EACH" $shape >"$work/spmm"
    echo "| $name | sparse product of 64 columns${shape:+, bf16} | $(number seconds <"$work/spmm" | awk '{printf "%.1f", 1e3 * $1}') | $(number per_s <"$work/spmm" | awk '{printf "%.1f GB/s", $1 / 1e9}') | STREAM $(number stream_bytes_per_s <"$work/spmm" | awk '{printf "%.1f GB/s", $1 / 1e9}') | $(number of_stream <"$work/spmm" | awk '{printf "**%.0f %%** of it", 100 * $1}') |"
  done
  for mode in replicate nested-rows "nested-rows --row-threshold 0"; do
    [ "$CORES" -gt 1 ] || continue
    for round in $(seq "$ROUNDS"); do
      $MPIRUN -n "$CORES" "$BENCH" --data "$data" --jobs cf --threads 1 --mode $mode --seconds "$SECONDS_EACH" | number seconds >>"$work/mode.${mode// /}"
    done
    echo "| $name | cf, $CORES ranks of one thread, $mode | $(ms "$work/mode.${mode// /}") | | | $(paste "$work/mode.replicate" "$work/mode.${mode// /}" | awk '{print $1 / $2}' | spread | awk '{printf "%.2f of replicate", $1}') |"
  done
  rm -f "$work"/mode.*
done
