#!/bin/sh
# check_install BUILD TESTS MODEL: installs into an empty prefix, moves it, and builds programs against it as users do: by pkg-config, by CMake's
# find_package, in Fortran, and with the static library. Needs CC, CXX, FC (may be empty), CMAKE, SANITIZE.
set -eu
build=$1 tests=$2 model=$3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
say() { echo "--- $*"; }

say "install"
"$CMAKE" --install "$build" --prefix "$work/first" > "$work/install.log" || { cat "$work/install.log"; exit 1; }
mv "$work/first" "$work/prefix"   # nothing may remember where it was installed
prefix=$work/prefix
for file in include/lockstep/lockstep.h include/lockstep/lockstep.f90 include/lockstep/lockstep_train.h include/lockstep/lockstep_train.f90; do
  [ -f "$prefix/$file" ] || { echo "$file was not installed"; exit 1; }
done
[ -f "$prefix/share/lockstep/lockstep_reader.py" ] || { echo "lockstep_reader.py was not installed"; exit 1; }
headers=$(find "$prefix/include" -type f | wc -l)
[ "$headers" = 4 ] || { echo "$headers files under include, expected lockstep.h, lockstep_train.h and their .f90"; find "$prefix/include" -type f; exit 1; }
PKG_CONFIG_PATH=$(dirname "$(find "$prefix" -name lockstep.pc)")
export PKG_CONFIG_PATH
libdir=$(dirname "$(find "$prefix" -name liblockstep.a)")

module=$(find "$prefix/share/modulefiles/lockstep" -type f)
grep -q '^prepend-path PATH ' "$module" || { echo "no module file that sets PATH"; exit 1; }
modulecmd=$(find /usr/lib /usr/share/modules -name modulecmd.tcl 2> /dev/null | head -n 1)
if [ -n "$modulecmd" ]; then
  say "module load lockstep"
  MODULEPATH=$prefix/share/modulefiles "$modulecmd" sh load lockstep | grep -q "^PATH=$prefix/bin:" || { echo "the module does not set PATH"; exit 1; }
fi

if command -v pkg-config > /dev/null; then
  say "C by pkg-config"
  # shellcheck disable=SC2046,SC2086
  $CC $SANITIZE "$tests/examples/balance.c" -o "$work/c" $(pkg-config --cflags --libs lockstep) -lm
  LD_LIBRARY_PATH=$libdir "$work/c" "$model"
  say "C with the static library"
  static=$(pkg-config --static --libs lockstep | sed 's/-llockstep/-l:liblockstep.a/')
  # shellcheck disable=SC2046,SC2086
  $CC $SANITIZE "$tests/examples/balance.c" -o "$work/s" $(pkg-config --cflags lockstep) $static
  ldd "$work/s" | grep -q liblockstep && { echo "the static program needs the shared library"; exit 1; }
  "$work/s" "$model"
  say "training in C by pkg-config"
  # shellcheck disable=SC2046,SC2086
  OMPI_CC=$CC mpicc $SANITIZE "$tests/../fit/examples/lorenz.c" -o "$work/t" $(pkg-config --cflags --libs lockstep_train)
  LD_LIBRARY_PATH=$libdir "$work/t"
  if [ -n "$FC" ]; then
    say "Fortran from the installed source"
    (cd "$work" && $FC $SANITIZE "$prefix/include/lockstep/lockstep.f90" "$tests/examples/balance.f90" -o f $(pkg-config --libs lockstep))
    LD_LIBRARY_PATH=$libdir "$work/f" "$model"
  fi
else
  echo "skipped: no pkg-config"
fi

say "C++ by find_package"
mkdir "$work/consumer"
cat > "$work/consumer/CMakeLists.txt" << 'EOF'
cmake_minimum_required(VERSION 3.16)
project(consumer LANGUAGES C CXX)
find_package(lockstep 0.1 REQUIRED COMPONENTS train)
add_executable(shared_program ${SOURCE})
target_link_libraries(shared_program PRIVATE lockstep::lockstep)
add_executable(static_program ${SOURCE})
target_link_libraries(static_program PRIVATE lockstep::static)
add_executable(training_program ${TRAINING})
target_link_libraries(training_program PRIVATE lockstep::train)
if(NOT EXISTS "${lockstep_FORTRAN_SOURCE}")
  message(FATAL_ERROR "no Fortran module source at '${lockstep_FORTRAN_SOURCE}'")
endif()
EOF
"$CMAKE" -S "$work/consumer" -B "$work/consumer/build" -DCMAKE_PREFIX_PATH="$prefix" -DSOURCE="$tests/examples/fields.cpp" -DTRAINING="$tests/../fit/examples/lorenz.c" -DCMAKE_C_FLAGS="$SANITIZE" -DCMAKE_CXX_COMPILER="$CXX" \
  -DCMAKE_CXX_FLAGS="$SANITIZE" > "$work/cmake.log" 2>&1 || { cat "$work/cmake.log"; exit 1; }
"$CMAKE" --build "$work/consumer/build" > "$work/cmake.log" 2>&1 || { cat "$work/cmake.log"; exit 1; }
"$work/consumer/build/shared_program" "$model"
"$work/consumer/build/static_program" "$model"
"$work/consumer/build/training_program"

for program in lockstep lockstep-prep; do
  if [ -x "$build/bin/$program" ]; then
    [ -x "$prefix/bin/$program" ] || { echo "$program was built but not installed"; exit 1; }
  fi
done
