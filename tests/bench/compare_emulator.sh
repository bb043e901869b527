#!/usr/bin/env bash
# The emulator against PyTorch on the same cores, in one run: training, prediction, Jacobians. Each side runs in its
# best shape of ranks x threads, PyTorch also in its best variant. Prints Markdown tables and writes them to
# $BUILD/bench/emulator.md.
#
#   tests/bench/compare_emulator.sh
#
# Variables besides those of common.sh: LOCKSTEP_BENCH_ROWS (360000), LOCKSTEP_BENCH_COMPILE (1; 0 leaves torch.compile
# out).
. "$(dirname "$0")/common.sh"
ROUNDS=${LOCKSTEP_BENCH_ROUNDS:-5} SECONDS_EACH=${LOCKSTEP_BENCH_SECONDS:-2} ROWS=${LOCKSTEP_BENCH_ROWS:-360000}
goal() { case $1 in train) echo 6 ;; predict) echo 4.5 ;; *) echo 5 ;; esac; }
variants() {
  case $1 in
    train) echo -n autograd,manual ;;
    predict) echo -n plain,retained ;;
    *) echo -n plain,retained,autograd,vmap-jacrev ;;
  esac
  [ "${LOCKSTEP_BENCH_COMPILE:-1}" = 0 ] || echo -n ,compiled,compiled-max
}
ours() { # JOB SHAPE
  $(launcher "$2") "$LOCKSTEP" bench --synthetic --what "$1" --rows "$ROWS" --threads "${2#*x}" --batch.size 1000 --seconds "$SECONDS_EACH" --json
}
theirs() { # JOB SHAPE VARIANTS
  peer emulator_peer.py --bench "$1" --ranks "${2%x*}" --threads "${2#*x}" --rows "$ROWS" --seconds "$SECONDS_EACH" --variants "$3"
}
measure train predict jacobian
{
  echo "Network 14-64x3-1, erf-GELU, Adam, $ROWS rows, global batch 1000."
  table emulator "million rows/s" %.2f 1e-6 train predict jacobian
  echo
  if [ "$CORES" != 1 ]; then
    value() { cat "$work/ours.train.${CORES}x1".* | all "$1" | spread | awk -v k="$2" -v f="$3" '{printf f, k * $1}'; }
    echo "All-reduce of the $(value bytes 0.0009765625 '%.1f') KiB gradient on $CORES ranks: $(value alone_share 100 '%.1f') % of a step ($(value alone_s 1e6 '%.1f') us alone);" \
      "time in the reduction within steps $(value share 100 '%.1f') % with waiting for the slower rank, $(value exposed_share 100 '%.1f') % on the rank that waits least."
  fi
  icecolumn=$(prepared "" icecolumn.h5 synth-icecolumn)
  for shape in $SHAPES; do
    for _ in 1 2 3; do
      $(launcher "$shape") "$LOCKSTEP" bench --data.path "$icecolumn" --what train --batch.size 1000 --steps 1 --warmup 0 --threads "${shape#*x}" --json | number start_to_first_step_s
    done | spread | awk -v s="$shape" '{printf "Start of the process to the end of the first step, data read from a file, %s: %.2f s (%.2f to %.2f).\n", s, $1, $2, $3}'
  done
  [ $compare = no ] || echo "PyTorch's import alone takes $(number import_s <"$work/theirs.train.1x$CORES.1" | awk '{printf "%.1f", $1}') s."
} | tee "$out/emulator.md"
