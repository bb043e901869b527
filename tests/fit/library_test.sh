#!/usr/bin/env bash
# library_test.sh LIBRARY INCLUDE FORTRAN: liblockstep_train shows the functions of its two headers and nothing else, has at
# most 5 MB without symbols, needs nothing but MPI, HDF5, zlib and the compiler's libraries, and refuses a session before
# MPI is initialised. Its Fortran module has all.
set -euo pipefail
library=$1 include=$2 fortran=$3 status=0
complain() { echo "$1" >&2; status=1; }
shown=$(nm -D --defined-only "$library" | awk '{print $NF}' | sed 's/@.*//' | grep -v '^LOCKSTEP_[0-9]*$' | sort -u)
declared=$(grep -ohE 'ls(em|fit)_[a-z0-9_]*\(' "$include/lockstep.h" "$include/lockstep_train.h" | tr -d '(' | sort -u)
diff <(echo "$declared") <(echo "$shown") || complain "the functions of the headers are not those of the library"
for name in $(echo "$declared" | grep lsfit_ | grep -vx lsfit_open); do
  grep -qE "function $name\(|name=\"$name\"" "$fortran" || complain "$name is missing in the Fortran module"
done
if [ -z "${LOCKSTEP_SANITIZE:-}" ]; then
  stripped=$(mktemp)
  strip -o "$stripped" "$library"
  bytes=$(stat -c %s "$stripped")
  rm "$stripped"
  [ "$bytes" -lt 5000000 ] || complain "the library has $bytes bytes, more than 5 MB"
  call='ctypes.CDLL(sys.argv[1]).lsfit_open_fortran(0, None, 1, 1, None, None, ctypes.byref(ctypes.c_void_p()))'
  [ "$(python3 -c "import ctypes, sys; print($call)" "$library")" = 1 ] ||
    complain "a session before MPI_Init is not refused"
  for needed in $(readelf -d "$library" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p'); do
    case $needed in
      libmpi*|libopen-*|libhdf5*|libz.so*|libgomp.so*|libstdc++.so*|libm.so*|libgcc_s.so*|libc.so*|libpthread.so*|ld-linux*) ;;
      *) complain "the library needs $needed" ;;
    esac
  done
fi
exit $status
