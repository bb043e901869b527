#!/usr/bin/env bash
# An emulator through the programs alone: prepare, train on 2 ranks, evaluate, predict, differentiate, export and
# measure, to a quality that a broken model cannot reach.
source "$(dirname "$0")/lib.sh" "$@"
needs h5diff hdf5-tools
ok "$PREP" synth-icecolumn --rows 12000 --seed 1 --output data.h5
ok "$PREP" check data.h5
ok "$LOCKSTEP" info data.h5
says 12000 aice

ok on 2 "$LOCKSTEP" train --data.path data.h5 --run-dir run --batch.size 100 --epochs 25 --optim.lr 0.002 --seed 1
exists run/config.ini run/train.log run/val.log run/metrics.jsonl run/report.html run/checkpoints/best.h5 run/checkpoints/final.h5
ls run/*tfevents* >/dev/null 2>&1 || fail "no TensorBoard file"
grep -q '</html>' run/report.html || fail "report.html is not whole"

# Linear regression reaches 0.48 on these columns, the mean of the targets 1.0.
ok on 2 "$LOCKSTEP" eval --config run/config.ini --checkpoint run/checkpoints/best.h5 --split test --json
rmse=$(number rmse last.out)
below "$rmse" 0.15 "test RMSE in units of the standard deviation"
below "$(number jacobian_error last.out)" 0.5 "median relative error of the Jacobians"  # a zero Jacobian has the error 1
ok "$LOCKSTEP" eval --config run/config.ini --checkpoint run/checkpoints/best.h5 --split test --json
[ "$(number rmse last.out)" = "$rmse" ] || fail "evaluation on 1 rank gives $(number rmse last.out), on 2 ranks $rmse"

for format in h5model lsem onnx torchscript safetensors; do
  ok "$LOCKSTEP" export --checkpoint run/checkpoints/best.h5 --format $format --output model.$format
  exists model.$format
done
ok "$LOCKSTEP" info run/checkpoints/best.h5
ok "$LOCKSTEP" checkpoint verify run/checkpoints/best.h5 run/checkpoints/final.h5
ok "$LOCKSTEP" bench --config run/config.ini --what all --seconds 0.2 --json
says '"job":"train"' '"job":"predict"' '"job":"jacobian"'
ok on 2 "$LOCKSTEP" bench --synthetic --rows 5000 --batch.size 100 --seconds 0.2
says 'all-reduce'
ok on 2 "$LOCKSTEP" comm-test --config run/config.ini --no-reproducible --max-bytes 64KiB --budget 0.2 --log-level detail
says 'All collectives are correct' 'of the link' 'waiting for messages' 'as configured' 'recommended'
ok "$LOCKSTEP" jacobian --checkpoint run/checkpoints/best.h5 --input data.h5 --output jacobian.h5
ok on 2 "$LOCKSTEP" jacobian --checkpoint run/checkpoints/best.h5 --input data.h5 --output jacobian2.h5
h5diff -q jacobian.h5 jacobian2.h5 || fail "Jacobians on 1 and 2 ranks differ"

# --- data in other units, or of another level, are refused by name
ok "$PREP" synth-icecolumn --rows 500 --seed 2 --history h.nc --output small.h5
history="cice-history -i h.nc --names wind=uatm_h --inputs sst,sss,tair,wind,qref,flwdn,fswdn,hi,hs --outputs aice,tsfc,fcond"
ok "$PREP" $history --output same.h5
ok "$LOCKSTEP" predict --checkpoint run/checkpoints/best.h5 --input same.h5 --output same-y.h5
# --- a netCDF file has predictions on the grid of the input file, with the same bytes on 1 and 3 ranks
ok "$PREP" info same.h5
says 'grid +time 1 x '
ok "$LOCKSTEP" predict --checkpoint run/checkpoints/best.h5 --input same.h5 --output one.nc
cp one.nc first.nc
ok on 3 "$LOCKSTEP" predict --checkpoint run/checkpoints/best.h5 --input same.h5 --output one.nc
cmp first.nc one.nc || fail "the netCDF file differs on 3 ranks"
ok "$PREP" netcdf --input one.nc --inputs tsfc --outputs aice --variables.constant_outputs keep --val-fraction 0.1 --output again.h5
says ' 500 = '
ok "$PREP" check again.h5
column() { h5dump -y -w 12 -m %.9g -d "$1" -s "$2" -c "$3" "$4" | grep -E '^ +[-+0-9.e]+,? *$' | tr -d ' ,'; }
column /y 0,0 500,1 again.h5 >on-grid; column /y 0,0 500,1 same-y.h5 >in-rows
[ "$(wc -l <on-grid)" = 500 ] && cmp on-grid in-rows || fail "the netCDF file has other predictions than the HDF5 file"
run 3 on 2 "$LOCKSTEP" predict --checkpoint run/checkpoints/best.h5 --input small.h5 --output y.nc
says_once "placing the rows of 'small.h5' on a grid: it does not say which"
ok "$PREP" $history --units tair=K --output kelvin.h5
for command in "predict --input kelvin.h5 --output y.h5" "jacobian --input kelvin.h5 --output j.h5" "eval --data.path kelvin.h5"; do
  run 3 "$LOCKSTEP" $command --checkpoint run/checkpoints/best.h5
  says "column 'tair' is in K, the model's is in degC" "units tair=degC"
done
passed "test RMSE $rmse"
