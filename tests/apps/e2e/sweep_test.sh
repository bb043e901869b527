#!/usr/bin/env bash
# lockstep sweep: a grid with seeds, random search and successive halving give the same bytes on 1, 2 and 4 ranks, and after kills.
# A training that fails is recorded; the best configuration trains as it is; wrong input.
source "$(dirname "$0")/lib.sh" "$@"
ok "$PREP" synth-icecolumn --rows 300 --no-jacobian --output data.h5
cat >base.ini <<END
[data]
path = data.h5
[model]
kind = emulator
hidden_size = 8
hidden_layers = 1
[batch]
size = 80
[train]
epochs = 9
[run]
reproducible = true
[stop]
patience = 0
END
# space NAME LINE...: the configuration NAME.ini with these lines in [sweep]
space() { local name=$1; shift; { cat base.ini; echo '[sweep]'; printf '%s\n' "$@"; } >"$name.ini"; }
space grid 'optim.lr = log(1e-3 .. 1e-1, 3)' 'model.hidden_size = choice(4, 8)' 'seed = range(2)'
space random 'method = random' 'trials = 5' 'optim.lr = log(1e-3 .. 1e-1)' 'model.hidden_size = log(4 .. 16)'
space halving 'method = halving' 'trials = 12' 'optim.lr = log(1e-4 .. 1e-1)'
for method in grid random halving; do
  ok "$LOCKSTEP" sweep --config $method.ini --run-dir $method-1
  exists $method-1/{sweep.json,best.ini,report.html,trial-1/checkpoints/best.h5}
  ok on 2 "$LOCKSTEP" sweep --config $method.ini --run-dir $method-2
  ok on 4 "$LOCKSTEP" sweep --config $method.ini --run-dir $method-4 --ranks-per-run 2
  for ranks in 2 4; do cmp $method-1/sweep.json $method-$ranks/sweep.json || fail "$method differs on $ranks ranks"; done
  cmp $method-1/best.ini $method-2/best.ini || fail "best.ini of $method differs on 2 ranks"
done
grep -q 'Importance' grid-1/report.html && grep -q 'parallel coordinates' grid-1/report.html || fail "the report has no importance or picture"
grep -q '"interval_95"' grid-1/sweep.json || fail "no interval over the seeds"
[ "$(ls -d grid-1/trial-* | wc -l)" = 12 ] || fail "the grid does not have 12 trainings"
[ "$(grep -c '"until_epoch": 1,' halving-1/sweep.json)" = 12 ] && [ "$(grep -c '"until_epoch": 3,' halving-1/sweep.json)" = 4 ] &&
  [ "$(grep -c '"until_epoch": 0,' halving-1/sweep.json)" = 2 ] || fail "the rungs do not have 12, 4 and 2 trainings"

# --- the best configuration is compared with that of the file over the seeds
cp base.ini paired.ini && printf '[optim]\nlr = 0.001\n[sweep]\noptim.lr = choice(0.001, 0.01)\nseed = range(3)\n' >>paired.ini
ok "$LOCKSTEP" sweep --config paired.ini --run-dir paired
says 'not estimable: each value was tried once'
grep -q '"optim.lr": null' paired/sweep.json || fail "the importance of two values is a number"
ok "$LOCKSTEP" $(grep -o 'compare --split val .*' last.err)
says 'B - A +0, 1, 2 '

# --- results in one precision are not those in another, and not of files that were trained again since
cp paired/sweep.json fp32.json
ok "$LOCKSTEP" sweep --config paired.ini --run-dir paired --precision fp64
! cmp -s fp32.json paired/sweep.json || fail "results in fp32 count in fp64"
ok "$LOCKSTEP" sweep --config paired.ini --run-dir paired
says '^trial-1: '
cmp fp32.json paired/sweep.json || fail "fp32 differs after fp64"

# --- the best configuration trains to the weights of its trial; the same command again trains nothing
ok "$LOCKSTEP" train --config random-1/best.ini --run-dir best
best=$(grep -m 1 -A 2 '"ranking"' random-1/sweep.json | grep -o 'trial-[0-9]*')
same_model best/checkpoints/best.h5 "random-1/$best/checkpoints/best.h5"
[ ! -e random-1/$best/checkpoints/final.h5 ] || fail "a trial has a final checkpoint"
ok "$LOCKSTEP" sweep --config random.ini --run-dir random-1
! grep -q 'trial-1:' last.err || fail "a finished training was trained again"
cmp random-1/sweep.json random-2/sweep.json || fail "another start changes the result"

# --- kills: of one rank, a signal to all, a time limit; each start continues
for method in grid halving; do
  killed=0 long="--epochs 450"
  ok "$LOCKSTEP" sweep --config $method.ini --run-dir $method-whole $long
  ended() { grep -s name "$method-k/campaign.jsonl" | wc -l; }
  for round in 1 2 3; do
    done_before=$(ended)
    $MPIRUN -n 2 "$LOCKSTEP" sweep --config $method.ini --run-dir $method-k $long --set train.log_every=1 >job.log 2>&1 &
    job=$!
    until [ "$(ended)" != "$done_before" ] || ! kill -0 $job 2>/dev/null; do sleep 0.01; done
    # A rank is a child of mpirun, or with MPICH of its proxy.
    if [ $round = 2 ]; then kill -USR1 $job; else kill -KILL "$({ pgrep -x lockstep -P $job || pgrep -x lockstep -P "$(pgrep -P $job)"; } | tail -n 1)"; fi
    wait $job || killed=$((killed + 1))
  done
  [ $killed -ge 2 ] || fail "$method ended before it was killed"
  ok on 2 "$LOCKSTEP" sweep --config $method.ini --run-dir $method-k $long --set train.log_every=1
  cmp $method-whole/sweep.json $method-k/sweep.json || fail "$method differs after kills"
done
for method in random halving; do
  run 85 on 2 "$LOCKSTEP" sweep --config $method.ini --run-dir late-$method --run.max_hours 0.000001
  says 'the same command continues'
  ok on 2 "$LOCKSTEP" sweep --config $method.ini --run-dir late-$method
  cmp $method-1/sweep.json late-$method/sweep.json || fail "$method differs after the time limit"
done

# --- some trainings fail: recorded, the others go on; all fail: the messages
space some 'batch.size = choice(80, 100000)'
ok on 2 "$LOCKSTEP" sweep --config some.ini --run-dir some
says 'trial-2 has failed: .*batch'
grep -q '"failed": ".*batch' some/sweep.json || fail "the failure is not recorded"
ok on 4 "$LOCKSTEP" sweep --config some.ini --run-dir some-4 --ranks-per-run 2
cmp some/sweep.json some-4/sweep.json || fail "a failure differs in groups of two ranks"
ok on 2 "$LOCKSTEP" sweep --config some.ini --run-dir some
says 'trial-2 has failed'
ok on 2 "$LOCKSTEP" sweep --config some.ini --run-dir some
! grep -q 'trial-2 has failed' last.err || fail "a training that has failed twice was tried again"
# One rank of a group alone fails: its folder is gone. It ends the job; the next start continues.
long="--epochs 1000000 --checkpoint.every_minutes 1000"
$MPIRUN -n 4 "$LOCKSTEP" sweep --config grid.ini --run-dir moved --ranks-per-run 2 $long >job.log 2>&1 &
job=$!
until [ -s moved/trial-1/metrics.jsonl ] || ! kill -0 $job 2>/dev/null; do sleep 0.05; done
run 2 "$LOCKSTEP" sweep --config grid.ini --run-dir moved $long
says "is in use by"
mv moved/trial-1 away
wait $job && fail "the job went on"
grep -q '"name":"trial-1","code":1,.*no longer the directory' moved/campaign.jsonl || { cat job.log moved/campaign.jsonl; fail "the failure of one rank is not recorded"; }
ok on 4 "$LOCKSTEP" sweep --config grid.ini --run-dir moved --ranks-per-run 2
cmp grid-1/sweep.json moved/sweep.json || fail "the grid differs after the failure of one rank"
space none 'batch.size = choice(100000, 200000)'
run 1 "$LOCKSTEP" sweep --config none.ini --run-dir none
says 'all trainings have failed' '1 times: '

# --- wrong input
while IFS='|' read -r line message; do
  space bad "$line"
  run 2 on 2 "$LOCKSTEP" sweep --config bad.ini --run-dir bad </dev/null
  says_once "$message"
done <<'END'
optim.lrr = choice(1, 2)|unknown key optim.lrr; did you mean optim.lr
optim.lr = log(-1 .. 1)|the logarithm needs numbers above 0
optim.lr = uniform(2 .. 1)|an empty range
optim.lr = uniform(1 .. 2)|a grid needs the number of points
optim.lr = 0.1|no range
optim.lr = choice()|an empty choice
model.hidden_size = uniform(1 .. 3, 5)|2 occurs twice among 5 points
optim.lr = choice(fast, slow)|optim.lr = fast
model.hidden_size = choice(8.5)|model.hidden_size = 8.5
seed = range(2000000)|more than a million values
seed = range(9007199254740992 .. 9007199254740992)|needs keys to search
run.threads = choice(1, 2)|does not decide what a network learns
eval.best = choice(a, b)|does not decide what a network learns
END
space bad 'seed = range(1000)' 'optim.lr = log(1e-4 .. 1e-2, 2000)'
run 2 "$LOCKSTEP" sweep --config bad.ini --run-dir bad
says 'the space has 2000000 trainings'
space bad 'optim.lr = choice(0.01, 0.1)' 'trials = 5'
run 2 "$LOCKSTEP" sweep --config bad.ini --run-dir bad
says 'option sweep.trials = 5: sweep.method = grid trains all combinations'
run 2 "$LOCKSTEP" sweep --config base.ini --run-dir bad
says 'needs keys to search'
run 2 "$LOCKSTEP" sweep --config grid.ini --run-dir bad --eval.best acuracy
says 'option eval.best = acuracy: the model reports no such metric'
run 2 "$LOCKSTEP" sweep --config grid.ini --run-dir bad --eval.best bias.aice
says 'option eval.best = bias.aice: an error with a sign is not best where it is smallest'
run 2 "$LOCKSTEP" sweep --config random.ini --run-dir grid-1
says 'holds a run of another configuration' 'sweep.method'
run 2 on 3 "$LOCKSTEP" sweep --config grid.ini --run-dir bad --ranks-per-run 2
says_once '3 ranks cannot be divided'
run 2 "$LOCKSTEP" sweep --config halving.ini --run-dir bad --epochs 2
says 'need more than train.epochs = 2'
# MPI without MPI_THREAD_MULTIPLE: no search in groups; members that all ranks train need none.
if command -v mpicc >/dev/null; then
  echo '#include <mpi.h>
  int MPI_Init_thread(int* n, char*** args, int required, int* provided) {
    return PMPI_Init_thread(n, args, required > 2 ? MPI_THREAD_SERIALIZED : required, provided);
  }' >level.c
  ok mpicc -shared -fPIC level.c -o level.so
  run 2 on 2 env LD_PRELOAD=./level.so "$LOCKSTEP" sweep --config grid.ini --run-dir bad
  says_once 'MPI_THREAD_SERIALIZED does not let threads call it at the same time'
  ok on 2 env LD_PRELOAD=./level.so "$LOCKSTEP" train --config base.ini --ensemble.members 2 --epochs 1 --run-dir members
fi
# Other data at the same path: the results of the old ones are not taken for theirs.
ok "$PREP" synth-icecolumn --rows 300 --no-jacobian --seed 5 --output data.h5
run 3 on 2 "$LOCKSTEP" sweep --config random.ini --run-dir random-1
says_once 'trial-[0-9] was trained on other data .*; choose another --run-dir, or --resume never'
# Without validation samples the test samples decide, and the search says so.
ok "$PREP" synth-kg --users 20 --output kg.h5
printf '[model]\nkind = bprmf\n[batch]\nsize = 8\n[train]\nepochs = 1\n[sweep]\noptim.lr = choice(0.001, 0.01)\n' >kg.ini
ok "$LOCKSTEP" sweep --config kg.ini --data.path kg.h5 --run-dir kg
says 'no validation samples, so the test samples choose the best configuration'
ok "$LOCKSTEP" train --config grid.ini --epochs 1 --run-dir without  # other commands ignore [sweep]
printf 'data:\n  path: data.h5\nsweep:\n  # rates\n  optim.lr: choice(0.001, 0.01)\nmodel:\n  kind: emulator\nbatch:\n  size: 80\n' >space.yaml
ok "$LOCKSTEP" train --config space.yaml --epochs 1 --run-dir yaml
passed "searches"
