#!/usr/bin/env bash
# How a training step scales. Prints Markdown and writes it to $BUILD/bench/scaling.md, with a picture of the second
# table in $BUILD/bench/cost.svg.
#
#   tests/bench/scaling.sh [FOLDER]    ml-1m.h5, hapt.h5 and kgat-ml1m.h5 of this folder, else generated data
#
# 1. One rank of one thread, against all cores as threads of a rank and as ranks: the same batch for all (strong), and
#    the same batch for each rank (weak). KGAT's step computes the whole graph, so it has no weak scaling.
# 2. The cost of a sample (KGAT: of an edge), one thread, from small to large data: rows of the emulator, items of
#    SASRec, edges of KGAT.
. "$(dirname "$0")/common.sh"
ROUNDS=${LOCKSTEP_BENCH_ROUNDS:-3} SECONDS_EACH=${LOCKSTEP_BENCH_SECONDS:-2}
PREP=$BUILD/bin/lockstep-prep
systems "${1:+$(path "$1")}"
# bench SHAPE OPTION...: JSON of a measurement
bench() { $(launcher "$1") "$LOCKSTEP" bench "${@:2}" --threads "${1#*x}" --warmup 2 --seconds "$SECONDS_EACH" --json 2>/dev/null; }
CASES="emulator SASRec HAR HRM KGAT"
for round in $(seq "$ROUNDS"); do
  for case in $CASES; do
    echo "round $round of $ROUNDS: $case" >&2
    for run in "one 1x1 size" "threads 1x$CORES size" "strong ${CORES}x1 size" "weak ${CORES}x1 per_rank"; do
      read -r label shape batch <<<"$run"
      [ "$case.$label" = KGAT.weak ] && continue
      # shellcheck disable=SC2046
      bench "$shape" $(system_options "$case") "--batch.$batch" "$(system_batch "$case")" >"$work/last"
      number per_s <"$work/last" >>"$work/$case.$label"
      [ "$label" != one ] || for phase in compute reduce update; do number $phase <"$work/last"; done >"$work/$case.phases"
    done
  done
done
# gain FILE FILE: the second file's rates divided by the first one's
gain() { [ ! -s "$2" ] || paste "$2" "$1" | awk '{print $1 / $2}' | cells %.2f; }

# The costs: lines of LABEL SIZE NANOSECONDS in $work/cost.
cost() { # LABEL SIZE UNITS_PER_SAMPLE OPTION...
  for _ in $(seq "$ROUNDS"); do
    bench 1x1 "${@:4}" | number per_s
  done | median | awk -v label="$1" -v size="$2" -v units="$3" -v OFS='\t' '{print label, size, 1e9 / $1 / units}' >>"$work/cost"
}
for rows in 1000 10000 100000 1000000; do
  echo "rows: $rows" >&2
  cost "emulator, rows" "$rows" 1 --config configs/emulator-icecolumn.ini --synthetic --rows $((rows * 5 / 4)) --batch.size 1000
done
for members in 31 312 3125 31250; do
  echo "items: $((32 * members))" >&2
  "$PREP" synth-sequences --users 20000 --members $members --output "$work/items.h5" --quiet
  for lazy in "" "--optim.lazy"; do
    # shellcheck disable=SC2086
    cost "SASRec${lazy:+, optim.lazy}, items" $((32 * members)) 1 --config configs/sasrec-ml1m.ini --data.path "$work/items.h5" --maxlen 50 $lazy
  done
done
for users in 3000 30000 300000; do
  "$PREP" synth-kg --users $users --items $((2 * users / 3)) --output "$work/graph.h5" >"$work/kg"
  edges=$(sed -n 's/.* \([0-9]*\) pairs.*/\1/p' "$work/kg")
  echo "edges: $edges" >&2
  cost "KGAT, edges" "$edges" "$(awk "BEGIN {print $edges / 1024}")" --config configs/kgat-ml1m.ini --batch.size 1024 --model.kind kgat --data.path "$work/graph.h5"
done
# Lines over a logarithmic axis: the cost of each size relative to that of the smallest one.
awk -F'\t' '
  {if (!($1 in first)) {first[$1] = $3; name[++series] = $1}
   x = 80 + 120 * (log($2) / log(10) - 3); r = $3 / first[$1]; y = 260 - 60 * r; if (y < 20) y = 20
   points[$1] = points[$1] sprintf("%.1f,%.1f ", x, y); end[$1] = x " " y " " sprintf("%.2f", r)}
  END {
    split("#4477aa #cc6677 #228833 #aa3377 #ccbb44", color, " ")
    print "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"760\" height=\"300\" font-family=\"sans-serif\" font-size=\"13\">"
    print "<rect width=\"100%\" height=\"100%\" fill=\"white\"/><text x=\"10\" y=\"16\">Cost of a sample (KGAT: of an edge), relative to the smallest size</text>"
    for (d = 3; d <= 7; ++d) printf "<text x=\"%d\" y=\"285\" text-anchor=\"middle\">1e%d</text><line x1=\"%d\" x2=\"%d\" y1=\"260\" y2=\"266\" stroke=\"black\"/>\n", 80 + 120 * (d - 3), d, 80 + 120 * (d - 3), 80 + 120 * (d - 3)
    for (r = 0; r <= 3; ++r) printf "<text x=\"60\" y=\"%d\" text-anchor=\"end\">%d</text><line x1=\"70\" x2=\"580\" y1=\"%d\" y2=\"%d\" stroke=\"#ddd\"/>\n", 264 - 60 * r, r, 260 - 60 * r, 260 - 60 * r
    for (i = 1; i <= series; ++i) {
      split(end[name[i]], e, " ")
      printf "<polyline points=\"%s\" fill=\"none\" stroke=\"%s\" stroke-width=\"2\"/><text x=\"600\" y=\"%d\" fill=\"%s\">%s: %s</text>\n", points[name[i]], color[i], 40 + 20 * i, color[i], name[i], e[3]
    }
    print "</svg>"
  }' "$work/cost" >"$out/cost.svg"
{
  machine <"$work/last"
  table_head "| training step | batch | samples/s, 1 thread | $CORES threads | $CORES ranks, same batch for all | $CORES ranks, same batch each | compute, reduce, update |"
  for case in $CASES; do
    phases=$(awk '{v[NR] = $1; sum += $1} END {printf "%.0f, %.0f, %.0f %%", 100 * v[1] / sum, 100 * v[2] / sum, 100 * v[3] / sum}' "$work/$case.phases")
    echo "| $case | $(system_batch "$case") | $(median <"$work/$case.one" | awk '{printf "%.4g", $1}') | $(gain "$work/$case.one" "$work/$case.threads") | $(gain "$work/$case.one" "$work/$case.strong") | $(gain "$work/$case.one" "$work/$case.weak") | $phases |"
  done
  table_head "| data | size: ns per sample (KGAT: per edge of a step) |"
  awk -F'\t' '{if (!($1 in list)) order[++n] = $1; list[$1] = list[$1] (list[$1] ? ", " : "") sprintf("%g: **%.4g**", $2, $3)}
              END {for (i = 1; i <= n; ++i) print "| " order[i] " | " list[order[i]] " |"}' "$work/cost"
  echo
  echo "![Cost](cost.svg)"
} | tee "$out/scaling.md"
