#!/usr/bin/env bash
# restart_test.sh LORENZ LOCKSTEP MPIRUN...: the Fortran model runs in two parts, on 4 ranks and then on 3, as in one part
# on 2: the same weights in every bit. Lockstep reads its checkpoint.
set -euo pipefail
lorenz=$1 lockstep=$2
shift 2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
"$@" -n 2 "$lorenz" 600 whole
"$@" -n 4 "$lorenz" 300 parts || true  # half of the training
"$@" -n 3 "$lorenz" 300 parts
cmp whole parts
"$lockstep" info whole.h5 | grep -q emulator
"$lockstep" export --checkpoint whole.h5 --output whole.lsem
