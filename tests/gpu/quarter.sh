#!/bin/bash
# Fifteen minutes with a GPU: check.sh in calls of less than ten minutes, the most informative steps first. All calls add
# to the same few files of OUTPUT at once, so that an interrupted call keeps them; check.sh --merge makes one table of
# several runs.
#   quarter.sh OUTPUT [CALL...] [-- OPTIONS of check.sh]     the calls a, b and c, which take fifteen minutes, or these
#   quarter.sh --list                                        the calls, and the steps of check.sh in each
# Exit code 0: all steps passed; 1: one failed; 2: wrong usage.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
# CALL, the patterns of --steps, the longest time of a command and of all in seconds, other options
table='
a           tests/test_ops,golden/fp32                                75  80
a           ours/*                                                    40 170 --seconds 2 --precisions bf16
a           trace/hrm,trace/kgat,trace/tisasrec,trace/har,trace/emulator-1000 25 60
b           warm/*                                                   125 130 --precisions fp32,bf16 --variants graphs,whole
b           speed/hrm,speed/trm,speed/tisasrec,speed/kgat,speed/har,speed/sasrec,speed/emulator-1000 45 340 --seconds 2 --precisions fp32,bf16
c           apart/*                                                   85  90
c           wall/*,spmm                                               45  60
checks      tests/*,golden/*,training,threads,early/code             280 560
traces      trace/*                                                   60 560
graphs      graphs/*                                                  60 560
products    tuned/*                                                   60 560
early-speed early/emulator-*,early/*sasrec,early/kgat,early/ha*,early/hrm,early/trm 60 560
speed       speed/emulator-*,speed/*sasrec,speed/kgat,speed/har,speed/hrm,speed/trm 120 560
bandwidth   bandwidth,spmm                                           250 560
early       early/test_o*,early/golden,early/training                280 560
sanitizer   sanitizer/*                                              280 560
images      speed/har-images                                         100 560'
if [ "${1:-}" = --list ]; then
  awk 'NF {printf "%-13s %s\n", $1, $2}' <<< "$table"
  exit 0
fi
[ $# -gt 0 ] || { sed -n 5,6p "$0" >&2; exit 2; }
output=$1 calls=() failed=0
shift
while [ $# -gt 0 ] && [ "$1" != -- ]; do
  grep -q "^$1 " <<< "$table" || { echo "quarter: no call $1; --list names them" >&2; exit 2; }
  calls+=("$1")
  shift
done
[ $# -eq 0 ] || shift
[ ${#calls[@]} -gt 0 ] || calls=(a b c)
[ ! -x "$here/../../bin/lockstep-prep" ] || "$here/prepare.sh" || exit 1  # in a bundle
for call in "${calls[@]}"; do
  while read -r _ steps limit budget more; do
    echo "== $call: $steps"
    # shellcheck disable=SC2086
    "$here/check.sh" --output "$output" --append --seconds 3 --jobs "$(nproc)" --steps "$steps" --limit "$limit" --budget "$budget" $more "$@" ||
      failed=1
  done < <(grep "^$call " <<< "$table")
done
exit $failed
