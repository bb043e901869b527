#!/usr/bin/env bash
# Whole trainings, from the start of the process to the end of the final evaluation, against PyTorch on the same cores:
# wall time, processor time and peak memory. Both sides have the same data, batches, number of steps, evaluations and
# checkpoints; HRM's peer trains on random puzzles of the same size. Prints a Markdown table and writes it to
# $BUILD/bench/trainings.md.
#
#   tests/bench/whole_trainings.sh [FOLDER]    ml-1m.h5, hapt.h5 and kgat-ml1m.h5 of this folder, else generated data
#
# Variables besides those of common.sh: LOCKSTEP_BENCH_CASES.
. "$(dirname "$0")/common.sh"
ROUNDS=${LOCKSTEP_BENCH_ROUNDS:-1} CASES=${LOCKSTEP_BENCH_CASES:-emulator SASRec SASRec-mHC TiSASRec HAR HRM KGAT}
[ -x /usr/bin/time ] || { echo "$name: /usr/bin/time does not exist; install GNU time" >&2; exit 77; }
systems "${1:+$(path "$1")}"
length() { # CASE: epochs, and how many of them an evaluation and a checkpoint follow
  case $1 in
    emulator) echo "100 20 --jacobian.every 0" ;;
    *SASRec*) echo "2 1" ;;
    HAR) echo "4 2" ;;
    HRM) echo "4 2 --data.group_visits 5" ;;
    KGAT) echo "2 1" ;;
  esac
}
theirs() { # CASE: the options of the peer
  case $1 in
    emulator) echo "emulator_peer.py --bench train --data $rows --batch 500 --variants manual" ;;
    SASRec*) echo "sasrec_peer.py --bench $sequences --maxlen 200 --hidden 50 --heads 1 --variants chunk16+sdpa" ;;&
    SASRec-mHC) echo "--mhc streams" ;;
    TiSASRec) echo "sasrec_peer.py --bench $sequences --model tisasrec --maxlen 50 --hidden 50 --heads 1 --l2 5e-5 --variants chunk32" ;;
    HAR) echo "har_peer.py --bench --data $windows" ;;
    HRM) echo "hrm_peer.py --bench --batch 96 --hidden 64 --heads 2 --h-layers 2 --l-layers 2 --seq-len 16 --vocab 6 --halt-max-steps 8 --test 150" ;;
    KGAT) echo "kgat_peer.py --bench epoch --data $graph" ;;
  esac
}
# used FILE COMMAND...: appends the wall time, processor time and MB of a command to FILE
used() {
  /usr/bin/time -q -o "$work/time" -f '%e %U %S %M' "${@:2}" >"$work/log" 2>&1 || { cat "$work/log" >&2; exit 1; }
  awk '{print $1, $2 + $3, $4 * 1024 / 1e6}' "$work/time" >>"$1"
}
# figures FILE: its medians, as cells
figures() {
  local column
  for column in 1 2 3; do cut -d' ' -f$column "$1" | median | awk -v f=$([ $column = 3 ] && echo %.0f || echo %.1f) '{printf f " | ", $1}'; done
}
{
  machine measure
  echo "$ROUNDS rounds; $CORES threads of one process each; wall and processor time in seconds, peak memory in MB."
  table_head "| training | steps, evaluations | lockstep: wall | processor | MB | PyTorch: wall | processor | MB | ratio, wall | ratio, processor |"
  for case in $CASES; do
    read -r epochs every options <<<"$(length "$case")"
    for round in $(seq "$ROUNDS"); do
      echo "$name: round $round of $ROUNDS, $case" >&2
      rm -rf "$work/run"
      # shellcheck disable=SC2046,SC2086
      used "$work/ours.$case" "$LOCKSTEP" train $(system_options "$case") $options --epochs "$epochs" --eval.every "$every" \
        --checkpoint.every "$every" --stop.rule none --threads "$CORES" --run-dir "$work/run"
      steps=$(tail -1 "$work/run/metrics.jsonl" | number step)
      trained="$steps $((steps * every / epochs))"
      [ "$case" != KGAT ] || trained="$epochs $every"  # a step of its peer is an epoch
      [ $compare = yes ] || continue
      # shellcheck disable=SC2046
      used "$work/theirs.$case" env LD_PRELOAD="${LOCKSTEP_PEER_PRELOAD:-}" "$PYTHON" -W ignore tests/peers/$(theirs "$case") \
        --threads "$CORES" --training $trained
    done
    echo -n "| $case | $steps, $((epochs / every)) | $(figures "$work/ours.$case")"
    if [ $compare = yes ]; then
      paste -d' ' "$work/ours.$case" "$work/theirs.$case" >"$work/both"
      awk '{print $4}' "$work/both" >"$work/wall" && awk '{print $1}' "$work/both" >"$work/our_wall"
      echo "$(figures "$work/theirs.$case")$(ratio trainings "$case" - "$work/wall" "$work/our_wall") | $(awk '{print $5 / $2}' "$work/both" | median | awk '{printf "%.2f", $1}') |"
    else
      echo "not measured | | | | |"
    fi
  done
} | tee "$out/trainings.md"
