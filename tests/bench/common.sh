# Sourced by the comparison scripts, from any directory: settings, JSON, medians, the machine. A script runs in the
# repository's root from here on.
#
# Variables of all scripts: LOCKSTEP_PYTHON (a Python that has torch, numpy and h5py; without it only Lockstep is
# measured), LOCKSTEP_BENCH_ROUNDS, LOCKSTEP_BENCH_SECONDS (per measurement and round), LOCKSTEP_BENCH_CORES (all),
# LOCKSTEP_PEER_PRELOAD (a library to preload into PyTorch, see docs/benchmarks.md), BUILD (build).
here=$PWD
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
BUILD=${BUILD:-build} PYTHON=${LOCKSTEP_PYTHON:-}
LOCKSTEP=$BUILD/bin/lockstep
name=$(basename "$0" .sh)
CORES=${LOCKSTEP_BENCH_CORES:-$(nproc)}
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
MPIRUN=${MPIRUN:-mpirun --oversubscribe --bind-to none}
SHAPES="1x$CORES"  # ranks x threads
[ "$CORES" = 1 ] || SHAPES="$SHAPES ${CORES}x1"
[ -x "$LOCKSTEP" ] || { echo "$name: $LOCKSTEP does not exist; run make first" >&2; exit 2; }
out=$BUILD/bench
mkdir -p "$out"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# A file name that the user gave relative to the directory in which the script was started.
path() { (cd "$here" && realpath "$1"); }
# number KEY, text KEY: the first value under this key of the JSON on standard input
number() { grep -oE "\"$1\": ?[-+0-9.eE]+" | head -1 | sed -E 's/.*: ?//'; }
text() { grep -oE "\"$1\": ?\"[^\"]*\"" | head -1 | sed -E 's/.*: ?"(.*)"/\1/'; }
# Median, smallest and largest of the numbers on standard input.
spread() { sort -g | awk '{v[NR] = $1} END {if (NR) {m = NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2; print m, v[1], v[NR]}}'; }
median() { spread | cut -d' ' -f1; }
# launcher SHAPE: the command before a program that runs with so many ranks
launcher() { [ "${1%x*}" = 1 ] || echo "$MPIRUN -n ${1%x*}"; }
# PyTorch takes part (compare=yes) where LOCKSTEP_PYTHON has the modules.
compare=no
if [ -n "$PYTHON" ] && "$PYTHON" -c 'import torch, numpy, h5py' 2>/dev/null; then
  compare=yes
else
  echo "$name: PyTorch is left out: set LOCKSTEP_PYTHON to a Python that has torch, numpy and h5py" >&2
fi
# peer SCRIPT [ARGUMENT...]: runs a PyTorch program of tests/peers
peer() {
  LD_PRELOAD=${LOCKSTEP_PEER_PRELOAD:-} "$PYTHON" -W ignore "tests/peers/$@" 2>"$work/peer.err" ||
    { cat "$work/peer.err" >&2; echo "$name: tests/peers/$1 failed" >&2; exit 1; }
}
# best_shape FILE: the shape with the largest median of the rates in FILE.SHAPE
best_shape() { for s in $SHAPES; do echo "$(median <"$1.$s") $s"; done | sort -g | tail -1 | cut -d' ' -f2; }
# ratio SYSTEM CASE GOAL FILE FILE: median and spread of the quotients of two files of rounds, as Markdown. The combined
# report draws the same figures, with the goal (or "-") beside them.
ratio() {
  local figures
  figures=$(paste "$4" "$5" | awk '{print $1 / $2}' | spread)
  echo "$1	$2	$3	$figures" >>"$out/ratios.tsv"
  awk '{printf "**%.2f** (%.2f to %.2f)", $1, $2, $3}' <<<"$figures"
}
# Who measured, and on what. JSON of `lockstep bench` on standard input.
machine() {
  local json
  json=$(cat)
  echo "Measured $(date -u '+%Y-%m-%d %H:%M UTC') with $("$LOCKSTEP" --version | head -1)."
  echo "Machine: $CORES cores of $(sed -n 's/^model name[^:]*: *//p' /proc/cpuinfo | head -1), load average $(cut -d' ' -f1 /proc/loadavg) at the end; kernels $(text isa <<<"$json"), $(number fma_peak_flops <<<"$json" | awk '{printf "%.0f", $1 / 1e9}') GFLOP/s of FMA peak."
}
