#!/usr/bin/env bash
# The sequence models against PyTorch on the same cores, in one run: training at T = 200, d = 100, 2 blocks, 2 heads,
# batch 128 (LOCKSTEP_BENCH_SHAPE for others). Each side runs in its best shape of ranks x threads, PyTorch also in its
# best variant. Rounds alternate, so that other load on the machine affects both. Prints a Markdown table of ratios and
# writes it to $BUILD/bench/sequences.md.
#
#   tests/bench/compare_sequences.sh [CASE...]
#
# CASE: sasrec sasrec-softmax sasrec-mhc tisasrec-element tisasrec-table tisasrec-mhc. Variables besides those of
# common.sh: LOCKSTEP_BENCH_DATA (a prepared interaction set; otherwise sessions with the lengths of MovieLens-1M are
# generated), LOCKSTEP_BENCH_VARIANTS (PyTorch's variants, see tests/peers/sasrec_peer.py).
set -euo pipefail
. "$(dirname "$0")/common.sh"
ROUNDS=${LOCKSTEP_BENCH_ROUNDS:-3} SECONDS_EACH=${LOCKSTEP_BENCH_SECONDS:-4}
read -r T D BATCH <<<"${LOCKSTEP_BENCH_SHAPE:-200 100 128}"
CASES=${*:-sasrec sasrec-softmax sasrec-mhc tisasrec-table tisasrec-mhc tisasrec-element}
DATA=$work/sessions.h5
if [ -n "${LOCKSTEP_BENCH_DATA:-}" ]; then
  DATA=$(path "$LOCKSTEP_BENCH_DATA")
else
  "$BUILD/bin/lockstep-prep" synth-sequences --users 3000 --min-length 20 --max-length 400 --members 60 --output "$DATA" >&2
fi
goal() { case $1 in *-mhc) echo 12 ;; *-softmax | *-element) echo - ;; *) echo 6 ;; esac; }

model() { case $1 in sasrec*) echo sasrec ;; *) echo tisasrec ;; esac; }
loss() { case $1 in *-softmax) echo softmax ;; *) echo bce ;; esac; }
mhc() { case $1 in *-mhc) echo streams ;; *) echo none ;; esac; }
time_dropout() { case $1 in *-element) echo element ;; *) echo table ;; esac; }
variants() {
  [ -z "${LOCKSTEP_BENCH_VARIANTS:-}" ] || { echo "$LOCKSTEP_BENCH_VARIANTS"; return; }
  case $1 in
    sasrec | sasrec-softmax) echo "chunk16+sdpa,chunk16,chunk32+sdpa" ;;
    sasrec-mhc) echo "chunk16+sdpa,chunk32+sdpa" ;;
    *-element) echo "chunk2,chunk8" ;;
    *) echo "chunk16,chunk32" ;;
  esac
}
ours() { # CASE SHAPE
  $(launcher "$2") "$LOCKSTEP" bench --model.kind "$(model "$1")" --model.mhc "$(mhc "$1")" --loss.kind "$(loss "$1")" --model.time_dropout "$(time_dropout "$1")" --data.path "$DATA" --maxlen "$T" \
    --hidden_units "$D" --num_heads 2 --batch_size "$BATCH" --threads "${2#*x}" --warmup 2 --steps "$3" --json 2>/dev/null
}
theirs() { # CASE SHAPE VARIANTS
  peer sasrec_peer.py --bench "$DATA" --model "$(model "$1")" --mhc "$(mhc "$1")" --loss "$(loss "$1")" --time-dropout "$(time_dropout "$1")" --maxlen "$T" \
    --hidden "$D" --heads 2 --batch "$BATCH" --ranks "${2%x*}" --threads "${2#*x}" --variants "$3" --seconds "$SECONDS_EACH" --warmup 1
}

rate() { cells %.0f <"$1"; }
# The memory of all ranks in MB.
memory() { awk -v b="$1" -v r="$2" 'BEGIN {printf "%.0f", b * r / 1e6}'; }
report() { tee -a "$out/sequences.md"; }
header() { # CASE
  machine <"$work/ours.$1.1x$CORES.1"
  [ $compare = no ] || echo "PyTorch $(text torch <"$work/tune.$1.1x$CORES"), CPU capability $(text cpu_capability <"$work/tune.$1.1x$CORES")."
  echo "T $T, d $D, 2 heads, 2 blocks, batch $BATCH, dropout 0.2, $(basename "$DATA"); $ROUNDS alternating rounds; sequences/s, median (smallest to largest)."
  echo
  echo "| model | lockstep: shape | sequences/s | of FMA peak | MB | PyTorch: shape, variant | sequences/s | MB | ratio, median (rounds) | memory |"
  echo "|---|---|---|---|---|---|---|---|---|---|"
}
row() { # CASE
  local mine other mb their_mb share
  mine=$(best_shape "$work/rates.ours.$1")
  mb=$(memory "$(number peak_memory_bytes <"$work/ours.$1.$mine.1")" "${mine%x*}")
  share=$(for r in $(seq "$ROUNDS"); do number fma_peak_share <"$work/ours.$1.$mine.$r"; done | percent)
  printf '| %s | %s | %s | %s | %s ' "$1" "$mine" "$(rate "$work/rates.ours.$1.$mine")" "$share" "$mb"
  [ $compare = yes ] || { echo "| not measured | | | | |"; return; }
  other=$(best_shape "$work/rates.peer.$1")
  their_mb=$(memory "$(number peak_rss_bytes_per_rank <"$work/peer.$1.$other.1")" "${other%x*}")
  echo "| $other, $(cat "$work/variant.$1.$other") | $(rate "$work/rates.peer.$1.$other") | $their_mb | $(ratio sequences "$1" "$(goal "$1")" "$work/rates.ours.$1.$mine" "$work/rates.peer.$1.$other") | 1/$(awk -v a="$their_mb" -v b="$mb" 'BEGIN {printf "%.1f", a / b}') |"
}

: >"$out/sequences.md"
for case in $CASES; do
  for shape in $SHAPES; do
    echo "$case, $shape: warming up" >&2
    ours "$case" "$shape" 3 >"$work/warm"
    number per_s <"$work/warm" | awk -v s="$SECONDS_EACH" -v b="$BATCH" '{n = int(s * $1 / b); print n < 3 ? 3 : n}' >"$work/steps.$case.$shape"
    [ $compare = no ] || theirs "$case" "$shape" "$(variants "$case")" >"$work/tune.$case.$shape"
    [ $compare = no ] || text best_variant <"$work/tune.$case.$shape" >"$work/variant.$case.$shape"
  done
  for round in $(seq "$ROUNDS"); do
    for shape in $SHAPES; do
      ours "$case" "$shape" "$(cat "$work/steps.$case.$shape")" >"$work/ours.$case.$shape.$round"
      number per_s <"$work/ours.$case.$shape.$round" >>"$work/rates.ours.$case.$shape"
      [ $compare = yes ] || continue
      theirs "$case" "$shape" "$(cat "$work/variant.$case.$shape")" >"$work/peer.$case.$shape.$round"
      number per_s <"$work/peer.$case.$shape.$round" >>"$work/rates.peer.$case.$shape"
    done
  done
  [ "$case" != "${CASES%% *}" ] || header "$case" | report
  row "$case" | report
done
