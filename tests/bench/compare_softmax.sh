#!/usr/bin/env bash
# The exact softmax loss against PyTorch's cross-entropy over all items, forward and backward, in one thread: of all
# targets at once, and in the chunks that suit PyTorch best. Rounds alternate and count processor time. Prints a Markdown
# table and writes it to $BUILD/bench/softmax.md.
#
#   tests/bench/compare_softmax.sh [TARGETS ITEMS WIDTH]     default: 13400 3266 50
. "$(dirname "$0")/common.sh"
BENCH=$(program bench_item_softmax)
for round in $(seq "${LOCKSTEP_BENCH_ROUNDS:-5}"); do
  "$BENCH" "$@" >"$work/ours"
  for key in seconds fma_peak_share products_share; do number $key <"$work/ours" >>"$work/$key"; done
  [ $compare = no ] && continue
  peer softmax_peer.py "$@" >"$work/theirs"
  number seconds <"$work/theirs" >>"$work/whole"
  number chunked <"$work/theirs" >>"$work/chunked"
done
seconds() { cells %.4f <"$1"; }
{
  machine measure
  echo "Targets, items, width: ${*:-13400 3266 50}; one thread, processor time. Share of FMA peak: $(percent <"$work/fma_peak_share"), of the matrix products alone $(percent <"$work/products_share")."
  table_head "| | seconds, median (rounds) | ratio, median (rounds) |"
  echo "| lockstep | $(seconds "$work/seconds") | |"
  if [ $compare = yes ]; then
    echo "| PyTorch, all targets at once | $(seconds "$work/whole") | $(ratio softmax "all targets at once" 3 "$work/whole" "$work/seconds") |"
    echo "| PyTorch, in its best chunks | $(seconds "$work/chunked") | $(ratio softmax "in chunks" - "$work/chunked" "$work/seconds") |"
  fi
} | tee "$out/softmax.md"
