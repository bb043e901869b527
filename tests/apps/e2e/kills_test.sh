#!/usr/bin/env bash
# A random rank is killed (-9) after a random step, and the run is resumed on 1 to 4 ranks: the final weights are those
# of the undisturbed run. The shipped configurations of the five systems, shortened, take turns, and so do the faults of
# FAULTS: `kill`; `stop` (SIGSTOP); `two` ranks at once; `again`, another rank 0.3 s later, perhaps during the rescue.
# KILLS=100 is the long form; it prints how long the jobs outlived their rank, how many named it, how many steps were
# repeated, and the time to the first new step.
source "$(dirname "$0")/lib.sh" "$@"
needs h5diff hdf5-tools
KILLS=${KILLS:-5} RANDOM=${SEED:-1}
read -ra faults <<<"${FAULTS:-kill stop two kill again}"

ok "$PREP" synth-icecolumn --rows 8000 --output emulator.h5
ok "$PREP" synth-sequences --users 200 --min-length 12 --max-length 20 --categories 4 --clusters 2 --members 8 --output tisasrec.h5
ok "$PREP" synth-kg --output kgat.h5
ok "$PREP" synth-sudoku --order 2 --train 100 --test 20 --min-givens 8 --max-givens 14 --output hrm.h5
ok "$PREP" synth-har --subjects 5 --output har.h5
options() {  # SYSTEM
  local all="--data.path $1.h5 --reproducible --checkpoint.every 0 --train.log_every 1 --dist.timeout 6"
  case $1 in
    emulator) echo "--config $tree/configs/emulator-icecolumn.ini $all --epochs 20 --checkpoint.every_steps 20" ;;
    tisasrec) echo "--config $tree/configs/tisasrec-ml1m.ini $all --epochs 20 --batch.size 32 --maxlen 12 --hidden_units 24 --checkpoint.every_steps 10" ;;
    kgat) echo "--config $tree/configs/kgat-ml1m.ini $all --model.pretrain_epochs 2 --batch.size 256 --checkpoint.every_steps 10" ;;
    hrm) echo "--config $tree/configs/hrm-laptop.ini $all --steps 60 --model.hidden_size 64 --batch.size 32 --schedule.warmup 10 --checkpoint.every_steps 10" ;;
    har) echo "--config $tree/configs/har-synth.ini $all --epochs 4 --checkpoint.every_steps 10" ;;
  esac
}

systems=(emulator tisasrec kgat hrm har)
# records RUN: how many steps and evaluations the run has recorded, with its pretraining
records() { find "$1" -name metrics.jsonl -exec cat {} + 2>/dev/null | wc -l; }
for system in "${systems[@]:0:KILLS}"; do ok on 2 "$LOCKSTEP" train --run-dir "$system-whole" $(options "$system"); done

test_records() { [ "$(records "$1")" -ge "$2" ]; }
# last_step RUN: the last step that the run has recorded
last_step() { cat "$1/metrics.jsonl" 2>/dev/null | grep -o '"step": *[0-9]*' | tail -n 1 | grep -o '[0-9]*$' || echo 0; }
# process_of RANK
process_of() {
  local process
  for process in $(pgrep -x lockstep); do
    [ "$(tr '\0' '\n' 2>/dev/null <"/proc/$process/environ" |
      grep -cxE "KILLED_JOB=$work/$i|(OMPI_COMM_WORLD|PMI)_RANK=$1")" = 2 ] && echo "$process"
  done
}
now_ms() { echo $(($(date +%s%N) / 1000000)); }
median() { sort -n "$1" | awk '{v[NR] = $1} END {printf "%.1f s, at most %.1f s", v[int((NR + 1) / 2)] / 1000, v[NR] / 1000}'; }

hits=0 named=0 repeated=0 rescued=0
for ((i = 0; i < KILLS; ++i)); do
  system=${systems[i % 5]} ranks=$((2 + RANDOM % 3)) run=run-$i
  [ $system != har ] || ranks=2  # its batch counts per rank of the first start
  KILLED_JOB=$work/$i setsid $MPIRUN -n $ranks "$LOCKSTEP" train --run-dir $run $(options "$system") >last.out 2>last.err &
  job=$!
  last=$((1 + $(records "$system-whole") * 9 / 10 * RANDOM / 32768))
  while [ "$(records $run)" -lt $last ] && kill -0 $job 2>/dev/null; do sleep 0.01; done
  rank=$((RANDOM % ranks)) fault=${faults[i % ${#faults[@]}]} signal=KILL other=
  victim=$(process_of $rank)
  [ $fault != stop ] || signal=STOP
  [[ $fault != two && $fault != again || $ranks -lt 3 ]] || other=$(process_of $(((rank + 1) % ranks)))
  killed=$(now_ms)
  if [ -n "$victim" ] && kill -$signal "$victim" 2>/dev/null; then
    [ $fault != again ] || sleep 0.3
    [ -z "$other" ] || kill -9 "$other" 2>/dev/null
    hits=$((hits + 1))
    for _ in $(seq 300); do kill -0 $job 2>/dev/null || break; sleep 0.1; done
    if kill -0 $job 2>/dev/null; then kill -9 $(pgrep -P $job) $job; fail "the job still hung 30 s after rank $rank of $ranks was killed ($system)"; fi
    [ $fault = stop ] || echo $(($(now_ms) - killed)) >>ends
    grep -qE "rank $rank[ /,(].*(died|killed|ended|gone|exited|stopped)" last.out last.err && named=$((named + 1))
    [ -z "$(find $run -name 'rescue-*.h5')" ] || rescued=$((rescued + 1))
  fi
  wait $job
  [ -z "$(find $run -name '*-[0-9]*.h5' -not -path '*/pretrain/*')" ] || ranks=$((1 + RANDOM % 4))
  reached=$(last_step $run)
  ok on $ranks "$LOCKSTEP" train --run-dir $run $(options "$system")
  from=$(grep -oE 'continuing from \S*/checkpoints/\S*, step [0-9]+' last.err last.out | grep -v pretrain/ | grep -oE '[0-9]+$' | head -n 1)
  [ "$reached" -le "${from:-0}" ] || repeated=$((repeated + reached - ${from:-0}))
  echo "$system $fault, rank $rank: step $reached, continued from ${from:-0}" >>details
  same_model "$system-whole/checkpoints/final.h5" $run/checkpoints/final.h5
  [ -z "$(ls $run/checkpoints | grep -vE '^((step|rescue)-[0-9]+|best|final)\.h5$')" ] || fail "left behind: $(ls $run/checkpoints)"
  n=$(grep -c '"split": *"validation"' $run/metrics.jsonl)
  [ "$n" = "$(grep -c '"split": *"validation"' "$system-whole/metrics.jsonl")" ] || fail "metrics.jsonl has $n validation records after the resumes"
  rm -rf $run
done
[ $((2 * hits)) -ge "$KILLS" ] || fail "only $hits of $KILLS kills hit a run"
# The supervisor starts the ranks again after a loss; a signal to it stops them.
i=supervised
KILLED_JOB=$work/$i "$LOCKSTEP" train --restarts 5 --launcher "$MPIRUN -n 3" --run-dir $i $(options emulator) >last.out 2>last.err &
job=$!
kill_after() { test_records $i "$1" && kill -9 "$(process_of 1)"; }
seen=0
for restart in 1 2; do
  await $job last.err "record $((seen + 20)) of rank 1" kill_after $((seen + 20))
  await $job last.err "restart $restart" grep -q "restart $restart of 5" last.err
  seen=$(records $i)
done
kill -TERM $job
wait $job
code=$?
[[ $code = 85 || -e $i/checkpoints/final.h5 ]] || fail "exit code $code after a signal"
ok "$LOCKSTEP" train --run-dir $i $(options emulator)
same_model emulator-whole/checkpoints/final.h5 $i/checkpoints/final.h5

[ -z "${DETAILS:-}" ] || cat details
passed "$hits of $KILLS faults hit a run; the jobs ended after a median of $(median ends), $named named the rank, $rescued saved the state; $repeated steps repeated; the same weights"
