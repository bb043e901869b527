#!/bin/bash
# One process for the four devices of the stand-in, or for four GPUs, through the real program:
#   devices.sh LOCKSTEP LOCKSTEP_PREP MPIRUN...
# Ranks that are threads give the same bits as ranks that are processes, and as one rank. Also tested: every model,
# checkpoints, searches by groups of ranks, and rejected configurations.
# sections bits backends checkpoints searches refused sasrec tisasrec kgat bprmf hrm har
# shellcheck source=SCRIPTDIR/common.sh
source "$(dirname "$0")/common.sh"


train() { run "$lockstep" train --resume auto --device cuda --threads 1 "$@"; }
processes() { run "${mpirun[@]}" -n "$1" "$lockstep" train --resume auto --device cuda --threads 1 "${@:2}"; }
refused() {  # EXIT_CODE TEXT COMMAND...: ends with this code and one message
  local code=0 expected=$1 text=$2
  shift 2
  timeout -s KILL 300 "$@" > log.txt 2>&1 || code=$?
  [ "$code" = "$expected" ] || fail "exit code $code, not $expected: $*"
  says "$text"
  [ "$(grep -c '^error' log.txt)" = 1 ] || fail "not one message: $*"
}

"$prep" synth-icecolumn --rows 300 --output ice.h5 --quiet
ice=(--config "$configs/emulator-icecolumn.ini" --data.path ice.h5 --batch.size 50 --epochs 9)
if section bits; then
  train "${ice[@]}" --steps 8 --reproducible --run-dir one
  processes 2 "${ice[@]}" --steps 8 --reproducible --run-dir processes
  train "${ice[@]}" --steps 8 --reproducible --run-dir two --parallel dp --gpu-ids 0,2 --dist.check_every 1
  says "ranks: 2 on 1 host" "dp: one process, a thread for each GPU"
  train "${ice[@]}" --steps 8 --reproducible --run-dir four --parallel dp
  says "ranks: 4 on 1 host"
  for other in processes two four; do same_bits one $other; done
  echo "ok  threads, processes and one rank: the same bits"
fi

if section backends; then
  processes 2 "${ice[@]}" --steps 8 --run-dir nccl-processes
  # Memory calls of a thread wait for the collectives of the other GPUs, as on real GPUs: no thread may start a
  # collective for which another thread has yet to allocate memory.
  export LOCKSTEP_CUDA_HOST_MEMORY_WAITS=1
  train "${ice[@]}" --steps 8 --run-dir nccl-threads --parallel dp --gpu-ids 0,1 --timeout 120
  if grep -q "as graphs" log.txt; then fail "several GPUs of one process run graphs"; fi
  says "gradients by nccl"
  same_bits nccl-processes nccl-threads
  train "${ice[@]/--batch.size/--batch.per_rank}" --run-dir host-threads --parallel dp --gpu-ids 0,1 --backend mpi --dist.bucket_bytes 1000 --steps 2
  says "gradients by threads" "100 over 2 ranks (50 each)"
  train "${ice[@]}" --run-dir short-threads --parallel dp --gpu-ids 0,1 --dist.compress bf16 --steps 2
  "$prep" synth-sequences --output items.h5 --users 60 --min-length 8 --max-length 12 --categories 8 --clusters 5 --members 20 --quiet
  items=(--model.kind sasrec --data.path items.h5 --maxlen 12 --hidden_units 8 --batch.size 8 --steps 6 --epochs 9 --seed 1 --dist.gpu_row_bytes 1)
  processes 2 "${items[@]}" --run-dir items-processes
  train "${items[@]}" --run-dir items-threads --parallel dp --gpu-ids 0,1
  says "gradients of tables: by rows"
  unset LOCKSTEP_CUDA_HOST_MEMORY_WAITS
  same_bits items-processes items-threads
  echo "ok  gradients by NCCL, through host memory, and by rows"
fi

if section checkpoints; then
  train "${ice[@]}" --steps 8 --reproducible --run-dir one
  train "${ice[@]}" --reproducible --run-dir moved --steps 3 --parallel dp --gpu-ids 3,1,0
  train "${ice[@]}" --reproducible --run-dir moved --steps 5
  says "continuing from"
  train "${ice[@]}" --reproducible --run-dir moved --steps 8 --parallel dp --gpu-ids 0,1 --checkpoint.layout sharded
  says "continuing from"
  same_bits one moved
  for how in "--parallel ddp" "--parallel dp --gpu-ids 0,1,2"; do
    # shellcheck disable=SC2086
    "$lockstep" eval --checkpoint one/checkpoints/final.h5 --device cuda $how --json > "eval.${how: -1}"
  done
  cmp eval.p eval.2
  echo "ok  checkpoints and metrics do not depend on the number of devices"
fi

if section searches; then  # groups of two ranks with two GPUs of their own; two ranks that share a GPU
  printf '[sweep]\nseed = range(3)\n' > seeds.ini
  search=("$lockstep" sweep "${ice[@]}" --config seeds.ini --device cuda --threads 1 --epochs 2 --reproducible)
  run "${search[@]}" --run-dir search-one
  run "${mpirun[@]}" -n 4 "${search[@]}" --run-dir search-groups --ranks-per-run 2
  cat search-groups/trial-*/train.log > log.txt
  says "cuda:0" "cuda:2"
  LOCKSTEP_CUDA_HOST_DEVICES=1 run "${mpirun[@]}" -n 2 "${search[@]}" --run-dir search-shared
  for other in groups shared; do cmp search-one/sweep.json search-$other/sweep.json || fail "the search differs"; done
  echo "ok  groups of ranks have their GPUs, or share one: the same search"
fi

if section refused && [[ $("$lockstep" info) == *stand-in* ]]; then
  refused 2 "'9' is not one of the GPUs 0 .. 3" "$lockstep" train "${ice[@]}" --device cuda --run-dir bad --parallel dp --gpu-ids 0,9
  refused 2 "named only once" "$lockstep" train "${ice[@]}" --device cuda --run-dir bad --parallel dp --gpu-ids 1,1
  refused 2 "wait for one another forever" "$lockstep" train "${ice[@]}" --device cuda --run-dir bad --parallel dp --graphs on
  refused 2 "sees no GPU on .*: the driver supports CUDA 12.4, but this program needs 13.0: update the driver" \
    env LOCKSTEP_CUDA_HOST_DRIVER=12040 "$lockstep" train "${ice[@]}" --device cuda --run-dir bad
  refused 2 "sees no GPU on .*: no NVIDIA driver" env LOCKSTEP_CUDA_HOST_DRIVER=0 "$lockstep" train "${ice[@]}" --device cuda --run-dir bad
  refused 2 "sees no GPU on .*: the driver shows this process no GPU" env CUDA_VISIBLE_DEVICES= "$lockstep" train "${ice[@]}" --device cuda --run-dir bad
  refused 2 "threads of the kernel .*empty_kernel.*no code for this GPU: build it with CMAKE_CUDA_ARCHITECTURES" \
    env LOCKSTEP_CUDA_HOST_NO_CODE=1 "${mpirun[@]}" -n 2 "$lockstep" train "${ice[@]}" --device cuda --run-dir bad
  # Who shares a GPU is decided by UUIDs: two processes that see one GPU each, as number 0, do not share it.
  # shellcheck disable=SC2016
  seeing() { run "${mpirun[@]}" -n 2 bash -c "CUDA_VISIBLE_DEVICES=$1"' exec "$@"' rank \
    "$lockstep" train --threads 1 "${ice[@]}" --device cuda --run-dir "$2" --steps 1; }
  # shellcheck disable=SC2016
  seeing '${OMPI_COMM_WORLD_RANK:-$PMI_RANK}' own
  if grep -q " share " log.txt; then fail "two ranks with a GPU each share none"; fi
  seeing 1 shared
  says "2 ranks on .* share 1 GPU$"
  refused 2 "dist.replicas = 2" "$lockstep" train "${ice[@]}" --device cuda --run-dir bad --parallel dp --replicas 2
  refused 2 "2 were started" "${mpirun[@]}" -n 2 "$lockstep" train "${ice[@]}" --device cuda --run-dir bad --parallel dp
  head -c 3000 ice.h5 > cut.h5
  refused 3 "cut.h5" "$lockstep" train --config "$configs/emulator-icecolumn.ini" --data.path cut.h5 --device cuda --run-dir bad --parallel dp
  refused 1 "allocating" env LOCKSTEP_CUDA_HOST_MEMORY=1 "$lockstep" train "${ice[@]}" --device cuda --run-dir bad --parallel dp
  echo "ok  errors end with one message"
fi

for model in "${small_models[@]}"; do
  small_model "$model" || continue
  options+=( --epochs 1)
  train "${options[@]}" --steps 3 --run-dir "$kind-one" --seed 1 --reproducible
  train "${options[@]}" --steps 3 --run-dir "$kind-two" --seed 1 --reproducible --parallel dp --gpu-ids 1,3
  same_bits "$kind-one" "$kind-two"
  # The processor needs no driver.
  LOCKSTEP_CUDA_HOST_DRIVER=0 run "$lockstep" train --threads 1 "${options[@]}" --steps 1 --run-dir "$kind-cpu"
  echo "ok  $kind"
done
