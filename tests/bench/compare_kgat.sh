#!/usr/bin/env bash
# KGAT against PyTorch on prepared graphs: the ratio for each job. Both sides alternate over several rounds on the same
# cores. Prints a Markdown table and writes it to $BUILD/bench/kgat.md.
#
#   tests/bench/compare_kgat.sh [GRAPH.h5 ...]     default: a generated graph
#
# Variables besides those of common.sh: LOCKSTEP_BENCH_JOBS (cf kg attention evaluation); LOCKSTEP_BENCH_CLOCK =
# processor measures both sides in processor time, with one core: for machines with other work.
. "$(dirname "$0")/common.sh"
ROUNDS=${LOCKSTEP_BENCH_ROUNDS:-3} SECONDS_EACH=${LOCKSTEP_BENCH_SECONDS:-2} JOBS=${LOCKSTEP_BENCH_JOBS:-cf kg attention evaluation}
CLOCK=${LOCKSTEP_BENCH_CLOCK:-wall}
BENCH=$(program bench_kgat)
case $CLOCK in wall) ours=seconds clock= ;; *) ours=processor_seconds clock=--processor-time ;; esac
GRAPHS=()
for graph in "$@"; do GRAPHS+=("$(path "$graph")"); done
if [ $# = 0 ]; then
  GRAPHS=("$work/generated.h5")
  "$BUILD/bin/lockstep-prep" synth-kg --output "$work/generated.h5" >&2
fi
goal() { # GRAPH JOB
  case $1.$2 in
    kgat-ml1m.cf) echo 4 ;; kgat-ml1m.kg) echo 6 ;; kgat-ml1m.attention) echo 10 ;; kgat-ml1m.evaluation) echo 5 ;;
    *sized.cf) echo 10 ;; *sized.kg) echo 6 ;; *sized.*) echo 5 ;; *) echo - ;;
  esac
}
ms() { cells %.1f 1e3 <"$1"; }
of_job() { grep "\"job\": \"$1\""; }  # the line about one job
{
machine measure
echo "$ROUNDS alternating rounds of $SECONDS_EACH s, $CLOCK time."
table_head "| graph | job | lockstep, ms | PyTorch: variant | ms | ratio, median (rounds) |"
for data in "${GRAPHS[@]}"; do
  graph=$(basename "$data" .h5)
  for round in $(seq "$ROUNDS"); do
    "$BENCH" --data "$data" --jobs "${JOBS// /,}" --threads "$CORES" --seconds "$SECONDS_EACH" >"$work/out"
    for job in $JOBS; do of_job "$job" <"$work/out" | number "$ours" >>"$work/ours.$job"; done
    [ $compare = yes ] || continue
    peer kgat_peer.py --bench "${JOBS// /,}" --data "$data" --threads "$CORES" --seconds "$SECONDS_EACH" $clock >"$work/out"
    for job in $JOBS; do
      of_job "$job" <"$work/out" | number seconds >>"$work/peer.$job"
      of_job "$job" <"$work/out" | text best_variant >"$work/variant.$job"
    done
  done
  for job in $JOBS; do
    if [ $compare = yes ]; then
      echo "| $graph | $job | $(ms "$work/ours.$job") | $(cat "$work/variant.$job") | $(ms "$work/peer.$job") | $(ratio kgat "$graph, $job" "$(goal "$graph" "$job")" "$work/peer.$job" "$work/ours.$job") |"
    else
      echo "| $graph | $job | $(ms "$work/ours.$job") | not measured | | |"
    fi
  done
  rm -f "$work"/{ours,peer,variant}.*
  for storage in fp32 bf16; do
    "$BENCH" --data "$data" --jobs spmm --threads "$CORES" --seconds "$SECONDS_EACH" --storage $storage >"$work/spmm"
    echo "| $graph | sparse product of 64 columns, $storage | $(number seconds <"$work/spmm" | awk '{printf "%.1f", 1e3 * $1}') | $(number per_s <"$work/spmm" | awk '{printf "%.1f GB/s", $1 / 1e9}') | STREAM $(number stream_bytes_per_s <"$work/spmm" | awk '{printf "%.1f GB/s", $1 / 1e9}') | $(number of_stream <"$work/spmm" | awk '{printf "**%.0f %%** of it", 100 * $1}') |"
  done
  for mode in replicate nested-rows "nested-rows --row-threshold 0"; do
    [ "$CORES" -gt 1 ] || continue
    for round in $(seq "$ROUNDS"); do
      $MPIRUN -n "$CORES" "$BENCH" --data "$data" --jobs cf --threads 1 --mode $mode --seconds "$SECONDS_EACH" | number seconds >>"$work/mode.${mode// /}"
    done
    echo "| $graph | cf, $CORES ranks of one thread, $mode | $(ms "$work/mode.${mode// /}") | | | $(paste "$work/mode.replicate" "$work/mode.${mode// /}" | awk '{print $1 / $2}' | spread | awk '{printf "%.2f of replicate", $1}') |"
  done
  rm -f "$work"/mode.*
done
} | tee "$out/kgat.md"
