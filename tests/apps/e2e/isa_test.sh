#!/usr/bin/env bash
# Ranks on processors with different instruction sets compute with the one that all have, chosen by itself or by run.isa: the same bits
# as one rank. qemu-user stands in for an older processor.
source "$(dirname "$0")/systems.sh"
source "$(dirname "$0")/lib.sh" "$@"
needs h5diff hdf5-tools
tiny_data
EMULATOR=$(tiny_systems | sed -n "s/^emulator //p")

# The set is on record; a run that began with one keeps it, and a change is said.
ok "$LOCKSTEP" train $EMULATOR --run-dir generic --run.isa generic
ok "$LOCKSTEP" info --checkpoint generic/checkpoints/final.h5
says 'isa +generic'
ok "$LOCKSTEP" train $EMULATOR --run-dir parts --run.isa generic --steps 3
ok "$LOCKSTEP" train $EMULATOR --run-dir parts
says 'device: cpu \(generic\)'
same_model generic/checkpoints/final.h5 parts/checkpoints/final.h5
run 2 "$LOCKSTEP" train $EMULATOR --run-dir refused --run.isa sse9
says 'run.isa = sse9'
other=$([ "$(uname -m)" = aarch64 ] && echo avx2 || echo asimd)
run 2 "$LOCKSTEP" train $EMULATOR --run-dir refused --run.isa "$other"
says "run.isa = $other: the processor of .* has generic.*; choose one of these, or auto"
ok "$LOCKSTEP" info
grep -q '"avx2"' last.out || { echo "skipped: this processor has generic kernels only"; exit 77; }
ok "$LOCKSTEP" train $EMULATOR --run-dir changed --run.isa generic --steps 3
ok "$LOCKSTEP" train $EMULATOR --run-dir changed --run.isa avx2
says 'the run began with instruction set generic, this start computes with avx2' 'use --run.isa generic'

qemu=$(command -v qemu-x86_64) || { echo "skipped: no qemu-x86_64 (qemu-user) for an older processor"; exit 77; }
haswell="$qemu -cpu Haswell"
run 2 $haswell "$LOCKSTEP" train $EMULATOR --run-dir refused --run.isa avx512
says 'run.isa = avx512: the processor of .* has generic, avx2; choose one of these, or auto'
# mixed COMMAND...: two ranks, the second on the older processor
mixed() { LIMIT=300 ok $MPIRUN -n 1 "$LOCKSTEP" "$@" : -n 1 $haswell "$LOCKSTEP" "$@"; }
# The kernels of this processor alone are other ones.
older() { ok "$LOCKSTEP" train --run.isa avx2 "$@"; }

mixed info --json
[ "$(grep -c '"isa": "avx2"' last.out)" -ge 2 ] || fail "info does not show what all ranks compute with"
names=$(grep -oE '"isa": "[a-z0-9]+"' last.out | sort -u | wc -l)
while read -r name options <&3; do  # not stdin: mpirun reads that
  older $options --run-dir "one-$name"
  mixed train $options --run-dir "two-$name"
  says 'device: cpu \(avx2\)'
  [ "$names" = 1 ] || says "processors differ: that of rank 1 .* no better instruction set than avx2, others have avx512"
  same_model "one-$name/checkpoints/final.h5" "two-$name/checkpoints/final.h5"
done 3< <(tiny_systems)
passed "mixed processors end with the bits of one rank"
