#!/usr/bin/env bash
# KGAT: the references, what the graph adds to matrix factorisation, the same bits on any ranks and in every mode, resume in either phase.
golden=$(cd "$(dirname "$0")/../../golden" && pwd)
source "$(dirname "$0")/lib.sh" "$@"
command -v h5diff >/dev/null || { echo "skipped: no h5diff (hdf5-tools)"; exit 77; }
for aggregator in bi-interaction graphsage; do
  ok "$LOCKSTEP" verify --model kgat --golden "$golden/kgat_$aggregator.h5"
  ok "$LOCKSTEP" verify --model kgat --golden "$golden/kgat_$aggregator.h5" --double
  says 'arrays agree'
done
ok on 3 "$LOCKSTEP" verify --model kgat --golden "$golden/kgat_bi-interaction.h5"

ok "$PREP" synth-kg --seed 7 --output planted.h5

best() { # KEY RUN_DIR: the largest value in its log
  grep -oE "\"$1\": ?[-+0-9.eE]+" "$2/metrics.jsonl" | sed -E 's/.*: ?//' | sort -g | tail -1
}

# The same budget for both: 20 epochs at the same rate. Only the graph tells hidden items apart.
COMMON="--data.path planted.h5 --batch.size 256 --batch.scope global --optim.lr 0.01 --eval.every 5 --stop.patience 0"
ok "$LOCKSTEP" train --model.kind bprmf $COMMON --epochs 20 --run-dir bprmf
ok "$LOCKSTEP" train --model.kind kgat $COMMON --epochs 20 --run-dir kgat
for figure in recall@20 ndcg@20; do
  awk -v k="$(best $figure kgat)" -v m="$(best $figure bprmf)" 'BEGIN {exit !(k > 2 * m)}' ||
    fail "$figure: KGAT $(best $figure kgat), BPRMF $(best $figure bprmf): the planted graph must double it"
done

# From the baseline's tables, and judged again from the file.
ok "$LOCKSTEP" train --model.kind kgat $COMMON --epochs 1 --run-dir pretrained --model.pretrain bprmf/checkpoints/final.h5
ok "$LOCKSTEP" eval --config kgat/config.ini --checkpoint kgat/checkpoints/final.h5 --split test --json
says 'recall@20'
# Large enough, they rank as the baseline does: the layers' outputs have length 1.
ok "$LOCKSTEP" train --model.kind kgat ${COMMON/optim.lr 0.01/optim.lr 1e-12} --steps 1 --run-dir scaled --model.pretrain bprmf/checkpoints/final.h5 --model.pretrain_scale 1000
recall() {
  ok "$LOCKSTEP" eval --config $1/config.ini --checkpoint $1/checkpoints/final.h5 --split test --json
  grep -oE '"recall@20": ?[0-9.e-]+' last.out
}
[ "$(recall scaled)" = "$(recall bprmf)" ] || fail "tables times 1000 rank otherwise than the baseline"

# Users by number, items by what a list calls them.
{ echo "org_id remap_id"; for i in $(seq 0 399); do echo "film-$i $i"; done; } >items.txt
ok on 2 "$LOCKSTEP" predict --checkpoint kgat/checkpoints/best.h5 --user 3,17 --top 4 --item-list items.txt
says 'user 17, [0-9]+ items known'
says ' 4 +-?[0-9.]+  film-[0-9]+'
ok "$LOCKSTEP" predict --checkpoint bprmf/checkpoints/best.h5 --user 3
run 2 "$LOCKSTEP" predict --checkpoint kgat/checkpoints/best.h5 --user 3,nobody
says "'nobody' is none of the"

# Every mode on any number of ranks: the same weights, attention and moments. Dropout of messages and edges is on.
SHORT="--data.path planted.h5 --batch.size 96 --batch.scope global --optim.lr 0.01 --epochs 1 --model.node_dropout 0.1 --model.conv_dims 16,8 --model.mess_dropout 0.1 --model.embed_dim 16"
ok "$LOCKSTEP" train --model.kind kgat $SHORT --run-dir one
for ranks in 2 3; do
  for mode in replicate row-partition column-switch nested-rows; do
    ok on $ranks "$LOCKSTEP" train --model.kind kgat $SHORT --dist.mode $mode --run-dir $mode-$ranks
    same_model one/checkpoints/final.h5 $mode-$ranks/checkpoints/final.h5
  done
done
ok on 2 "$LOCKSTEP" train --model.kind bprmf --data.path planted.h5 --batch.size 96 --batch.scope global --epochs 1 --run-dir mf-2
ok "$LOCKSTEP" train --model.kind bprmf --data.path planted.h5 --batch.size 96 --batch.scope global --epochs 1 --run-dir mf-1
same_model mf-1/checkpoints/final.h5 mf-2/checkpoints/final.h5

# An epoch has 101 steps of interactions and 113 of triples: stopped in the middle of the second epoch's interactions and of its triples.
TWO=${SHORT/--epochs 1/--epochs 2}
ok "$LOCKSTEP" train --model.kind kgat $TWO --run-dir whole
for steps in 250 380; do
  ok on 2 "$LOCKSTEP" train --model.kind kgat $TWO --run-dir part-$steps --train.steps $steps
  ok on 3 "$LOCKSTEP" train --model.kind kgat $TWO --run-dir part-$steps --dist.mode row-partition
  says 'resum|continu'
  same_model whole/checkpoints/final.h5 part-$steps/checkpoints/final.h5
done
passed "KGAT $(best recall@20 kgat), BPRMF $(best recall@20 bprmf) recall@20 on a planted graph; one trajectory on any ranks, in any mode, resumed in either phase"
