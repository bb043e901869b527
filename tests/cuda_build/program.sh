#!/bin/bash
# Tests the program that nvcc has built:   program.sh LOCKSTEP LOCKSTEP_PREP
# It has the CUDA path. With a GPU it trains there; without one it says so and ends.
set -euo pipefail
lockstep=$1 prep=$2
configs=$(cd "$(dirname "$0")/../../configs" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
fail() { echo "FAILED: $*"; cat info.txt train.txt 2>/dev/null; exit 1; }

"$lockstep" info > info.txt 2>&1 || fail "lockstep info"
grep -q "CUDA .*not built" info.txt && fail "the program says that it has no CUDA path"
"$prep" synth-icecolumn --rows 400 --output ice.h5 --quiet
code=0
"$lockstep" train --config "$configs/emulator-icecolumn.ini" --data.path ice.h5 --batch.size 50 --steps 3 --device cuda --run-dir run > train.txt 2>&1 || code=$?
if grep -q "CUDA .*compute capability 9\." info.txt; then
  [ $code = 0 ] || fail "no training on this GPU (exit code $code)"
  echo "ok  trains on $(sed -n 's/^ *CUDA  *//p' info.txt)"
elif grep -q "CUDA .*built; no GPU here" info.txt; then
  [ $code = 2 ] || fail "training on a GPU that is not there: exit code $code"
  grep -q "this process sees no GPU on .*: \(no NVIDIA driver\|the driver\)" train.txt || fail "no word about the missing GPU"
  echo "ok  has the CUDA path and says that there is no GPU"
else
  echo "skipped: it was built for GPUs of compute capability 9.0"
  exit 77
fi
