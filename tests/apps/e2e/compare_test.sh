#!/usr/bin/env bash
# lockstep compare on real runs: its output has the form of the example in docs/run-directory.md, and evaluations that
# lockstep eval adds have rows of their own.
source "$(dirname "$0")/lib.sh" "$1"
# Few enough items that all are trained and candidates are drawn plainly, as in the example of the page.
ok "$PREP" synth-sequences --users 60 --members 5 --output ml1m.h5
for loss in bce softmax; do
  for seed in 1 2 3; do
    ok "$LOCKSTEP" train --model.kind sasrec --data.path ml1m.h5 --run-dir runs/$loss-$seed --seed $seed --epochs 5 --lr 0.02 --schedule.warmup 0 --loss.name $loss --eval.candidates full \
      --eval.negatives 5 --batch.size 30 --model.maxlen 10 --model.hidden_units 8 --checkpoint.every 0
  done
done

# The example of the page, and its command. Hashes become H, numbers N: bits, times and draws are not those of the page.
form() { sed -E 's/\([0-9a-f]{16}\)/(H)/; s/[-+]?[0-9]+(\.[0-9]+)?(m[0-9]+s|ms|s|h[0-9]+m)?/N/g; s/p < N/p N/g; s/ +/ /g; s/^ //; s/^-+$//'; }
awk '/^## Comparing/ {here = 1} here && /^```/ {if (inside) exit; inside = 1; next} inside' "$tree/docs/run-directory.md" >example
command=$(sed -n '1s/^\$ lockstep //p' example)
[ -n "$command" ] || fail "no command at the begin of the example"
ok "$LOCKSTEP" $(eval "echo $command")
tail -n +2 example | form >documented
form <last.out >written
cmp -s written documented || fail "the example of the page has another form: $(diff written documented)"
cp last.out first

# An evaluation by another protocol is added, and has a row; there is no test against the others.
for seed in 1 2; do
  ok on 2 "$LOCKSTEP" eval --checkpoint runs/bce-$seed/checkpoints/best.h5 --eval.candidates sampled --record
done
ok "$LOCKSTEP" compare --metric ndcg@10 runs/bce-*
says '^  B  sasrec' 'their protocols differ: test, 60 users, full ranking' 'seeds 1, 2$'
# Further cutoffs add to the metrics of the run; metrics in another precision are apart.
ok "$LOCKSTEP" eval --checkpoint runs/bce-1/checkpoints/best.h5 --eval.k 7 --record
ok "$LOCKSTEP" eval --checkpoint runs/bce-1/checkpoints/best.h5 --precision fp64 --record
ok "$LOCKSTEP" compare --metric ndcg@10 runs/bce-1
says 'full ranking of .*, in fp64$' '^  C  +[0-9.]+ '
ok "$LOCKSTEP" compare --json runs/bce-1
says '"ndcg@7":[0-9.]+,[^}]*"ndcg@10":[0-9.]+'
ok "$LOCKSTEP" compare --split val runs/bce-1
says 'validation, 60 users'
cp runs/bce-1/checkpoints/best.h5 loose.h5
run 2 "$LOCKSTEP" eval --checkpoint loose.h5 --record
says "'loose.h5' is not in the folder checkpoints of a run directory"
# A record that cannot be written is refused before the evaluation.
mkdir -p closed/checkpoints closed/evaluations.jsonl
cp loose.h5 closed/checkpoints/best.h5
cp runs/bce-1/config.ini closed
run 2 "$LOCKSTEP" eval --checkpoint closed/checkpoints/best.h5 --record
says "closed/evaluations.jsonl': it is a directory"

# A run that stopped early is refused with its state.
ok "$LOCKSTEP" train --model.kind sasrec --data.path ml1m.h5 --run-dir cut --epochs 2 --batch.size 30 --model.maxlen 10 --model.hidden_units 8 --checkpoint.every 1 &&
  rm -f cut/checkpoints/final.h5 && sed -i '/"split":"test"/d' cut/metrics.jsonl
run 2 "$LOCKSTEP" compare runs/bce-1 cut
says "'cut' has not finished: step 4, epoch 2.00, last record"
passed "lockstep compare"
