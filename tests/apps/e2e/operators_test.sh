#!/usr/bin/env bash
# A trained model's predictions and Jacobians through the programs: the same on any number of ranks, and near the truth that the generator knows.
source "$(dirname "$0")/lib.sh" "$@"
command -v h5diff >/dev/null || { echo "skipped: no h5diff (hdf5-tools)"; exit 77; }
ok "$PREP" synth-icecolumn --rows 12000 --seed 1 --output data.h5
ok on 2 "$LOCKSTEP" train --data.path data.h5 --run-dir run --batch.size 100 --epochs 25 --optim.lr 0.002 --seed 1
ok "$LOCKSTEP" predict --config run/config.ini --checkpoint run/checkpoints/best.h5 --input data.h5 --output predicted.h5
ok on 2 "$LOCKSTEP" predict --config run/config.ini --checkpoint run/checkpoints/best.h5 --input data.h5 --output predicted2.h5
exists predicted.h5 predicted2.h5
h5diff -q predicted.h5 predicted2.h5 || fail "predictions on 1 and 2 ranks differ"
ok "$LOCKSTEP" jacobian --checkpoint run/checkpoints/best.h5 --input data.h5 --output jacobian.h5
exists jacobian.h5
says '[Aa]djoint'
ok on 2 "$LOCKSTEP" jacobian --checkpoint run/checkpoints/best.h5 --input data.h5 --output jacobian2.h5
h5diff -q jacobian.h5 jacobian2.h5 || fail "Jacobians on 1 and 2 ranks differ"
# A zero Jacobian has the error 1.
ok "$LOCKSTEP" eval --config run/config.ini --checkpoint run/checkpoints/best.h5 --split test --json
below "$(number jacobian_error last.out)" 0.5 "median relative error of the Jacobians"

# --- data in other units, or of another level, are refused by name
ok "$PREP" synth-icecolumn --rows 500 --seed 2 --history h.nc --output small.h5
history="cice-history -i h.nc --names wind=uatm_h --inputs sst,sss,tair,wind,qref,flwdn,fswdn,hi,hs --outputs aice,tsfc,fcond"
ok "$PREP" $history --output same.h5
ok "$LOCKSTEP" predict --checkpoint run/checkpoints/best.h5 --input same.h5 --output same-y.h5
ok "$PREP" $history --units tair=K --output kelvin.h5
for command in "predict --input kelvin.h5 --output y.h5" "jacobian --input kelvin.h5 --output j.h5" "eval --data.path kelvin.h5"; do
  run 3 "$LOCKSTEP" $command --checkpoint run/checkpoints/best.h5
  says "column 'tair' is in K, the model's is in degC" "units tair=degC"
done
passed "predictions and Jacobians"
