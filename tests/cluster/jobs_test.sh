#!/usr/bin/env bash
# The shipped job scripts on a small Slurm: they train on 2 and 4 nodes, stop at a signal, requeue themselves, and end with the weights of
# an undisturbed run, also on other nodes. Slurm accepts the GPU scripts, and all with the lines that a site may uncomment.
source "$(dirname "$0")/lib.sh" "$@"
for script in slurm/*.sbatch; do
  run 0 "$here/small_slurm.sh" exec head sbatch --test-only "$script"
  sed 's/^##SBATCH/#SBATCH/; s/=NAME$/=main/' "$script" >site.sbatch
  run 0 "$here/small_slurm.sh" exec head sbatch --test-only site.sbatch
done

ok "$PREP" synth-icecolumn --rows 4000 --seed 3 --output data.h5
export DATA=data.h5 CONFIG=configs/emulator-icecolumn.ini PREFLIGHT=yes
common="--train.epochs 40 --eval.every 5 --batch.size 200 --reproducible --checkpoint.every_steps 100 --checkpoint.every 0"
ok "$LOCKSTEP" train --config $CONFIG --data.path data.h5 --run-dir whole $common

# A job on four nodes receives the signal that Slurm sends before its time limit: it stops, requeues itself, and resumes, here on two nodes.
export TRAIN_FLAGS="$common" RUN_DIR=run
submit cpu.sbatch -N 4
until_true 180 trained run || { tail -n 60 "$(log_of)"; fail "no checkpoint within three minutes"; }
slurm exec head scancel --batch --signal=USR1 "$job"
until_true 30 grep -q requeueing "$(log_of)" || { tail -n 60 "$(log_of)"; fail "not requeued"; }
job_says 'stopped( by SIGUSR1)? after step' 'exit code 85' 'requeueing: it continues'
[ ! -e run/checkpoints/final.h5 ] || fail "the run ended before the signal"
until_true 30 state_is PENDING || fail "job $job was not requeued"
slurm exec head scancel "$job"
export PREFLIGHT=no
submit cpu.sbatch -N 2
completes
job_says 'continuing from run/checkpoints/step-' 'ranks: 2 on 2 hosts'
same_model whole/checkpoints/final.h5 run/checkpoints/final.h5

# A signal to the ranks only, as `scancel -s USR1` sends it: the same job restarts by itself.
rm -rf run
submit cpu.sbatch -N 4
until_true 180 trained run || fail "no checkpoint within three minutes"
slurm exec head scancel --signal=USR1 "$job"
completes
job_says 'start 2: 4 nodes' 'continuing from' 'exit code 0'
same_model whole/checkpoints/final.h5 run/checkpoints/final.h5

# mpirun instead of srun; several seeds at once.
rm -rf run
export LAUNCHER=mpirun TRAIN_FLAGS="--train.epochs 2 --batch.size 200"
submit cpu.sbatch -N 2
completes
job_says 'ranks: 2 on 2 hosts' 'exit code 0'
export LAUNCHER=srun RUN_DIR=seeds
TRAIN_FLAGS="$TRAIN_FLAGS --sweep.seed=range(2)" CONFIG=configs/emulator-icecolumn.ini submit sweep.sbatch --ntasks-per-node=2
completes
differing_model seeds/trial-1/checkpoints/best.h5 seeds/trial-2/checkpoints/best.h5

# Bad data end a job with exit code 3, without requeueing.
echo "no data" >bad.h5
export DATA=bad.h5 PREFLIGHT=yes
submit cpu.sbatch -N 2
ends 60
says 'ExitCode=3:0' 'Restarts=0'
job_says 'bad.h5' 'the data set is refused'

unset LAUNCHER
submit selftest.sbatch
completes
job_says PASSED
passed "jobs on 2 and 4 nodes train, stop, requeue and resume"
