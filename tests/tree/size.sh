#!/usr/bin/env bash
# size.sh [COMMIT]: lines of each folder of src, include and tests; with COMMIT, also how many more than it had.
set -euo pipefail
cd "$(git rev-parse --show-toplevel)"
base=${1:-}
paths=()
for end in cpp hpp cu h py sh txt cmake f90 c in; do paths+=("src/*.$end" "include/*.$end" "tests/*.$end"); done
lines() { git grep -c '' ${2:-} -- "${paths[@]}" | sed "s/^/$1:/"; }
{ lines now; [ -z "$base" ] || lines base "$base"; } | awk -F: -v base="$base" '
  {
    parts = split($(NF - 1), part, "/")
    folder = part[1]
    count[$1, "all"] += $NF; count[$1, folder] += $NF; known["all"]; known[folder]
    depth = folder == "include" ? 3 : 2
    if (parts <= depth) next
    for (i = 2; i <= depth; ++i) folder = folder "/" part[i]
    count[$1, folder] += $NF; known[folder]
  }
  END {
    for (f in known) printf base == "" ? "%-32s %7d\n" : "%-32s %7d %+7d\n", f, count["now", f], count["now", f] - count["base", f]
  }' | LC_ALL=C sort
