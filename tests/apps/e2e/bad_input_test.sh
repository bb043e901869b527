#!/usr/bin/env bash
# Bad data ends with exit code 3 and one message for all ranks, a wrong value of any option with 2 and one message.
# apps.lockstep and train.programs.bad_input have further errors.
source "$(dirname "$0")/lib.sh" "$@"
LIMIT=30
TRAIN="$LOCKSTEP train --run-dir fresh --epochs 1 --batch.size 100"
ok "$PREP" synth-icecolumn --rows 2000 --seed 1 --output data.h5
ok "$LOCKSTEP" train --run-dir run --epochs 1 --batch.size 100 --data.path data.h5
echo "not HDF5" >text.h5
run 3 on 2 $TRAIN --data.path run/checkpoints/final.h5
says_once '(^| )error'
says 'final.h5'
head -c 5000 run/checkpoints/best.h5 >cut.h5
for command in "eval --config run/config.ini" "jacobian --input data.h5 --output out.h5" "export --format lsem --output out.lsem" "checkpoint verify"; do
  if [ "$command" = "checkpoint verify" ]; then run 3 "$LOCKSTEP" $command cut.h5; else run 3 "$LOCKSTEP" $command --checkpoint cut.h5; fi
  says 'cut.h5'
done
[ ! -e out.h5 ] && [ ! -e out.lsem ] || fail "a failed command left an output file"
run 3 "$PREP" check text.h5
says 'text.h5'
# one flipped bit in the rows
cp data.h5 flipped.h5
byte=$(od -An -tu1 -j 40000 -N 1 data.h5)
printf "\\$(printf %o $((byte ^ 1)))" | dd of=flipped.h5 bs=1 seek=40000 conv=notrunc status=none
for command in "on 2 $TRAIN --data.path flipped.h5" "$LOCKSTEP eval --config run/config.ini --data.path flipped.h5 --checkpoint run/checkpoints/best.h5" \
  "$PREP check flipped.h5"; do
  run 3 $command
  says_once '(^| )error'
  says "flipped.h5': dataset '/x' is damaged .*rebuild it with lockstep-prep"
done

# --- every option of every command, as the help lists them
chmod 755 .
if command -v python3 >/dev/null; then
  python3 "$tree/tests/apps/e2e/bad_input_sweep.py" "$BIN" "$PWD/data.h5" "$PWD/run/checkpoints/best.h5" >sweep.out || fail "$(cat sweep.out)"
else
  not_run "wrong values for every option: no python3"
fi
passed "bad input is named"
