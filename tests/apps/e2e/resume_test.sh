#!/usr/bin/env bash
# A run that continues on other ranks ends with the weights of the uninterrupted one, also where the batch or the form of its
# gradients depends on the ranks of the first start. train.programs.resume has signals and damaged checkpoints; kills_test.sh kills ranks.
source "$(dirname "$0")/lib.sh" "$@"
needs h5diff hdf5-tools
# Samples and learning rate that count per rank: other ranks keep those of the first start, in either phase of KGAT's epochs.
ok "$PREP" synth-har --subjects 3 --output har.h5
ok "$PREP" synth-kg --seed 7 --output kg.h5
HAR="--config $tree/configs/har-synth.ini --data.path har.h5 --train.epochs 2"
KGAT="--config $tree/configs/kgat-synth.ini --data.path kg.h5 --batch.per_rank 128 --train.epochs 2"
for kind in HAR KGAT; do
  PER_RANK="${!kind} --optim.scale_lr linear --reproducible"
  ok on 2 "$LOCKSTEP" train --run-dir $kind-whole $PER_RANK
  ok on 2 "$LOCKSTEP" train --run-dir $kind $PER_RANK --steps 5
  steps=$(grep -oE 'steps: [0-9]+ per epoch' last.err last.out | grep -oE '[0-9]+' | head -1)
  ok on 4 "$LOCKSTEP" train --run-dir $kind $PER_RANK --steps $((2 * steps - 2))
  says 'stay those of the first start, on 2 devices; this start has 4'
  ok "$LOCKSTEP" train --run-dir $kind $PER_RANK
  says 'stay those of the first start, on 2 devices; this start has 1'
  same_model $kind-whole/checkpoints/final.h5 $kind/checkpoints/final.h5
done
# In the default mode, on as many ranks: whether gradients travel by rows is the decision of the first start.
ok "$PREP" synth-sequences --users 60 --min-length 6 --max-length 12 --categories 4 --clusters 2 --members 3 --output sequences.h5
SASREC="--model.kind sasrec --data.path sequences.h5 --batch.size 40 --model.hidden_units 16 --model.maxlen 12 --eval.final none --epochs 3"
ok on 4 "$LOCKSTEP" train --run-dir sasrec-whole $SASREC
ok on 4 "$LOCKSTEP" train --run-dir sasrec $SASREC --steps 3
ok on 4 "$LOCKSTEP" train --run-dir sasrec $SASREC
says 'gradients of tables: whole, as before the resume'
same_model sasrec-whole/checkpoints/final.h5 sasrec/checkpoints/final.h5
# A table of which a step touches few rows: by rows on any ranks and threads, with updates of all rows, lazy and
# deferred updates.
ok "$PREP" synth-sequences --users 60 --min-length 6 --max-length 12 --members 200 --output items.h5
ROWS="--model.kind sasrec --reproducible --data.path items.h5 --batch.size 20 --dist.shards 8 --model.hidden_units 6 --model.maxlen 12 --optim.clip_norm 1 --eval.final none --epochs 3"
for update in "all --optim.ema 0.9" "lazy --optim.ema 0.9 --optim.lazy" deferred; do
  read -r run more <<<"$update"
  ok "$LOCKSTEP" train --run-dir $run-whole $ROWS $more --threads 2
  ok on 3 "$LOCKSTEP" train --run-dir $run $ROWS $more --steps 4
  ok on 2 "$LOCKSTEP" train --run-dir $run $ROWS $more --threads 2
  same_model $run-whole/checkpoints/final.h5 $run/checkpoints/final.h5
done
same_model all-whole/checkpoints/final.h5 deferred-whole/checkpoints/final.h5
differing_model all-whole/checkpoints/final.h5 lazy-whole/checkpoints/final.h5
# The command of a finished training again changes no result of its parts: folds, members, a pretraining whose main training starts
# again. With almost no learning rate the rule ends each part long before its last epoch.
ok "$PREP" synth-har --subjects 3 --seconds 12 --output short.h5
ok "$PREP" synth-kg --users 40 --output small.h5
ok "$PREP" synth-icecolumn --rows 600 --output columns.h5
RULE="--stop.rule train_loss --optim.lr 1e-9 --schedule.min_lr 0 --eval.every 9 --train.epochs 100"
for parts in "folds --config $tree/configs/har-synth.ini --data.path short.h5 --data.folds subjects --model.dim 8 --model.layers 1" \
  "train --data.path columns.h5 --batch.size 50 --model.hidden_size 8 --ensemble.members 2" \
  "train --config $tree/configs/kgat-synth.ini --data.path small.h5 --model.conv_dims 8 --model.pretrain bprmf --model.pretrain_epochs 100 --model.pretrain_lr 1e-9"; do
  rm -rf again
  for results in first second; do
    rm -rf again/checkpoints
    ok "$LOCKSTEP" $parts $RULE --run-dir again
    find again -path 'again/*/checkpoints/*' -o -name folds.json | sort | xargs sha256sum >$results
  done
  diff first second >&2 || fail "the same command has changed results: $parts"
done
passed "other ranks, repeated commands: the same weights"
