#!/bin/sh
# check_flat DIRECTORY PROGRAM MODEL: with the liblockstep of DIRECTORY, which is built without HDF5, PROGRAM opens MODEL.lsem,
# MODEL.safetensors, MODEL.onnx and MODEL.ts, and MODEL.h5 is refused in one line.
set -eu
export LD_LIBRARY_PATH=$1
program=$2 model=$3
used=$(ldd "$program" | sed -n 's/.*liblockstep[^ ]* => \([^ ]*\).*/\1/p')
[ "$(readlink -f "$used")" = "$(readlink -f "$1/liblockstep.so")" ] || { echo "$program uses $used"; exit 1; }
if ldd "$used" | grep -i hdf5; then echo "the library needs HDF5"; exit 1; fi
"$program" "$model.lsem"
"$program" "$model.safetensors"
"$program" "$model.onnx"
"$program" "$model.ts"
if said=$("$program" "$model.h5" 2>&1); then echo "an HDF5 file was opened"; exit 1; fi
echo "$said"
[ "$(echo "$said" | wc -l)" = 1 ] && echo "$said" | grep -q 'without HDF5; convert it by `lockstep export --format lsem`'
