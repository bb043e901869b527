#!/usr/bin/env bash
# How the program starts: in a requeued job, in a Slurm step that MPI does not connect, and when it executes itself again.
source "$(dirname "$0")/lib.sh" "$@"
ok "$PREP" synth-icecolumn --rows 400 --seed 3 --output data.h5
OPTIONS="--data.path data.h5 --batch.size 50 --model.hidden_size 8 --epochs 2"

# A requeued job repeats its command. --resume FILE and --resume never hold for its first start; each later start continues from the
# checkpoint of the one before. Another job with the same command starts again.
stops() { run 85 "$LOCKSTEP" train --run-dir "$1" $OPTIONS --run.max_hours 1e-9 --resume "$2"; }
newest() { ls "$1/checkpoints" | grep -oE 'step-[0-9]+' | sort -t- -k2 -n | tail -1; }
stops first auto
says 'the same command continues'
cp "first/checkpoints/$(newest first).h5" one.h5
begins() {  # begins FILE|never: the last start was from the file, or from nothing
  if [ "$1" = never ]; then ! grep -q 'continuing from' last.out last.err || fail "it continues"; else says "continuing from $1,"; fi
  says '--resume auto continues'
}
for resume in one.h5 never; do
  dir=of-$resume
  SLURM_JOB_ID=7 stops $dir $resume
  begins $resume
  for start in 1 2; do
    before=$(newest $dir)
    SLURM_JOB_ID=7 SLURM_RESTART_COUNT=$start stops $dir $resume
    says 'was for the first start of job 7' "continuing from $dir/checkpoints/$before.h5,"
  done
  SLURM_JOB_ID=8 stops $dir $resume
  begins $resume
done

# After a clean stop, a line says that the message of Open MPI's mpirun is expected.
run 85 on 2 "$LOCKSTEP" train --run-dir two $OPTIONS --run.max_hours 1e-9
[[ $($MPIRUN --version) != *"Open MPI"* ]] || says_once 'mpirun now reports exit code 85 .*expected'

# A run that ends within its first epoch and its warm-up succeeds, warns, and records the metrics of every split.
SMALL="--data.path data.h5 --batch.size 50 --model.hidden_size 8"
ok "$LOCKSTEP" train --run-dir smoke $SMALL --schedule.name cosine --schedule.unit step --schedule.warmup 100 --steps 3
says 'the run ends within the warm-up of 100 steps, at 3 % of this rate' '^[0-9:]{8} +3/3 +0\.[0-9]+ +[0-9.e-]+\* '
for split in train validation test; do
  [ "$(grep -c "\"step\":3,.*\"split\":\"$split\"" smoke/metrics.jsonl)" = 1 ] || fail "not one record of $split"
done
ok "$LOCKSTEP" train --run-dir quick $SMALL --steps 3 --eval.final none --log-level warning
[ ! -s last.err ] || fail "--log-level warning prints other lines"
! grep -q 'split":"test' quick/metrics.jsonl || fail "eval.final = none evaluates"

# Two equal runs are equal to their last dataset, whatever their directories are called.
ok "$LOCKSTEP" train --run-dir again $SMALL --steps 3 --eval.final none --log-level detail
says '^step 3/3 epoch .* gnorm ' '^step 3/3 epoch .* validation loss .* rmse\.aice '
ok "$LOCKSTEP" checkpoint diff quick/checkpoints/final.h5 again/checkpoints/final.h5
run 1 "$LOCKSTEP" checkpoint diff quick/checkpoints/final.h5 smoke/checkpoints/final.h5
says 'schedule.name: cosine there, constant here'
! grep -q run.dir last.out || fail "the run directory counts"

# Every evaluation is on the console. A cosine that is stretched by more epochs says what it does to the rate.
ok "$LOCKSTEP" train --run-dir cosine $SMALL --schedule.name cosine --epochs 4 --eval.final none
[ "$(grep -cE '^[0-9:]{8} ' last.err)" = 4 ] || fail "not every evaluation is shown"
ok "$LOCKSTEP" train --run-dir cosine $SMALL --schedule.name cosine --epochs 6 --eval.final none
says 'the cosine now spans 6 epochs, which moves the rate of step 28 from .* to .*set schedule.total'

for steps in 10 12; do  # the last record is of an evaluation within an epoch
  ok "$LOCKSTEP" train --run-dir within $SMALL --schedule.name cosine --epochs 4 --steps $steps --eval.every_steps 3 --eval.final none
  ! grep -q 'cosine now spans' last.out last.err || fail "a schedule that is as before is said to move"
done

# A run keeps others out of its directory until it ends or is killed. --take-over ends it.
own() {  # own OPTION...: a run that goes on until it is ended; returns when the directory is its own
  "$LOCKSTEP" train --run-dir owned $SMALL --stop.rule none --epochs 100000000 "$@" >/dev/null 2>first.err &
  first=$!
  await $first first.err "the lock of its directory" grep -s "process $first " owned/.lock
}
own --checkpoint.every 0
await $first first.err "a record" [ -s owned/metrics.jsonl ]
ok "$LOCKSTEP" status owned smoke
says 'owned +running +[0-9]+ .* process '"$first on " 'smoke +done +3 .* final.h5, .* ago +1 *$'
run 2 "$LOCKSTEP" train --run-dir owned $SMALL --steps 3
says "run directory 'owned' is in use by another run \(process $first on .*, since 20.*--take-over"
ok "$LOCKSTEP" train --run-dir owned $SMALL --steps 3 --resume never --take-over
says "taken over from process $first on"
code=0; wait $first || code=$?
[ "$code" = 1 ] && grep -q 'another run has taken it over (process' first.err || fail "the first run ended with $code: $(tail -3 first.err)"
exists owned/checkpoints/final.h5 owned/previous-1/metrics.jsonl
own --resume never
kill -9 $first; wait $first
ok "$LOCKSTEP" status owned
! grep -q running last.out || fail "a killed run is said to be running"
LOCKSTEP_LEFT_OUT=node2,node4 ok "$LOCKSTEP" train --run-dir owned $SMALL --steps 3 --resume never
ok "$LOCKSTEP" status owned
says 'owned +done, without node2,node4 '

# What newcomers write first: names of other programs, other words for the validation split, an older configuration, the same
# command again, and other settings for the same directory.
ok "$LOCKSTEP" train --run-dir new --data.path data.h5 --model.hidden_size 8 --learning_rate 0.002 --train_batch_size 50 \
  --stopping_step 3 --monitor rmse --stop.rule validation --steps 3 --eval.every_steps 2 --max-hours 30m
says 'learning_rate|learning rate: 0.002' 'batch: 50 on 1 rank' 'val rmse '
for key in optim.learning_rate=optim.lr lrning_rate=optim.lr monitr=eval.best data=data.path model=model.kind; do
  run 2 "$LOCKSTEP" train --data.path data.h5 "--${key%=*}" 1
  says "did you mean --${key#*=}\\?"
done
for word in val valid validation; do ok "$LOCKSTEP" eval --checkpoint new/checkpoints/best.h5 --split $word; says ' val samples of '; done
printf '[model]\nkind = sasrec\n[loss]\nkind = softmax\n' >old.ini
run 2 "$LOCKSTEP" plan --config old.ini
says_once 'old.ini:4: loss.kind is now called loss.name'
ok "$LOCKSTEP" train --run-dir smoke $SMALL --schedule.name cosine --schedule.unit step --schedule.warmup 100 --steps 3
says 'has finished'
run 2 "$LOCKSTEP" train --run-dir smoke $SMALL --schedule.name cosine --schedule.unit step --schedule.warmup 100 --steps 3 --eval.every 5
says 'eval.every: 1 there, 5 here' '--resume never'

# plan takes cores and memory of a node from Slurm's default partition, where there is one.
printf '#!/bin/sh\necho debug 4 8000\necho "batch* 40+ 196608"\n' >sinfo
chmod +x sinfo
PATH=$PWD:$PATH ok "$LOCKSTEP" plan $SMALL --ranks 4 --ranks-per-node 2
says 'batch\* \(sinfo\): 40 cores, 192.0 GiB' '^4 ranks, 2 per node, 20 threads each' '--node-memory +192.0 GiB'
PATH=$PWD:$PATH ok "$LOCKSTEP" plan $SMALL --cores 6 --node-memory 2
says '^1 ranks, 1 per node, 6 threads each' '--node-memory +2.0 GiB'

# A start that fails leaves no configuration behind. A checkpoint of another kind is refused in one line.
run 2 "$LOCKSTEP" train --run-dir failed --data.path nowhere.h5
[ ! -e failed/config.ini ] || fail "a start that failed leaves config.ini"
run 2 "$LOCKSTEP" train --run-dir other --model.kind kgat --data.path data.h5 --resume smoke/checkpoints/final.h5
says 'model.kind: emulator there, kgat here'
[ "$(cat last.out last.err | wc -l)" = 2 ] || fail "other differences hide the one that matters"
ok "$LOCKSTEP" info cosine/checkpoints/best.h5

# Ranks that MPI does not connect, under srun or under another library's mpirun, must not train alone, unless the user
# says so. One of them says it.
for variable in SLURM_STEP_NUM_TASKS OMPI_COMM_WORLD_SIZE PMI_SIZE; do
  run 2 env $variable=2 SLURM_PROCID=0 "$LOCKSTEP" info
  says_once "the launcher announces 2 ranks \\($variable\\), but MPI \\(.*[0-9]\\) connects only one"
  run 2 env $variable=2 SLURM_PROCID=1 "$LOCKSTEP" info
  [ ! -s last.out ] && [ ! -s last.err ] || fail "a later rank repeats the message"
  run 0 env $variable=2 LOCKSTEP_MPI=never "$LOCKSTEP" info
done

# A limit of the site on threads bounds those of a rank, also when gradients travel while threads compute.
OMP_THREAD_LIMIT=2 ok on 2 "$LOCKSTEP" train --run-dir limited $OPTIONS --threads 4 --dist.bucket_bytes 512
says 'OMP_THREAD_LIMIT = 2; each rank computes with 2' '2 threads each'
# Threads that the launcher binds to fewer cores are named.
if [ "$(nproc)" -gt 1 ] && core=$(taskset -cp $$ | grep -oE '[0-9]+' | tail -1); then
  ok taskset -c "$core" "$LOCKSTEP" train --run-dir bound $OPTIONS --threads 2
  says '2 threads are bound to 1 core of the [0-9]+ of .* --bind-to none .* or use --threads 1'
  OMP_NUM_THREADS=1 ok taskset -c "$core" "$LOCKSTEP" train --run-dir fits $OPTIONS
  ! grep -q 'bound to' last.err || fail "one thread on one core is warned of"
fi

# With several threads the program executes itself again, and keeps its name.
mkfifo run.ini
env -u OMP_NUM_THREADS -u OMP_WAIT_POLICY -u GOMP_SPINCOUNT "$LOCKSTEP" plan --config run.ini >last.out 2>last.err &
plan=$!
exec 9>run.ini  # opens when the program reads its configuration
name=$(cat /proc/$plan/comm)
exec 9>&-
wait $plan
[ "$name" = lockstep ] || fail "the process is called $name"
passed "requeued jobs continue, unconnected tasks are refused, the process keeps its name"
