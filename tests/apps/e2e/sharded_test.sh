#!/usr/bin/env bash
# Sharded checkpoints: the same values as single ones, resumed by either layout on any number of ranks, refused when a part is missing
# or damaged, merged into one file. And a chain of short jobs on changing ranks ends where one long job does.
source "$(dirname "$0")/lib.sh" "$@"
needs h5diff hdf5-tools
ok "$PREP" synth-icecolumn --rows 3000 --seed 3 --output data.h5
OPTIONS="--data.path data.h5 --batch.size 200 --model.hidden_size 16 --model.hidden_layers 2 --optim.ema 0.9 --seed 5 --reproducible --checkpoint.every_steps 10 --checkpoint.every 0 --checkpoint.keep 2"
SHARDED="--checkpoint.layout sharded"
same() { ok "$LOCKSTEP" checkpoint diff --under "${3:-/model}" "$1" "$2"; }

ok "$LOCKSTEP" train --run-dir whole $OPTIONS --epochs 5
ok on 3 "$LOCKSTEP" train --run-dir parts $OPTIONS $SHARDED --epochs 5
final=parts/checkpoints/final.h5
[ "$(ls $final.*.part-*-of-3 | wc -l)" = 3 ] || fail "not three parts: $(ls parts/checkpoints)"
[ "$(ls parts/checkpoints/step-*.part-* | wc -l)" = 6 ] || fail "parts of removed checkpoints stay: $(ls parts/checkpoints)"
ok "$LOCKSTEP" checkpoint verify parts/checkpoints/*.h5
for group in /model /optim /ema; do same whole/checkpoints/final.h5 $final $group; done
# A sharded checkpoint is as large as its manifest and parts together.
bytes=$(cat $final $final.*.part-*-of-3 | wc -c)
ok "$LOCKSTEP" info $final --json
[ "$(number size_bytes last.out)" = "$bytes" ] || fail "info says $(number size_bytes last.out) bytes instead of $bytes"
ok "$LOCKSTEP" checkpoint verify $final
says "$(awk -v b="$bytes" 'BEGIN {printf "%.1f KiB", b / 1024}')"
ok "$LOCKSTEP" checkpoint merge $final merged.h5
h5diff whole/checkpoints/final.h5 merged.h5 /optim || fail "the merged file differs from the single one"
same_model whole/checkpoints/final.h5 merged.h5
ok "$LOCKSTEP" eval --config parts/config.ini --checkpoint $final --json
cp last.out of_parts
ok "$LOCKSTEP" eval --config parts/config.ini --checkpoint merged.h5 --json
diff <(sed "s/.*\"data\"//" of_parts) <(sed "s/.*\"data\"//" last.out) || fail "the parts and the merged file have different metrics"
run 2 "$LOCKSTEP" checkpoint merge merged.h5 again.h5
# Commands that need the weights in one file say so.
for command in "predict --input data.h5" export; do
  run 2 "$LOCKSTEP" $command --checkpoint $final --output out.h5
  says "a sharded checkpoint, .*lockstep checkpoint merge '$final' FILE"
done
for own in $final $final.*.part-1-of-3; do
  run 2 "$LOCKSTEP" checkpoint merge $final $own
  says "writing '$own': it is the input"
done
ok "$LOCKSTEP" checkpoint verify $final
# Nothing else is lost without --force: a checkpoint of a run, a file of another kind.
cp whole/checkpoints/final.h5 before.h5
run 2 "$LOCKSTEP" checkpoint merge $final whole/checkpoints/final.h5
says "'whole/checkpoints/final.h5': it exists in a folder of checkpoints, .* or add --force"
cmp before.h5 whole/checkpoints/final.h5
cp data.h5 taken.h5
run 2 "$LOCKSTEP" checkpoint merge $final taken.h5
says "'taken.h5': it exists and is a prepared data set, which a checkpoint would replace; .* or add --force"
cmp data.h5 taken.h5
run 2 "$PREP" synth-icecolumn --rows 300 --output before.h5
says "'before.h5': it exists and is a checkpoint, which a prepared data set would replace"
ok "$LOCKSTEP" checkpoint merge --force $final taken.h5
says "wrote taken.h5: step [0-9]* of $final"
ok "$LOCKSTEP" checkpoint merge $final taken.h5
same_model taken.h5 merged.h5
ok "$LOCKSTEP" checkpoint keep merged.h5
says "merged.h5: protected from removal"

# A manifest under another name keeps its parts, also when a later start removes old checkpoints.
mv "$(ls -d parts/checkpoints/step-*.h5 | sort -t- -k2 -n | head -1)" parts/checkpoints/kept.h5
ok "$LOCKSTEP" checkpoint verify parts/checkpoints/kept.h5

# A checkpoint with a damaged or missing part is refused by name. The one before it is used, to the same final weights.
part=$(ls $final.*.part-1-of-3)
printf '\377' | dd of="$part" bs=1 seek=600 conv=notrunc status=none
run 3 "$LOCKSTEP" checkpoint verify $final
says "$(basename "$part")"
rm "$part"
ok on 2 "$LOCKSTEP" train --run-dir parts $OPTIONS --epochs 5
says 'part-1-of-3. is missing' 'continuing from parts/checkpoints/step-'
same_model whole/checkpoints/final.h5 $final
[ -z "$(ls parts/checkpoints | grep final.h5.)" ] || fail "parts of the replaced final.h5 stay: $(ls parts/checkpoints)"

ok "$LOCKSTEP" checkpoint verify parts/checkpoints/kept.h5

# Short jobs that stop after one step, on changing ranks and in changing layouts, end where one long job does.
for job in $(seq 8); do
  layout=$([ $((job % 2)) = 0 ] && echo single || echo sharded)
  run 85 on $((job % 3 + 1)) "$LOCKSTEP" train --run-dir chain $OPTIONS --checkpoint.layout $layout --run.max_hours 1e-9 --epochs 5
done
ok "$LOCKSTEP" train --run-dir chain $OPTIONS --epochs 5
same whole/checkpoints/final.h5 chain/checkpoints/final.h5
same whole/checkpoints/final.h5 chain/checkpoints/final.h5 /optim
passed "sharded and single checkpoints hold the same values; a chain of short jobs ends as one run"
