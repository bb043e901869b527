#!/usr/bin/env bash
# demo.sh BIN_DIR OUTPUT_DIR [RANKS]: trains, evaluates and uses all five systems on synthetic data, then prints what
# they reached.
set -euo pipefail
bin=$1 out=$2 ranks=${3:-2}
configs=$(realpath --relative-to=. "$(dirname "${BASH_SOURCE[0]}")/../../configs")
lockstep=$bin/lockstep prep=$bin/lockstep-prep
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}
declare -a systems rows  # rows: system|metric|value
declare -A seconds

run() { printf '\n$ %s\n' "$*"; "$@"; }
on_ranks() { printf '\n$ mpirun -n %d %s\n' "$ranks" "$*"; ${MPIRUN:-mpirun} -n "$ranks" "$@"; }

# begin SYSTEM TITLE
begin() {
  system=$1 dir=$out/$1 began=$SECONDS
  data=$dir/data.h5 best=$dir/run/checkpoints/best.h5
  systems+=("$system")
  mkdir -p "$dir"
  printf '\n== %d/5  %s: %s\n' "${#systems[@]}" "$system" "$2"
}
# train CONFIGURATION OPTION...: prints the table and a few facts; run/train.log has all of the log
train() {
  on_ranks "$lockstep" train --config "$configs/$1.ini" --data.path "$data" --run-dir "$dir/run" --resume never \
    "${@:2}" 2>&1 |
    grep --line-buffered -E '^(error|data|parameters|clock|[0-9:]{8} |finished)|^$|^\$' | cut -c1-120
}
# evaluate [METRIC MEANING]...: adds metrics of the test samples to the final table
evaluate() {
  on_ranks "$lockstep" eval --checkpoint "$best" --split test | tee "$dir/eval.txt" | sed -n 2,5p
  while [ $# -gt 0 ]; do
    value=$(awk -v metric="$1" '$1 == metric {print $2; exit}' "$dir/eval.txt")
    [ -n "$value" ] || { echo "demo.sh: no metric $1 in $dir/eval.txt" >&2; exit 1; }
    rows+=("$system|$2|$value")
    shift 2
  done
}
end() {
  seconds[$system]=$((SECONDS - began))
  [ -s "$dir/run/report.html" ] || { echo "demo.sh: $dir/run/report.html is missing" >&2; exit 1; }
}

begin emulator "columns of sea ice, with exact Jacobians"
run "$prep" synth-icecolumn --quiet --output "$data"
train emulator-icecolumn --epochs 400 --eval.every 40
evaluate rmse "RMSE, normalised" jacobian_error "error of the Jacobian, median"
run "$lockstep" predict --checkpoint "$best" --input "$data" --output "$dir/predicted.h5"
run "$lockstep" jacobian --checkpoint "$best" --input "$data" --output "$dir/jacobian.h5"
end

begin tisasrec "the next item of a session, from order and pauses"
run "$prep" synth-sequences --quiet --users 500 --min-length 12 --max-length 20 --categories 4 --clusters 2 \
  --members 8 --noise 0.05 --output "$data"
train tisasrec-ml1m --epochs 100 --eval.every 20 --batch.size 64 --maxlen 12 --hidden_units 24 \
  --time_span 16 --dropout 0.1 --l2_emb 0 --lr 0.003
evaluate ndcg@10 "NDCG@10 among 101 items" hr@10 "HR@10 among 101 items"
run "$lockstep" predict --checkpoint "$best" --user 7 --top 3 --recent 5
end

begin kgat "user preferences that only the knowledge graph reveals"
run "$prep" synth-kg --quiet --output "$data"
train kgat-synth --epochs 6 --eval.every 3
evaluate recall@20 "recall@20 among all items" ndcg@20 "NDCG@20 among all items"
run "$lockstep" predict --checkpoint "$best" --user 7 --top 3
end

begin hrm "4x4 Sudoku"
run "$prep" synth-sudoku --quiet --order 2 --train 300 --val 50 --test 100 --min-givens 11 --max-givens 14 \
  --num-aug 1000 --augment online --output "$data"
train hrm-laptop --steps 2500 --model.h_layers 1 --model.l_layers 1 --model.halt_max_steps 4 --batch.size 32 \
  --lr 0.002 --optim.weight_decay 0.01 --schedule.warmup 100
evaluate accuracy "correct cells, givens included" exact_accuracy "puzzles with all cells correct"
printf '%s\n' 12.43.12.14343.. >"$dir/puzzle.txt"
run "$lockstep" predict --checkpoint "$best" --input "$dir/puzzle.txt"
end

begin har "activities, from motion sensors"
run "$prep" synth-har --quiet --noise 0.4 --output "$data"
train har-synth
evaluate accuracy "accuracy" macro_f1 "macro F1"
sed -n '/^confusion/,/^classes/{/^classes/!p}' "$dir/eval.txt"
run "$lockstep" predict --checkpoint "$best" --output "$dir/windows.csv" --recordings "$dir/recordings.csv" |
  sed -n 1,6p
end

printf '\nAll five on %d ranks, on test samples:\n\n' "$ranks"
printf '%-9s  %-33s  %8s  %7s  %s\n' system metric value seconds report
for row in "${rows[@]}"; do
  IFS='|' read -r system metric value <<<"$row"
  report=${seconds[$system]:+$out/$system/run/report.html}
  printf '%-9s  %-33s  %8.4f  %7s  %s\n' "$system" "$metric" "$value" "${seconds[$system]}" "$report"
  seconds[$system]=
done
printf '\nBeside a report are config.ini, train.log, metrics.jsonl and checkpoints/.\n'
printf 'TensorBoard: tensorboard --logdir %s\n' "$out"
