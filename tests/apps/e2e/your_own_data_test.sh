#!/usr/bin/env bash
# Every command of docs/your-own-data.md runs, in order.
source "$(dirname "$0")/pages.sh" "$1"
run_page docs/your-own-data.md
for baseline in 'most popular items' 'always (sit|walk)' 'training mean .*linear regression' 'most frequent answers'; do says "model +$baseline"; done
for run in shop factors tastes tastes/pretrain wear ice sudoku; do exists "runs/$run/report.html"; done
# The baselines have the same values on any number of ranks.
for run in shop tastes wear ice sudoku; do
  ok "$LOCKSTEP" eval --checkpoint runs/$run/checkpoints/best.h5 --baseline --json
  grep -oE '"baselines".*' last.out >one.json || fail "no baselines in the JSON of $run"
  ok on 3 "$LOCKSTEP" eval --checkpoint runs/$run/checkpoints/best.h5 --baseline --json
  grep -oE '"baselines".*' last.out | cmp - one.json || fail "three ranks have other baselines than one: $run"
done
passed "the commands of docs/your-own-data.md"
