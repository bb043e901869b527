#!/usr/bin/env bash
# The proof chain of each system is the same on any number of ranks and threads and through a resume, and a replay on
# another number of ranks agrees with it.
source "$(dirname "$0")/lib.sh" "$@"
ok "$PREP" synth-icecolumn --rows 600 --output emulator.h5
ok "$PREP" synth-har --subjects 6 --output har.h5
ok "$PREP" synth-kg --seed 7 --output kgat.h5
ok "$PREP" synth-sequences --users 100 --output tisasrec.h5
ok "$PREP" synth-sudoku --order 2 --train 20 --test 10 --min-givens 4 --max-givens 8 --num-aug 4 --output hrm.h5

train() { # SYSTEM RUN RANKS THREADS [further options]
  local system=$1 run=$2 ranks=$3 threads=$4 own; shift 4
  case $system in
    emulator) own="--batch.size 50 --model.hidden_size 8 --jacobian.every 0 --optim.ema 0.9 --schedule.name plateau --schedule.patience 1" ;;
    har) own="--batch.size 32 --model.dim 16 --model.layers 1 --model.heads 2 --model.mlp 32 --model.hidden 16 --model.mode independent" ;;
    kgat) own="--batch.size 256 --model.embed_dim 16 --model.conv_dims 16 --model.mess_dropout 0.1 --model.pretrain bprmf --model.pretrain_epochs 1" ;;
    tisasrec) own="--batch.size 25 --model.maxlen 10 --model.hidden_units 8" ;;
    hrm) own="--batch.size 8 --model.hidden_size 32 --model.num_heads 2 --model.h_layers 1 --model.l_layers 1 --model.halt_max_steps 2 --data.group_visits 2" ;;
  esac
  [ $system = emulator ] || own="$own --schedule.name constant"
  OMP_NUM_THREADS=$threads ok on $ranks "$LOCKSTEP" train --model.kind $system --data.path $system.h5 --run-dir $run --reproducible \
    --run.proof_every 3 --batch.scope global --schedule.warmup 0 --epochs 2 --checkpoint.every 1 --eval.final none $own "$@"
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
