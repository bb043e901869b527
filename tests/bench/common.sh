# Sourced by the comparison scripts, from any directory: settings, JSON, medians, the machine. A script runs in the
# repository's root from here on, and ends at the first error.
#
# Variables of all scripts: LOCKSTEP_PYTHON (a Python that has torch, numpy and h5py; without it only Lockstep is
# measured), LOCKSTEP_BENCH_ROUNDS, LOCKSTEP_BENCH_SECONDS (per measurement and round), LOCKSTEP_BENCH_CORES (all),
# LOCKSTEP_PEER_PRELOAD (a library to preload into PyTorch, see docs/benchmarks.md), BUILD (build).
set -euo pipefail
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
# number KEY, text KEY: the first value under this key of the JSON on standard input; all KEY: all numbers under it
number() { all "$1" | head -1; }
all() { grep -oE "\"$1\": ?[-+0-9.eE]+" | sed -E 's/.*: ?//'; }
text() { grep -oE "\"$1\": ?\"[^\"]*\"" | head -1 | sed -E 's/.*: ?"(.*)"/\1/'; }
# Median, smallest and largest of the numbers on standard input.
spread() { sort -g | awk '{v[NR] = $1} END {if (NR) {m = NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2; print m, v[1], v[NR]}}'; }
median() { spread | cut -d' ' -f1; }
# table_head ROW: an empty line and the head of a Markdown table with this first row
table_head() { echo; echo "$1"; echo "|$(tr -cd '|' <<<"${1#|}" | sed 's/|/---|/g')"; }
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
# A program of the build: build target NAME.
program() {
  [ -x "$BUILD/bin/$1" ] || { echo "$name: $BUILD/bin/$1 does not exist; build target $1" >&2; exit 2; }
  echo "$BUILD/bin/$1"
}
# prepared FOLDER FILE ARGUMENT...: this file of the folder, or else one that lockstep-prep makes with these arguments
prepared() {
  local file=${1:-/nonexistent}/$2
  [ -s "$file" ] || { file=$work/$2; "$BUILD/bin/lockstep-prep" "${@:3}" --output "$file" >&2 || return; }
  echo "$file"
}
# measure CASE...: both sides of each case in every shape, in alternating rounds, so that other load on the machine
# affects both. A script defines
#   ours CASE SHAPE              JSON of lockstep bench
#   theirs CASE SHAPE VARIANTS   JSON of a peer, which names the best of the variants
#   variants CASE                PyTorch's variants, separated by commas; the best one in each shape takes part
# Results: $work/{ours,theirs}.CASE.SHAPE.ROUND, the rates of all rounds in $work/rates.{ours,theirs}.CASE.SHAPE, and
# $work/variant.CASE.SHAPE.
measure() {
  local case shape round
  [ $compare = no ] || for case in "$@"; do
    for shape in $SHAPES; do
      variants "$case" >"$work/variant.$case.$shape"
      grep -q , "$work/variant.$case.$shape" || continue
      echo "$name: PyTorch's best variant of $case, $shape" >&2
      theirs "$case" "$shape" "$(variants "$case")" >"$work/tune"
      text best_variant <"$work/tune" >"$work/variant.$case.$shape"
    done
  done
  for round in $(seq "$ROUNDS"); do
    for case in "$@"; do
      echo "$name: round $round of $ROUNDS, $case" >&2
      for shape in $SHAPES; do
        ours "$case" "$shape" >"$work/ours.$case.$shape.$round"
        number per_s <"$work/ours.$case.$shape.$round" >>"$work/rates.ours.$case.$shape"
        [ $compare = yes ] || continue
        theirs "$case" "$shape" "$(cat "$work/variant.$case.$shape")" >"$work/theirs.$case.$shape.$round"
        number per_s <"$work/theirs.$case.$shape.$round" >>"$work/rates.theirs.$case.$shape"
      done
    done
  done
}
# table SYSTEM UNIT FORMAT SCALE CASE...: what measure() has found, as Markdown: each side in its best shape, then all
# shapes. The rates are times SCALE. A script defines goal CASE.
table() {
  local system=$1 unit=$2 format=$3 scale=$4 case shape side mine other row first=$5.1x$CORES.1 preloaded=
  shift 4
  machine <"$work/ours.$first"
  [ -z "${LOCKSTEP_PEER_PRELOAD:-}" ] || preloaded=", with $(basename "$LOCKSTEP_PEER_PRELOAD") preloaded"
  fact() { text "$1" <"$work/theirs.$first"; }
  [ $compare = no ] || echo "PyTorch $(fact torch), $(fact blas), CPU capability $(fact processor)$preloaded."
  echo "$ROUNDS alternating rounds of $SECONDS_EACH s; $unit, median (smallest to largest round)."
  table_head "| case | lockstep: ranks x threads | $unit | of FMA peak | MB of all ranks | PyTorch: ranks x threads, variant | $unit | MB | ratio, median (rounds) |"
  rates() { cells "$format" "$scale" <"$work/rates.$1"; }
  # The memory of all ranks in MB.
  memory() { number peak_memory_bytes <"$work/$1.1" | awk -v ranks="${2%x*}" '{printf "%.0f", $1 * ranks / 1e6}'; }
  for case in "$@"; do
    mine=$(best_shape "$work/rates.ours.$case")
    row="| $case | $mine | $(rates "ours.$case.$mine") | $(cat "$work/ours.$case.$mine".* | all fma_peak_share | percent)"
    row+=" | $(memory "ours.$case.$mine" "$mine")"
    if [ $compare = yes ]; then
      other=$(best_shape "$work/rates.theirs.$case")
      row+=" | $other, $(cat "$work/variant.$case.$other") | $(rates "theirs.$case.$other")"
      row+=" | $(memory "theirs.$case.$other" "$other") | $(ratio "$system" "$case" "$(goal "$case")" \
        "$work/rates.ours.$case.$mine" "$work/rates.theirs.$case.$other") |"
    else
      row+=" | not measured | | | |"
    fi
    echo "$row"
  done
  # each FUNCTION: its output for each side and shape, as cells
  each() { for side in ours theirs; do for shape in $SHAPES; do printf '%s | ' "$("$1")"; done; done; }
  heading() { [ $side = ours ] && echo "lockstep $shape" || echo "PyTorch $shape"; }
  cell() { [ ! -s "$work/rates.$side.$case.$shape" ] || rates "$side.$case.$shape"; }
  table_head "| all shapes | $(each heading)"
  for case in "$@"; do echo "| $case | $(each cell)"; done
}
# systems FOLDER: the data of all systems: ml-1m.h5, hapt.h5 and kgat-ml1m.h5 of this folder, else generated data.
systems() {
  rows=$(prepared "" icecolumn.h5 synth-icecolumn --rows 60000)
  sequences=$(prepared "$1" ml-1m.h5 synth-sequences --users 3000 --min-length 50 --max-length 300)
  windows=$(prepared "$1" hapt.h5 synth-har)
  sed /^pretrain/d configs/kgat-ml1m.ini >"$work/kgat.ini"  # from random tables
  graph=$(prepared "$1" kgat-ml1m.h5 synth-kg --users 6000 --items 4000)
  puzzles=$(prepared "" puzzles.h5 synth-sudoku --order 2 --train 300 --val 30 --test 150 --min-givens 4 --max-givens 6 \
    --num-aug 1000 --augment online)
}
# The options of a system, and its batch on one core.
system_options() {
  case $1 in
    emulator) echo "--config configs/emulator-icecolumn.ini --data.path $rows" ;;
    SASRec) echo "--config configs/sasrec-ml1m.ini --data.path $sequences" ;;
    SASRec-mHC) echo "--config configs/sasrec-mhc-ml1m.ini --data.path $sequences" ;;
    TiSASRec) echo "--config configs/tisasrec-ml1m.ini --data.path $sequences" ;;
    HAR) echo "--config configs/har-hapt.ini --data.path $windows" ;;
    HRM) echo "--config configs/hrm-laptop.ini --data.path $puzzles" ;;
    KGAT) echo "--config $work/kgat.ini --data.path $graph" ;;
    KGAT-rows) echo "--config $work/kgat.ini --data.path $graph --dist.mode nested-rows" ;;
  esac
}
system_batch() { case $1 in emulator) echo 1000 ;; SASRec) echo 128 ;; HAR) echo 64 ;; HRM) echo 96 ;; KGAT*) echo 1024 ;; esac; }
# cells FORMAT [SCALE]: median, smallest and largest of the numbers on standard input, times SCALE
cells() { spread | awk -v f="$1" -v k="${2:-1}" '{printf f " (" f " to " f ")", k * $1, k * $2, k * $3}'; }
# The median of shares, in percent.
percent() { spread | awk '{printf "%.0f %%", 100 * $1}'; }
# The machine and its load. Without JSON of `lockstep bench` on standard input, its kernels and peak are measured.
processor() { sed -n 's/^model name[^:]*: *//p' /proc/cpuinfo | head -1; }
load() { cut -d' ' -f1 /proc/loadavg; }
machine() {
  local json isa
  if [ "${1:-}" = measure ]; then
    json=$("$LOCKSTEP" bench --synthetic --what predict --threads "$CORES" --seconds 0.2 --json 2>/dev/null)
  else
    json=$(cat)
  fi
  isa=$(text isa <<<"$json")
  case $isa in avx512) isa="$isa (16 floats wide)" ;; avx2) isa="$isa (8 floats wide)" ;; asimd) isa="$isa (4 floats wide)" ;; esac
  echo "Measured $(date -u '+%Y-%m-%d %H:%M UTC') with $("$LOCKSTEP" --version | head -1)."
  echo "Machine: $CORES cores of $(processor), load average $(load) at the end; kernels $isa, $(number fma_peak_flops <<<"$json" | awk '{printf "%.0f", $1 / 1e9}') GFLOP/s of FMA peak."
}
# start_nodes N: a small Slurm cluster of N nodes (tests/cluster) until the script ends. Exit code 77 where there can be none.
start_nodes() {
  SMALL_SLURM_DIR=$(mktemp -d /tmp/lsXXXXXX)
  export SMALL_SLURM_DIR OMP_NUM_THREADS=1
  trap 'tests/cluster/small_slurm.sh down; rm -rf "$work"' EXIT
  tests/cluster/small_slurm.sh up "$1" || exit $?
}
# shape_links RATE NODES: limits the links to RATE Mbit/s, or not (off). Nodes that share this machine's cores compute
# slower than nodes with a core each; their links are slowed down as much, so that shares of a step stay the same.
shape_links() {
  local slower=$(($2 > $(nproc) ? $2 / $(nproc) : 1))
  tests/cluster/small_slurm.sh shape "$([ "$1" = off ] && echo off || echo "$(($1 / slower))mbit")"
}
# on_nodes N PROGRAM...: one rank on each of N nodes
on_nodes() {
  for _ in 1 2 3; do  # Open MPI 4.1.4 sometimes fails in MPI_Init over TCP
    tests/cluster/small_slurm.sh exec head timeout 120 srun --mpi=pmix --nodes="$1" --ntasks-per-node=1 "${@:2}" \
      >"$work/nodes.out" 2>"$work/nodes.err" && { cat "$work/nodes.out"; return; }
  done
  cat "$work/nodes.err" >&2
  return 1
}
