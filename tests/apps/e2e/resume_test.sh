#!/usr/bin/env bash
# A run that is stopped, or whose newest checkpoint is damaged, and resumed on whatever ranks there are, ends with the weights of the
# undisturbed one. kills_test.sh kills ranks.
configs=$(cd "$(dirname "$0")/../../../configs" && pwd)
source "$(dirname "$0")/lib.sh" "$@"
command -v h5diff >/dev/null || { echo "skipped: no h5diff (hdf5-tools)"; exit 77; }
ok "$PREP" synth-icecolumn --rows 20000 --seed 3 --output data.h5
OPTIONS="--data.path data.h5 --batch.size 200 --optim.lr 0.002 --model.hidden_size 96 --model.hidden_layers 4 --seed 5 --reproducible --checkpoint.every_steps 40 --checkpoint.keep 2"

ok on 2 "$LOCKSTEP" train --run-dir whole $OPTIONS --epochs 12

# SIGTERM: a checkpoint at the next step and exit code 85; the next start goes on from there.
"$LOCKSTEP" train --run-dir stopped $OPTIONS --epochs 12 >last.out 2>last.err &
job=$!
for _ in $(seq 600); do [ -z "$(ls stopped/checkpoints 2>/dev/null | grep step-)" ] || break; sleep 0.1; done
kill -TERM "$job"
code=0; wait "$job" || code=$?
[ "$code" = 85 ] || fail "exit code $code instead of 85 after SIGTERM"
[ -z "$(ls stopped/checkpoints/final.h5 2>/dev/null)" ] || fail "a stopped run left final.h5"
ok "$LOCKSTEP" train --run-dir stopped $OPTIONS --epochs 12
same_model whole/checkpoints/final.h5 stopped/checkpoints/final.h5

# A damaged newest checkpoint is refused by name and the one before is used.
ok "$LOCKSTEP" train --run-dir damaged $OPTIONS --epochs 2
newest=damaged/checkpoints/$(ls damaged/checkpoints | grep -oE 'step-[0-9]+' | sort -t- -k2 -n | tail -1).h5
rm damaged/checkpoints/final.h5
printf '\377' | dd of="$newest" bs=1 seek=4000 conv=notrunc status=none
cp "$newest" broken.h5  # the next run writes a whole one in its place
run 0 "$LOCKSTEP" train --run-dir damaged $OPTIONS --epochs 2
says "$(basename "$newest")"
run 3 "$LOCKSTEP" train --run-dir other $OPTIONS --epochs 2 --resume broken.h5
says 'broken\.h5' 
# Samples and learning rate that count per rank: other ranks keep those of the first start, in either phase of KGAT's epochs.
ok "$PREP" synth-har --subjects 3 --output har.h5
ok "$PREP" synth-kg --seed 7 --output kg.h5
HAR="--config $configs/har-synth.ini --data.path har.h5 --train.epochs 2"
KGAT="--config $configs/kgat-synth.ini --data.path kg.h5 --batch.scope rank --batch.size 128 --train.epochs 2"
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
# A table of which a step touches few rows: by rows on any ranks and threads, with and without lazy updates.
ok "$PREP" synth-sequences --users 60 --min-length 6 --max-length 12 --members 200 --output items.h5
ROWS="--model.kind sasrec --reproducible --data.path items.h5 --batch.size 20 --dist.shards 8 --model.hidden_units 6 --model.maxlen 12 --optim.clip_norm 1 --optim.ema 0.9 --eval.final none --epochs 3"
for lazy in "" --optim.lazy; do
  ok "$LOCKSTEP" train --run-dir rows$lazy-whole $ROWS $lazy --threads 2
  ok on 3 "$LOCKSTEP" train --run-dir rows$lazy $ROWS $lazy --steps 4
  ok on 2 "$LOCKSTEP" train --run-dir rows$lazy $ROWS $lazy --threads 2
  same_model rows$lazy-whole/checkpoints/final.h5 rows$lazy/checkpoints/final.h5
done
differing_model rows-whole/checkpoints/final.h5 rows--optim.lazy-whole/checkpoints/final.h5
passed "one stop, one damaged checkpoint, other ranks: the same weights"
