#!/bin/bash
# Training on the stand-in, or on a GPU, through the real program:   train.sh LOCKSTEP LOCKSTEP_PREP MPIRUN...
# The trajectory matches the CPU's, by NCCL and by MPI. The bits are equal on 1 and 2 ranks with --reproducible, with
# and without graphs, with and without kernels that start early, and for any size of gradient buckets. A checkpoint
# continues on the other kind of device. Embeddings are exchanged by rows. Batches that the GPU makes, and those of the
# host where the data set does not fit or stays in its file, train the same network. Every model takes some steps, and
# HRM's slots stay on the GPU. The memory check names a batch size that fits (only the stand-in's memory is small enough
# to test that). Measurements of the GPUs go into the records of the run. A resumed run multiplies by the algorithms
# that its checkpoint records.
# With one GPU, two ranks share it by MPI, and tests that need NCCL on two GPUs are skipped.
# sections emulator nvml products graphs buckets rows last stalled fault memory checkpoints sasrec tisasrec kgat bprmf hrm har slots
# shellcheck source=SCRIPTDIR/common.sh
source "$(dirname "$0")/common.sh"

same_weights() {  # RUN RUN LIMIT: no weight of the final checkpoints differs by more than LIMIT
  "$lockstep" checkpoint diff --under /model "$1/checkpoints/final.h5" "$2/checkpoints/final.h5" > diff.txt || [ $? = 1 ]  # 1: they differ
  awk -v limit="$3" '/^\/model\// { most = "none"; for (i = 1; i < NF; ++i) if ($i == "most") most = $(i + 1)
    if (most == "none" || most + 0 > limit) { print; bad = 1 } } END { exit bad }' diff.txt ||
    { echo "FAILED: $1 and $2 differ by more than $3"; exit 1; }
}
train() { run "$lockstep" train --resume auto --threads 1 --eval.final none "$@"; }
train_on_two() { run "${mpirun[@]}" -n 2 "$lockstep" train --resume auto --threads 1 --eval.final none "$@"; }
# One step of plain descent moves a weight by its gradient, while Adam's first steps move every weight by the learning
# rate. The gradient of each array must be the CPU's, up to this fraction of the array's largest element. Gradients that
# are 0 but for rounding, such as those of a key's bias, are left out.
same_gradients() {  # RUN LIMIT OPTIONS...
  local run=$1 limit=$2 rate
  local step=("${@:3}" --optim.name sgd --optim.momentum 0 --optim.weight_decay 0 --optim.clip_norm 0
    --schedule.name constant --schedule.warmup 0 --epochs 9 --steps 1 --seed 1)
  for rate in 1e-30 1e4; do train "${step[@]}" --optim.lr $rate --run-dir "$run-$rate"; done
  train "${step[@]}" --optim.lr 1e4 --run-dir "$run-gpu-step" --device cuda
  "$lockstep" checkpoint diff --under /model "$run-1e-30/checkpoints/final.h5" "$run-1e4/checkpoints/final.h5" > moved.txt || [ $? = 1 ]
  "$lockstep" checkpoint diff --under /model "$run-1e4/checkpoints/final.h5" "$run-gpu-step/checkpoints/final.h5" > diff.txt || [ $? = 1 ]
  awk -v limit="$limit" '/^\/model\// { for (i = 1; i < NF; ++i) if ($i == "most") most = $(i + 1) + 0
    if (NR == FNR) { moved[$1] = most; if (most > largest) largest = most; ++arrays; next }
    if (moved[$1] > 1e-7 * largest && most > limit * moved[$1]) { print; print "  which one step moves by " moved[$1]; bad = 1 } }
    END { exit bad || arrays < 10 }' moved.txt diff.txt || { echo "FAILED: $run: the gradients of a GPU and the CPU differ"; exit 1; }
}

# The GPU makes batches from a copy of the data in its memory. If there is no room for the copy, the host makes them:
# the same bits.
same_batches() {  # RUN OPTIONS...
  [[ $("$lockstep" info) == *stand-in* ]] || return 0
  local both=("${@:2}" --epochs 9 --steps 8 --seed 1 --device cuda)
  train "${both[@]}" --run-dir "$1-gpu-batches"
  says "the GPU makes the batches: "
  LOCKSTEP_CUDA_HOST_FULL=1 train "${both[@]}" --run-dir "$1-host-batches"
  says "the host makes the batches: .*, more than 25 % of the 0 "
  same_bits "$1-gpu-batches" "$1-host-batches"
}

"$prep" synth-icecolumn --rows 400 --output ice.h5 --quiet
rows=(--config "$configs/emulator-icecolumn.ini" --data.path ice.h5)
ice=("${rows[@]}" --batch.size 50 --epochs 9)
gpus=$([ -n "${LOCKSTEP_TWO_GPUS:-}" ] && echo 2 || "$lockstep" info | grep -o "compute capability" | wc -l)  # see tests/gpu/apart.sh
backends=$([ "$gpus" -gt 1 ] && echo nccl mpi || echo mpi)

if section emulator; then
  train "${ice[@]}" --steps 12 --run-dir cpu
  train "${ice[@]}" --steps 12 --run-dir gpu --device cuda --backend nccl
  same_weights cpu gpu 1e-4
  if (same_weights cpu gpu 1e-30 > /dev/null); then
    echo "FAILED: the comparison sees no difference, not even rounding"
    exit 1
  fi
  echo "ok  a GPU follows the CPU"
  for backend in $backends; do
    train_on_two "${ice[@]}" --steps 12 --run-dir "$backend" --device cuda --backend "$backend"
    says "gradients by $backend"
    same_weights gpu "$backend" 1e-4
  done
  echo "ok  two ranks on $gpus GPUs follow one: $backends"
  train "${ice[@]}" --steps 12 --run-dir one --device cuda --reproducible
  train_on_two "${ice[@]}" --steps 12 --run-dir two --device cuda --reproducible
  same_bits one two
  echo "ok  the same bits on one and two ranks"
fi

# The stand-in's GPU of bus n has a utilisation of 50 + n percent, n GiB of memory in use, 100 + n W and 1000 + n MHz.
if section nvml && [[ $("$lockstep" info) == *stand-in* ]]; then
  records=(--train.log_every 1 --steps 4 --device cuda)
  recorded() { grep -qF "$1" "$2/metrics.jsonl" || { cat "$2/metrics.jsonl"; echo "FAILED: $2 has no record with $1"; exit 1; }; }
  gpu() { echo "{\"utilization_percent\":$((50 + $1)).0,\"memory_bytes\":$(($1 << 30)).0,\"power_w\":$((100 + $1)).0,\"sm_clock_mhz\":$((1000 + $1)).0}"; }
  unrecorded() {  # DIRECTORY TEXT: no values, and one line with this text
    if grep -q '"gpus"' "$1/metrics.jsonl"; then cat "$1/metrics.jsonl"; echo "FAILED: $1 has values of a GPU"; exit 1; fi
    [ "$(grep -c "recorded" log.txt)" = "${3:-1}" ] || fail "not ${3:-1} lines about it"
    says "$2"
  }
  CUDA_VISIBLE_DEVICES=2 train "${ice[@]}" "${records[@]}" --run-dir sees-one
  recorded "\"gpus\":{\"0\":$(gpu 2)}" sees-one
  grep -aq gpu/0/power_w sees-one/events.out.tfevents.* && grep -q "GPU power" sees-one/report.html ||
    { echo "FAILED: TensorBoard or the report has no power"; exit 1; }
  train_on_two "${ice[@]}" "${records[@]}" --run-dir sees-two --backend nccl
  recorded "\"gpus\":{\"0\":$(gpu 0),\"1\":$(gpu 1)}" sees-two
  CUDA_VISIBLE_DEVICES=3 train_on_two "${ice[@]}" "${records[@]}" --run-dir sees-shared
  recorded "\"gpus\":{\"0\":$(gpu 3)}" sees-shared
  train "${ice[@]}" "${records[@]}" --run-dir sees-threads --parallel dp --gpu-ids 1,3
  recorded "\"gpus\":{\"0\":$(gpu 1),\"1\":$(gpu 3)}" sees-threads
  LOCKSTEP_CUDA_HOST_NVML=mig train "${ice[@]}" "${records[@]}" --run-dir sees-mig
  recorded '"gpus":{"0":{"power_w":100.0,"sm_clock_mhz":1000.0}}' sees-mig
  LOCKSTEP_CUDA_HOST_NVML=no-driver train "${ice[@]}" "${records[@]}" --run-dir sees-none
  unrecorded sees-none "of a GPU are not recorded: starting NVML for GPU 0000:00:00.0: Driver Not Loaded"
  LOCKSTEP_CUDA_HOST_NVML=no-driver train_on_two "${ice[@]}" "${records[@]}" --run-dir sees-none-two
  unrecorded sees-none-two "of 2 GPUs are not recorded: "
  LOCKSTEP_CUDA_HOST_NVML=lost=0 train "${ice[@]}" "${records[@]}" --run-dir sees-lost
  unrecorded sees-lost "reading GPU 0000:00:00.0: GPU is lost; this GPU is not recorded from step 1 on"
  LOCKSTEP_CUDA_HOST_NVML=no-driver train "${ice[@]}" --train.log_every 1 --steps 4 --run-dir sees-cpu
  unrecorded sees-cpu "" 0
  echo "ok  measurements of GPUs"
fi

# Which algorithm of a matrix product is the fastest depends on the timings, which differ from start to start.
if section products && [[ $("$lockstep" info) == *stand-in* ]]; then
  small_data sequences.h5
  tuned=(--model.kind sasrec --data.path sequences.h5 --maxlen 12 --hidden_units 8 --batch.size 16 --epochs 9 --seed 1 --device cuda)
  times() { export LOCKSTEP_CUDA_HOST_PRODUCTS=$1; }  # of the algorithms
  differ() {
    if (same_bits "$1" "$2" > /dev/null); then echo "FAILED: $1 and $2 are equal"; exit 1; fi
    same_weights "$1" "$2" 2e-3
  }
  train "${tuned[@]}" --steps 9 --run-dir untimed
  times 3,2,1
  train "${tuned[@]}" --steps 9 --run-dir off
  same_bits untimed off
  tuned+=(--tune-products)
  train "${tuned[@]}" --steps 9 --run-dir whole
  differ untimed whole
  train "${tuned[@]}" --steps 9 --run-dir calls --graphs off
  same_bits whole calls
  for first in "" --checkpoint.layout=sharded; do
    rm -rf parts
    times 3,2,1
    train "${tuned[@]}" --steps 5 --run-dir parts $first
    times 1,3,2
    train "${tuned[@]}" --steps 9 --run-dir parts $first
    says "matrix products: .* algorithms as before the resume"
    same_bits whole parts
  done
  train "${tuned[@]}" --steps 9 --run-dir other
  differ whole other
  times 3,2,1
  train "${tuned[@]}" --steps 5 --run-dir moved
  LOCKSTEP_CUDA_HOST_MEMORY=4096 train "${tuned[@]}" --steps 9 --run-dir moved
  says "matrix products: the checkpoint's algorithms are of another GPU or another cuBLASLt; they are timed again"
  if "$lockstep" train --threads 1 "${tuned[@]}" --reproducible --run-dir refused > log.txt 2>&1; then fail "a run that depends on timings is reproducible"; fi
  says "option run.tune_products = true: results would depend on timings"
  if [ "$gpus" -gt 1 ]; then  # the timings of the ranks differ, and so do their algorithms
    # shellcheck disable=SC2016
    train_apart() { run "${mpirun[@]}" -n 2 bash -c 'rank=${OMPI_COMM_WORLD_RANK:-$PMI_RANK}; shift $rank; export LOCKSTEP_CUDA_HOST_PRODUCTS=$1; shift $((2 - rank)); exec "$@"' rank "$1" "$2" "$lockstep" train --threads 1 "${tuned[@]}" --backend nccl "${@:3}"; }
    train_apart 3,2,1 1,2,3 --steps 9 --run-dir whole-two
    train_apart 3,1,2 3,1,2 --steps 9 --run-dir other-two
    differ whole-two other-two
    train_apart 3,2,1 1,2,3 --steps 5 --run-dir parts-two
    train_apart 1,2,3 3,1,2 --steps 9 --run-dir parts-two
    same_bits whole-two parts-two
  fi
  unset LOCKSTEP_CUDA_HOST_PRODUCTS
  echo "ok  algorithms of matrix products"
fi

# Includes batches that do not fill their micro-batches, and evaluations, after which prefetched work is discarded.
steps=("${rows[@]}" --epochs 9 --batch.size 30 --batch.accumulate 3 --steps 14 --device cuda)
if section graphs; then
  train "${steps[@]}" --run-dir calls --graphs off
  if grep -q "as graphs" log.txt; then fail "graphs were used despite --graphs off"; fi
  train "${steps[@]}" --run-dir graphs --graphs on
  says "steps run on the GPU as graphs"
  same_bits calls graphs
  LOCKSTEP_CUDA_HOST_STREAMS=late LOCKSTEP_CUDA_HOST_ORDER=reverse train "${steps[@]}" --run-dir late
  says "steps run on the GPU as graphs"
  same_bits calls late
  LOCKSTEP_CUDA_SYNC=1 train "${steps[@]}" --run-dir sync
  same_bits calls sync
  echo "ok  the same bits as graphs, call by call, and with a wait after each kernel"
fi

if section buckets && [ "$gpus" -gt 1 ]; then
  train_on_two "${steps[@]}" --run-dir whole --graphs off --backend nccl --dist.gpu_bucket_bytes 100000000
  for graphs in off on; do
    train_on_two "${steps[@]}" --run-dir "pieces-$graphs" --graphs $graphs --backend nccl --dist.gpu_bucket_bytes 1
    same_bits whole "pieces-$graphs"
  done
  says "steps run on the GPU as graphs"
  export LOCKSTEP_CUDA_HOST_STREAMS=late
  train_on_two "${steps[@]}" --run-dir pieces-late --backend nccl --dist.gpu_bucket_bytes 1
  unset LOCKSTEP_CUDA_HOST_STREAMS
  same_bits whole pieces-late
  run "${mpirun[@]}" -n 2 "$lockstep" comm-test --doctor --device cuda --max-bytes 8 --budget 1
  says 'LL128  *8388608 .*exact' 'Simple  *8388608 .*exact'
  echo "ok  the same bits with the gradient in one piece, or in buckets during the backward pass; NCCL's protocols"
fi

if section rows && [ "$gpus" -gt 1 ]; then
  # Embeddings of which a step touches few rows: exchanged by rows, as on the CPU.
  "$prep" synth-sequences --output items.h5 --users 60 --min-length 8 --max-length 12 --categories 8 --clusters 5 --members 20 --quiet
  items=(--model.kind sasrec --data.path items.h5 --maxlen 12 --hidden_units 8 --batch.size 8 --steps 10 --epochs 9 --seed 1
    --dist.bucket_bytes 1 --dist.gpu_bucket_bytes 1)
  train_on_two "${items[@]}" --run-dir items-cpu
  says "gradients of tables: by rows"
  by_rows=$(grep -o "gradients of tables: by rows, .*" log.txt)
  train "${items[@]}" --run-dir items-one --device cuda
  train_on_two "${items[@]}" --run-dir items-whole --device cuda --backend nccl
  says "steps run on the GPU as graphs"  # the tables are small: they are sent whole
  same_weights items-one items-whole 1e-4
  items+=(--dist.gpu_row_bytes 1)
  train_on_two "${items[@]}" --run-dir items-gpus --device cuda --backend nccl
  says "$by_rows"
  same_weights items-one items-gpus 1e-4
  LOCKSTEP_CUDA_HOST_STREAMS=late train_on_two "${items[@]}" --run-dir items-late --device cuda --backend nccl
  same_bits items-gpus items-late
  echo "ok  embeddings by rows"
fi

if section last; then
  # The last batch of an epoch is one sample: a rank without samples still joins.
  last=("${rows[@]}" --batch.size 279 --steps 4 --device cuda)
  train "${last[@]}" --run-dir last-one
  train_on_two "${last[@]}" --run-dir last-two --backend "${backends%% *}" --dist.bucket_bytes 1 --dist.gpu_bucket_bytes 1
  same_weights last-one last-two 1e-4
  echo "ok  a rank without samples"
fi

if section stalled && [ "$gpus" -gt 1 ]; then
  # One rank is killed or stopped during the training: the other one saves the last copy of the state and ends the job,
  # or, without copies, ends it also if NCCL's abort hangs. It says where it waited. Evaluations, checkpoints, log records,
  # graphs and the choice of the steps between two copies use MPI, not NCCL: the signal follows the first log record at
  # once, so that it finds the rank in one of the 200 steps up to the next one.
  # The average of the weights is freed before NCCL's communicator, and that waits for the collectives in progress.
  for how in killed stopped hangs; do
    hangs='' signal=STOP copies=5
    [ $how != killed ] || signal=KILL
    [ $how != hangs ] || hangs=LOCKSTEP_CUDA_HOST_ABORT_HANGS=1 copies=0
    options=(--threads 1 "${rows[@]}" --batch.size 50 --eval.every 1000 --checkpoint.every 0 --checkpoint.partner_steps $copies
      --train.log_every 200 --log-level detail --run-dir "$how" --device cuda --backend nccl --graphs off
      --dist.gpu_bucket_bytes 1 --optim.ema 0.9 --timeout 2)
    rm -f log.txt pid-1  # of the job before, whose steps and process must not be taken for this one's
    # shellcheck disable=SC2016
    timeout 120 "${mpirun[@]}" -n 2 env $hangs bash -c 'echo $$ > pid-${OMPI_COMM_WORLD_RANK:-$PMI_RANK}; exec "$@"' rank \
      "$lockstep" train "${options[@]}" > log.txt 2>&1 &
    job=$!
    until grep -qs "^step 200/" log.txt; do
      if ! kill -0 $job; then fail "the job ended before step 200"; fi
      sleep 0.1
    done
    kill -$signal "$(cat pid-1)"
    if wait $job; then fail "a job with a lost rank succeeded"; fi
    [ $how = killed ] || says "error \[rank 0/2, .*NCCL, step [0-9]*, .* (collective [0-9]* of [0-9]*): no answer from the other ranks in 2 s"
    if [ $how = hangs ]; then
      says "ncclCommAbort has not returned for .*this rank was ending because of: NCCL, step"
    else
      says "the state after step [0-9]* is saved"
      saved=$(ls "$how/checkpoints" | sed -n 's/^rescue-\([0-9]*\)\.h5$/\1/p')
      run "${mpirun[@]}" -n 2 "$lockstep" train "${options[@]}" --steps $((saved + 5)) --eval.final none
      says "continuing from $how/checkpoints/rescue-"
    fi
  done
  echo "ok  a lost rank"
fi

# A kernel faults, and from then on every call of the runtime fails, also those of destructors: one message, at once.
if section fault && [[ $("$lockstep" info) == *stand-in* ]]; then
  export LOCKSTEP_CUDA_HOST_STREAMS=late  # the host learns of it when it waits
  faults() {  # KERNEL COMMAND...
    local code=0
    LOCKSTEP_CUDA_HOST_FAULT=$1 timeout -s KILL 60 "${@:2}" > log.txt 2>&1 || code=$?
    [ "$code" = 1 ] || fail "kernel $1 faults: exit code $code"
    [ "$(grep -c '^error' log.txt)" = 1 ] || fail "kernel $1 faults: not one message"
    says "an illegal memory access was encountered"
  }
  averaged=("${rows[@]}" --batch.size 100 --epochs 9 --steps 6 --optim.ema 0.9 --eval.every 1 --device cuda --threads 1)
  for graphs in off on; do
    for kernel in 1 2 5 9 14 20 27 35; do faults $kernel "$lockstep" train "${averaged[@]}" --run-dir "fault-$graphs-$kernel" --graphs $graphs; done
  done
  faults 40 "$lockstep" verify --model har --golden "$configs/../tests/golden/har_single_meanpool.h5" --device cuda
  [ "$gpus" = 1 ] || faults 20 "${mpirun[@]}" -n 2 "$lockstep" train "${averaged[@]}" --run-dir fault-two --backend nccl
  unset LOCKSTEP_CUDA_HOST_STREAMS
  echo "ok  a kernel that faults"
fi

if section memory && [[ $("$lockstep" info) == *stand-in* ]]; then
  small=("${rows[@]}" --model.hidden_size 512 --steps 1 --device cuda)
  if LOCKSTEP_CUDA_HOST_MEMORY=43 "$lockstep" train --threads 1 "${small[@]}" --batch.size 300 --run-dir full > log.txt 2>&1; then
    fail "a step that does not fit succeeded"
  fi
  says "for activations on cuda:0: .* are free; this process holds parameters "
  says "300 samples at once would take about "
  size=$(sed -n 's/.*samples fit: batch.size = \([0-9]*\) over all ranks with batch.accumulate = \([0-9]*\) is.*/--batch.size \1 --batch.accumulate \2/p' log.txt)
  # shellcheck disable=SC2086
  LOCKSTEP_CUDA_HOST_MEMORY=43 train "${small[@]}" $size --run-dir fits
  train "${small[@]}" --batch.size 300 --run-dir roomy
  same_weights roomy fits 1e-4
  echo "ok  the batch size that is reported to fit does fit"
fi

if section checkpoints; then
  train "${ice[@]}" --steps 12 --run-dir cpu
  for first in cpu cuda; do
    other=$([ $first = cpu ] && echo cuda || echo cpu)
    train "${ice[@]}" --steps 5 --run-dir "from-$first" --device $first
    train "${ice[@]}" --steps 12 --run-dir "from-$first" --device $other
    says "continuing from"
    same_weights cpu "from-$first" 1e-4
  done
  echo "ok  checkpoints move between kinds of devices"
fi

for model in "${small_models[@]}"; do
  small_model "$model" || continue
  train "${options[@]}" --epochs 1 --steps 3 --run-dir "$kind-cpu" --seed 1
  train "${options[@]}" --epochs 1 --steps 3 --run-dir "$kind-gpu" --seed 1 --device cuda
  same_weights "$kind-cpu" "$kind-gpu" 2e-3
  LOCKSTEP_CUDA_DEPENDENT=1 train "${options[@]}" --epochs 1 --steps 3 --run-dir "$kind-early" --seed 1 --device cuda
  same_bits "$kind-gpu" "$kind-early"
  case $kind in
    kgat)  # steps on interactions, then on triples
      same_batches kgat "${options[@]:0:4}" --batch.size 700
      if [ "$gpus" -gt 1 ]; then
        train_on_two "${options[@]}" --epochs 1 --steps 1 --run-dir kgat-two --device cuda
        says "each of the 2 GPUs computes the same step, so more GPUs make it no faster; one GPU, or dist.mode"
      fi
      ;;
    har | hrm | sasrec | tisasrec)  # rows that stay in the file
      train "${options[@]}" --epochs 1 --steps 3 --run-dir "$kind-file" --seed 1 --device cuda --data.layout divided --data.memory 1e-7
      says "rows: stay in the file"
      same_bits "$kind-gpu" "$kind-file"
      ;;&
    har | sasrec | tisasrec)
      same_batches "$kind" "${options[@]}"
      ;;&
    har | hrm)
      same_gradients "$kind-step" 1e-3 "${options[@]}"
      for graphs in off on; do
        train "${options[@]}" --epochs 9 --steps 8 --run-dir "$kind-$graphs" --seed 1 --device cuda --graphs $graphs
      done
      says "steps run on the GPU as graphs"
      same_bits "$kind-off" "$kind-on"
      ;;
    sasrec | tisasrec)  # batches of other lengths; the host runs ahead of a GPU that works as late as it may
      for graphs in off on; do
        for streams in now late; do
          LOCKSTEP_CUDA_HOST_STREAMS=$streams train "${options[@]}" --epochs 9 --steps 10 --run-dir "$kind-$graphs-$streams" --seed 1 --device cuda --graphs $graphs
          same_bits "$kind-off-now" "$kind-$graphs-$streams"
        done
      done
      says "steps run on the GPU as graphs"
      if [ "$gpus" -gt 1 ]; then  # parts of other lengths on the ranks
        for graphs in off auto; do
          train_on_two "${options[@]}" --epochs 9 --steps 10 --run-dir "$kind-two-$graphs" --seed 1 --device cuda --backend nccl --graphs $graphs
        done
        says "steps run on the GPU as graphs"
        same_bits "$kind-two-off" "$kind-two-auto"
        same_weights "$kind-off-now" "$kind-two-auto" 2e-3
      fi
      ;;
  esac
  echo "ok  $kind"
done

# Sequences halt, explore and continue in GPU memory, whether steps are submitted call by call, as graphs, as late as
# possible, resumed in the middle of their segments, or on two GPUs.
if section slots; then
  small_data sudoku.h5
  slots=(--model.kind hrm --data.path sudoku.h5 --model.hidden_size 16 --model.num_heads 2 --model.h_layers 1 --model.l_layers 1
    --model.halt_max_steps 3 --model.halt_exploration_prob 0.5
    --batch.size 4 --batch.accumulate 2 --schedule.warmup 0 --epochs 9 --eval.every 9 --device cuda --precision fp32)
  same_run() { for group in /model /optim /program; do same_bits "$1" "$2" $group; done; }  # weights, optimizer, slots
  train "${slots[@]}" --steps 10 --run-dir slots-calls --graphs off
  train "${slots[@]}" --steps 10 --run-dir slots-graphs --graphs on
  says "steps run on the GPU as graphs"
  LOCKSTEP_CUDA_HOST_STREAMS=late LOCKSTEP_CUDA_HOST_ORDER=reverse train "${slots[@]}" --steps 10 --run-dir slots-late
  says "steps run on the GPU as graphs"
  says "the GPU makes the batches: the puzzles have "
  if [[ $("$lockstep" info) == *stand-in* ]]; then  # without room for the puzzles, the host stages their tokens
    LOCKSTEP_CUDA_HOST_FULL=1 LOCKSTEP_CUDA_HOST_STREAMS=late train "${slots[@]}" --steps 10 --run-dir slots-staged
    says "the host makes the batches: the puzzles have "
    same_run slots-calls slots-staged
  fi
  train "${slots[@]}" --steps 5 --run-dir slots-parts
  train "${slots[@]}" --steps 10 --run-dir slots-parts
  says "continuing from"
  for other in graphs late parts; do same_run slots-calls slots-$other; done
  if [ "$gpus" -gt 1 ]; then
    train_on_two "${slots[@]}" --steps 10 --run-dir slots-two-calls --graphs off --backend nccl
    export LOCKSTEP_CUDA_HOST_STREAMS=late
    train_on_two "${slots[@]}" --steps 10 --run-dir slots-two-late --graphs on --backend nccl
    unset LOCKSTEP_CUDA_HOST_STREAMS
    same_run slots-two-calls slots-two-late
  fi
  echo "ok  slots of HRM"
fi
