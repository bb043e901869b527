#!/usr/bin/env bash
# The job scripts for PBS, with stand-ins for qsub and qstat: a job that reaches its time limit submits itself again, the
# next one continues and ends with the weights of an undisturbed run; a job with bad data is not submitted again; site
# files are read.
source "$(dirname "$0")/lib.sh" "$@"
needs h5diff hdf5-tools
ln -s "$tree/slurm" slurm && ln -s "$tree/configs" configs && mkdir -p build stand-in && ln -s "$BIN" build/bin
cat >stand-in/qsub <<'END'
#!/bin/bash
echo "START=$START $*" >>submitted
END
cat >stand-in/qstat <<'END'
#!/bin/bash
printf 'Job Id: %s\n    Resource_List.nodect = 1\n    Resource_List.walltime = %s\n' "$2" "$WALLTIME"
END
chmod +x stand-in/*
export PATH=$PWD/stand-in:$PATH OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export PBS_O_WORKDIR=$PWD PBS_JOBNAME=ice PBS_NODEFILE=$PWD/nodes NCPUS=1 MPIRUN_FLAGS="--bind-to none" PREFLIGHT=no
printf 'localhost\nlocalhost\n' >nodes
flags="--train.epochs 2 --batch.size 80 --model.hidden_size 16 --reproducible --checkpoint.every 1"

ok "$PREP" synth-icecolumn --rows 400 --seed 3 --output data.h5
ok "$LOCKSTEP" train --config configs/emulator-icecolumn.ini --data.path data.h5 --run-dir whole $flags
job() { run "$1" env PBS_JOBID="$2.head" DATA=data.h5 TRAIN_FLAGS="$flags" "${@:3}" bash slurm/cpu.pbs; }

job 85 7 WALLTIME=00:05:00 STOP_BEFORE=300 PREFLIGHT=yes  # which takes longer than the signal
says 'the job got SIGUSR1' 'requeueing'
[ "$(cat submitted)" = "START=1 -V -N ice $PWD/slurm/cpu.pbs" ] || fail "submitted: $(cat submitted)"
job 0 8 WALLTIME=10:00:00 START=1
same_model whole/checkpoints/final.h5 runs/ice/checkpoints/final.h5
job 3 9 WALLTIME=10:00:00 DATA=nodes PREFLIGHT=yes
says 'the data set is refused'
[ "$(wc -l <submitted)" = 1 ] || fail "a job with bad data was submitted again"

for script in cpu gpu sweep; do
  diff <(grep ^CONFIG= slurm/$script.sbatch) <(grep ^CONFIG= slurm/$script.pbs) >&2 || fail "$script.pbs has another configuration"
done
job 2 10 WALLTIME=10:00:00 SITE=nowhere
says 'SITE=nowhere: there is no .*slurm/sites/nowhere.sh'
for site in slurm/sites/*.sh; do
  bash -eu "$site" || fail "$site is not a shell script"
done
job 0 11 WALLTIME=10:00:00 SITE=tcp RUN_DIR=runs/tcp
same_model whole/checkpoints/final.h5 runs/tcp/checkpoints/final.h5
run 0 env PBS_JOBID=12.head WALLTIME=10:00:00 DATA=data.h5 CONFIG=configs/emulator-icecolumn.ini RUN_DIR=runs/seeds \
  TRAIN_FLAGS="$flags --sweep.seed=range(2)" bash slurm/sweep.pbs
exists runs/seeds/{trial-1,trial-2}/metrics.jsonl runs/seeds/{report.html,best.ini}
passed "stopped at its time limit, submitted again, the same weights; bad data refused; site files"
