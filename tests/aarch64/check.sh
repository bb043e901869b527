#!/usr/bin/env bash
# Cross-compiles for AArch64 and runs in qemu-aarch64: the tests of operations, optimizers and networks; every reference
# file; each system on two ranks and on one. Prints whether the generic kernels give the bits of this machine's build.
# Compiling takes most of an hour on two cores.
#   check.sh SYSROOT [BIN]     SYSROOT: made by sysroot.sh; BIN: this machine's programs, by default build/bin
# JOBS: compilers at once. Exit code 77: a tool is missing.
tree=$(cd "$(dirname "$0")/../.." && pwd)
export LOCKSTEP_SYSROOT=$(realpath "${1:-}" 2>/dev/null) OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
native=$(realpath "${2:-$tree/build/bin}")
for tool in aarch64-linux-gnu-g++ qemu-aarch64 mpirun h5diff "$native/lockstep"; do
  command -v "$tool" >/dev/null || { echo "skipped: no $tool"; exit 77; }
done
[ -d "$LOCKSTEP_SYSROOT/usr/lib/aarch64-linux-gnu" ] || { echo "skipped: no libraries; make them with $tree/tests/aarch64/sysroot.sh SYSROOT"; exit 77; }
set -euo pipefail
cd "$tree"
cmake --preset aarch64 $([ -d build/aarch64 ] || echo -G Ninja) >/dev/null
cmake --build build/aarch64 -j "${JOBS:-2}" --target lockstep test_ops test_optim test_models
(cd build/aarch64 && ctest --output-on-failure --timeout 3000 -j "${JOBS:-2}" -R '^(ops|optim|models)\.')

# lockstep of the other architecture under its own name, for scripts
bin=$tree/build/aarch64/qemu
mkdir -p "$bin"
printf '#!/bin/sh\nexec qemu-aarch64 -L %q %q "$@"\n' "$LOCKSTEP_SYSROOT" "$tree/build/aarch64/bin/lockstep" >"$bin/lockstep"
chmod +x "$bin/lockstep"
# mpirun is of this machine: its ranks share no locks with it. qemu cannot copy from another process.
export PMIX_MCA_gds=hash OMPI_MCA_btl_vader_single_copy_mechanism=none
DEVICE=cpu "$tree/tests/cuda_host/verify.sh" "$bin/lockstep" "$tree/tests/golden"

set +e
source "$tree/tests/apps/e2e/systems.sh"
source "$tree/tests/apps/e2e/lib.sh" "$bin"
PREP=$native/lockstep-prep LIMIT=900
tiny_data
while read -r name options <&3; do
  for isa in asimd generic; do
    ok on 2 "$LOCKSTEP" train $options --run.isa $isa --run-dir "two-$name-$isa"
    says "device: cpu \($isa\)"
    ok "$LOCKSTEP" train $options --run.isa $isa --run-dir "one-$name-$isa"
    same_model "one-$name-$isa/checkpoints/final.h5" "two-$name-$isa/checkpoints/final.h5"
  done
  ok "$native/lockstep" train $options --run.isa generic --run-dir "native-$name"
  same=same
  h5diff -q "native-$name/checkpoints/final.h5" "one-$name-generic/checkpoints/final.h5" /model >/dev/null || same=OTHER
  echo "$name: two ranks end with the bits of one; generic kernels: the $same bits as on $(uname -m)"
done 3< <(tiny_systems)
# A run may move to the other architecture, which is said; a job of both is refused.
emulator=$(tiny_systems | sed -n 's/^emulator //p')
ok "$native/lockstep" train $emulator --run-dir moved --run.isa generic --steps 3
ok "$LOCKSTEP" train $emulator --run-dir moved --run.isa generic
says 'the run began with instruction set generic, this start computes with generic of aarch64: weights will differ'
run 2 $MPIRUN -n 1 "$native/lockstep" train $emulator --run-dir both : -n 1 "$LOCKSTEP" train $emulator --run-dir both
says 'rank 1 .* has another processor architecture than rank 0 .*: aarch64, not'
passed "AArch64 in qemu"
