#!/usr/bin/env bash
# Every ```sh block of docs/your-own-data.md runs, in order, in a scratch directory with the configurations.
source "$(dirname "$0")/lib.sh" "$1"
ln -s "$tree/configs" configs
awk '/^```sh$/ {inside = 1; print "# block"; next} /^```/ {inside = 0} inside' "$tree/docs/your-own-data.md" >page.sh
[ "$(grep -c '^# block' page.sh)" = 5 ] || fail "$(grep -c '^# block' page.sh) blocks of commands on the page instead of 5"
PATH=$BIN:$PATH ok bash -euo pipefail page.sh
for baseline in 'most popular items' 'always (sit|walk)' 'training mean .*linear regression' 'most frequent answers'; do says "model +$baseline"; done
for run in shop factors tastes tastes/pretrain wear ice sudoku; do exists "runs/$run/report.html"; done
# The baselines have the same values on any number of ranks.
for run in shop tastes wear ice sudoku; do
  ok "$LOCKSTEP" eval --checkpoint runs/$run/checkpoints/best.h5 --baseline --json
  grep -oE '"baselines".*' last.out >one.json || fail "no baselines in the JSON of $run"
  ok on 3 "$LOCKSTEP" eval --checkpoint runs/$run/checkpoints/best.h5 --baseline --json
  grep -oE '"baselines".*' last.out | cmp - one.json || fail "three ranks have other baselines than one: $run"
done
PYTHON=${LOCKSTEP_PYTHON:-python3}
if "$PYTHON" -c 'import h5py, numpy' 2>/dev/null; then
  export PYTHONPATH=$tree/src/capi PYTHONDONTWRITEBYTECODE=1
  awk '/^```python$/ {inside = 1; next} /^```/ {inside = 0} inside' "$tree/docs/your-own-data.md" >page.py
  ok "$PYTHON" page.py
else
  not_run "the Python of the page: $PYTHON has no h5py"
fi
passed "the commands of docs/your-own-data.md"
