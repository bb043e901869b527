#!/usr/bin/env bash
# The shipped GPU scripts on a small Slurm that grants GPUs. The host build of tests/cuda_host simulates the devices that Slurm makes
# visible to a job. Trainings on one node with four ranks and on two and four nodes complete with NCCL (whose host build needs one
# /dev/shm for all nodes), and through host memory and mpirun, with the weights of a CPU run.
gpu_program=$(realpath -m "$1/../cuda-host/bin/lockstep")
[ -x "$gpu_program" ] || { echo "no $gpu_program: make cuda-host"; exit 77; }
export SMALL_SLURM_SHM=one
source "$(dirname "$0")/lib.sh" "$@"
export LOCKSTEP=$gpu_program LOCKSTEP_PREP=$PREP

ok "$PREP" synth-icecolumn --rows 400 --seed 3 --output data.h5
export DATA=data.h5 CONFIG=configs/emulator-icecolumn.ini
common="--train.epochs 2 --batch.size 80 --model.hidden_size 16 --checkpoint.every 1"
ok "$LOCKSTEP" train --config $CONFIG --data.path data.h5 --run-dir processor $common

# trains NODES RANKS_PER_NODE BACKEND SCRIPT [sbatch option ...]
trains() {
  local ranks=$(($1 * $2)) nodes=$1 backend=$3
  export BACKEND=$backend RUN_DIR=$nodes-$backend-$LAUNCHER TRAIN_FLAGS=$common
  shift 3
  submit "$@"
  completes
  job_says "ranks: $ranks on $nodes host" 'cuda:[0-3]' "gradients by $backend" 'exit code 0'
  close_model processor/checkpoints/final.h5 "$RUN_DIR/checkpoints/final.h5" 1e-4
}
export LAUNCHER=srun PREFLIGHT=yes
trains 1 4 nccl gpu.sbatch
export PREFLIGHT=no
trains 2 2 nccl gpu.sbatch -N 2 --gpus-per-node=2
trains 4 1 nccl gpu.sbatch -N 4 --gpus-per-node=1
trains 2 2 mpi gpu.sbatch -N 2 --gpus-per-node=2
LAUNCHER=mpirun trains 1 4 nccl gpu.sbatch

# CUDA_VISIBLE_DEVICES determines the devices.
train=("$LOCKSTEP" train --config $CONFIG --data.path data.h5 --device cuda $common)
run 2 env CUDA_VISIBLE_DEVICES= "${train[@]}" --run-dir none
says 'this process sees no GPU'
run 0 env CUDA_VISIBLE_DEVICES=3 "${train[@]}" --run-dir one
says 'cuda:0'
run 2 env CUDA_VISIBLE_DEVICES=3 "${train[@]}" --run-dir two --gpu-ids 1
passed "GPU jobs on 1, 2 and 4 nodes train to completion"
