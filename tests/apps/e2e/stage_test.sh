#!/usr/bin/env bash
# data.stage: every system trains from a copy on storage of the node, to the same weights; the copy is gone afterwards, also after an
# error; a disk that fills up is said in one message.
source "$(dirname "$0")/systems.sh"
source "$(dirname "$0")/lib.sh" "$@"
needs h5diff hdf5-tools
mkdir stage
export PLACE=$work
empty() { [ -z "$(ls -A stage)" ] || fail "left in the stage directory: $(ls -A stage)"; }
tiny_data
EMULATOR=$(tiny_systems | sed -n "s/^emulator //p")
while read -r name options <&3; do  # not stdin: mpirun reads that
  ok "$LOCKSTEP" train $options --run-dir "plain-$name"
  ok on 2 "$LOCKSTEP" train $options --run-dir "staged-$name" --data.stage '$PLACE/stage'
  says_once 'data set staged in \$PLACE/stage of this node: '
  grep -q 'stage = "*$PLACE/stage' "staged-$name/config.ini" || fail "config.ini holds another directory"
  empty
  same_model "plain-$name/checkpoints/final.h5" "staged-$name/checkpoints/final.h5"
done 3< <(tiny_systems)

# A stopped run continues without the directory, which is no part of the configuration. Other commands stage on request.
run 85 "$LOCKSTEP" train $EMULATOR --run-dir stopped --run.max_hours 1e-9 --data.stage "$work/stage"
empty
ok "$LOCKSTEP" train $EMULATOR --run-dir stopped
same_model plain-emulator/checkpoints/final.h5 stopped/checkpoints/final.h5
env -u PLACE "$LOCKSTEP" eval --checkpoint staged-emulator/checkpoints/final.h5 >last.out 2>last.err || fail "eval needs the directory of the training"
! grep -q staged last.err || fail "eval stages unasked"
ok env -u PLACE "$LOCKSTEP" replay staged-emulator
! grep -q staged last.err || fail "replay stages unasked"
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

# A copy does not fit if its file system is too small, or if writing it fails.
ok "$PREP" synth-icecolumn --rows 20000 --seed 3 --output large.h5
LARGE="${EMULATOR/data.h5/large.h5} --data.stage $work/stage"
run 1 bash -c "ulimit -f 1024; exec '$LOCKSTEP' train $LARGE --run-dir full"
says_once 'staging the data set: File too large after 1.0 MiB of .* of the copy of .*large.h5.*choose a directory on storage of the node'
empty
run 2 on 2 "$LOCKSTEP" train $EMULATOR --data.stage "$work/nowhere" --run-dir none
says_once 'data.stage = .*/nowhere: there is no such directory on'
if [ "$EUID" = 0 ] && unshare --mount mount -t tmpfs -o size=64k small stage 2>/dev/null; then
  run 1 on 2 unshare --mount bash -c "mount -t tmpfs -o size=64k small stage && exec '$LOCKSTEP' train $LARGE --run-dir small"
  says_once 'it needs at least .*, but its file system has only 64.0 KiB free; make room or choose another place'
else
  not_run "a copy that does not fit on its file system; this user cannot mount a small one"
fi
passed "data sets are staged, and leave nothing behind"
