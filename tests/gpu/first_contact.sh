#!/bin/bash
# The first script to run on a machine with a GPU: check.sh in steps of less than ten minutes, the most informative ones
# first. All steps add to the same few files of OUTPUT at once, so that an interrupted run keeps them; check.sh --merge
# makes one table of several runs.
#   first_contact.sh OUTPUT [STEP...] [-- OPTIONS of check.sh]     all steps, or these
#   first_contact.sh --list                                        the steps, and the steps of check.sh in each
# Exit code 0: all steps passed; 1: one failed; 2: wrong usage.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
# NAME, the patterns of --steps, the longest time of a command in seconds
table='
checks      tests/*,golden/*,training,early/code         280
traces      trace/*                                      60
graphs      graphs/*                                     60
products    tuned/*                                      60
early-speed early/emulator-*,early/*sasrec,early/kgat,early/ha*,early/hrm,early/trm 60
warm        warm/*                                       200
speed-small speed/emulator-*,speed/har                   120
speed-items speed/sasrec,speed/tisasrec                  120
speed-large speed/kgat,speed/hrm,speed/trm               120
bandwidth   bandwidth,spmm                               250
apart       apart/*                                      200
early       early/test_o*,early/golden,early/training    280
sanitizer   sanitizer/*                                  280
speed-images speed/har-images                            100'
if [ "${1:-}" = --list ]; then
  awk 'NF {printf "%-13s %s\n", $1, $2}' <<< "$table"
  exit 0
fi
[ $# -gt 0 ] || { sed -n 4,6p "$0" >&2; exit 2; }
output=$1 names=() failed=0
shift
while [ $# -gt 0 ] && [ "$1" != -- ]; do
  grep -q "^$1 " <<< "$table" || { echo "first-contact: no step $1; --list names them" >&2; exit 2; }
  names+=("$1")
  shift
done
[ $# -eq 0 ] || shift
[ ${#names[@]} -gt 0 ] || mapfile -t names < <(awk 'NF {print $1}' <<< "$table")
for name in "${names[@]}"; do
  read -r _ steps limit < <(grep "^$name " <<< "$table")
  echo "== $name"
  "$here/check.sh" --output "$output" --append --budget 560 --steps "$steps" --limit "$limit" --seconds 3 --jobs "$(nproc)" "$@" || failed=1
done
exit $failed
