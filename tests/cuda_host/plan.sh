#!/bin/bash
# The memory that `lockstep plan` states, against what a training holds:   plan.sh LOCKSTEP LOCKSTEP_PREP
# After some steps on the CPU and on the stand-in, the bytes of the program's buffers are those of the plan: parameters and
# optimizer state to 5 %, activations to a third, all of a GPU's memory to a third.
# sections emulator sasrec tisasrec kgat bprmf hrm har
# shellcheck source=SCRIPTDIR/common.sh
source "$(dirname "$0")/common.sh"

planned() {  # ROW: bytes of a row of the plan of a rank; 0 if it has none
  awk -v row="$1" '/^Memory of a node/ { exit }
    index($0, "  " row "  ") == 1 { rest = substr($0, length(row) + 3); split(rest, word, " ")
      power = index("BKMGT", substr(word[2], 1, 1)) - 1; bytes = word[1] * 1024 ^ power }
    END { printf "%.0f", bytes }' plan.txt
}
held() { grep -o "\"$1\":[0-9]*" bench.json | head -n 1 | cut -d: -f2; }  # USE
near() {  # WHAT PLANNED HELD SHARE: differ by at most this share of the larger one, or by 64 KiB
  awk -v p="$2" -v h="$3" -v share="$4" 'BEGIN { d = p > h ? p - h : h - p; most = p > h ? p : h; exit d > share * most && d > 65536 }' ||
    { cat plan.txt bench.json; echo "FAILED: $what: $1: the plan has $2 bytes, the training holds $3"; exit 1; }
}
compare() {  # DEVICE ARGUMENT...
  local device=$1 what="$*" fixed=$((32 << 20))
  shift
  "$lockstep" plan --device "$device" --threads 1 "$@" > plan.txt 2> log.txt || fail "plan $*"
  "$lockstep" bench --device "$device" --threads 1 --steps 2 --warmup 2 --json "$@" > bench.json 2> log.txt || fail "bench $*"
  near parameters $(($(planned weights) + $(planned "rounded weights"))) "$(held parameters)" 0.05
  near "optimizer state" "$(planned "optimizer state")" "$(held optimizer)" 0.05
  # Arrays of a graph are activations, too, on a GPU also other memory.
  if [ "$device" = cpu ]; then
    [ "$(planned "arrays of the graph")" != 0 ] || near activations "$(planned activations)" "$(held activations)" 0.34
  else
    local all=0 use
    for use in parameters gradients optimizer activations data workspace other; do all=$((all + $(held $use))); done
    local scratch
    scratch=$(held workspace)
    # The library's scratch has a fixed size, which would hide all else.
    near "GPU memory" $(($(planned sum) - $(planned evaluation) - $(planned "scratch of products"))) \
      $((all - scratch / fixed * fixed)) 0.34
  fi
  echo "ok  $what"
}
both() { for device in cpu cuda; do compare $device "$@"; done; }

if section emulator; then
  "$prep" synth-icecolumn --rows 4000 --output data.h5 --quiet
  for more in "" "--model.use_conv1d true" "--model.hidden_size 256"; do
    # shellcheck disable=SC2086
    both --model.kind emulator --data.path data.h5 --batch.size 1000 $more
  done
fi
for kind in sasrec tisasrec; do
  section $kind || continue
  "$prep" synth-sequences --users 300 --min-length 20 --max-length 60 --output data.h5 --quiet
  both --model.kind $kind --data.path data.h5 --maxlen 60 --hidden_units 32 --batch.size 32
  both --model.kind $kind --data.path data.h5 --maxlen 60 --hidden_units 16 --batch.size 16 --mhc streams
done
for kind in kgat bprmf; do
  section $kind || continue
  "$prep" synth-kg --users 1000 --output data.h5 --quiet
  both --model.kind $kind --data.path data.h5 --batch.size 256
done
if section hrm; then
  "$prep" synth-sudoku --order 2 --train 24 --test 4 --output data.h5 --quiet
  small=(--model.kind hrm --data.path data.h5 --model.hidden_size 32 --model.num_heads 2 --model.l_layers 1 --batch.size 16)
  both "${small[@]}" --model.h_layers 2
  both "${small[@]}" --model.one_network true --model.last_cycle_gradient true --model.l_cycles 3
fi
if section har; then
  "$prep" synth-har --subjects 4 --seconds 10 --output data.h5 --quiet
  both --model.kind har --data.path data.h5 --batch.size 16 --model.layers 2
  both --model.kind har --data.path data.h5 --batch.size 8 --model.input image --model.image 32 --model.dim 32 --model.layers 2 \
    --model.heads 2 --model.head_width 16 --model.mlp 64
fi
