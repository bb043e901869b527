#!/usr/bin/env bash
# flat_test.sh DIRECTORY LORENZ MPIRUN...: with the liblockstep_train of DIRECTORY, which is built without HDF5, a model trains
# and writes its restart file, and lsfit_save is refused in one line.
set -euo pipefail
flat=$1 lorenz=$2
shift 2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
export LD_LIBRARY_PATH=$flat
[ "$(ldd "$lorenz" | sed -n 's/.*liblockstep_train[^ ]* => \([^ ]*\).*/\1/p')" = "$flat/liblockstep_train.so.1" ]
if ldd "$lorenz" | grep -i hdf5; then echo "the program needs HDF5"; exit 1; fi
said=$("$@" -n 1 "$lorenz" 600 restart 2>&1) && { echo "a checkpoint was written"; exit 1; }
[ -s restart ] && [ ! -e restart.h5 ]
echo "$said" | grep '^lorenz: ' | grep 'built without HDF5.*LOCKSTEP_CAPI_HDF5=ON'
