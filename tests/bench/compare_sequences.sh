#!/usr/bin/env bash
# The sequence models against PyTorch on the same cores, in one run: training at T = 200, d = 100, 2 blocks, 2 heads,
# batch 128 (LOCKSTEP_BENCH_SHAPE for others). Each side runs in its best shape of ranks x threads, PyTorch also in its
# best variant. Prints Markdown tables and writes them to $BUILD/bench/sequences.md.
#
#   tests/bench/compare_sequences.sh [CASE...]
#
# CASE: sasrec sasrec-softmax sasrec-mhc tisasrec-element tisasrec-table tisasrec-mhc. Variables besides those of
# common.sh: LOCKSTEP_BENCH_DATA (a prepared interaction set; otherwise sessions with the lengths of MovieLens-1M are
# generated), LOCKSTEP_BENCH_VARIANTS (PyTorch's variants, see tests/peers/sasrec_peer.py).
. "$(dirname "$0")/common.sh"
ROUNDS=${LOCKSTEP_BENCH_ROUNDS:-3} SECONDS_EACH=${LOCKSTEP_BENCH_SECONDS:-4}
read -r T D BATCH <<<"${LOCKSTEP_BENCH_SHAPE:-200 100 128}"
CASES=${*:-sasrec sasrec-softmax sasrec-mhc tisasrec-table tisasrec-mhc tisasrec-element}
DATA=${LOCKSTEP_BENCH_DATA:+$(path "$LOCKSTEP_BENCH_DATA")}
DATA=${DATA:-$(prepared "" sessions.h5 synth-sequences --users 3000 --min-length 20 --max-length 400 --members 60)}
goal() { case $1 in *-mhc) echo 12 ;; *-softmax | *-element) echo - ;; *) echo 6 ;; esac; }
variants() {
  case ${LOCKSTEP_BENCH_VARIANTS:-$1} in
    sasrec | sasrec-softmax) echo "chunk16+sdpa,chunk16,chunk32+sdpa" ;;
    sasrec-mhc) echo "chunk16+sdpa,chunk32+sdpa" ;;
    tisasrec-element) echo "chunk2,chunk8" ;;
    tisasrec-table | tisasrec-mhc) echo "chunk16,chunk32" ;;
    *) echo "$LOCKSTEP_BENCH_VARIANTS" ;;
  esac
}
model() { echo "${1%%-*}"; }
loss() { case $1 in *-softmax) echo softmax ;; *) echo bce ;; esac; }
mhc() { case $1 in *-mhc) echo streams ;; *) echo none ;; esac; }
time_dropout() { case $1 in *-element) echo element ;; *) echo table ;; esac; }
ours() { # CASE SHAPE
  $(launcher "$2") "$LOCKSTEP" bench --model.kind "$(model "$1")" --model.mhc "$(mhc "$1")" --loss.name "$(loss "$1")" --model.time_dropout "$(time_dropout "$1")" --data.path "$DATA" --maxlen "$T" \
    --hidden_units "$D" --num_heads 2 --batch_size "$BATCH" --threads "${2#*x}" --warmup 2 --seconds "$SECONDS_EACH" --json 2>/dev/null
}
theirs() { # CASE SHAPE VARIANTS
  peer sasrec_peer.py --bench "$DATA" --model "$(model "$1")" --mhc "$(mhc "$1")" --loss "$(loss "$1")" --time-dropout "$(time_dropout "$1")" --maxlen "$T" \
    --hidden "$D" --heads 2 --batch "$BATCH" --ranks "${2%x*}" --threads "${2#*x}" --variants "$3" --seconds "$SECONDS_EACH" --warmup 1
}
measure $CASES
{
  echo "T $T, d $D, 2 heads, 2 blocks, batch $BATCH, dropout 0.2, $(basename "$DATA")."
  table sequences sequences/s %.0f 1 $CASES
} | tee "$out/sequences.md"
