#!/usr/bin/env bash
# The number of ranks and threads does not change the training: bitwise with --reproducible, to rounding without.
source "$(dirname "$0")/lib.sh" "$@"
command -v h5diff >/dev/null || { echo "skipped: no h5diff (hdf5-tools)"; exit 77; }
ok "$PREP" synth-icecolumn --rows 4000 --seed 3 --output data.h5

train() { # RUN_DIR RANKS THREADS [further options]
  local dir=$1 ranks=$2 threads=$3; shift 3
  OMP_NUM_THREADS=$threads ok on "$ranks" "$LOCKSTEP" train --data.path data.h5 --run-dir "$dir" --batch.size 250 --epochs 3 --optim.lr 0.002 \
    --model.hidden_size 24 --model.hidden_layers 2 "$@"
  exists "$dir/checkpoints/final.h5"
}

# A batch of 250 does not divide among 3 ranks or 16 shards, and the last batch of an epoch is shorter still.
train r1 1 1 --reproducible
for ranks in 2 3 4; do
  train r$ranks $ranks 1 --reproducible
  same_model r1/checkpoints/final.h5 r$ranks/checkpoints/final.h5
  same_model r1/checkpoints/best.h5 r$ranks/checkpoints/best.h5
done
train t2 1 2 --reproducible
same_model r1/checkpoints/final.h5 t2/checkpoints/final.h5
train r2t2 2 2 --reproducible
same_model r1/checkpoints/final.h5 r2t2/checkpoints/final.h5
train again 1 1 --reproducible --seed 6
differing_model r1/checkpoints/final.h5 again/checkpoints/final.h5

for ranks in 1 2 3; do
  train d$ranks $ranks 2
  close_model r1/checkpoints/final.h5 d$ranks/checkpoints/final.h5 1e-4
done
passed "1, 2, 3 and 4 ranks, 1 and 2 threads follow one trajectory"
