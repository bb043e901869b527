#!/usr/bin/env bash
# The shipped job scripts with a stand-in for Slurm: each starts the right program with the right options, and acts on
# its exit code. Takes seconds and needs no root; the other tests of this folder run the scripts on a real Slurm.
home=$(cd "$(dirname "$0")/../.." && pwd)
source "$home/tests/apps/e2e/lib.sh" "$@"
mkdir -p fake build/bin build-cuda/bin
ln -s "$home/slurm" slurm
ln -s "$home/configs" configs
# srun drops its own options and starts the program once. The programs record how they were started and exit with $CODE.
cat >fake/srun <<'END'
#!/usr/bin/env bash
[[ ! -e silent || "$*" != *--nodelist=n2* ]] || exit 1
while [[ $1 == --* ]]; do shift; done
exec "$@"
END
cat >fake/scontrol <<'END'
#!/usr/bin/env bash
echo "scontrol $*" >>calls
[ "$1" != -o ] || echo "JobId=7 JobState=${STATE:-COMPLETING} Reason=${REASON:-None} Requeue=${REQUEUE:-1} ${MORE:-}${TIMES:-}Restarts=${RESTARTS:-0}"
[ "$2" != hostnames ] || tr , '\n' <<<"$3"
[ "$2" != config ] || echo "SlurmctldParameters = ${PARAMETERS:-(null)}"
[ "$1" != requeue ] || exit "${REQUEUE_CODE:-0}"
END
cat >fake/program <<'END'
#!/usr/bin/env bash
echo "$0 $*" >>calls
case $(basename "$0") in
  lockstep-prep)
    [ -z "${USR1_DURING_CHECK:-}" ] || { kill -USR1 $PPID; sleep 1; }
    exit "${CHECK_CODE:-0}"
    ;;
  lockstep)
    [ "$1" = train ] || exit 0
    [ -z "${TERM_DURING_TRAINING:-}" ] || { trap : USR1; kill -TERM $PPID; sleep 1; }
    echo "threads $OMP_NUM_THREADS, requeue ${LOCKSTEP_REQUEUE:-no}, without ${LOCKSTEP_LEFT_OUT:-none}" >>calls
    all="$*" && folder=${all#*--run-dir } && folder=${folder%% *}/checkpoints number=$(wc -l <calls)
    mkdir -p "$folder"
    [[ ${CODE:-0} != 85 || -n "${NO_CHECKPOINT:-}" ]] || touch "$folder/step-$number$RANDOM.h5"
    if [ -n "${LOCKSTEP_LEFT_OUT:-}" ]; then  # trains until it is stopped
      trap 'touch "$folder/step-$number.h5"; exit 85' USR1
      rm silent
      sleep 20 & wait
    fi
    # Mpirun has the exit code of the lost rank.
    [ "$(grep -c 'lockstep train' calls)" -gt "${LOSSES:-0}" ] || { touch "$folder/rescue-$number$RANDOM.h5"; exit "${LOSS_CODE:-86}"; }
    exit "${CODE:-0}"
    ;;
esac
END
chmod +x fake/*
for dir in build/bin build-cuda/bin; do ln -s "$PWD/fake/program" $dir/lockstep; ln -s "$PWD/fake/program" $dir/lockstep-prep; done
unset LOCKSTEP LOCKSTEP_PREP
export PATH=$PWD/fake:$PATH SLURM_SUBMIT_DIR=$PWD SLURM_JOB_NAME=job SLURM_JOB_ID=7 SLURM_JOB_NUM_NODES=1 SLURM_JOB_NODELIST=n1
export SLURM_CPUS_ON_NODE=4 SLURM_ARRAY_TASK_ID=3
# job CODE SCRIPT: runs a job, which must exit with CODE; the file `calls` then lists the programs that it called
job() { rm -f calls; run "$1" bash "slurm/$2"; }
called() { for t in "$@"; do grep -qE -- "$t" calls || { cat calls; fail "no call of '$t'"; }; done; }
never_called() { ! grep -qE -- "$1" calls || { cat calls; fail "a call of '$1'"; }; }

# Scripts for CPUs start the programs of `make`, scripts for GPUs those of `make cuda`.
for script in cpu sweep; do
  job 0 $script.sbatch
  called '^\S*/build/bin/lockstep-prep check' '^\S*/build/bin/lockstep comm-test' "^\\S*/build/bin/lockstep ${script/cpu/train} "
done
job 0 gpu.sbatch
called '^\S*/build-cuda/bin/lockstep-prep check' '^\S*/build-cuda/bin/lockstep comm-test' '^\S*/build-cuda/bin/lockstep train .*--device cuda'
never_called '/build/bin/'

# Without DATA a script uses the data set of the configuration.
printf '\xEF\xBB\xBF[data]  # the set\r\npath = "my data #1.h5"  # here\r\n[run]\r\ndir = runs/x\r\n[model]\npath = no.h5\n' >quoted.ini
printf 'data.path=plain.h5\n' >plain.ini
printf '[run]\ndir = runs/x\n' >without.ini
CONFIG=quoted.ini job 0 cpu.sbatch
called 'lockstep-prep check my data #1.h5' 'train --config quoted.ini --data.path my data #1.h5 --run-dir'
CONFIG=plain.ini job 0 gpu.sbatch
called 'train --config plain.ini --data.path plain.h5 '
DATA=other.h5 CONFIG=plain.ini job 0 cpu.sbatch
called 'train --config plain.ini --data.path other.h5 '
CONFIG=without.ini job 2 cpu.sbatch
says 'no path = FILE in the section .data. of without.ini: set DATA'

# What is missing is named by one line.
mistake() { job "$1" "$2"; [ "$(wc -l <last.out) $(wc -c <last.err)" = "1 0" ] || fail "not one line"; [ ! -e calls ] || fail "a program was called"; }
for script in slurm/*.sbatch; do
  LOCKSTEP_HOME=nowhere mistake 2 "$(basename "$script")"
  says 'LOCKSTEP_HOME=nowhere has no slurm/job.sh: submit from the folder that has it, or set LOCKSTEP_HOME$'
done
for script in cpu gpu sweep; do
  PBS_O_WORKDIR=$PWD LOCKSTEP_HOME=nowhere mistake 2 $script.pbs
  says 'LOCKSTEP_HOME=nowhere has no slurm/job.sh'
done
for data in '' set.h5; do
  DATA=$data CONFIG=nothere.ini mistake 2 cpu.sbatch
  says "CONFIG=nothere.ini: no such file can be read from $PWD"
done
for name in LOCKSTEP LOCKSTEP_PREP; do
  run 127 env $name=nowhere/bin/program bash slurm/gpu.sbatch
  says 'there is no program nowhere/bin/program: build it'
done
PATH=$PWD/build/bin:$PATH LOCKSTEP=lockstep job 0 cpu.sbatch
called '^\S*/build/bin/lockstep-prep check' '^\S*/build/bin/lockstep train '

# Only exit code 3 of the check blames the data. A fault of the machine is repeated once.
CHECK_CODE=3 job 3 cpu.sbatch
says 'preflight: the data set is refused$'
for code in 126 127; do
  CHECK_CODE=$code job $code cpu.sbatch
  says 'preflight: .*/build/bin/lockstep-prep cannot be started$'
done
LAUNCHER=mpirun MPIEXEC=nowhere/mpirun job 127 cpu.sbatch
says 'preflight: nowhere/mpirun cannot be started, or it cannot start .*/build/bin/lockstep$'
CHECK_CODE=2 job 2 cpu.sbatch
says 'preflight: the data set could not be checked$'
never_called 'scontrol requeue'
CHECK_CODE=137 job 137 cpu.sbatch
says 'the data set could not be checked: the system has killed the check, most often for lack of memory$'
called 'scontrol requeue'

# Exit code 85 requeues the job. The log says so, also if Slurm refuses.
CODE=85 job 85 cpu.sbatch
called 'scontrol requeue 7'
says 'requeueing: it continues from its last checkpoint'
CODE=85 REQUEUE_CODE=1 job 85 cpu.sbatch
says 'not requeued: Slurm refuses'
# Without a new checkpoint it is a fault.
CODE=85 NO_CHECKPOINT=yes job 85 cpu.sbatch
says 'stopped without a new checkpoint' 'requeueing: fault 1'
CODE=85 NO_CHECKPOINT=yes RETRIES=0 job 85 cpu.sbatch
never_called 'scontrol requeue'
# A lost rank whose state is saved: the ranks start again at once, not without end.
for code in 86 137; do
  LOSSES=2 LOSS_CODE=$code job 0 cpu.sbatch
  [ "$(grep -c 'lockstep train' calls)" = 3 ] || fail "$(grep -c 'lockstep train' calls) starts"
  never_called 'scontrol requeue'
  says "a rank was lost \(exit code $code\), and its state is saved: starting again on 1 nodes"
done
LOSSES=5 RESCUES=1 job 86 cpu.sbatch
[ "$(grep -c 'lockstep train' calls)" = 2 ] || fail "$(grep -c 'lockstep train' calls) starts"
called 'scontrol requeue'
# A node that does not answer is left out, and taken back when it answers again.
touch silent
SLURM_JOB_NUM_NODES=2 SLURM_JOB_NODELIST=n1,n2 GROW=1 LOSSES=1 job 0 cpu.sbatch
says 'its state is saved: starting again on 1 nodes, without n2$' 'a node answers again.*: starting again on 2 nodes$'
[ "$(grep -o 'without .*' calls | xargs)" = 'without none without n2 without none' ] || fail "$(cat calls)"
GROW=-1 job 2 cpu.sbatch
says 'GROW=-1: it is a number of seconds'
for spares in 1 -1 x; do
  SPARES=$spares job 2 cpu.sbatch
  says "SPARES=$spares: the job has 1 nodes"
done
for code in 2 3; do
  CODE=$code job $code cpu.sbatch
  never_called 'scontrol requeue'
done

# A job that may be requeued says so to the training.
job 0 cpu.sbatch
called 'requeue yes'
REQUEUE=0 job 0 cpu.sbatch
called 'requeue no'
MAX_RESTARTS=0 job 0 cpu.sbatch
called 'requeue no'
# Expedited requeueing, where Slurm has it, is recommended and recognised.
PARAMETERS=cloud_dns,enable_expedited_requeue job 0 cpu.sbatch
says 'with sbatch --requeue=expedite this Slurm'
PARAMETERS=enable_expedited_requeue REQUEUE=0 MORE='ExpeditedRequeue=Yes ' job 0 cpu.sbatch
called 'requeue yes'
! grep -q expedite last.out || fail "an option is recommended that the job has"

# A short time limit is a warning. A quick preflight prints one line.
TIMES='StartTime=2026-11-29T10:00:00 EndTime=2026-11-29T10:04:00 ' job 0 cpu.sbatch
says 'the time limit is 240 s, and --signal stops the job 300 s before it'
OMP_NUM_THREADS= PREFLIGHT=quick TIMES='StartTime=2026-11-29T10:00:00 EndTime=2026-11-29T10:14:00 ' job 0 cpu.sbatch
says 'preflight: the ranks can work together'
[ "$(wc -l <last.out)" = 3 ] || fail "$(wc -l <last.out) lines"

# A later start checks the data set again only if it has changed. A start that was stopped during the check has not
# checked it, and neither has another job with this number.
start() { SLURM_RESTART_COUNT=$1 job "$2" "$3"; }
left() { find . -name '.checked*' -o -name '.faults*'; }
echo rows >set.h5
export DATA=set.h5 RUN_DIR=chain
USR1_DURING_CHECK=yes start 0 85 cpu.sbatch
CODE=85 start 1 85 cpu.sbatch
called 'lockstep-prep check set.h5'
CODE=85 start 2 85 cpu.sbatch
never_called 'lockstep-prep check'
called 'lockstep comm-test' 'lockstep train'
echo more >>set.h5
CODE=85 start 3 85 cpu.sbatch
called 'lockstep-prep check set.h5'
CODE=85 start 0 85 cpu.sbatch
called 'lockstep-prep check set.h5'
start 1 0 cpu.sbatch
never_called 'lockstep-prep check'
[ -z "$(left)" ] || fail "left behind: $(left)"

# A fault of the machine requeues the job once, and again after each new checkpoint: a long chain meets several faults.
CODE=1 start 0 1 cpu.sbatch
called 'scontrol requeue 7'
CODE=1 start 1 1 cpu.sbatch
never_called 'scontrol requeue'
for folder in chain/pretrain/checkpoints chain/checkpoints; do
  CODE=1 start 0 1 cpu.sbatch
  mkdir -p $folder && touch $folder/step-100.h5
  CODE=1 start 1 1 cpu.sbatch
  called 'scontrol requeue 7'
  CODE=1 start 2 1 cpu.sbatch
  never_called 'scontrol requeue'
  [ -z "$(left)" ] || fail "left behind: $(left)"
done
CODE=9 start 0 9 cpu.sbatch  # MPICH's mpirun exits with the signal that killed a rank
called 'scontrol requeue 7'
CODE=1 start 0 1 cpu.sbatch  # another job with this number
called 'scontrol requeue 7'
# Jobs that do not come back leave nothing in the folders.
for outcome in CODE=2 CODE=3 CHECK_CODE=3 "CODE=85 REQUEUE_CODE=1" "CODE=1 RETRIES=0" "CODE=85 MAX_RESTARTS=0"; do
  run "$(grep -oE '[0-9]+' <<<"$outcome" | head -n 1)" env $outcome bash slurm/cpu.sbatch
  [ -z "$(left)" ] || fail "left behind by $outcome: $(left)"
done
unset DATA RUN_DIR

# A signal during the check of the data set stops the job before the training, and requeues it.
USR1_DURING_CHECK=yes job 85 cpu.sbatch
called 'lockstep-prep check' 'scontrol requeue 7'
never_called 'lockstep (comm-test|train)'
# So does a signal during the script's own set-up.
mkdir -p early/slurm/sites && ln -s "$PWD/build" early/build && ln -s "$home/slurm/job.sh" early/slurm/job.sh && echo 'kill -USR1 $$' >early/slurm/sites/slow.sh
LOCKSTEP_HOME=early SITE=slow job 85 cpu.sbatch
called 'scontrol requeue 7'
never_called 'lockstep-prep|lockstep (comm-test|train)'
# After SIGTERM a cancelled job is not requeued; a preempted one, which Slurm still lists as running, is.
TERM_DURING_TRAINING=yes CODE=85 job 85 cpu.sbatch
never_called 'scontrol requeue'
says 'cancelled: submit it again to continue'
TERM_DURING_TRAINING=yes CODE=85 STATE=RUNNING job 85 cpu.sbatch
called 'scontrol requeue 7'
# The log says why Slurm ends a job. After the loss of a node Slurm may have requeued the job itself.
TERM_DURING_TRAINING=yes CODE=85 REASON=TimeLimit job 85 cpu.sbatch
says 'the job is at its time limit: submit it again to continue'
TERM_DURING_TRAINING=yes CODE=143 REASON=NodeDown job 143 cpu.sbatch
says 'a node of the job has failed: submit it again to continue'
TERM_DURING_TRAINING=yes CODE=143 RESTARTS=1 job 143 cpu.sbatch
says 'Slurm has requeued the job: it continues from its last checkpoint'

# Without hardware threads a rank gets no more threads than cores, whatever Slurm counts.
printf '#!/bin/sh\necho "# socket,core"\nfor c in 0 0 1 1; do echo 0,$c; done\n' >fake/lscpu
chmod +x fake/lscpu
OMP_NUM_THREADS= job 0 cpu.sbatch
called 'threads 4'
OMP_NUM_THREADS= SLURM_HINT=nomultithread job 0 cpu.sbatch
called 'threads 2'
OMP_NUM_THREADS=1 job 0 cpu.sbatch
says "threads: OMP_NUM_THREADS=1 of the environment, not the 4 of the allocation"
called 'threads 1'
# The launch line suits the MPI library: under srun the program's, otherwise that of mpirun.
printf '#!/bin/sh\necho "srun $*" >>calls\n' >fake/srun
cat >fake/mpirun <<'END'
#!/bin/sh
[ "$1" != --version ] || { echo "$VERSION"; exit; }
echo "mpirun $*" >>calls
END
sed -i '2i [ "$1" != --version ] || echo "lockstep 0.1.0, ${BUILT_FOR:-Open MPI 4.1.4}, HDF5"' fake/program
chmod +x fake/mpirun
job 0 cpu.sbatch
called '^srun --mpi=pmix '
BUILT_FOR='MPICH 4.0.2' job 0 cpu.sbatch
called '^srun --mpi=pmi2 '
BUILT_FOR='MPICH 4.0.2' SRUN_MPI=cray_shasta job 0 cpu.sbatch
called '^srun --mpi=cray_shasta '
export LAUNCHER=mpirun SLURM_JOB_NUM_NODES=2 SLURM_NTASKS_PER_NODE=3 SLURM_CPUS_PER_TASK=4
VERSION='mpirun (Open MPI) 5.0.11' job 0 cpu.sbatch
called '^mpirun --map-by ppr:3:node:PE=4 --bind-to core .*lockstep train'
MPIRUN_FLAGS='--bind-to none' job 0 cpu.sbatch
called '^mpirun --map-by ppr:3:node --bind-to none .*lockstep train'
VERSION='HYDRA build details:' job 0 cpu.sbatch
called '^mpirun -n 6 -ppn 3 -bind-to core:4 .*lockstep train'
passed "the job scripts start the right programs with the right data, and requeue"
