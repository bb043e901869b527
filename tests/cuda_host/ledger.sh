#!/bin/bash
# What a training step makes a GPU do, held to limits:   ledger.sh LOCKSTEP LOCKSTEP_PREP
# Each model takes some steps on the stand-in with its published layers and small data. No count may exceed its limit
# below, which is what the model needed when it was last lowered. docs/design/gpu-ledger.md has the goals.
# sections emulator sasrec tisasrec har har_pictures kgat kgat_bf16 kgat_triples hrm hrm_begins trm
# shellcheck source=SCRIPTDIR/common.sh
source "$(dirname "$0")/common.sh"

count() {  # FILE KEY: the first number of that name; memory, moved: such bytes by necessary ones
  case $2 in
    memory | moved) awk -v bytes="$(count "$1" "$2_bytes")" -v necessary="$(count "$1" necessary_bytes)" 'BEGIN { print bytes / necessary }' ;;
    *) grep -o "\"$2\":[0-9.e+-]*" "$1" | head -n 1 | cut -d: -f2 ;;
  esac
}
limits() {  # NAME "KEY=LIMIT ..." ARGUMENT...
  section "$1" || return 0
  local name=$1 wanted=$2 bad=0
  shift 2
  "$lockstep" bench --ledger --json --device cuda --threads 1 --seed 1 "$@" > "$name.json" 2> log.txt ||
    { cat log.txt "$name.json"; echo "FAILED: bench --ledger $*"; exit 1; }
  for pair in $wanted; do
    local key=${pair%%=*} limit=${pair#*=} found
    found=$(count "$name.json" "$key")
    awk -v found="$found" -v limit="$limit" 'BEGIN { exit !(found <= limit) }' ||
      { echo "$name: $key is $found per step, above its limit $limit"; bad=1; }
    awk -v found="$found" -v limit="$limit" 'BEGIN { exit !(found >= 0.9 * limit) }' ||
      echo "$name: $key is $found per step: its limit $limit can be lowered, here and in docs/design/gpu-ledger.md"
  done
  [ $bad = 0 ] || { cat "$name.json"; echo "FAILED: the ledger of $name"; exit 1; }
  echo "ok  $name"
}

# The lengths of sequences are equal, so that every batch has the same counts.
"$prep" synth-sequences --users 60 --min-length 12 --max-length 12 --categories 4 --clusters 2 --members 5 --output sequences.h5 --quiet
"$prep" synth-icecolumn --rows 4000 --output ice.h5 --quiet
small_data kg.h5
small_data sudoku.h5
small_data har.h5

if section emulator; then
  for wrong in "--device cpu" "--device cuda --sweep-threads"; do
    status=0
    # shellcheck disable=SC2086
    "$lockstep" bench --ledger --config "$configs/emulator-icecolumn.ini" --data.path ice.h5 $wrong > log.txt 2>&1 || status=$?
    [ $status = 2 ] || fail "bench --ledger $wrong ends with $status"
    says "option ledger: it counts"
  done
  echo "ok  bench says what a ledger needs"
fi

# launches: kernels, copies and products, in graphs or not. memory, moved: see count(). longest: accesses of the busiest
# thread of any kernel. bus_bytes: host memory that kernels and copies read and write.
# One kernel, counted with the blocks that it has on a GPU of 132 multiprocessors; then the same by separate kernels.
LOCKSTEP_CUDA_HOST_MULTIPROCESSORS=132 limits emulator \
  "nodes=1 launches=1 host_waits=0 memory=1.013 moved=2.92 longest=62 moved_bytes=7560000 bus_bytes=8384" \
  --config "$configs/emulator-icecolumn.ini" --data.path ice.h5
limits emulator "nodes=29 launches=29 host_waits=0 memory=1.007 moved=1.02 longest=29 bus_bytes=1064" \
  --config "$configs/emulator-icecolumn.ini" --data.path ice.h5 --optim.name sgd
limits sasrec "nodes=59 launches=59 host_launches=1 host_waits=0 memory=1.003 moved=1.101 longest=52 bus_bytes=576" \
  --config "$configs/sasrec-ml1m.ini" --data.path sequences.h5 --batch.size 16
limits tisasrec "nodes=70 launches=70 host_launches=1 host_waits=0 memory=1.009 moved=1.172 longest=65 bus_bytes=576" \
  --config "$configs/tisasrec-ml1m.ini" --data.path sequences.h5 --batch.size 16
limits har "nodes=16 launches=16 host_waits=0 memory=1.001 moved=1.78 longest=211 bus_bytes=16712" \
  --config "$configs/har-hapt.ini" --data.path har.h5 --batch.size 8
# The pictures of a window, and one layer of the published encoder with a twelfth of its width.
limits har_pictures "nodes=82 launches=82 host_waits=0 memory=1.001 moved=2.73 longest=782 bus_bytes=240984" \
  --config "$configs/har-image.ini" --data.path har.h5 --batch.size 1 --batch.accumulate 1 --model.layers 1 --model.dim 64 \
  --model.heads 2 --model.head_width 32 --model.mlp 64 --warmup 2 --steps 1
limits kgat "nodes=58 launches=58 host_waits=0 memory=1.003 moved=1.23 longest=176 bus_bytes=544" \
  --config "$configs/kgat-ml1m.ini" --data.path kg.h5 --batch.size 32
# The same nodes where kernels start early.
LOCKSTEP_CUDA_DEPENDENT=1 limits kgat "nodes=58 launches=58" \
  --config "$configs/kgat-ml1m.ini" --data.path kg.h5 --batch.size 32
if section kgat; then
  early=$(count kgat.json early_launches)
  awk -v early="$early" 'BEGIN { exit !(early >= 29) }' || fail "only $early kernels may start early"
fi
limits kgat_bf16 "nodes=61 launches=61 host_waits=0 memory=1.001 moved=1.18 longest=176 bus_bytes=544" \
  --config "$configs/kgat-ml1m.ini" --data.path kg.h5 --batch.size 32 --model.storage bf16
# Steps on triples, which follow those on items in each epoch.
limits kgat_triples "nodes=11 launches=11 host_waits=0 memory=1.004 moved=1.05 longest=147 bus_bytes=608" \
  --config "$configs/kgat-ml1m.ini" --data.path kg.h5 --batch.size 32 --from_step 45 --warmup 6 --steps 2
# 48 blocks forward, 8 of them with a backward.
limits hrm "nodes=461 launches=461 host_waits=0 memory=1.001 moved=1.02 longest=134 bus_bytes=904" \
  --config "$configs/hrm-sudoku.ini" --precision fp32 --data.path sudoku.h5 --model.hidden_size 16 --model.num_heads 2 --batch.size 8
# All slots begin a puzzle in each step.
limits hrm_begins "nodes=98 launches=98 host_waits=0 memory=1.001 moved=1.02 longest=134 bus_bytes=1352" \
  --config "$configs/hrm-sudoku.ini" --precision fp32 --data.path sudoku.h5 --model.hidden_size 16 --model.num_heads 2 --batch.size 8 \
  --model.h_layers 1 --model.l_layers 1 --model.halt_max_steps 1
# The form without attention: 42 block passes, 14 of them with a backward.
limits trm "nodes=642 launches=642 host_waits=0 memory=1.001 moved=1.33 longest=256 bus_bytes=840" \
  --config "$configs/hrm-trm-sudoku-mlp.ini" --data.path sudoku.h5 --model.hidden_size 16 --batch.size 8 --data.group_visits 20
