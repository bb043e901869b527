#!/usr/bin/env bash
# Where the wall time of a real training goes, with evaluations and checkpoints, for each system. Prints a Markdown table
# and writes it to $BUILD/bench/phases.md.
#
#   tests/bench/phases.sh [FOLDER]    ml-1m.h5, hapt.h5 and kgat-ml1m.h5 of this folder, else generated data
#
# The shares are those that `lockstep train` logs at its end (docs/run-directory.md). A profile of 20 steps divides
# forward and backward: "batch" is the share of the thread that spends most on making batches.
. "$(dirname "$0")/common.sh"
systems "${1:+$(path "$1")}"
length() { # CASE
  case $1 in
    emulator) echo "--epochs 40 --checkpoint.every 10" ;;
    SASRec) echo "--epochs 4 --eval.every 2 --checkpoint.every 1" ;;
    HAR) echo "--epochs 3 --eval.every 1 --checkpoint.every 1" ;;
    HRM) echo "--epochs 2 --eval.every 1 --checkpoint.every 1" ;;
    KGAT) echo "--epochs 1 --steps 200 --eval.every_steps 100 --checkpoint.every_steps 100" ;;
  esac
}
# share PHASE: of the line that a training logs at its end
share() { sed -n 's/.*training took [^:]*://p' "$work/log" | tr ',' '\n' | awk -v p="$1" '$1 == p {print $2; found = 1} END {if (!found) print "0.0"}' | tail -1; }
{
  machine measure
  echo "Shares of the wall time from the first step to the end of the final evaluation, in percent."
  table_head "| training | ranks x threads | time | batch | forward, backward | reduce | update | evaluation | waiting for checkpoints | rest |"
  for case in emulator SASRec HAR HRM KGAT; do
    for shape in $SHAPES; do
      echo "$name: $case, $shape" >&2
      rm -rf "$work/run"
      # shellcheck disable=SC2046
      $(launcher "$shape") "$LOCKSTEP" train $(system_options "$case") $(length "$case") --threads "${shape#*x}" \
        --profile 11..30 --run-dir "$work/run" >"$work/log" 2>&1 || { cat "$work/log" >&2; exit 1; }
      # Microseconds of `batch` in the thread with most of them, and those of the steps, of rank 0.
      batch=$(awk -F'"' '/"ph":"X"/ && /"pid":0,/ {
          match($0, /"dur":[0-9.]+/); time = substr($0, RSTART + 6, RLENGTH - 6)
          match($0, /"tid":[0-9]+/); thread = substr($0, RSTART + 6, RLENGTH - 6)
          if ($8 == "batch") made[thread] += time
          if ($8 == "step") steps += time
        } END {for (t in made) if (made[t] > most) most = made[t]; print most / steps}' "$work"/run/profile-11-30.json)
      steps=$(share forward_backward)
      echo "| $case | $shape | $(sed -n 's/.*training took \([^:]*\):.*/\1/p' "$work/log" | tail -1) | $(awk -v b="$batch" -v s="$steps" 'BEGIN {printf "%.1f | %.1f", b * s, s - b * s}') | $(share reduce) | $(share update) | $(share evaluate) | $(share checkpoint) | $(share rest) |"
    done
  done
} | tee "$out/phases.md"
