#!/bin/bash
# Training in half precision on the stand-in, through the real program:   halves.sh LOCKSTEP LOCKSTEP_PREP
# Every model's losses in bf16 and fp16, and some in tf32, follow those of fp32 step by step without being equal. A run
# in halves continues in fp32 on the CPU. The loss scale of fp16: exact resume, and steps that overflow.
# sections emulator sasrec tisasrec kgat hrm trm mlp_t har resume overflow
# shellcheck source=SCRIPTDIR/common.sh
source "$(dirname "$0")/common.sh"

train() { run "$lockstep" train --resume auto --threads 1 --seed 1 --train.log_every 1 "$@"; }
losses() { grep '"split":"train"' "$1/metrics.jsonl" | grep -o '"loss":[^,]*' | cut -d: -f2; }
# No loss of run B may differ from run A's by more than LIMIT times the largest loss of A. One must differ, which shows
# that another precision was used.
follows() {  # A B LIMIT
  paste <(losses "$1") <(losses "$2") | awk -v limit="$3" '
    NF != 2 { print "a step is missing"; bad = 1 }
    { if ($1 > largest) largest = $1; d = $1 > $2 ? $1 - $2 : $2 - $1; if (!(d <= worst)) worst = d }
    END { printf "%d steps, worst %g of the largest loss\n", NR, worst / largest
          exit bad || NR < 5 || worst == 0 || !(worst <= limit * largest) }' > follows.txt ||
    { cat follows.txt; paste <(losses "$1") <(losses "$2"); echo "FAILED: $2 does not follow $1 within $3"; exit 1; }
}

"$prep" synth-icecolumn --rows 400 --output ice.h5 --quiet
small_hrm="--model.hidden_size 16 --model.num_heads 2 --model.h_layers 1 --model.l_layers 1 --model.halt_max_steps 3 --schedule.warmup 0 --optim.lr 0.01"
# Columns: name, data, tolerances of bf16, fp16 and tf32 (- skips it), options. A rounding costs 2^-9 in bf16, 2^-12 in
# fp16 and tf32. Each step multiplies earlier differences, so late losses differ more; KGAT's losses at this learning rate
# differ by 1 %, whatever is rounded. HAR's fused kernels compute in fp32 where tf32 is allowed.
while read -r name data bf16 fp16 tf32 rest; do
  section "$name" || continue
  small_data "$data"
  read -ra options <<< "--data.path $data $rest"
  train "${options[@]}" --steps 6 --run-dir "$name-fp32" --device cuda --precision fp32
  for other in "bf16 $bf16" "fp16 $fp16" "tf32 $tf32"; do
    read -r precision limit <<< "$other"
    [ "$limit" != - ] || continue
    train "${options[@]}" --steps 6 --run-dir "$name-$precision" --device cuda --precision "$precision"
    follows "$name-fp32" "$name-$precision" "$limit"
    echo "ok  $name in $precision: $(cat follows.txt)"
  done
  if [ "$name" = hrm ]; then  # as published
    train "${options[@]}" --steps 6 --run-dir "$name-auto" --device cuda
    says "precision bf16 (auto: hrm is published with it), "
    same_bits "$name-bf16" "$name-auto"
  fi
  train "${options[@]}" --steps 8 --run-dir "$name-bf16" --device cpu
  says "continuing from .*; the steps up to here were computed in bf16, the next ones in fp32" "precision fp32 (auto: that of CPUs), "
done << MODELS
emulator ice.h5 0.002 0.0005 0.0005 --config $configs/emulator-icecolumn.ini --batch.size 50 --epochs 9
sasrec sequences.h5 0.002 0.0005 - --model.kind sasrec --maxlen 12 --hidden_units 8 --batch.size 16 --epochs 3 --optim.lr 0.01
tisasrec sequences.h5 0.003 0.0005 - --model.kind tisasrec --maxlen 12 --hidden_units 8 --mhc streams --batch.size 16 --epochs 3 --optim.lr 0.01
kgat kg.h5 0.03 0.03 - --model.kind kgat --batch.size 32 --epochs 1 --optim.lr 0.01
hrm sudoku.h5 0.02 0.005 - --model.kind hrm $small_hrm --batch.size 8 --epochs 9 --eval.every 9
trm sudoku.h5 0.02 0.005 - --model.kind hrm $small_hrm --batch.size 8 --epochs 9 --eval.every 9 --model.one_network --model.last_cycle_gradient --no-model.q_continue --optim.ema 0.9
mlp_t sudoku.h5 0.02 0.005 - --model.kind hrm $small_hrm --batch.size 8 --epochs 9 --eval.every 9 --model.one_network --model.last_cycle_gradient --no-model.q_continue --model.mlp_t --model.pos_encodings none --schedule.depth cgar --loss.segment_decay 0.7
har har.h5 0.02 0.005 - --model.kind har --batch.size 4 --schedule.warmup 0 --epochs 2 --model.layers 1 --model.dim 16 --model.heads 2 --model.head_width 8 --model.mlp 32
MODELS

# An interrupted run in fp16 ends with the weights of an uninterrupted one, and continues with the same loss scale.
ice=(--config "$configs/emulator-icecolumn.ini" --data.path ice.h5 --batch.size 25 --epochs 9 --device cuda --precision fp16)

if section resume; then
  train "${ice[@]}" --steps 9 --run-dir whole
  train "${ice[@]}" --steps 4 --run-dir parts
  train "${ice[@]}" --steps 9 --run-dir parts
  same_bits whole parts
  echo "ok  exact resume in fp16"
fi
if section overflow; then
  for steps in 1 2; do
    train "${ice[@]}" --loss.smooth_weight 1e7 --steps $steps --run-dir over
    cp -r over "over-$steps"
    says "step $((steps - 1)): the gradient overflows in fp16 and the step is skipped; the loss scale falls to $((65536 >> steps))"
  done
  same_bits over-1 over-2
  echo "ok  steps that overflow in fp16 change the loss scale and nothing else"
  train --config "$configs/emulator-icecolumn.ini" --data.path ice.h5 --batch.size 280 --epochs 2 --device cuda --precision fp16 --loss.smooth_weight 1e7 --run-dir none
  if grep '"split":"train".*"loss":' none/metrics.jsonl; then echo "FAILED: a step did not overflow"; exit 1; fi
  "$lockstep" info none/checkpoints/final.h5 --json > info.txt
  if grep '"loss":' info.txt || ! grep -q '"val_loss":' info.txt; then echo "FAILED: epochs without a valid step have a mean loss"; exit 1; fi
  echo "ok  epochs in which all steps overflow have no mean loss"
fi
