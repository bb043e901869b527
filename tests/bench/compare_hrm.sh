#!/usr/bin/env bash
# Training steps of HRM against PyTorch on the same cores, in one run, with all cores as threads of one process. Prints
# Markdown tables and writes them to $BUILD/bench/hrm.md.
#
#   tests/bench/compare_hrm.sh [CASE...]
#
# CASE: laptop (configs/hrm-laptop.ini, 4x4 puzzles, 96 slots) and paper (configs/hrm-sudoku.ini, 9x9 puzzles, 16 slots).
# Variables: those of common.sh.
. "$(dirname "$0")/common.sh"
ROUNDS=${LOCKSTEP_BENCH_ROUNDS:-3} SECONDS_EACH=${LOCKSTEP_BENCH_SECONDS:-10}
CASES=${*:-laptop paper} SHAPES=1x$CORES
puzzles() { # CASE
  local givens="--order 3 --min-givens 30 --max-givens 40"
  [ "$1" = paper ] || givens="--order 2 --min-givens 4 --max-givens 6"
  prepared "" "$1.h5" synth-sudoku --train 200 --val 10 --test 20 $givens --num-aug 100 --augment online --seed 1
}
batch() { [ "$1" = paper ] && echo 16 || echo 96; }
goal() { [ "$1" = paper ] && echo 1 || echo 4; }
variants() { echo eager; }
ours() { # CASE
  local config=configs/hrm-laptop.ini
  [ "$1" != paper ] || config=configs/hrm-sudoku.ini
  "$LOCKSTEP" bench --config "$config" --data.path "$(puzzles "$1")" --data.group_visits 100 --batch.size "$(batch "$1")" --threads "$CORES" --seconds "$SECONDS_EACH" --warmup 1 --json
}
theirs() { # CASE
  local network=
  [ "$1" = paper ] || network="--hidden 64 --heads 2 --h-layers 2 --l-layers 2 --seq-len 16 --vocab 6 --halt-max-steps 8"
  peer hrm_peer.py --bench --batch "$(batch "$1")" --threads "$CORES" --seconds "$SECONDS_EACH" $network
}
measure $CASES
table hrm samples/s %.4g 1 $CASES | tee "$out/hrm.md"
