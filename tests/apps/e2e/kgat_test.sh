#!/usr/bin/env bash
# KGAT: what the graph adds to matrix factorisation, the same bits on any ranks and in every mode, resume in either phase.
source "$(dirname "$0")/lib.sh" "$@"
needs h5diff hdf5-tools

ok "$PREP" synth-kg --seed 7 --output planted.h5

best() { # KEY RUN_DIR: the largest value in its log
  grep -oE "\"$1\": ?[-+0-9.eE]+" "$2/metrics.jsonl" | sed -E 's/.*: ?//' | sort -g | tail -1
}

# The same budget for both: 20 epochs at the same rate. Only the graph tells hidden items apart.
COMMON="--data.path planted.h5 --batch.size 256 --optim.lr 0.01 --eval.every 5 --stop.patience 0"
ok "$LOCKSTEP" train --model.kind bprmf $COMMON --epochs 20 --run-dir bprmf
ok "$LOCKSTEP" train --model.kind kgat $COMMON --epochs 20 --run-dir kgat
for metric in recall@20 ndcg@20; do
  awk -v k="$(best $metric kgat)" -v m="$(best $metric bprmf)" 'BEGIN {exit !(k > 2 * m)}' ||
    fail "$metric: KGAT $(best $metric kgat), BPRMF $(best $metric bprmf): the planted graph must double it"
done

# The loss of the triples is recorded.
[ "$(grep -c '"triples_loss"' kgat/metrics.jsonl)" = 20 ] || fail "not every epoch records the loss of its triples"

# Without validation items the test items choose the weights, and every record says so.
for file in train.log report.html; do
  grep -q 'the data set has no validation samples' kgat/$file || fail "$file does not say that test samples validate"
  grep -q 'validation (= test) samples, best weights' kgat/$file || fail "$file: test metrics called validation metrics"
done
ok "$LOCKSTEP" eval --checkpoint kgat/checkpoints/final.h5 --split val
says_once 'it has no validation samples'

# From the baseline's tables, and evaluated again from the file.
ok "$LOCKSTEP" train --model.kind kgat $COMMON --epochs 1 --run-dir pretrained --model.pretrain bprmf/checkpoints/final.h5
! grep -q 'other data' last.err || fail "its own data are called other data"
ok "$PREP" synth-kg --seed 8 --output other.h5
ok "$LOCKSTEP" train --model.kind kgat ${COMMON/planted/other} --steps 1 --run-dir foreign --model.pretrain bprmf/checkpoints/final.h5
says_once 'it was trained on other data than .*other.h5.; its rows must belong to the same users and items'
# A run that continues does not need them again.
mv bprmf/checkpoints/final.h5 tables.h5
ok "$LOCKSTEP" train --model.kind kgat $COMMON --epochs 2 --run-dir pretrained --model.pretrain bprmf/checkpoints/final.h5
says 'continuing from'
mv tables.h5 bprmf/checkpoints/final.h5
ok "$LOCKSTEP" eval --config kgat/config.ini --checkpoint kgat/checkpoints/final.h5 --split test --json
says 'recall@20'
# Large enough, they rank as the baseline does: the layers' outputs have length 1.
ok "$LOCKSTEP" train --model.kind kgat ${COMMON/optim.lr 0.01/optim.lr 1e-12} --steps 1 --run-dir scaled --model.pretrain bprmf/checkpoints/final.h5 --model.pretrain_scale 1000
recall() {
  ok "$LOCKSTEP" eval --config $1/config.ini --checkpoint $1/checkpoints/final.h5 --split test --json
  grep -oE '"recall@20": ?[0-9.e-]+' last.out
}
[ "$(recall scaled)" = "$(recall bprmf)" ] || fail "tables times 1000 rank otherwise than the baseline"

# What the graph adds: against matrix factorisation, against the same weights without it, and against networks trained without it.
for graph in shuffled removed; do
  ok "$LOCKSTEP" train --model.kind kgat $COMMON --epochs 20 --run-dir $graph --data.graph $graph
done
OTHERS=bprmf/checkpoints/best.h5,shuffled/checkpoints/best.h5,removed/checkpoints/best.h5
ok "$LOCKSTEP" eval --checkpoint kgat/checkpoints/best.h5 --json
grep -oE '"metrics":\{[^}]*\}' last.out >metrics.json
ok "$LOCKSTEP" eval --checkpoint kgat/checkpoints/best.h5 --controls --against $OTHERS --json
cp last.out compared.json
grep -oE '"metrics":\{[^}]*\}' compared.json | cmp - metrics.json || fail "metrics differ when samples are compared"
"${LOCKSTEP_PYTHON:-python3}" - <<'EOF' || fail "an interval of what the graph adds is wrong"
import json
result = json.load(open("compared.json"))
names = [n for n in result["tables"] if n.startswith("against ")]
assert names[:2] == ["against graph shuffled", "against graph removed"] and len(names) == 5, names
for name in names:
    table = result["tables"][name]
    assert table["rows"][:2] == ["recall@20", "ndcg@20"] and len(table["rows"]) == 10, table["rows"]
    model, other, difference, low, high = table["values"][:5]
    assert abs(model - result["metrics"]["recall@20"]) < 1e-12 and abs(model - other - difference) < 1e-12
    assert low < difference < high, name
    assert 2 * other < model and low > 0, (name, model, other, low)
EOF
for ranks in 2 3; do
  ok on $ranks "$LOCKSTEP" eval --checkpoint kgat/checkpoints/best.h5 --controls --against $OTHERS --json
  cmp compared.json last.out || fail "$ranks ranks compare otherwise than one"
done
ok "$PREP" synth-sequences --users 12 --quiet --output sessions.h5
ok "$LOCKSTEP" train --model.kind sasrec --data.path sessions.h5 --batch.size 12 --epochs 1 --run-dir sessions
run 2 "$LOCKSTEP" eval --checkpoint kgat/checkpoints/best.h5 --against sessions/checkpoints/final.h5
says 'its model.kind = sasrec has no metrics of single samples; kgat and bprmf have'
run 2 "$LOCKSTEP" eval --checkpoint kgat/checkpoints/best.h5 --data.graph removed
says_once 'option data.graph = removed: the checkpoint was trained with whole, .* eval --controls'
for name in shuffled bprmf; do
  run 2 "$LOCKSTEP" eval --checkpoint $name/checkpoints/best.h5 --controls
  says_once 'option controls: model.kind = .* has no graph to shuffle or remove'
done
run 2 "$LOCKSTEP" train --model.kind bprmf $COMMON --epochs 1 --run-dir nothing --data.graph removed
says 'data.graph'

# Users by number, items by what a list calls them.
{ echo "org_id remap_id"; for i in $(seq 0 399); do echo "film-$i $i Film No. $i"; done; } >items.txt
ok on 2 "$LOCKSTEP" predict --checkpoint kgat/checkpoints/best.h5 --user 3,17 --top 4 --item-names items.txt
says '^user 17$' "left out: the user's items of train, val and test"
says ' 4 +-?[0-9.]+  Film No\. [0-9]+ \(film-[0-9]+\)'
ok "$LOCKSTEP" predict --checkpoint bprmf/checkpoints/best.h5 --user 3

# A validation set is carved out of the training items: no suggestion is in either unless asked for, and nothing says that it is the test set.
ok "$PREP" synth-kg --seed 7 --val-fraction 0.3 --output carved.h5
ok "$LOCKSTEP" train --model.kind bprmf ${COMMON/planted/carved} --epochs 1 --run-dir carved
! grep -qE 'no validation samples|= test' carved/train.log || fail "a run with a validation set says that it has none"
suggested() { # RUN_DIR SPLITS: the number of items outside these splits
  ok "$LOCKSTEP" predict --checkpoint $1/checkpoints/final.h5 --user 3,17,25 --top 400 --exclude $2
  grep -cE '^ +[0-9]+ ' last.out
}
[ "$(suggested carved train+val)" = "$(suggested bprmf train)" ] || fail "items of the validation split are suggested"
[ "$(suggested carved all)" = "$(suggested bprmf all)" ] || fail "items of the test split are suggested"
[ "$(suggested carved none)" = 1200 ] || fail "not all items of three users"

# Another graph of the same sizes: its users and items are others.
ok "$PREP" synth-kg --seed 8 --output other.h5
for command in eval "predict --user 3"; do
  run 3 "$LOCKSTEP" $command --checkpoint kgat/checkpoints/final.h5 --data.path other.h5
  says_once 'it was trained on other data .* or add --other-data'
  ok "$LOCKSTEP" $command --checkpoint kgat/checkpoints/final.h5 --data.path other.h5 --other-data
done

# A metric that does not exist is refused before the first step.
run 2 "$LOCKSTEP" train --model.kind bprmf $COMMON --epochs 1 --run-dir nothing --eval.best recall@21
says 'did you mean recall@20'
[ ! -e nothing/metrics.jsonl ] || fail "a run with an unknown metric has started"

# Every mode on any number of ranks: the same weights, attention and moments. Dropout of messages and edges is on.
SHORT="--data.path planted.h5 --batch.size 96 --optim.lr 0.01 --epochs 1 --model.node_dropout 0.1 --model.conv_dims 16,8 --model.mess_dropout 0.1 --model.embed_dim 16"
ok "$LOCKSTEP" train --model.kind kgat $SHORT --run-dir one
for ranks in 2 3; do
  for mode in replicate nested-rows "nested-rows --dist.row_threshold 0"; do
    dir=$ranks-${mode// /}
    ok on $ranks "$LOCKSTEP" train --model.kind kgat $SHORT --dist.mode $mode --run-dir $dir
    same_model one/checkpoints/final.h5 $dir/checkpoints/final.h5
  done
done
run 2 "$LOCKSTEP" train --model.kind kgat $SHORT --dist.mode column-switch --run-dir refused
says "must be auto, replicate or nested-rows"
# Micro-batches are the bits of one batch that is as large as all of them.
ok on 2 "$LOCKSTEP" train --model.kind kgat ${SHORT/size 96/size 48} --batch.accumulate 2 --run-dir micro
says '96 over 2 ranks \(48 each\) of interactions, 2 micro-batches of 48 at once; 192 of triples'
same_model one/checkpoints/final.h5 micro/checkpoints/final.h5
ok "$LOCKSTEP" train --model.kind bprmf --data.path planted.h5 --batch.size 32 --batch.accumulate 3 --epochs 1 --run-dir mf-micro
run 2 "$LOCKSTEP" train --model.kind bprmf --data.path planted.h5 --optim.ema 0.9
says 'option optim.ema = 0.9: a model of kind bprmf is trained without it'
ok on 2 "$LOCKSTEP" train --model.kind bprmf --data.path planted.h5 --batch.size 96 --epochs 1 --run-dir mf-2
same_model mf-2/checkpoints/final.h5 mf-micro/checkpoints/final.h5
ok "$LOCKSTEP" train --model.kind bprmf --data.path planted.h5 --batch.size 96 --epochs 1 --run-dir mf-1
same_model mf-1/checkpoints/final.h5 mf-2/checkpoints/final.h5

# An epoch has 101 steps of interactions and 113 of triples: stopped in the middle of the second epoch's interactions and of its triples.
TWO=${SHORT/--epochs 1/--epochs 2}
ok "$LOCKSTEP" train --model.kind kgat $TWO --run-dir whole
for steps in 250 380; do
  ok on 2 "$LOCKSTEP" train --model.kind kgat $TWO --run-dir part-$steps --train.steps $steps
  ok on 3 "$LOCKSTEP" train --model.kind kgat $TWO --run-dir part-$steps --dist.mode nested-rows
  says 'resum|continu'
  same_model whole/checkpoints/final.h5 part-$steps/checkpoints/final.h5
done

# Matrix factorisation first, then KGAT from its tables: one run, stopped and killed in either phase and continued on other ranks.
KEY="--data.path planted.h5 --batch.size 96 --optim.lr 0.01 --eval.every 2 --model.conv_dims 16,8 --model.embed_dim 16 --model.mess_dropout 0.1 \
  --checkpoint.every 0 --checkpoint.every_steps 25"
BOTH="$KEY --epochs 1 --model.kind kgat --model.pretrain bprmf --model.pretrain_epochs 6 --model.pretrain_lr 0.02 --model.pretrain_l2 0.003 --model.pretrain_scale 2 --reproducible"
ok "$LOCKSTEP" plan $BOTH
says 'Pretraining before it, as bprmf' '101 steps per epoch, 6 epochs'
ok on 2 "$LOCKSTEP" train $BOTH --run-dir key-whole
says 'pretraining: model.kind = bprmf in key-whole/pretrain' 'initial weights: trained as bprmf'
grep -q 'pretrain/report.html' key-whole/report.html || fail "the report does not name the run that trained the initial weights"
# The same in two runs by hand.
COMMON2="${KEY/lr 0.01/lr 0.02} --epochs 6 --model.kind bprmf --loss.cf_l2 0.003 --reproducible"
COMMON2=$(sed -E 's/--model.(conv_dims|mess_dropout) [^ ]+//g' <<<"$COMMON2")
ok "$LOCKSTEP" train $COMMON2 --run-dir by-hand-1
ok "$LOCKSTEP" train ${BOTH/pretrain bprmf/pretrain by-hand-1/checkpoints/best.h5} --run-dir by-hand-2
same_model key-whole/checkpoints/final.h5 by-hand-2/checkpoints/final.h5
# killed RANKS FILE: starts the run `key` and kills a rank when it has written a checkpoint FILE
killed() {
  ! compgen -G "$2" || fail "an earlier start has written $2"
  setsid $MPIRUN -n $1 "$LOCKSTEP" train $BOTH --run-dir key >last.out 2>last.err &
  local job=$!
  await $job last.err "the checkpoint $2" compgen -G "$2"
  kill -9 $(pgrep -P $job | tail -1) || fail "the job ended before a rank was killed"
  ! wait $job || fail "the job succeeded although a rank was killed"
}
run 85 on 2 "$LOCKSTEP" train $BOTH --run-dir key --max-hours 1e-9  # after its first step
exists key/pretrain/checkpoints/step-1.h5
[ ! -e key/checkpoints ] || fail "the second phase has begun"
killed 3 'key/pretrain/checkpoints/step-[1-9]??.h5'
killed 2 'key/checkpoints/step-*.h5'
exists key/pretrain/checkpoints/best.h5
ok on 3 "$LOCKSTEP" train $BOTH --run-dir key --train.steps 150
ok "$LOCKSTEP" train $BOTH --run-dir key
same_model key-whole/pretrain/checkpoints/best.h5 key/pretrain/checkpoints/best.h5
same_model key-whole/checkpoints/final.h5 key/checkpoints/final.h5
# Once the second phase has a checkpoint, nothing of the first is needed. Other keys of it are another run; a new run takes both along.
rm -r key/pretrain
ok "$LOCKSTEP" train $BOTH --run-dir key
[ ! -e key/pretrain ] || fail "a finished run trains its initial weights again"
run 2 "$LOCKSTEP" train ${BOTH/lr 0.02/lr 0.03} --run-dir key-whole
says 'model.pretrain_lr: 0.02 there, 0.03 here'
OTHER=${BOTH/lr 0.02/lr 0.03}
ok "$LOCKSTEP" train ${OTHER/epochs 6/epochs 1} --run-dir key-whole --resume never
exists key-whole/previous-1/pretrain/checkpoints/best.h5 key-whole/pretrain/checkpoints/best.h5
run 2 "$LOCKSTEP" train $BOTH --run-dir both --init-from kgat/checkpoints/best.h5
says 'option run.init .*: the pretraining of kind bprmf provides the initial weights'
# A batch that counts per rank stays that of the first start, in the second phase too.
RANK=${BOTH/batch.size/batch.per_rank}
ok on 2 "$LOCKSTEP" train $RANK --run-dir rank-whole
run 85 on 2 "$LOCKSTEP" train $RANK --run-dir rank --max-hours 1e-9
ok on 3 "$LOCKSTEP" train $RANK --run-dir rank
same_model rank-whole/checkpoints/final.h5 rank/checkpoints/final.h5
# --resume never is for the first start of a job; when it is requeued in the first phase, it continues there.
export SLURM_JOB_ID=9
run 85 "$LOCKSTEP" train $BOTH --run-dir job --resume never --max-hours 1e-9
SLURM_RESTART_COUNT=1 run 85 "$LOCKSTEP" train $BOTH --run-dir job --resume never --max-hours 1e-9
exists job/pretrain/checkpoints/step-2.h5
unset SLURM_JOB_ID
# What is more popular: the same values on any number of ranks.
ok "$LOCKSTEP" eval --checkpoint kgat/checkpoints/best.h5 --baseline --json
says '"baselines":\{"most popular items":\{"recall@20":'
cp last.out popular.json
ok on 3 "$LOCKSTEP" eval --checkpoint kgat/checkpoints/best.h5 --baseline --json
cmp popular.json last.out || fail "three ranks evaluate otherwise than one"
grep -q '<th>most popular items' kgat/report.html || fail "the report does not compare with the most popular items"
passed "KGAT $(best recall@20 kgat), BPRMF $(best recall@20 bprmf) recall@20 on a planted graph; one trajectory on any ranks, in any mode, resumed in either phase"
