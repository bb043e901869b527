#!/usr/bin/env bash
# Activity recognition against PyTorch on the same cores, in one run: training steps on signals and on pictures. Each
# side runs in its best shape of ranks x threads, PyTorch also in its best variant. Prints Markdown tables and writes
# them to $BUILD/bench/har.md.
#
#   tests/bench/compare_har.sh [PREPARED.h5]     default: generated windows
#
# Variables besides those of common.sh: LOCKSTEP_BENCH_INPUTS ("signal"; "signal image"), LOCKSTEP_BENCH_VARIANTS
# ("eager,compile").
. "$(dirname "$0")/common.sh"
ROUNDS=${LOCKSTEP_BENCH_ROUNDS:-3} SECONDS_EACH=${LOCKSTEP_BENCH_SECONDS:-3}
INPUTS=${LOCKSTEP_BENCH_INPUTS:-signal}
DATA=$([ $# -gt 0 ] && path "$1" || prepared "" windows.h5 synth-har)
goal() { [ "$1" = signal ] && echo 5 || echo -; }
variants() { echo "${LOCKSTEP_BENCH_VARIANTS:-eager,compile}"; }
# Windows of all ranks: for signals 32 per core, for pictures one.
windows() { [ "$1" = signal ] && echo $((32 * CORES)) || echo "$CORES"; }
ours() { # INPUT SHAPE
  $(launcher "$2") "$LOCKSTEP" bench --model.kind har --model.input "$1" --data.path "$DATA" --threads "${2#*x}" --batch-size "$(windows "$1")" \
    --warmup 2 --seconds "$SECONDS_EACH" --no-augmentation --json
}
theirs() { # INPUT SHAPE VARIANTS
  peer har_peer.py --bench --input "$1" --data "$DATA" --ranks "${2%x*}" --threads "${2#*x}" --batch "$(windows "$1")" --seconds "$SECONDS_EACH" \
    --variants "$3"
}
measure $INPUTS
table har windows/s %.4g 1 $INPUTS | tee "$out/har.md"
