#!/usr/bin/env bash
# The proof chain of each system is the same on any number of ranks and threads and through a resume, and a replay on
# another number of ranks agrees with it.
source "$(dirname "$0")/systems.sh"
source "$(dirname "$0")/lib.sh" "$@"
small_data
train() { # SYSTEM RUN RANKS THREADS [further options]
  local system=$1 run=$2 ranks=$3 threads=$4 schedule="--schedule.name constant"; shift 4
  [ $system != emulator ] || schedule="--schedule.name plateau --schedule.patience 1 --jacobian.every 0 --optim.ema 0.9"
  OMP_NUM_THREADS=$threads ok on $ranks "$LOCKSTEP" train --model.kind $system $(small_options $system) --run-dir $run --reproducible \
    --run.proof_every 3 --schedule.warmup 0 --epochs 2 --checkpoint.every 1 --eval.final none $schedule "$@"
}
same_chain() { cmp -s $1/proof.chain $2/proof.chain || { diff $1/proof.chain $2/proof.chain | cut -c1-300 >&2; fail "the chains of $1 and $2 differ"; }; }

for system in emulator har kgat tisasrec hrm; do
  train $system $system 1 1
  links=$(grep -c '^link' $system/proof.chain)
  [ "$links" -ge 2 ] || fail "$system: $links links"
  train $system $system-2 2 2
  train $system $system-3 1 1 --steps 4
  train $system $system-3 3 1
  for other in $system-2 $system-3; do
    same_chain $system $other
    [ $system != kgat ] || same_chain $system/pretrain $other/pretrain
  done
  ok "$LOCKSTEP" checkpoint verify $system/checkpoints/final.h5
  says 'agrees with the chain'
  ok on 2 "$LOCKSTEP" replay $system
  says "computed on 2 ranks: "
done
ok "$LOCKSTEP" replay kgat-2/pretrain
ok "$LOCKSTEP" checkpoint verify kgat/pretrain/checkpoints/final.h5
says 'agrees with the chain'
passed "five systems, one chain each on 1, 2 and 3 ranks and through a resume; replays agree"
