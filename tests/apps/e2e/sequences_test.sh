#!/usr/bin/env bash
# Sequence models from raw events to suggestions: ranks and interruptions do not change the training, times are worth something, bad input is named.
source "$(dirname "$0")/lib.sh" "$@"
needs h5diff hdf5-tools
ok "$PREP" synth-sequences --users 150 --min-length 12 --max-length 30 --categories 4 --clusters 2 --members 12 --seed 3 --output data.h5

train() { # RUN_DIR RANKS KIND [further options]
  local dir=$1 ranks=$2 kind=$3; shift 3
  ok on "$ranks" "$LOCKSTEP" train --model.kind "$kind" --data.path data.h5 --run-dir "$dir" --batch_size 64 --num_epochs 3 --eval_every 1 \
    --maxlen 20 --hidden_units 12 --num_heads 2 --time_span 7 "$@"
  exists "$dir/checkpoints/final.h5"
}

# 150 users in batches of 64: the last batch of an epoch has 22, which divides among neither 3 ranks nor 16 shards.
for model in "sasrec" "tisasrec" "tisasrec --mhc streams"; do
  train r1 1 $model --reproducible --run.resume never
  for ranks in 2 3; do
    train r$ranks $ranks $model --reproducible --run.resume never
    same_model r1/checkpoints/final.h5 r$ranks/checkpoints/final.h5
  done
  train d2 2 $model --run.resume never
  close_model r1/checkpoints/final.h5 d2/checkpoints/final.h5 2e-3
done

# Each loss gives the same bits on any number of ranks.
for loss in gbce sampled_softmax softmax; do
  for ranks in 1 2 3; do
    train l$ranks $ranks sasrec --loss.name $loss --loss.negatives 20 --reproducible --run.resume never --threads $((3 - ranks / 2))
    same_model l1/checkpoints/final.h5 l$ranks/checkpoints/final.h5
  done
  train d2 2 sasrec --loss.name $loss --loss.negatives 20 --run.resume never
  close_model l1/checkpoints/final.h5 d2/checkpoints/final.h5 2e-3
done

# Options that the others make ineffective are named.
train quiet 1 sasrec --steps 1 --loss.negatives 20 --mhc_sinkhorn_iter 3 --time_dropout table --eval.final none --run.resume never
for text in 'loss.negatives = 20 has no effect with loss.name = bce' 'model.mhc_sinkhorn_iter = 3 has no effect with model.mhc = none' \
  'model.time_dropout = table has no effect with model.kind = sasrec'; do says_once "option $text"; done
train quiet 1 sasrec --steps 1 --mhc streams --norm post --loss.name softmax --optim.lazy --eval.final none --run.resume never
says_once 'option model.norm = post has no effect with model.mhc = streams'
says_once 'option optim.lazy = true has no effect with loss.name = softmax'

# Items cut over the ranks: the bits of whole ones, on any number of ranks, also when a run continues in the other form.
for more in "" "--l2_emb 0.001 --optim.clip_norm 0.5 --optim.ema 0.9 --threads 2"; do
  softmax() { train "$1" "$2" sasrec --loss.name softmax $more "${@:3}"; }
  softmax whole 3 --reproducible --run.resume never
  for ranks in 1 2 3; do
    softmax shard$ranks $ranks --dist.items shard --run.resume never --checkpoint.copy $([ $ranks = 2 ] && echo false || echo true)
    same_model whole/checkpoints/final.h5 shard$ranks/checkpoints/final.h5
    ok h5diff whole/checkpoints/final.h5 shard$ranks/checkpoints/final.h5 /optim /optim
    [ -z "$more" ] || ok h5diff whole/checkpoints/final.h5 shard$ranks/checkpoints/final.h5 /ema /ema
  done
  softmax mixed 3 --dist.items shard --reproducible --steps 2 --run.resume never --checkpoint.layout sharded
  softmax mixed 1 --reproducible --steps 4 --run.proof_every 1
  softmax mixed 2 --dist.items shard --reproducible --checkpoint.every_steps 1 --run.proof_every 1
  same_model whole/checkpoints/final.h5 mixed/checkpoints/final.h5
done
train mhc1 1 tisasrec --mhc streams --loss.name softmax --reproducible --run.resume never
train mhc2 2 tisasrec --mhc streams --loss.name softmax --dist.items shard --run.resume never
same_model mhc1/checkpoints/final.h5 mhc2/checkpoints/final.h5
refused() { # WORDS RANKS OPTIONS
  run 2 on "$2" "$LOCKSTEP" train --model.kind sasrec --run-dir lonely --dist.items shard --loss.name softmax "${@:3}"
  says "option dist.items = shard: $1"
}
refused 'dist.shards = 2 must be a power of two and at least the number of ranks, 3' 3 --dist.shards 2 --data.path data.h5 --batch_size 64
refused 'computes a batch at once, but batch.accumulate = 2' 1 --batch.accumulate 2 --data.path data.h5 --batch_size 64
refused 'sends gradients in full precision, but dist.compress = bf16' 1 --dist.compress bf16 --data.path data.h5 --batch_size 64
run 2 "$LOCKSTEP" train --model.kind sasrec --data.path data.h5 --run-dir lonely --dist.items shard
says 'option dist.items = shard: only with loss.name = softmax; loss.name = bce'
for user in 1 2 3; do printf "u$user %s\n" a b a b; done >two.txt
ok "$PREP" sequences --input two.txt --format pairs --min-user 1 --min-item 1 --output two.h5
refused 'the data set has 2 items for 3 ranks' 3 --data.path two.h5 --batch_size 2

run 2 "$LOCKSTEP" train --model.kind sasrec --data.path data.h5 --run-dir lonely --loss.name gbce --loss.calibration 1.1
says 'loss.calibration = 1.1'
run 2 "$LOCKSTEP" train --model.kind sasrec --data.path data.h5 --run-dir lonely --loss.name sampled_softmax --loss.negatives 96
says 'loss.negatives = 96: the data set has 96 items'

# Half of a run, and the rest of it on another number of ranks.
train half 1 tisasrec --mhc streams --reproducible --steps 4
train half 2 tisasrec --mhc streams --reproducible
same_model r1/checkpoints/final.h5 half/checkpoints/final.h5

# An evaluation does not depend on the ranks.
for ranks in 1 2 3; do
  ok on $ranks "$LOCKSTEP" eval --checkpoint r1/checkpoints/final.h5 --split test --json
  cp last.out eval$ranks
  cmp -s eval1 eval$ranks || fail "an evaluation on $ranks ranks differs"
done
ok "$LOCKSTEP" eval --checkpoint r1/checkpoints/final.h5 --split val --eval.candidates full --eval-k 1,5,20 --eval-users 40
says 'ndcg@20' 'hr@1 ' 'mrr@5 ' 'sampled-100.ndcg@20' 'candidates' 'val samples'

# What the items are called, in the way of MovieLens; the newest ones of the history come first.
for i in $(seq 96); do echo "$i::Film $i (1999)::Drama"; done >names.dat
ok "$LOCKSTEP" predict --checkpoint r1/checkpoints/final.h5 --user 7 --top 2 --recent 1 --item-names names.dat
says '^  had +Film [0-9]+ \(1999\) \([0-9]+\)$' '^    2 +-?[0-9.]+  Film [0-9]+ \(1999\) \([0-9]+\)$'
echo 'no separator' >bad.dat
run 3 "$LOCKSTEP" predict --checkpoint r1/checkpoints/final.h5 --user 7 --item-names bad.dat
says "'bad.dat', line 1"

# Blocks computed twice: another way to the same bits.
train again 1 tisasrec --mhc streams --reproducible --recompute
same_model r1/checkpoints/final.h5 again/checkpoints/final.h5

# Sessions whose next item the pauses tell: times are worth a lot.
ok "$PREP" synth-sequences --users 500 --min-length 12 --max-length 20 --categories 4 --clusters 2 --members 8 --noise 0.05 --seed 3 --output gaps.h5
for model in sasrec tisasrec; do
  ok "$LOCKSTEP" train --model.kind $model --data.path gaps.h5 --run-dir gaps-$model --batch_size 64 --num_epochs 40 --eval_every 20 --maxlen 12 --hidden_units 24 \
    --num_heads 1 --time_span 16 --warmup_steps 20 --lr 0.003 --dropout 0.1 --l2_emb 0
  ok "$LOCKSTEP" eval --checkpoint gaps-$model/checkpoints/final.h5 --split test --json
  number 'ndcg@10' last.out >ndcg-$model
done
below "$(cat ndcg-sasrec)" 0.15 "NDCG@10 of a model without times"
below 0.3 "$(cat ndcg-tisasrec)" "0.3 against the NDCG@10 of a model with times: it"

# Public code's spellings; a checkpoint of other items; nothing to train on.
ok "$LOCKSTEP" train --no_time --no_mhc --data.path data.h5 --run-dir seed --batch_size 64 --num_epochs 1 --hidden_units 8 --dropout_rate 0.1 --warmup_steps 5 \
  --lr_decay_step 100 --lr_decay_rate 0.9 --maxlen 10 --l2_emb 0.001
grep -q 'kind = sasrec' seed/config.ini || fail "--no_time is not sasrec"
ok "$PREP" synth-sequences --users 150 --min-length 12 --max-length 30 --categories 4 --clusters 2 --members 11 --seed 3 --output other.h5
run 3 "$LOCKSTEP" eval --checkpoint r1/checkpoints/final.h5 --data.path other.h5
says 'was trained on 96 items' '88'
run 3 "$LOCKSTEP" train --config r1/config.ini --data.path other.h5 --run-dir r1 --run.resume auto
says "item_emb.weight' has shape \\(97, 12\\), but \\(89, 12\\)"
printf 'u1 a\nu2 b\n' >pairs.txt
run 3 "$PREP" sequences --input pairs.txt --min-user 1 --min-item 1 --output lonely.h5
says 'no user has two interactions'
[ ! -e lonely.h5 ] || fail "a data set without anything to train on was left behind"
ok "$PREP" synth-sequences --users 150 --min-length 12 --max-length 30 --categories 4 --clusters 2 --members 12 --seed 3 --raw raw.tsv --output ignored.h5
cut -f1,2 raw.tsv >pairs.txt
ok "$PREP" sequences --input pairs.txt --format pairs --min-user 1 --min-item 1 --output timeless.h5
run 2 "$LOCKSTEP" train --model.kind tisasrec --data.path timeless.h5 --run-dir lonely
says 'has no times; use model.kind = sasrec'
run 2 "$LOCKSTEP" train --model.kind tisasrec --data.path data.h5 --run-dir lonely --norm post
says 'requires norm = original'
run 2 "$LOCKSTEP" train --model.kind sasrec --data.path data.h5 --run-dir lonely --hidden_units 10 --num_heads 3
says 'multiple of model.num_heads'
passed "sequence models train, resume, evaluate and suggest"
