#!/usr/bin/env bash
# Ranks on processors with different instruction sets compute with the one that all have, chosen by itself or by run.isa: the same bits
# as one rank. qemu-user stands in for an older processor.
source "$(dirname "$0")/lib.sh" "$@"
command -v h5diff >/dev/null || { echo "skipped: no h5diff (hdf5-tools)"; exit 77; }
ok "$PREP" synth-icecolumn --rows 600 --seed 3 --output data.h5
EMULATOR="--data.path data.h5 --batch.size 100 --model.hidden_size 16 --epochs 2 --reproducible"

# The set is on record; a run that began with one keeps it, and a change is said.
ok "$LOCKSTEP" train $EMULATOR --run-dir generic --run.isa generic
ok "$LOCKSTEP" info --checkpoint generic/checkpoints/final.h5
says 'isa +generic'
ok "$LOCKSTEP" train $EMULATOR --run-dir parts --run.isa generic --steps 3
ok "$LOCKSTEP" train $EMULATOR --run-dir parts
says 'device: cpu \(generic\)'
same_model generic/checkpoints/final.h5 parts/checkpoints/final.h5
run 2 "$LOCKSTEP" train $EMULATOR --run-dir refused --run.isa sse9
says 'run.isa = sse9'
ok "$LOCKSTEP" info
grep -q '"avx2"' last.out || { echo "skipped: this processor has generic kernels only"; exit 77; }
ok "$LOCKSTEP" train $EMULATOR --run-dir changed --run.isa generic --steps 3
ok "$LOCKSTEP" train $EMULATOR --run-dir changed --run.isa avx2
says 'the run began with instruction set generic, this start computes with avx2' 'use --run.isa generic'

qemu=$(command -v qemu-x86_64) || { echo "skipped: no qemu-x86_64 (qemu-user) for an older processor"; exit 77; }
haswell="$qemu -cpu Haswell"
run 2 $haswell "$LOCKSTEP" train $EMULATOR --run-dir refused --run.isa avx512
says 'run.isa = avx512: the processor of .* has generic, avx2; choose one of these, or auto'
# mixed COMMAND...: two ranks, the second on the older processor
mixed() { LIMIT=300 ok $MPIRUN -n 1 "$LOCKSTEP" "$@" : -n 1 $haswell "$LOCKSTEP" "$@"; }
# The kernels of this processor alone are other ones.
older() { ok "$LOCKSTEP" train --run.isa avx2 "$@"; }

mixed info --json
[ "$(grep -c '"isa": "avx2"' last.out)" -ge 2 ] || fail "info does not show what all ranks compute with"
names=$(grep -oE '"isa": "[a-z0-9]+"' last.out | sort -u | wc -l)
ok "$PREP" synth-kg --seed 7 --users 60 --output kg.h5
ok "$PREP" synth-sequences --users 30 --min-length 12 --max-length 20 --categories 4 --clusters 2 --members 12 --seed 3 --output sequences.h5
ok "$PREP" synth-sudoku --order 2 --train 20 --test 6 --min-givens 6 --max-givens 9 --num-aug 4 --output sudoku.h5
ok "$PREP" synth-har --subjects 4 --seconds 10 --output har.h5
while read -r name options <&3; do  # not stdin: mpirun reads that
  older $options --run-dir "one-$name"
  mixed train $options --run-dir "two-$name"
  says 'device: cpu \(avx2\)'
  [ "$names" = 1 ] || says "processors differ: that of rank 1 .* no better instruction set than avx2, others have avx512"
  same_model "one-$name/checkpoints/final.h5" "two-$name/checkpoints/final.h5"
done 3<<END
emulator $EMULATOR
kgat --model.kind kgat --dist.mode replicate --reproducible --data.path kg.h5 --batch.size 256 --batch.scope global --epochs 2 --model.mess_dropout 0.1 --model.conv_dims 16,8 --model.embed_dim 16
bprmf --model.kind bprmf --reproducible --data.path kg.h5 --batch.size 64 --batch.scope global --epochs 1 --steps 4 --model.embed_dim 16
tisasrec --model.kind tisasrec --reproducible --data.path sequences.h5 --batch_size 16 --num_epochs 1 --maxlen 12 --hidden_units 12 --num_heads 2 --time_span 7
hrm --model.kind hrm --reproducible --data.path sudoku.h5 --data.group_visits 4 --epochs 1 --batch.size 10 --steps 3 --model.hidden_size 16 --model.num_heads 2 --model.expansion 1 --model.h_layers 1 --model.l_layers 1 --model.halt_max_steps 2 --schedule.warmup 2 --dist.shards 4
har --model.kind har --reproducible --data.path har.h5 --batch-size 12 --batch.scope global --epochs 1 --steps 3 --model.dim 16 --model.layers 1 --model.heads 2 --model.mlp 32 --model.hidden 16 --warmup-epochs 0
END
passed "mixed processors end with the bits of one rank"
