#!/usr/bin/env bash
# data.stage: every system trains from a copy on storage of the node, to the same weights; the copy is gone afterwards, also after an
# error; a disk that fills up is said in one message.
source "$(dirname "$0")/lib.sh" "$@"
command -v h5diff >/dev/null || { echo "skipped: no h5diff (hdf5-tools)"; exit 77; }
mkdir stage
export PLACE=$work
empty() { [ -z "$(ls -A stage)" ] || fail "left in the stage directory: $(ls -A stage)"; }
ok "$PREP" synth-icecolumn --rows 600 --seed 3 --output data.h5
ok "$PREP" synth-kg --seed 7 --users 60 --output kg.h5
ok "$PREP" synth-sequences --users 30 --min-length 12 --max-length 20 --categories 4 --clusters 2 --members 12 --seed 3 --output sequences.h5
ok "$PREP" synth-sudoku --order 2 --train 20 --test 6 --min-givens 6 --max-givens 9 --num-aug 4 --output sudoku.h5
ok "$PREP" synth-har --subjects 4 --seconds 10 --output har.h5
EMULATOR="--data.path data.h5 --batch.size 100 --model.hidden_size 16 --epochs 2 --reproducible"
while read -r name options <&3; do  # not stdin: mpirun reads that
  ok "$LOCKSTEP" train $options --run-dir "plain-$name"
  ok on 2 "$LOCKSTEP" train $options --run-dir "staged-$name" --data.stage '$PLACE/stage'
  says_once 'data set staged in \$PLACE/stage of this node: '
  grep -q 'stage = "*$PLACE/stage' "staged-$name/config.ini" || fail "config.ini holds another directory"
  empty
  same_model "plain-$name/checkpoints/final.h5" "staged-$name/checkpoints/final.h5"
done 3<<END
emulator $EMULATOR
kgat --model.kind kgat --dist.mode replicate --reproducible --data.path kg.h5 --batch.size 256 --batch.scope global --epochs 1 --model.mess_dropout 0.1 --model.conv_dims 16,8 --model.embed_dim 16
tisasrec --model.kind tisasrec --reproducible --data.path sequences.h5 --batch_size 16 --num_epochs 1 --maxlen 12 --hidden_units 12 --num_heads 2 --time_span 7
hrm --model.kind hrm --reproducible --data.path sudoku.h5 --data.group_visits 4 --epochs 1 --batch.size 10 --steps 3 --model.hidden_size 16 --model.num_heads 2 --model.expansion 1 --model.h_layers 1 --model.l_layers 1 --model.halt_max_steps 2 --schedule.warmup 2 --dist.shards 4
har --model.kind har --reproducible --data.path har.h5 --batch-size 12 --batch.scope global --epochs 1 --steps 3 --model.dim 16 --model.layers 1 --model.heads 2 --model.mlp 32 --model.hidden 16 --warmup-epochs 0
END

# A stopped run continues elsewhere: the directory is no part of the configuration. Other commands stage only when they are asked to.
run 85 "$LOCKSTEP" train $EMULATOR --run-dir stopped --run.max_hours 1e-9 --data.stage "$work/stage"
empty
ok "$LOCKSTEP" train $EMULATOR --run-dir stopped
same_model plain-emulator/checkpoints/final.h5 stopped/checkpoints/final.h5
env -u PLACE "$LOCKSTEP" eval --checkpoint staged-emulator/checkpoints/final.h5 >last.out 2>last.err || fail "eval needs the directory of the training"
! grep -q staged last.err || fail "eval stages unasked"
ok "$LOCKSTEP" eval --checkpoint staged-emulator/checkpoints/final.h5 --data.stage "$work/stage"
says 'data set staged in'
ok "$LOCKSTEP" plan $EMULATOR --data.stage '$TMPDIR'
says 'staged data set +[0-9.]+ [KM]iB +in \$TMPDIR of each node'

# Damage is found in the copy, and named as that of the file.
cp data.h5 damaged.h5
printf '\x55' | dd of=damaged.h5 bs=1 seek=$(($(stat -c %s data.h5) / 2)) conv=notrunc status=none
run 3 on 2 "$LOCKSTEP" train ${EMULATOR/data.h5/damaged.h5} --run-dir bad --data.stage "$work/stage"
says_once "error.*damaged.h5'"
empty

# The copy does not fit: the room is known to be too small, or the writing fails.
ok "$PREP" synth-icecolumn --rows 20000 --seed 3 --output large.h5
LARGE="${EMULATOR/data.h5/large.h5} --data.stage $work/stage"
run 1 bash -c "ulimit -f 1024; exec '$LOCKSTEP' train $LARGE --run-dir full"
says_once 'staging the data set: File too large after 1.0 MiB of .* of the copy of .*large.h5.*choose a directory on storage of the node'
empty
run 2 on 2 "$LOCKSTEP" train $EMULATOR --data.stage "$work/nowhere" --run-dir none
says_once 'data.stage = .*/nowhere: there is no such directory on'
if [ "$EUID" = 0 ] && unshare --mount mount -t tmpfs -o size=64k small stage 2>/dev/null; then
  run 2 on 2 unshare --mount bash -c "mount -t tmpfs -o size=64k small stage && exec '$LOCKSTEP' train $LARGE --run-dir small"
  says_once 'it needs .* but its file system has only 64.0 KiB free; choose another place'
fi
passed "data sets are staged, and leave nothing behind"
