#!/bin/bash
# Every step of first_contact.sh names steps of check.sh; together they run all of check.sh but the exceptions below:
#   first_contact_test.sh STAND_IN_BIN
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
    [ $found = yes ] || { echo "FAILED: the step $name: check.sh has no step $pattern"; exit 1; }
  done
done < <("$here/first_contact.sh" --list)
left=$(sort -u "$work/used" | comm -13 - <(sort "$work/all") | grep -vE '^trace/|^speed/har-images$' || true)
[ -z "$left" ] || { echo "FAILED: no step runs $left"; exit 1; }
code=0
"$here/first_contact.sh" "$work/out" nothing 2> "$work/message" || code=$?
[ "$code $(grep -c "no step nothing" "$work/message")" = "2 1" ] || { echo "FAILED: an unknown step"; exit 1; }
"$here/first_contact.sh" "$work/out" graphs speed-small early-speed -- --stand-in --bin "$1" > "$work/log" || { cat "$work/log"; echo "FAILED"; exit 1; }
for row in "emulator-1000, graphs on, fp32" "emulator-1000, graphs off, fp32" "hrm, graphs on, fp32"; do
  grep -q "^speed	$row, lockstep	ok" "$work/out/graphs/results.tsv" || { cat "$work/log"; echo "FAILED: $row did not run"; exit 1; }
done
grep -q "^speed	har, bf16, lockstep	ok" "$work/out/speed-small/results.tsv" || { cat "$work/log"; echo "FAILED: har"; exit 1; }
grep -q "^speed	kgat, early starts on, fp32, lockstep	ok" "$work/out/early-speed/results.tsv" || { cat "$work/log"; echo "FAILED: early starts"; exit 1; }
echo "ok  $(wc -l < "$work/all") steps"
