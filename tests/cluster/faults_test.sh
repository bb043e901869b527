#!/usr/bin/env bash
# Faults during training on a small Slurm: a killed rank, a stopped rank, a cut network. Each job ends in time and leaves no process
# behind; resuming from its checkpoint ends with the weights of an undisturbed run.
NODES=5
source "$(dirname "$0")/lib.sh" "$@"
ok "$PREP" synth-icecolumn --rows 4000 --seed 3 --output data.h5
common="--train.epochs 60 --eval.every 10 --batch.size 200 --reproducible --checkpoint.every_steps 100 --checkpoint.every 0 --dist.timeout 4"
ok "$LOCKSTEP" train --config configs/emulator-icecolumn.ini --data.path data.h5 --run-dir whole $common
export DATA=data.h5 PREFLIGHT=no RETRIES=0 RESCUES=0 LAUNCHER=srun

left() { slurm exec "$1" pgrep -x lockstep >/dev/null 2>&1; }
gone() { ! left node1 && ! left node2; }

# fault NAME SECONDS COMMAND...: a training on two nodes must end within SECONDS of COMMAND, after its first checkpoint.
fault() {
  local name=$1 limit=$2 begin; shift 2
  export RUN_DIR=$name TRAIN_FLAGS="$common"
  submit cpu.sbatch -N 2 --no-requeue --ntasks-per-node="${RANKS:-1}"
  until_true 180 trained "$name" || { tail -n 60 "$(log_of)"; fail "$name: no checkpoint within three minutes"; }
  begin=$SECONDS
  "$@"
  ends "$limit"
  echo "$name: ended $((SECONDS - begin)) s after the fault: $(cat last.out)"
  ! grep -q JobState=COMPLETED last.out || fail "$name: the job completed despite the fault"
  until_true 10 gone || fail "$name: processes are left behind"
  [ ! -e "$name/checkpoints/final.h5" ] || fail "$name: the run ended before the fault"
}
goes_on() {
  # This host is another one: without --take-over it would wait a minute to see whether the killed run lives.
  ok "$LOCKSTEP" train --config configs/emulator-icecolumn.ini --data.path data.h5 --run-dir "$1" $common --take-over
  says 'continuing from'
  same_model whole/checkpoints/final.h5 "$1/checkpoints/final.h5"
}

RANKS=2 fault killed 30 slurm exec node2 bash -c 'kill -9 $(pgrep -x lockstep | tail -n 1)'
job_says 'Killed|signal 9|has died'
goes_on killed

# The only rank of a host: nobody there can report its death, but its connection to the other host breaks.
for launcher in srun mpirun; do
  for rank in 0 1; do
    name=lost$rank-$launcher
    LAUNCHER=$launcher RANKS=1 fault "$name" 40 slurm exec "node$((rank + 1))" pkill -KILL -x lockstep
    job_says "the job cannot continue: rank $rank has died" "rank $rank \(node$((rank + 1)), pid [0-9]+\) has died, last seen in [a-z]+"
    [ "$(grep -c 'the job cannot continue' "$(log_of)")" = 1 ] || fail "$name: more than one report"
  done
  goes_on "lost1-$launcher"
done

RANKS=1 fault stopped 40 slurm exec node2 pkill -STOP -x lockstep
job_says 'no progress for' 'rank 1 \(node2' "collective #[0-9]+ .* of [a-z]+, step"
[ "$(grep -c 'no progress for' "$(log_of)")" = 1 ] || fail "more than one report"
goes_on stopped

RANKS=1 fault cut 60 slurm link node2 down
job_says 'no progress for' 'rank 1 \(node2.*gives no answer' "collective #[0-9]+ .* of [a-z]+, step"
slurm link node2 up
goes_on cut
# Without RESCUES=0 the job goes on by itself, on its node that is left or on both.
unset RESCUES
for launcher in srun mpirun; do
  export RUN_DIR=again-$launcher LAUNCHER=$launcher
  submit cpu.sbatch -N 2 --no-requeue --ntasks-per-node=1
  until_true 180 trained "$RUN_DIR" || fail "$RUN_DIR: no checkpoint within three minutes"
  for node in node2 node4; do left $node && slurm exec $node pkill -KILL -x lockstep; done  # the last one of the job
  completes
  job_says 'the state after step [0-9]+ is saved, so no step is lost' 'its state is saved: starting again on 2 nodes' 'continuing from .*/rescue-'
  same_model whole/checkpoints/final.h5 "$RUN_DIR/checkpoints/final.h5"
done
# A spare node replaces one that does not answer.
export RUN_DIR=spare LAUNCHER=srun
SPARES=1 submit cpu.sbatch --no-requeue --no-kill --nodes=3 --ntasks-per-node=1
until_true 180 trained spare || fail "spare: no checkpoint within three minutes"
for second in node4 node3 node2; do left $second && break; done  # the last one that trains
slurm link "$second" down
completes 200
slurm link "$second" up
job_says "starting again on 2 nodes, without $second" 'continuing from .*/rescue-' 'ranks: 2 on 2 hosts'
same_model whole/checkpoints/final.h5 spare/checkpoints/final.h5
# A node without slurmd is left out, and taken back when it answers again.
last_of_job() { for node in node5 node4 node3 node2; do left $node && break; done; }
export TRAIN_FLAGS="$common --train.epochs 100000 --train.log_every 1 --dist.timeout 60"
export RUN_DIR=grown
GROW=2 submit cpu.sbatch --no-requeue --no-kill --nodes=2 --ntasks-per-node=1
until_true 180 trained grown || fail "grown: no checkpoint within three minutes"
last_of_job
slurm exec $node pkill -KILL -x slurmd
slurm exec $node pkill -KILL -x lockstep
until_true 60 grep -q "starting again on 1 nodes, without $node" "$(log_of)" || fail "the job does not go on without $node"
slurm exec $node slurmd -f "$SMALL_SLURM_DIR/slurm.conf" -N $node
until_true 90 grep -q 'a node answers again.*: starting again on 2 nodes$' "$(log_of)" || fail "$node is not taken back"
slurm exec head scancel "$job"
ends 60
# A whole node goes down: seconds to the first new step.
for launcher in srun mpirun; do
  export RUN_DIR=down-$launcher LAUNCHER=$launcher
  submit cpu.sbatch --no-requeue --no-kill --nodes=3 --ntasks-per-node=1
  until_true 180 trained "$RUN_DIR" || fail "$RUN_DIR: no checkpoint within three minutes"
  last_of_job
  begin=$(date +%s%N)
  kill -KILL "$(<"$SMALL_SLURM_DIR/run/$node.pid")"
  until_true 60 grep -q 'continuing from .*/rescue-' "$(log_of)" || fail "$RUN_DIR does not go on: $(tail -n 30 "$(log_of)")"
  next=$(($(sed -n 's/^continuing from .*rescue-.* step \([0-9]*\)$/\1/p' "$(log_of)") + 1))
  until_true 60 grep -q "\"step\":$next," "$RUN_DIR/metrics.jsonl" || fail "$RUN_DIR has no step $next"
  echo "$RUN_DIR: the first new step $((($(date +%s%N) - begin) / 1000000)) ms after the end of $node"
  job_says "starting again on 2 nodes, without $node" "nodes left out: $node"
  slurm exec head scancel "$job"
  ends 60
done
passed "killed rank, lost rank, stopped rank, cut network: ended, reported, resumed, on a spare node too"
