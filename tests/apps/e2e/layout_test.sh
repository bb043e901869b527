#!/usr/bin/env bash
# data.layout: rows that stay in the file give the weights and metrics of rows in memory, on any number of ranks and
# over a restart; what cannot be divided is refused in one line.
source "$(dirname "$0")/systems.sh"
source "$(dirname "$0")/lib.sh" "$@"
needs h5diff hdf5-tools
needs python3 python3
tiny_data
# Of each kind: GiB of a node for rows, at most a quarter of the set.
declare -A memory=([emulator]=1.6e-5 [tisasrec]=1.2e-6 [hrm]=7e-7 [har]=3e-4)
declare -A more=([emulator]="--jacobian.every 1 --eval.every_steps 3" [har]="--augment.shift true")
options() { echo "$(tiny_systems | sed -n "s/^$1 //p") ${more[$1]:-}"; }
in_file() { echo "--data.layout divided --data.memory ${memory[$1]}"; }
# same_metrics A B: two outputs of eval --json
same_metrics() {
  python3 - "$@" <<'END' || fail "the metrics differ: $*"
import json, sys
a, b = (json.load(open(f)) for f in sys.argv[1:])
assert a['metrics'] == b['metrics'], (a, b)
END
}
for kind in emulator tisasrec hrm har; do
  FILE=$(in_file $kind)
  ok "$LOCKSTEP" train $(options $kind) --run-dir $kind
  ok "$LOCKSTEP" eval --checkpoint $kind/checkpoints/final.h5 --json
  cp last.out eval.json
  for n in 1 3; do
    ok on $n "$LOCKSTEP" train $(options $kind) --run-dir $kind-$n $FILE
    says_once 'rows: stay in the file, because a share of .* exceeds the .* of a node.s memory for them; [0-9]+ of [0-9]+ are read ahead'
    same_model $kind/checkpoints/final.h5 $kind-$n/checkpoints/final.h5
    ok on $n "$LOCKSTEP" eval --checkpoint $kind/checkpoints/final.h5 $FILE --json
    same_metrics eval.json last.out
  done
  # The layout is no part of what a checkpoint pins.
  run 85 "$LOCKSTEP" train $(options $kind) --run-dir $kind-stopped --run.max_hours 1e-9
  ok on 2 "$LOCKSTEP" train $(options $kind) --run-dir $kind-stopped $FILE
  same_model $kind/checkpoints/final.h5 $kind-stopped/checkpoints/final.h5
  ok on 2 "$LOCKSTEP" replay $kind-3
done

# Programs and options that read rows in another way: KIND OPTION...
n=0
for line in "emulator --loss.constraint aice-hi --ensemble.members 2" \
  "tisasrec --loss.name softmax --dist.items shard --eval.candidates full" \
  "tisasrec --loss.name sampled_softmax --loss.negatives 16" \
  "hrm --eval.tries 4" \
  "har --data.folds 2 --data.fold 1 --model.mode independent --data.balance sampling --data.percent 50"; do
  kind=${line%% *} what=${line#* } run=more-$((++n))
  ok "$LOCKSTEP" train $(options $kind) $what --run-dir $run
  ok on 2 "$LOCKSTEP" train $(options $kind) $what --run-dir $run-file $(in_file $kind)
  for final in $(cd $run && find . -name final.h5); do same_model $run/$final $run-file/$final; done
done
ok "$LOCKSTEP" eval --checkpoint more-1 --json  # an ensemble
cp last.out eval.json
ok on 2 "$LOCKSTEP" eval --checkpoint more-1 $(in_file emulator) --json
same_metrics eval.json last.out

ok "$LOCKSTEP" train $(options emulator) --run-dir fits --data.layout divided
says_once 'data.layout = divided: there is one node, .* it holds them all, as with replicate'
same_model emulator/checkpoints/final.h5 fits/checkpoints/final.h5
run 2 "$LOCKSTEP" train $(options kgat) --run-dir kgat --data.layout divided
says_once 'option data.layout = divided: model.kind = kgat: .*; use replicate or auto'
ok "$PREP" synth-sequences --users 2 --output few.h5
run 2 on 3 "$LOCKSTEP" train $(options tisasrec) --data.path few.h5 --run-dir few $(in_file tisasrec) --data.memory 1e-9
says_once 'option data.layout = divided: 2 rows for 1 nodes and 3 ranks; use replicate'
# A process that cannot hold the set (229 MiB of rows) trains from the file.
LIMIT=400 ok "$PREP" synth-icecolumn --rows 1500000 --output large.h5
LARGE="--data.path large.h5 --batch.size 10000 --model.hidden_size 16 --reproducible --steps 3 --eval.final none"
limited() { run "$1" bash -c "ulimit -v 280000; exec '$LOCKSTEP' train $LARGE ${*:2}"; }
ok "$LOCKSTEP" train $LARGE --run-dir large
limited 2 --run-dir too-large --data.layout replicate
says_once 'ulimit -v allows .*; choose a smaller data set'
limited 0 --run-dir limited --data.layout divided --data.memory 0.01
same_model large/checkpoints/final.h5 limited/checkpoints/final.h5
passed "rows in the file train as rows in memory do"
