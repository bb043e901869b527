#!/usr/bin/env bash
# SIGTERM and SIGUSR1 at points spread evenly over a run, of which most lie in evaluations and checkpoints, then at a point of the
# next start: no step is lost, and the run ends like the uninterrupted one. Every system, a pretraining, an ensemble and folds take
# turns. POINTS=100 is the long form.
source "$(dirname "$0")/lib.sh" "$@"
source "$(dirname "$0")/systems.sh"
POINTS=${POINTS:-2}
export ASAN_OPTIONS=${ASAN_OPTIONS:-}:verify_asan_link_order=0:alloc_dealloc_mismatch=0
small_data
# at N NUMBER COMMAND...: runs it, with the signal NUMBER at the Nth allocation
at() { local point=$1 number=$2; shift 2; timeout -k 5 120 $on env LD_PRELOAD="$BIN/libsignal_at.so" SIGNAL_AT="$point $number" "$@" >last.out 2>last.err; }
# no_lost_step DIR: each run in DIR has a checkpoint of the last step that it has recorded
no_lost_step() {
  local log folder recorded kept
  while read -r log; do
    folder=$(dirname "$log")/checkpoints
    recorded=$(grep -oE '"step": ?[0-9]+' "$log" | grep -oE '[0-9]+$' | sort -n | tail -1)
    kept=$(ls "$folder" 2>/dev/null | sed -nE 's/^step-([0-9]+)\.h5$/\1/p' | sort -n | tail -1)
    [ -e "$folder/final.h5" ] || [ "${recorded:-0}" -le "${kept:-0}" ] || fail "$log has step $recorded, the last checkpoint is of ${kept:-no step}"
  done < <(find "$1" -name metrics.jsonl)
}
stopped=0
# system NAME COMMAND...: the points of this run
system() {
  local name=$1 all point code file; shift
  SIGNAL_COUNT=$work/count at 0 0 "$@" --run-dir "$name" || fail "the uninterrupted run ended with $?: $name"
  all=$(cat count)
  for ((i = 0; i < POINTS; ++i)); do
    for point in $((all * (2 * i + 1) / (2 * POINTS))) $((all * (i + 1) / (8 * POINTS))); do
      at $point $((i % 2 ? 10 : 15)) "$@" --run-dir "$name-$i"  # SIGUSR1, SIGTERM
      code=$?
      case $code in
        0) ;;  # the signal came after the end
        85) stopped=$((stopped + 1)) ;;
        138 | 143) [ $point -lt $((all / 50 + 500)) ] || [ -n "$(find "$name-$i" -name final.h5)" ] || fail "a signal ended the program: $name, allocation $point of $all" ;;
        *) fail "exit code $code: $name, signal at allocation $point of $all" ;;
      esac
      [ ! -e "$name-$i" ] || no_lost_step "$name-$i"
    done
    ok $on "$@" --run-dir "$name-$i"
    while read -r file; do
      "$LOCKSTEP" checkpoint diff "$file" "$name-$i/${file#"$name"/}" >diff.out 2>&1
      ! grep -vE '/config|datasets (are|differ)' diff.out || fail "$file differs after a signal at allocation $point of $all"
    done < <(find "$name" -name final.h5 -o -name 'best*.h5')
    [ -z "$(find "$name-$i" -name 'previous-best*')" ] || fail "left behind: $(find "$name-$i" -name 'previous-best*')"
    rm -rf "$name-$i"
  done
}
often="--reproducible --steps 12 --train.log_every 1 --eval.every_steps 2 --checkpoint.every_steps 3 --checkpoint.best_keep 2"
on= ; for kind in emulator kgat bprmf tisasrec hrm har; do
  more=; case $kind in emulator) more="--jacobian.every 1" ;; esac
  system $kind "$LOCKSTEP" train --model.kind $kind $(small_options $kind) $often $more
done
system ensemble "$LOCKSTEP" train $(small_options emulator) $often --ensemble.members 2
system folds "$LOCKSTEP" folds --model.kind har $(small_options har) $often --data.folds 2
on="$MPIRUN -n 2"; export SIGNAL_RANK=1
system two-ranks "$LOCKSTEP" train $(small_options emulator) $often --jacobian.every 1 --checkpoint.layout sharded
[ $stopped -ge $((POINTS * 9)) ] || fail "only $stopped signals stopped a run"
passed "$stopped runs stopped by a signal lost no step, and ended like the uninterrupted ones"
