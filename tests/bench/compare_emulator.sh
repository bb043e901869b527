#!/usr/bin/env bash
# The emulator against PyTorch on the same cores, in one run: training, prediction, Jacobians. Each side runs in its
# best shape of ranks x threads. Rounds alternate, so that other load on the machine affects both. Prints a Markdown
# table of ratios and writes it to $BUILD/bench/emulator.md.
#
#   tests/bench/compare_emulator.sh
#
# Variables besides those of common.sh: LOCKSTEP_BENCH_ROWS (360000), LOCKSTEP_BENCH_KEEP_TUNING (if set, PyTorch's best
# variants of the last run are read from $BUILD/bench/tune.* instead of timing all of them again),
# LOCKSTEP_BENCH_COMPILE (1; 0 leaves torch.compile out of the tuning).
set -euo pipefail
. "$(dirname "$0")/common.sh"
ROUNDS=${LOCKSTEP_BENCH_ROUNDS:-5} SECONDS_EACH=${LOCKSTEP_BENCH_SECONDS:-2} ROWS=${LOCKSTEP_BENCH_ROWS:-360000}
JOBS="train predict jacobian"
goal() { case $1 in train) echo 6 ;; predict) echo 4.5 ;; *) echo 5 ;; esac; }

ours() { # JOB SHAPE
  $(launcher "$2") "$LOCKSTEP" bench --synthetic --what "$1" --rows "$ROWS" --threads "${2#*x}" --batch.size 1000 --batch.scope global --seconds "$SECONDS_EACH" --json
}
theirs() { # JOB SHAPE [further arguments]
  local job=$1 shape=$2; shift 2
  peer emulator_peer.py --bench "$job" --ranks "${shape%x*}" --threads "${shape#*x}" --rows "$ROWS" --seconds "$SECONDS_EACH" "$@"
}

if [ $compare = yes ]; then
  [ "${LOCKSTEP_BENCH_COMPILE:-1}" = 1 ] && tune=--tune || tune=--no-compile
  for job in $JOBS; do
    for shape in $SHAPES; do
      echo "choosing PyTorch's best variant: $job, $shape" >&2
      if [ -n "${LOCKSTEP_BENCH_KEEP_TUNING:-}" ] && [ -s "$out/tune.$job.$shape" ]; then
        cp "$out/tune.$job.$shape" "$work/"
      else
        theirs "$job" "$shape" $tune >"$work/tune.$job.$shape"
        cp "$work/tune.$job.$shape" "$out/"
      fi
      text best_variant <"$work/tune.$job.$shape" >"$work/variant.$job.$shape"
    done
  done
fi
for round in $(seq "$ROUNDS"); do
  echo "round $round of $ROUNDS" >&2
  for job in $JOBS; do
    for shape in $SHAPES; do
      ours "$job" "$shape" >"$work/ours.$job.$shape.$round"
      number per_s <"$work/ours.$job.$shape.$round" >>"$work/rates.ours.$job.$shape"
      if [ $compare = yes ]; then
        theirs "$job" "$shape" --variant "$(cat "$work/variant.$job.$shape")" >"$work/peer.$job.$shape.$round"
        number rows_per_s <"$work/peer.$job.$shape.$round" >>"$work/rates.peer.$job.$shape"
      fi
    done
  done
done

rate() { cells %.2f 1e-6 <"$1"; }

{
  machine <"$work/ours.train.1x$CORES.1"
  if [ $compare = yes ]; then
    echo "PyTorch $(text torch <"$work/tune.train.1x$CORES"), $(text blas <"$work/tune.train.1x$CORES"), CPU capability $(text cpu_capability <"$work/tune.train.1x$CORES")${LOCKSTEP_PEER_PRELOAD:+, with $(basename "$LOCKSTEP_PEER_PRELOAD") preloaded}."
  fi
  echo "Network 14-64x3-1, erf-GELU, Adam, $ROWS rows, global batch 1000; $ROUNDS alternating rounds of $SECONDS_EACH s; million rows/s, median (smallest to largest round)."
  echo
  echo "| job | lockstep: best shape | Mrows/s | of FMA peak | PyTorch: best shape and variant | Mrows/s | ratio, median (rounds) |"
  echo "|---|---|---|---|---|---|---|"
  for job in $JOBS; do
    mine=$(best_shape "$work/rates.ours.$job")
    share=$(for r in $(seq "$ROUNDS"); do number fma_peak_share <"$work/ours.$job.$mine.$r"; done | percent)
    row="| $job | $mine | $(rate "$work/rates.ours.$job.$mine") | $share"
    if [ $compare = yes ]; then
      other=$(best_shape "$work/rates.peer.$job")
      row="$row | $other, $(cat "$work/variant.$job.$other") | $(rate "$work/rates.peer.$job.$other") | $(ratio emulator "$job" "$(goal "$job")" "$work/rates.ours.$job.$mine" "$work/rates.peer.$job.$other") |"
    else
      row="$row | not measured | | |"
    fi
    echo "$row"
  done
  echo
  echo "All shapes, Mrows/s (ranks x threads):"
  echo
  echo "| job | $(for s in $SHAPES; do printf 'lockstep %s | ' "$s"; done)$([ $compare = yes ] && for s in $SHAPES; do printf 'PyTorch %s | ' "$s"; done)"
  echo "|---|$(for s in $SHAPES; do printf -- '---|'; [ $compare = yes ] && printf -- '---|'; done)"
  for job in $JOBS; do
    printf '| %s | ' "$job"
    for s in $SHAPES; do printf '%s | ' "$(rate "$work/rates.ours.$job.$s")"; done
    [ $compare = yes ] && for s in $SHAPES; do printf '%s | ' "$(rate "$work/rates.peer.$job.$s")"; done
    echo
  done
  echo
  if [ "$CORES" != 1 ]; then
    shape=${CORES}x1
    value() { for r in $(seq "$ROUNDS"); do number "$1" <"$work/ours.train.$shape.$r"; done | spread | awk -v k="$2" -v f="$3" '{printf f, k * $1}'; }
    echo "All-reduce of the $(value bytes 0.0009765625 '%.1f') KiB gradient on $CORES ranks: $(value alone_share 100 '%.1f') % of a step ($(value alone_s 1e6 '%.1f') us alone);" \
      "time in the reduction within steps $(value share 100 '%.1f') % with waiting for the slower rank, $(value exposed_share 100 '%.1f') % on the rank that waits least."
  fi
  memory() { number peak_memory_bytes <"$work/ours.train.$1.1" | awk '{printf "%.0f", $1 / 1e6}'; }
  data_mb=$(awk -v n="$ROWS" 'BEGIN {printf "%.0f", n * 16 * 4 / 1e6}')
  echo "Peak memory per rank while training: $(for s in $SHAPES; do printf '%s MB as %s, ' "$(memory "$s")" "$s"; done)with a data set of $data_mb MB$([ $compare = yes ] && for s in $SHAPES; do printf '; PyTorch %s MB as %s' "$(number peak_rss_mb <"$work/peer.train.$s.1" | awk '{printf "%.0f", $1 * 1.048576}')" "$s"; done)."
  if [ -x "$BUILD/bin/lockstep-prep" ] && "$BUILD/bin/lockstep-prep" synth-icecolumn --output "$work/icecolumn.h5" >"$work/prep.log" 2>&1; then
    for shape in $SHAPES; do
      for _ in 1 2 3; do
        $(launcher "$shape") "$LOCKSTEP" bench --data.path "$work/icecolumn.h5" --what train --batch.size 1000 --steps 1 --warmup 0 --threads "${shape#*x}" --json | number start_to_first_step_s
      done | spread | awk -v s="$shape" '{printf "Start of the process to the end of the first step, data read from a file, %s: %.2f s (%.2f to %.2f).\n", s, $1, $2, $3}'
    done
    [ $compare = no ] || echo "PyTorch's import alone takes $(number start_s <"$work/peer.train.1x$CORES.1" | awk '{printf "%.1f", $1}') s."
  fi
} | tee "$out/emulator.md"
