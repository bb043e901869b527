#!/bin/bash
# Every call of quarter.sh names steps of check.sh; together they run all of check.sh:
#   quarter_test.sh STAND_IN_BIN
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$here/check.sh" --list > "$work/all"
: > "$work/used"
while read -r name steps; do
  IFS=, read -ra patterns <<< "$steps"
  for pattern in "${patterns[@]}"; do
    found=no
    # shellcheck disable=SC2053
    while read -r step; do if [[ $step == $pattern ]]; then found=yes && echo "$step" >> "$work/used"; fi; done < "$work/all"
    [ $found = yes ] || { echo "FAILED: the call $name: check.sh has no step $pattern"; exit 1; }
  done
done < <("$here/quarter.sh" --list)
left=$(sort -u "$work/used" | comm -13 - <(sort "$work/all") || true)
[ -z "$left" ] || { echo "FAILED: no call runs $left"; exit 1; }
nobody() { setpriv --reuid=65534 --regid=65534 --clear-groups "$@"; }
if [ "$EUID" = 0 ] && nobody test -r "$here/apart.sh" 2> /dev/null; then
  code=0
  nobody "$here/apart.sh" true > "$work/message" 2>&1 || code=$?
  [ "$code $(grep -c "may not create a namespace" "$work/message")" = "77 1" ] || { cat "$work/message"; echo "FAILED: apart without a right"; exit 1; }
fi
code=0
"$here/quarter.sh" "$work/out" nothing 2> "$work/message" || code=$?
[ "$code $(grep -c "no call nothing" "$work/message")" = "2 1" ] || { echo "FAILED: an unknown call"; exit 1; }
"$here/quarter.sh" "$work/out" -- --stand-in --bin "$1" --cases '*rotary*' --limit 300 --budget 600 > "$work/log" || { cat "$work/log"; echo "FAILED: the quarter"; exit 1; }
"$here/quarter.sh" "$work/out" graphs products early-speed -- --stand-in --bin "$1" > "$work/log" || { cat "$work/log"; echo "FAILED"; exit 1; }
for row in "emulator-1000, graphs on, fp32" "emulator-1000, graphs off, fp32" "hrm, graphs on, fp32" "hrm-768, bf16" "trm, bf16" \
  "trm-attention, bf16" "kgat-bf16, fp32"; do
  grep -q "^speed	$row, lockstep	ok" "$work/out/results.tsv" || { cat "$work/log"; echo "FAILED: $row did not run"; exit 1; }
done
for tuned in false true; do
  grep -q "^speed	hrm, tune_products $tuned, bf16, lockstep	ok" "$work/out/results.tsv" || { cat "$work/log"; echo "FAILED: products"; exit 1; }
done
grep -q "^speed	har, bf16, lockstep	ok" "$work/out/results.tsv" || { cat "$work/log"; echo "FAILED: har"; exit 1; }
grep -q "^speed	kgat, early starts on, fp32, lockstep	ok" "$work/out/results.tsv" || { cat "$work/log"; echo "FAILED: early starts"; exit 1; }
[ "$(ls "$work/out" | tr '\n' ' ')" = "gpu-check.json gpu-check.md logs.txt results.tsv " ] || { ls "$work/out"; echo "FAILED: other files"; exit 1; }
# Results of two runs in one table, without a GPU: of each step the later one.
cp "$work/out/results.tsv" "$work/first.tsv"
printf 'about\tdevice\tanother GPU\nspeed\thar, bf16, lockstep\tmeasured\t0\t12\tsamples/s\tstep 1 s\ntests\tnew\tok\t3\t\t\t\n' > "$work/second.tsv"
"$here/check.sh" --output "$work/both" --merge "$work/first.tsv" "$work/second.tsv" > "$work/log" || { cat "$work/log"; echo "FAILED: merge"; exit 1; }
for row in ", another GPU; lockstep" "| tests | new | ok | 3 |" "| speed | hrm, graphs on, fp32, lockstep | ok |" "| har, bf16 | 12 | step 1 s |"; do
  grep -qF "$row" "$work/both/gpu-check.md" || { cat "$work/both/gpu-check.md"; echo "FAILED: no '$row' in the table of both"; exit 1; }
done
if grep -qF "har, bf16, lockstep" "$work/both/gpu-check.md"; then echo "FAILED: the earlier result is in the table, too"; exit 1; fi
"$here/quarter.sh" "$work/none" graphs -- --stand-in --bin "$1" --budget 0 > "$work/log" || { cat "$work/log"; echo "FAILED: no time"; exit 1; }
grep -q "^speed	har, graphs on, fp32, lockstep	skipped.*no time left" "$work/none/results.tsv" || { cat "$work/log"; echo "FAILED: it ran beyond its budget"; exit 1; }
echo "ok  $(wc -l < "$work/all") steps"
