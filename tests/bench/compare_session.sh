#!/usr/bin/env bash
# A training step through liblockstep_train against the trainer's own and against libtorch called from C++, in one
# thread, by processor time. Prints a Markdown table. Build the target bench_session first.
#
#   tests/bench/compare_session.sh
#
# Variables: those of common.sh.
. "$(dirname "$0")/common.sh"
session=$(program bench_session)
export OMP_NUM_THREADS=1
ROUNDS=${LOCKSTEP_BENCH_ROUNDS:-5} SECONDS_EACH=${LOCKSTEP_BENCH_SECONDS:-1}
if [ $compare = yes ]; then
  read -r torch abi < <("$PYTHON" -c 'import os, torch
print(os.path.dirname(torch.__file__), int(torch.compiled_with_cxx11_abi()))')
  ${CXX:-g++} -std=c++20 -O2 -D_GLIBCXX_USE_CXX11_ABI="$abi" -isystem "$torch/include" tests/peers/emulator_step.cpp \
    -L"$torch/lib" -Wl,-rpath,"$torch/lib" -Wl,--no-as-needed -ltorch_cpu -lc10 -o "$work/emulator_step"
fi
for round in $(seq "$ROUNDS"); do
  "$session" >"$work/session"
  for batch in 1000 16000; do
    grep "\"batch\": $batch," "$work/session" >"$work/line"
    number session_ms <"$work/line" >>"$work/ours.$batch"
    number session_over_trainer <"$work/line" >>"$work/trainer.$batch"
    [ $compare = no ] || "$work/emulator_step" $batch "$SECONDS_EACH" | number libtorch_ms >>"$work/theirs.$batch"
  done
done
machine measure
table_head "| batch | session, ms | over the trainer's step | libtorch, ms | libtorch over session |"
for batch in 1000 16000; do
  row="| $batch | $(cells %.2f <"$work/ours.$batch") | $(cells %.3f <"$work/trainer.$batch")"
  [ $compare = no ] && row+=" | | |" || row+=" | $(cells %.2f <"$work/theirs.$batch") | $(ratio session "$batch" - "$work/theirs.$batch" "$work/ours.$batch") |"
  echo "$row"
done
