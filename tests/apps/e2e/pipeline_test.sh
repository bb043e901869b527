#!/usr/bin/env bash
# Prepare, train on 2 ranks, evaluate, export, look: through the programs alone, and to a quality that a broken model cannot reach.
source "$(dirname "$0")/lib.sh" "$@"
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
cp last.out two.json
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
ok on 2 "$LOCKSTEP" comm-test --config run/config.ini --no-reproducible --max-bytes 64KiB --budget 0.2
says 'All collectives are correct' 'of the link' 'waiting for messages' 'as configured' 'recommended'
passed "test RMSE $rmse"
