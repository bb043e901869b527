#!/usr/bin/env bash
# The exact softmax loss against PyTorch's cross-entropy over all items, forward and backward, in one thread: of all
# targets at once, and in the chunks that suit PyTorch best. Rounds alternate and count CPU time. Prints the medians, the
# ratios and the share of the FMA peak.
#
#   LOCKSTEP_PYTHON=~/venv/bin/python tests/bench/compare_softmax.sh [TARGETS ITEMS WIDTH]     default: 13400 3266 50
#
# Variables: BUILD (build), LOCKSTEP_BENCH_ROUNDS (5).
set -euo pipefail
cd "$(dirname "$0")/../.."
BENCH=${BUILD:-build}/bin/bench_item_softmax
[ -x "$BENCH" ] || { echo "compare_softmax: $BENCH does not exist; build target bench_item_softmax" >&2; exit 2; }
"${LOCKSTEP_PYTHON:?set it to a Python that has torch}" -c 'import torch'
number() { sed -E "s/.*\"$1\": ([-+0-9.e]+).*/\1/"; }
for round in $(seq "${LOCKSTEP_BENCH_ROUNDS:-5}"); do
  ours=$("$BENCH" "$@")
  theirs=$("$LOCKSTEP_PYTHON" -W ignore tests/peers/softmax_peer.py "$@")
  echo "$(number seconds <<<"$ours") $(number seconds <<<"$theirs") $(number chunked <<<"$theirs") $(number fma_peak_share <<<"$ours") $(number products_share <<<"$ours")"
done | awk '
  function median(v, n,   i, j, t) {
    for (i = 2; i <= n; ++i) for (j = i; j > 1 && v[j - 1] > v[j]; --j) { t = v[j]; v[j] = v[j - 1]; v[j - 1] = t }
    return n % 2 ? v[(n + 1) / 2] : (v[n / 2] + v[n / 2 + 1]) / 2
  }
  { a[NR] = $1; b[NR] = $2; c[NR] = $3; r[NR] = $2 / $1; q[NR] = $3 / $1; s[NR] = $4; p[NR] = $5; print "round " NR ": " $0 }
  END {
    printf "lockstep %.3f s, %.0f %% of the FMA peak, its products alone %.0f %%\n", median(a, NR), 100 * median(s, NR), 100 * median(p, NR)
    m = median(r, NR); printf "PyTorch %.3f s, ratio %.2f (%.2f to %.2f)\n", median(b, NR), m, r[1], r[NR]
    m = median(q, NR); printf "PyTorch in chunks %.3f s, ratio %.2f (%.2f to %.2f)\n", median(c, NR), m, q[1], q[NR]
  }'
