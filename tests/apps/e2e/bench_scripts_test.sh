#!/usr/bin/env bash
# The comparison scripts of tests/bench run with the programs of this build: Lockstep alone, one thread, one short round.
source "$(dirname "$0")/lib.sh" "$@"
scripts=$tree/tests/bench
export BUILD=$work LOCKSTEP_PYTHON="" LOCKSTEP_BENCH_CORES=1 LOCKSTEP_BENCH_ROUNDS=1 LOCKSTEP_BENCH_SECONDS=0.01
ln -s "$(dirname "$LOCKSTEP")" bin
ok "$scripts/compare_har.sh"
says '^\| signal \| 1x1 \| [0-9]'
ok "$scripts/compare_sequences.sh" sasrec
says '^\| sasrec \| 1x1 \| [0-9]'
LOCKSTEP_BENCH_ROWS=2000 ok "$scripts/compare_emulator.sh"
says '^\| jacobian \| 1x1 \| [0-9]'
passed "the comparison scripts"
