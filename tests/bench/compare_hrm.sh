#!/usr/bin/env bash
# Training steps of HRM against PyTorch on the same cores, in one run, with all cores as threads of one process. Rounds
# alternate, so that other load on the machine affects both. Prints a Markdown table and writes it to
# $BUILD/bench/hrm.md.
#
#   tests/bench/compare_hrm.sh [CASE...]
#
# CASE: laptop (configs/hrm-laptop.ini, 4x4 puzzles, 96 slots) and paper (configs/hrm-sudoku.ini, 9x9 puzzles, 16 slots).
# Variables: those of common.sh.
set -euo pipefail
. "$(dirname "$0")/common.sh"
ROUNDS=${LOCKSTEP_BENCH_ROUNDS:-3} SECONDS_EACH=${LOCKSTEP_BENCH_SECONDS:-10}
CASES=${*:-laptop paper}
puzzles() { # CASE
  local order=3 givens="--min-givens 30 --max-givens 40"
  [ "$1" = paper ] || { order=2; givens="--min-givens 4 --max-givens 6"; }
  "$BUILD/bin/lockstep-prep" synth-sudoku --order $order --train 200 --val 10 --test 20 $givens --num-aug 100 --augment online --seed 1 --output "$work/$1.h5" >&2
}
batch() { [ "$1" = paper ] && echo 16 || echo 96; }
ours() { # CASE
  local config=configs/hrm-laptop.ini
  [ "$1" != paper ] || config=configs/hrm-sudoku.ini
  "$LOCKSTEP" bench --config "$config" --data.path "$work/$1.h5" --data.group_visits 100 --batch.size "$(batch "$1")" --threads "$CORES" --seconds "$SECONDS_EACH" --warmup 1 --json
}
theirs() { # CASE
  local network=
  [ "$1" = paper ] || network="--hidden 64 --heads 2 --h-layers 2 --l-layers 2 --seq-len 16 --vocab 6 --halt-max-steps 8"
  peer hrm_peer.py --bench --batch "$(batch "$1")" --threads "$CORES" --seconds "$SECONDS_EACH" $network
}
goal() { [ "$1" = paper ] && echo 1 || echo 4; }
for case in $CASES; do puzzles "$case"; done
for round in $(seq "$ROUNDS"); do
  for case in $CASES; do
    echo "round $round of $ROUNDS: $case" >&2
    ours "$case" >"$work/ours.$case"
    for key in per_s fma_peak_share; do number $key <"$work/ours.$case" >>"$work/$key.$case"; done
    [ $compare = yes ] || continue
    theirs "$case" >"$work/theirs.$case"
    number samples_per_s <"$work/theirs.$case" >>"$work/peer.$case"
  done
done
{
  machine <"$work/ours.${CASES%% *}"
  echo
  echo "| network | Lockstep, samples/s (rounds) | of FMA peak | MB | PyTorch, samples/s (rounds) | MB | ratio, median (rounds) |"
  echo "|---|---|---|---|---|---|---|"
  for case in $CASES; do
    rate() { cells %.4g <"$1"; }
    megabytes() { number peak_memory_bytes <"$1" | awk '{printf "%.0f", $1 / 1e6}'; }
    row="| $case | $(rate "$work/per_s.$case") | $(percent <"$work/fma_peak_share.$case") | $(megabytes "$work/ours.$case")"
    if [ $compare = yes ]; then
      echo "$row | $(rate "$work/peer.$case") | $(megabytes "$work/theirs.$case") | $(ratio hrm "$case" "$(goal "$case")" "$work/per_s.$case" "$work/peer.$case") |"
    else
      echo "$row | not measured | | |"
    fi
  done
} | tee "$out/hrm.md"
