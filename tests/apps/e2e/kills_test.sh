#!/usr/bin/env bash
# A random rank is killed (-9) after a random step, and the run is resumed on 1 to 4 ranks: the final weights are those
# of the undisturbed run. The shipped configurations of the five systems, shortened, take turns. KILLS=100 is the long
# form; it prints how long the jobs outlived their rank and how many of them named it.
source "$(dirname "$0")/lib.sh" "$@"
needs h5diff hdf5-tools
KILLS=${KILLS:-5} RANDOM=${SEED:-1}

ok "$PREP" synth-icecolumn --rows 8000 --output emulator.h5
ok "$PREP" synth-sequences --users 200 --min-length 12 --max-length 20 --categories 4 --clusters 2 --members 8 --output tisasrec.h5
ok "$PREP" synth-kg --output kgat.h5
ok "$PREP" synth-sudoku --order 2 --train 100 --test 20 --min-givens 8 --max-givens 14 --output hrm.h5
ok "$PREP" synth-har --subjects 5 --output har.h5
options() {  # SYSTEM
  local all="--data.path $1.h5 --reproducible --checkpoint.every 0 --train.log_every 1"
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

hits=0 named=0 longest=0
for ((i = 0; i < KILLS; ++i)); do
  system=${systems[i % 5]} ranks=$((2 + RANDOM % 3)) run=run-$i
  [ $system != har ] || ranks=2  # its batch counts per rank of the first start
  KILLED_JOB=$work/$i setsid $MPIRUN -n $ranks "$LOCKSTEP" train --run-dir $run $(options "$system") >last.out 2>last.err &
  job=$!
  last=$((1 + $(records "$system-whole") * 9 / 10 * RANDOM / 32768))
  while [ "$(records $run)" -lt $last ] && kill -0 $job 2>/dev/null; do sleep 0.01; done
  rank=$((RANDOM % ranks))
  victim=
  for process in $(pgrep -x lockstep); do
    [ "$(tr '\0' '\n' <"/proc/$process/environ" 2>/dev/null |
      grep -cxE "KILLED_JOB=$work/$i|(OMPI_COMM_WORLD|PMI)_RANK=$rank")" = 2 ] && victim=$process
  done
  killed=$(date +%s%N)
  if [ -n "$victim" ] && kill -9 "$victim" 2>/dev/null; then
    hits=$((hits + 1))
    for _ in $(seq 300); do kill -0 $job 2>/dev/null || break; sleep 0.1; done
    if kill -0 $job 2>/dev/null; then kill -9 $(pgrep -P $job) $job; fail "the job still hung 30 s after rank $rank of $ranks was killed ($system)"; fi
    ms=$(( ($(date +%s%N) - killed) / 1000000 ))
    [ $ms -le $longest ] || longest=$ms
    grep -qE "rank $rank[ /,(].*(died|killed|ended|gone|exited)" last.out last.err && named=$((named + 1))
  fi
  wait $job
  ls $run/checkpoints/step-*.h5 >/dev/null 2>&1 && ranks=$((1 + RANDOM % 4))
  ok on $ranks "$LOCKSTEP" train --run-dir $run $(options "$system")
  same_model "$system-whole/checkpoints/final.h5" $run/checkpoints/final.h5
  [ -z "$(ls $run/checkpoints | grep -vE '^(step-[0-9]+|best|final)\.h5$')" ] || fail "left behind: $(ls $run/checkpoints)"
  n=$(grep -c '"split": *"validation"' $run/metrics.jsonl)
  [ "$n" = "$(grep -c '"split": *"validation"' "$system-whole/metrics.jsonl")" ] || fail "metrics.jsonl has $n validation records after the resumes"
  rm -rf $run
done
[ $((2 * hits)) -ge "$KILLS" ] || fail "only $hits of $KILLS kills hit a run"
passed "$hits of $KILLS kills hit a run; the jobs ended within $((longest / 1000)).$((longest / 100 % 10)) s, $named named the dead rank; the same weights"
