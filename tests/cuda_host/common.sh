# shellcheck shell=bash disable=SC2034
# Library of the scripts of this folder that run the real program: SCRIPT LOCKSTEP LOCKSTEP_PREP [MPIRUN...]. They work
# in a temporary folder and end at the first failure. ctest runs each section of a script separately, with
# LOCKSTEP_SECTION=<section>; without it a script runs all sections. The line "# sections ..." at its head names them;
# tests/CMakeLists.txt reads it.
set -euo pipefail
lockstep=$1 prep=$2
shift 2
mpirun=("$@")
configs=$(cd "$(dirname "$0")/../../configs" && pwd)
sections=$(sed -n 's/^# sections //p' "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
section() {  # NAME: whether this run includes it
  [[ " $sections " == *" $1 "* ]] || { echo "FAILED: $0: '$1' is not among the sections at its head"; exit 1; }
  [ "${LOCKSTEP_SECTION-$1}" = "$1" ]
}
[[ " $sections " == *" ${LOCKSTEP_SECTION-${sections%% *}} "* ]] || { echo "FAILED: $0 has no section '$LOCKSTEP_SECTION'"; exit 1; }

fail() { cat log.txt 2> /dev/null || true; echo "FAILED: $*"; exit 1; }
run() { "$@" > log.txt 2>&1 || fail "$*"; }
says() { for text in "$@"; do grep -q -- "$text" log.txt || fail "the log does not contain '$text'"; done; }
same_bits() {  # RUN RUN [GROUP]: the arrays of this group (/model) are equal in the final checkpoints
  "$lockstep" checkpoint diff --under "${3:-/model}" "$1/checkpoints/final.h5" "$2/checkpoints/final.h5" > diff.txt ||
    { cat diff.txt; echo "FAILED: $1 and $2 differ"; exit 1; }
}

# Models that take some steps, and small data for them.
small_models=(  # kind, data, options
  "sasrec sequences.h5 --maxlen 12 --hidden_units 8 --batch.size 16"
  "tisasrec sequences.h5 --maxlen 12 --hidden_units 8 --mhc streams --batch.size 16"
  "kgat kg.h5 --batch.size 32"
  "bprmf kg.h5 --batch.size 32"
  "hrm sudoku.h5 --model.hidden_size 16 --model.num_heads 2 --model.h_layers 1 --model.l_layers 2 --model.halt_max_steps 3 --batch.size 8 --schedule.warmup 0 --precision fp32"
  "har har.h5 --model.layers 2 --model.dim 16 --model.heads 2 --model.head_width 8 --model.mlp 32 --batch.size 8 --schedule.warmup 0"
)
small_data() {  # FILE: creates it if it does not exist
  [ ! -f "$1" ] || return 0
  case $1 in
    sequences.h5) set -- "$1" synth-sequences --users 60 --min-length 8 --max-length 12 --categories 4 --clusters 2 --members 5 ;;
    kg.h5) set -- "$1" synth-kg --users 30 ;;
    sudoku.h5) set -- "$1" synth-sudoku --order 2 --train 24 --test 4 --num-aug 5 --augment online ;;
    har.h5) set -- "$1" synth-har --subjects 4 --seconds 10 ;;
  esac
  "$prep" "${@:2}" --output "$1" --quiet
}
small_model() {  # ELEMENT of small_models: sets kind and options, makes the data; fails if this run leaves the kind out
  local data rest
  read -r kind data rest <<< "$1"
  section "$kind" || return 1
  small_data "$data"
  read -ra options <<< "--model.kind $kind --data.path $data $rest"
}
