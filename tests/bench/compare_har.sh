#!/usr/bin/env bash
# Activity recognition against PyTorch on the same cores, in one run: training steps on signals and on pictures, each
# side in all shapes of ranks x threads. Rounds alternate, so that other load on the machine affects both. Prints a
# Markdown table and writes it to $BUILD/bench/har.md.
#
#   LOCKSTEP_PYTHON=~/venv/bin/python tests/bench/compare_har.sh PREPARED.h5
#
# LOCKSTEP_PYTHON must have torch, numpy and h5py. Variables: LOCKSTEP_BENCH_INPUTS ("signal image"),
# LOCKSTEP_BENCH_ROUNDS (3), LOCKSTEP_BENCH_SECONDS (3, per measurement and round), LOCKSTEP_BENCH_CORES (all),
# LOCKSTEP_BENCH_VARIANTS ("eager compile"), LOCKSTEP_PEER_PRELOAD (a library to preload into PyTorch).
set -euo pipefail
[ $# = 1 ] || { echo "usage: compare_har.sh PREPARED.h5" >&2; exit 2; }
DATA=$(realpath "$1")
cd "$(dirname "$0")/../.."
BUILD=${BUILD:-build} PYTHON=${LOCKSTEP_PYTHON:?names a Python that has torch, numpy and h5py}
INPUTS=${LOCKSTEP_BENCH_INPUTS:-signal image} VARIANTS=${LOCKSTEP_BENCH_VARIANTS:-eager compile}
ROUNDS=${LOCKSTEP_BENCH_ROUNDS:-3} SECONDS_EACH=${LOCKSTEP_BENCH_SECONDS:-3} CORES=${LOCKSTEP_BENCH_CORES:-$(nproc)}
LOCKSTEP=$BUILD/bin/lockstep MPIRUN=${MPIRUN:-mpirun --oversubscribe --bind-to none}
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
SHAPES="1x$CORES"
[ "$CORES" = 1 ] || SHAPES="$SHAPES ${CORES}x1"
mkdir -p "$BUILD/bench"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

number() { grep -oE "\"$1\": ?[-+0-9.eE]+" "$2" | head -1 | sed -E 's/.*: ?//'; }
median() { sort -g | awk '{v[NR] = $1} END {if (NR) print NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2}'; }
# Windows per process: for signals 32 per core in total, for pictures one per core.
windows() { if [ "$1" = signal ]; then echo $((32 * CORES / ${2%x*})); else echo $((CORES / ${2%x*})); fi; }
ours() { # INPUT RANKSxTHREADS
  local launch=
  [ "${2%x*}" = 1 ] || launch="$MPIRUN -n ${2%x*}"
  $launch "$LOCKSTEP" bench --model har --input "$1" --data.path "$DATA" --threads "${2#*x}" --batch-size "$(windows "$1" "$2")" --warmup 2 \
    --seconds "$SECONDS_EACH" --no-augmentation --json
}
peer() { # INPUT RANKSxTHREADS VARIANT
  LD_PRELOAD=${LOCKSTEP_PEER_PRELOAD:-} "$PYTHON" tests/peers/har_peer.py --bench --input "$1" --data "$DATA" --ranks "${2%x*}" --threads "${2#*x}" \
    --batch "$(windows "$1" "$2")" --seconds "$SECONDS_EACH" --warmup 2 --variant "$3" 2>"$work/err" || { cat "$work/err" >&2; exit 1; }
}
for round in $(seq "$ROUNDS"); do
  for input in $INPUTS; do
    for shape in $SHAPES; do
      echo "round $round of $ROUNDS: $input $shape" >&2
      ours "$input" "$shape" >"$work/one"
      number per_s "$work/one" >>"$work/$input.ours.$shape"
      cp "$work/one" "$work/last.$input.ours.$shape"
      for variant in $VARIANTS; do
        peer "$input" "$shape" "$variant" >"$work/one"
        number windows_per_s "$work/one" >>"$work/$input.$variant.$shape"
        cp "$work/one" "$work/last.$input.$variant.$shape"
      done
    done
  done
done
{
  echo "Measured $(date -u '+%Y-%m-%d %H:%M UTC') with $("$LOCKSTEP" --version | head -1), $CORES cores of $(sed -n 's/^model name[^:]*: *//p' /proc/cpuinfo | head -1)."
  echo
  echo "| input | side | ranks x threads | windows/s, median of $ROUNDS | of FMA peak | peak memory per rank, MB |"
  echo "|---|---|---|---|---|---|"
  for input in $INPUTS; do
    for side in ours $VARIANTS; do
      for shape in $SHAPES; do
        last=$work/last.$input.$side.$shape
        if [ "$side" = ours ]; then
          memory=$(number peak_memory_bytes "$last" | awk '{printf "%.0f", $1 / 1e6}') share=$(number fma_peak_share "$last" | awk '{printf "%.0f %%", 100 * $1}') name=lockstep
        else
          memory=$(number peak_rss_mb "$last" | awk '{printf "%.0f", $1 * 1.048576}') share= name="PyTorch, $side"
        fi
        echo "| $input | $name | $shape | $(median <"$work/$input.$side.$shape" | awk '{printf "%.4g", $1}') | $share | $memory |"
      done
    done
  done
} | tee "$BUILD/bench/har.md"
