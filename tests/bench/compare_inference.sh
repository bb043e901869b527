#!/usr/bin/env bash
# Calls of a trained emulator with 1 to 100,000 columns: liblockstep against PyTorch (eager, TorchScript), ONNX Runtime
# and a plain Fortran loop. Prints a Markdown table and writes it to $BUILD/bench/inference.md. Every side must give
# liblockstep's results before it is timed. With one thread times are processor time, else wall time.
#
#   LOCKSTEP_PYTHON=~/venv/bin/python tests/bench/compare_inference.sh
#
# LOCKSTEP_PYTHON: a Python with numpy and torch, onnxruntime or both; sides that are not installed are left out.
# LOCKSTEP_BENCH_ROUNDS (3), LOCKSTEP_BENCH_SECONDS (0.1, per case and round).
set -euo pipefail
. "$(dirname "$0")/common.sh"
COLUMNS_PROGRAM=$(program bench_columns)
ROUNDS=${LOCKSTEP_BENCH_ROUNDS:-3} SECONDS_EACH=${LOCKSTEP_BENCH_SECONDS:-0.1}
"$COLUMNS_PROGRAM" "$work"

if [ -z "$PYTHON" ] || ! "$PYTHON" -c 'import numpy' 2>/dev/null; then
  echo "$name: ONNX Runtime is left out: LOCKSTEP_PYTHON names no Python with numpy" >&2
  PYTHON=
fi
others() { LD_PRELOAD=${LOCKSTEP_PEER_PRELOAD:-} "$PYTHON" -W ignore tests/peers/inference_peer.py "$work" "$@"; }
THREADS=1
[ "$CORES" = 1 ] || THREADS="1 $CORES"
for round in $(seq "$ROUNDS"); do
  echo "$name: round $round of $ROUNDS" >&2
  for threads in $THREADS; do
    "$COLUMNS_PROGRAM" "$work/model.lsem" "$threads" "$SECONDS_EACH" >>"$work/round.$round"
    [ -z "$PYTHON" ] || others --threads "$threads" --seconds "$SECONDS_EACH" >>"$work/round.$round"
  done
done
# A new process to its first result, three times: the start of the program, opening, the first call, memory.
first() { # COMMAND...
  for _ in 1 2 3; do
    start=$(date +%s%N)
    "$@" | sed "s/}\$/, \"start_ns\": $start}/"
  done
}
first "$COLUMNS_PROGRAM" "$work/model.lsem" first >>"$work/first"
for package in torch onnxruntime; do
  [ -n "$PYTHON" ] && "$PYTHON" -c "import $package" 2>/dev/null || continue
  first others --first $package >>"$work/first"
  [ $package = onnxruntime ] || first others --first torchscript >>"$work/first"
done

# The report's figures: seconds of one thread in double per round, 1000 columns.
for what in predict jacobian; do
  for side in liblockstep PyTorch; do
    for round in $(seq "$ROUNDS"); do
      grep -F "\"$side\", \"what\": \"$what\", \"type\": \"f64\", \"columns\": 1000, \"threads\": 1," \
        "$work/round.$round" | number seconds >>"$work/$side" || true
    done
  done
  [ ! -s "$work/PyTorch" ] ||
    ratio inference "$what in double, 1000 columns" 3 "$work/PyTorch" "$work/liblockstep" >/dev/null
  rm -f "$work/liblockstep" "$work/PyTorch"
done

cat >"$work/table.awk" <<'AWK'
# the rest of a match of "key": pattern, without what follows it by `after` characters
function value(key, pattern, skip, after) {
  if (!match($0, "\"" key "\": " pattern)) return ""
  return substr($0, RSTART + length(key) + skip, RLENGTH - length(key) - skip - after)
}
function text(key) { return value(key, "\"[^\"]*\"", 5, 1) }
function number(key) { return value(key, "[-+0-9.eE]+", 4, 0) + 0 }
# sorts v[1 .. n]; returns the median
function median(v, n,   i, j, t) {
  for (i = 2; i <= n; ++i) for (j = i; j > 1 && v[j] < v[j - 1]; --j) { t = v[j]; v[j] = v[j - 1]; v[j - 1] = t }
  return n % 2 ? v[(n + 1) / 2] : (v[n / 2] + v[n / 2 + 1]) / 2
}
function seconds_of(side, kind,   r, n, v) {
  for (r = 1; r <= rounds; ++r) if ((side, kind, r) in seconds) v[++n] = seconds[side, kind, r]
  return n ? median(v, n) : -1
}
function cell(side, kind,   r, n, v, m) {
  m = seconds_of(side, kind)
  if (m < 0) return "-"
  if (side == ours) return sprintf("%.0f", m / columns[kind] * 1e9)
  for (r = 1; r <= rounds; ++r) if ((side, kind, r) in seconds) v[++n] = seconds[side, kind, r] / seconds[ours, kind, r]
  r = median(v, n)
  return sprintf("%.0f: **%s** (%s to %s)", m / columns[kind] * 1e9, ratio(r), ratio(v[1]), ratio(v[n]))
}
function ratio(v) { return sprintf(v < 10 ? "%.1f" : "%.0f", v) }
function row(kind,   r, v) {
  for (r = 1; r <= rounds; ++r) v[r] = share[kind, r]
  printf "| %s | %s | %.0f %% | %s | %s | %s | %s |\n", kind, cell(ours, kind), 100 * median(v, rounds),
    cell("PyTorch", kind), cell("TorchScript", kind), cell("ONNX Runtime", kind), cell("Fortran loop", kind)
}
BEGIN { ours = "liblockstep" }
/"start_ns"/ {
  side = text("side"); n = ++count[side]
  start[side, n] = (number("ready_ns") - number("start_ns")) * 1e-9
  open[side, n] = number("open_s"); call[side, n] = number("first_s"); memory[side, n] = number("memory_mb")
  if (n == 1) starts[++n_starts] = side
  next
}
FNR == 1 { ++rounds }
/"torch"/ { torch = "PyTorch " text("torch") ", CPU capability " text("cpu_capability") }
/"onnxruntime"/ { onnx = "ONNX Runtime " text("onnxruntime") }
/"seconds"/ {
  kind = text("what") " | " text("type") " | " number("columns") " | " number("threads")
  if (!(kind in columns)) kinds[++n_kinds] = kind
  columns[kind] = number("columns")
  seconds[text("side"), kind, rounds] = number("seconds")
  if (text("side") == ours)
    share[kind, rounds] = flops[text("what")] * columns[kind] / number("seconds") / number("fma_peak")
  if (number("fma_peak")) peak[text("type"), number("threads")] = number("fma_peak")
}
END {
  if (torch) printf "%s", torch; if (onnx) printf "%s%s", torch ? "; " : "", onnx; if (torch || onnx) print "."
  printf "FMA peak, GFLOP/s: one thread %.0f in f32, %.0f in f64", peak["f32", 1] / 1e9, peak["f64", 1] / 1e9
  if (cores > 1) printf "; %d threads %.0f and %.0f", cores, peak["f32", cores] / 1e9, peak["f64", cores] / 1e9
  print "."
  printf "Nanoseconds per column, median of %d rounds; behind a colon, how many times liblockstep's time: ", rounds
  print "median (rounds).\n"
  print "| | type | columns | threads | liblockstep | of FMA peak | PyTorch | TorchScript | ONNX Runtime | Fortran loop |"
  print "|---|---|---|---|---|---|---|---|---|---|"
  for (k = 1; k <= n_kinds; ++k) if (kinds[k] ~ /predict/) row(kinds[k])
  for (k = 1; k <= n_kinds; ++k) if (kinds[k] ~ /jacobian/) row(kinds[k])
  one = ours ", one column per call"
  printf "\nA Fortran loop that calls liblockstep for each column, ns per column:"
  for (k = 1; k <= n_kinds; ++k) if ((m = seconds_of(one, kinds[k])) >= 0)
    printf "%s %.0f (%s)", sep++ ? "," : "", m / columns[kinds[k]] * 1e9, kinds[k]
  print sep ? "." : " not measured."
  print "\nA new process that predicts one column, medians of three:\n"
  print "| side | start to result, s | opening, s | first call, us | memory, MB |\n|---|---|---|---|---|"
  for (s = 1; s <= n_starts; ++s) {
    side = starts[s]
    for (n = 1; n <= 3; ++n) {
      a[n] = start[side, n]; b[n] = open[side, n]; c[n] = call[side, n]; d[n] = memory[side, n]
    }
    printf "| %s | %.3f | %.4f | %.0f | %.0f |\n", side, median(a, 3), median(b, 3), median(c, 3) * 1e6, median(d, 3)
  }
}
AWK
{
  machine measure
  echo "Network 14-64x3-1, erf-GELU."
  # Multiply-adds of a prediction, and of a Jacobian (forward to the last hidden layer, and back from it).
  awk -v cores="$CORES" -v hidden=$((14 * 64 + 2 * 64 * 64)) 'BEGIN {flops["predict"] = 2 * (hidden + 64); flops["jacobian"] = 4 * hidden}'"$(cat "$work/table.awk")" "$work"/round.* "$work/first"
} | tee "$out/inference.md"
