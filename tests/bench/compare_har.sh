#!/usr/bin/env bash
# Activity recognition against PyTorch on the same cores, in one run: training steps on signals and on pictures, each
# side in all shapes of ranks x threads, PyTorch also in all variants. Rounds alternate, so that other load on the
# machine affects both. Prints a Markdown table and writes it to $BUILD/bench/har.md.
#
#   tests/bench/compare_har.sh [PREPARED.h5]     default: generated windows
#
# Variables besides those of common.sh: LOCKSTEP_BENCH_INPUTS ("signal"; "signal image"), LOCKSTEP_BENCH_VARIANTS
# ("eager compile").
set -euo pipefail
. "$(dirname "$0")/common.sh"
ROUNDS=${LOCKSTEP_BENCH_ROUNDS:-3} SECONDS_EACH=${LOCKSTEP_BENCH_SECONDS:-3}
INPUTS=${LOCKSTEP_BENCH_INPUTS:-signal} VARIANTS=
[ $compare = no ] || VARIANTS=${LOCKSTEP_BENCH_VARIANTS:-eager compile}
DATA=$work/windows.h5
if [ $# -gt 0 ]; then DATA=$(path "$1"); else "$BUILD/bin/lockstep-prep" synth-har --output "$DATA" >&2; fi
goal() { [ "$1" = signal ] && echo 5 || echo -; }

# Windows per process: for signals 32 per core in total, for pictures one per core.
windows() { if [ "$1" = signal ]; then echo $((32 * CORES / ${2%x*})); else echo $((CORES / ${2%x*})); fi; }
ours() { # INPUT SHAPE
  $(launcher "$2") "$LOCKSTEP" bench --model har --input "$1" --data.path "$DATA" --threads "${2#*x}" --batch-size "$(windows "$1" "$2")" --warmup 2 \
    --seconds "$SECONDS_EACH" --no-augmentation --json
}
theirs() { # INPUT SHAPE VARIANT
  peer har_peer.py --bench --input "$1" --data "$DATA" --ranks "${2%x*}" --threads "${2#*x}" --batch "$(windows "$1" "$2")" --seconds "$SECONDS_EACH" \
    --warmup 2 --variant "$3"
}
for round in $(seq "$ROUNDS"); do
  for input in $INPUTS; do
    for shape in $SHAPES; do
      echo "round $round of $ROUNDS: $input $shape" >&2
      ours "$input" "$shape" >"$work/last.$input.ours.$shape"
      number per_s <"$work/last.$input.ours.$shape" >>"$work/$input.ours.$shape"
      number fma_peak_share <"$work/last.$input.ours.$shape" >>"$work/$input.share.$shape"
      for variant in $VARIANTS; do
        theirs "$input" "$shape" "$variant" >"$work/last.$input.$variant.$shape"
        number windows_per_s <"$work/last.$input.$variant.$shape" >>"$work/$input.$variant.$shape"
      done
    done
  done
done
{
  machine <"$work/last.${INPUTS%% *}.ours.1x$CORES"
  echo
  echo "| input | side | ranks x threads | windows/s, median of $ROUNDS (lowest to highest) | of FMA peak | peak memory per rank, MB |"
  echo "|---|---|---|---|---|---|"
  for input in $INPUTS; do
    for side in ours $VARIANTS; do
      for shape in $SHAPES; do
        last=$work/last.$input.$side.$shape
        if [ "$side" = ours ]; then
          memory=$(number peak_memory_bytes <"$last" | awk '{printf "%.0f", $1 / 1e6}') share=$(percent <"$work/$input.share.$shape") side_name=lockstep
        else
          memory=$(number peak_rss_mb <"$last" | awk '{printf "%.0f", $1 * 1.048576}') share= side_name="PyTorch, $side"
        fi
        echo "| $input | $side_name | $shape | $(cells %.4g <"$work/$input.$side.$shape") | $share | $memory |"
      done
    done
  done
  [ $compare = no ] || for input in $INPUTS; do
    mine=$(best_shape "$work/$input.ours")
    best=$(for v in $VARIANTS; do s=$(best_shape "$work/$input.$v"); echo "$(median <"$work/$input.$v.$s") $v.$s"; done | sort -g | tail -1 | cut -d' ' -f2)
    echo
    echo "Best shapes, $input: $mine against $best: $(ratio har "$input" "$(goal "$input")" "$work/$input.ours.$mine" "$work/$input.$best")."
  done
} | tee "$out/har.md"
