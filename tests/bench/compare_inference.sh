#!/usr/bin/env bash
# Calls of a trained emulator with 1 to 100,000 columns: liblockstep against PyTorch (eager, TorchScript), ONNX Runtime
# and a plain Fortran loop. Prints a Markdown table and writes it to $BUILD/bench/inference.md. Every side must give
# liblockstep's results before it is timed. With one thread times are processor time, else wall time.
#
#   LOCKSTEP_PYTHON=~/venv/bin/python tests/bench/compare_inference.sh
#
# LOCKSTEP_PYTHON: a Python with numpy and torch, onnxruntime or both; sides that are not installed are left out.
# LOCKSTEP_BENCH_ROUNDS (3), LOCKSTEP_BENCH_SECONDS (0.1, per case and round).
. "$(dirname "$0")/common.sh"
COLUMNS_PROGRAM=$(program bench_columns)
ROUNDS=${LOCKSTEP_BENCH_ROUNDS:-3} SECONDS_EACH=${LOCKSTEP_BENCH_SECONDS:-0.1}
"$COLUMNS_PROGRAM" "$work"

if [ -z "$PYTHON" ] || ! "$PYTHON" -c 'import numpy' 2>/dev/null; then
  echo "$name: ONNX Runtime is left out: LOCKSTEP_PYTHON names no Python with numpy" >&2
  PYTHON=
fi
others() { LD_PRELOAD=${LOCKSTEP_PEER_PRELOAD:-} "$PYTHON" -W ignore tests/peers/inference_peer.py "$work" "$@"; }
THREADS=1
[ "$CORES" = 1 ] || THREADS="1 $CORES"
for round in $(seq "$ROUNDS"); do
  echo "$name: round $round of $ROUNDS" >&2
  for threads in $THREADS; do
    "$COLUMNS_PROGRAM" "$work/model.lsem" "$threads" "$SECONDS_EACH" >>"$work/round.$round"
    [ -z "$PYTHON" ] || others --threads "$threads" --seconds "$SECONDS_EACH" >>"$work/round.$round"
  done
done
# A new process to its first result, three times: the start of the program, opening, the first call, memory.
first() { # COMMAND...
  for _ in 1 2 3; do
    start=$(date +%s%N)
    "$@" | sed "s/}\$/, \"start_ns\": $start}/"
  done
}
first "$COLUMNS_PROGRAM" "$work/model.lsem" first >>"$work/first"
for package in torch onnxruntime; do
  [ -n "$PYTHON" ] && "$PYTHON" -c "import $package" 2>/dev/null || continue
  first others --first $package >>"$work/first"
  [ $package = onnxruntime ] || first others --first torchscript >>"$work/first"
done

{
  machine measure
  echo "Network 14-64x3-1, erf-GELU."
  "${PYTHON:-python3}" tests/bench/inference_table.py "$out/ratios.tsv" "$work"/round.* "$work/first"
} | tee "$out/inference.md"
