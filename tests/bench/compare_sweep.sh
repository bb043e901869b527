#!/usr/bin/env bash
# Many short trainings of a small emulator: a shell loop of lockstep train, lockstep sweep with a rank per core, and
# Optuna with PyTorch with a process of one thread per core. The same network, batches, epochs and number of trials.
# Prints a Markdown table and writes it to $BUILD/bench/sweep.md. LOCKSTEP_PYTHON also needs optuna.
#
#   tests/bench/compare_sweep.sh [TRIALS]     default: 200
. "$(dirname "$0")/common.sh"
trials=${1:-200} epochs=10
export OMP_NUM_THREADS=1
"$BUILD/bin/lockstep-prep" synth-icecolumn --rows 300 --no-jacobian --output "$work/data.h5" --quiet
options="--data.path $work/data.h5 --model.hidden_size 32 --model.hidden_layers 2 --batch.size 80 --epochs $epochs --stop.patience 0"
# seconds COMMAND...: wall seconds, and processor seconds of one training
seconds() {
  local TIMEFORMAT='%R %U %S'
  { time "$@" >"$work/log" 2>&1; } 2>"$work/time" || { cat "$work/log" >&2; exit 1; }
  awk -v n="$trials" '{ print $1, ($2 + $3) / n }' "$work/time"
}
loop() { for n in $(seq "$trials"); do "$LOCKSTEP" train --model.kind emulator $options --seed "$n" --run-dir "$work/loop/$n"; done; }
row() { awk -v what="$1" -v wall="$2" -v cpu="$3" -v idle="$4" -v n="$trials" 'BEGIN { printf "| %s | %.1f | %.3f | %.3f | %s |\n", what, wall, wall / n, cpu, idle }'; }
printf '[sweep]\nmethod = random\ntrials = %s\noptim.lr = log(1e-3 .. 1e-1)\n' "$trials" >"$work/space.ini"
{
  machine measure
  echo "$trials trainings of $epochs epochs, 2 layers of 32, batch 80, 240 samples."
  table_head "| | seconds | of a training | processor seconds of a training | idle |"
  row "a loop of lockstep train, one rank" $(seconds loop) ""
  ours=$(seconds $(launcher "${CORES}x1") "$LOCKSTEP" sweep --config "$work/space.ini" --model.kind emulator $options --run-dir "$work/sweep")
  row "lockstep sweep, $CORES ranks" $ours "$(grep -oP 'idle for \K[0-9.]+ %' "$work/log")"
  if [ $compare = yes ]; then
    theirs=$(seconds peer optuna_peer.py "$work/data.h5" "$trials" $epochs "$CORES")
    row "Optuna and PyTorch, $CORES processes" $theirs "$(printf '%.1f %%' "$(number idle <"$work/log")")"
  fi
} | tee "$out/sweep.md"
