#!/usr/bin/env bash
# All comparisons in one report: $BUILD/bench/report.md, with a picture of the ratios in $BUILD/bench/ratios.svg.
#
#   make bench                                        Lockstep alone, on generated data
#   LOCKSTEP_PYTHON=~/venv/bin/python make bench      beside PyTorch: a Python that has torch, numpy and h5py
#   DATA=data make bench                              on these prepared files where they exist, else on generated data:
#                                                     ml-1m.h5, hapt.h5, kgat-ml1m.h5, kgat-amazon-book-sized.h5
#   SYSTEMS="har hrm" make bench                      some of: emulator inference sequences softmax kgat hrm har scaling nodes
#                                                     phases trainings
. "$(dirname "$0")/common.sh"
SYSTEMS=${SYSTEMS:-emulator inference sequences softmax kgat hrm har scaling nodes phases trainings}
failed=""
rm -f "$out/ratios.tsv"
# data NAME...: the prepared files with these names that exist
data() { for file in "$@"; do [ ! -s "${DATA:-}/$file.h5" ] || realpath "$DATA/$file.h5"; done; }
for system in $SYSTEMS; do
  arguments=() script=compare_$system.sh
  case $system in
    har) mapfile -t arguments < <(data hapt) ;;
    kgat) mapfile -t arguments < <(data kgat-ml1m kgat-amazon-book-sized) ;;
    sequences) LOCKSTEP_BENCH_DATA=$(data ml-1m); export LOCKSTEP_BENCH_DATA ;;
    scaling | phases) script=$system.sh arguments=(${DATA:+"$DATA"}) ;;
    trainings) script=whole_trainings.sh arguments=(${DATA:+"$DATA"}) ;;
    nodes) script=scaling_nodes.sh arguments=(${DATA:+"$DATA"}) ;;
  esac
  echo "$name: $system" >&2
  status=0
  "tests/bench/$script" "${arguments[@]}" >/dev/null || status=$?
  [ $status = 0 ] || echo "Not measured: $script says why." >"$out/$system.md"
  [ $status = 0 ] || [ $status = 77 ] || failed+=" $script"
done
# picture: bars of the ratios, a line from the slowest to the fastest round, and a mark at the goal
picture() {
  awk -F'\t' '
    {split($4, v, " "); label[NR] = $1 ": " $2; goal[NR] = $3; value[NR] = v[1]; low[NR] = v[2]; high[NR] = v[3]
     if (v[3] + 0 > most) most = v[3] + 0
     if ($3 != "-" && $3 + 0 > most) most = $3 + 0}
    function x(v) {return 300 + 560 * v / most}
    END {
      printf "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"900\" height=\"%d\" font-family=\"sans-serif\" font-size=\"13\">\n", 50 + 26 * NR
      print "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>"
      print "<text x=\"10\" y=\"20\">Times as fast as PyTorch: median, range of the rounds, goal (red)</text>"
      for (i = 1; i <= NR; ++i) {
        y = 36 + 26 * (i - 1)
        printf "<text x=\"290\" y=\"%d\" text-anchor=\"end\">%s</text>\n", y + 13, label[i]
        printf "<rect x=\"300\" y=\"%d\" width=\"%.1f\" height=\"16\" fill=\"#4477aa\"/>\n", y, x(value[i]) - 300
        printf "<line x1=\"%.1f\" x2=\"%.1f\" y1=\"%d\" y2=\"%d\" stroke=\"black\"/>\n", x(low[i]), x(high[i]), y + 8, y + 8
        if (goal[i] != "-") printf "<line x1=\"%.1f\" x2=\"%.1f\" y1=\"%d\" y2=\"%d\" stroke=\"red\" stroke-width=\"2\"/>\n", x(goal[i]), x(goal[i]), y - 3, y + 19
        printf "<text x=\"306\" y=\"%d\" fill=\"white\">%.2f</text>\n", y + 13, value[i]
      }
      printf "<line x1=\"%.1f\" x2=\"%.1f\" y1=\"30\" y2=\"%d\" stroke=\"gray\" stroke-dasharray=\"4\"/>\n</svg>\n", x(1), x(1), 36 + 26 * NR
    }' "$out/ratios.tsv" >"$out/ratios.svg"
}
{
  echo "# Benchmarks of this machine"
  [ ! -s "$out/ratios.tsv" ] || { picture; echo; echo "![Ratios](ratios.svg)"; }
  for system in $SYSTEMS; do
    echo; echo "## ${system^}"; echo
    cat "$out/$system.md"
  done
} >"$out/report.md"
echo "report: $out/report.md"
[ -z "$failed" ] || { echo "$name: failed:$failed" >&2; exit 1; }
