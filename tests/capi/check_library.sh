#!/bin/sh
# check_library LIBRARY HEADER FORTRAN: liblockstep shows the functions of its header and nothing else, needs no MPI, and the Fortran module
# has every function.
set -eu
library=$1 header=$2 fortran=$3
status=0
complain() { echo "$1" >&2; status=1; }

shown=$(nm -D --defined-only "$library" | awk '{ print $NF }' | sed 's/@.*//' | grep -v '^LOCKSTEP_[0-9]*$' | sort -u)
declared=$(grep -oE 'ls(em|net)_[a-z0-9_]*\(' "$header" | tr -d '(' | sort -u)
for name in $shown; do echo "$declared" | grep -qx "$name" || complain "$name is shown by the library but not declared in the header"; done
for name in $declared; do
  echo "$shown" | grep -qx "$name" || complain "$name is declared in the header but not in the library"
  grep -qiE "(function|subroutine) $name\(|name=\"$name\"|procedure\(.*bind\(c\) :: .*$name(,|$)" "$fortran" || complain "$name is missing in the Fortran module"
done
[ -n "$shown" ] || complain "no symbols found"

needs=$(ldd "$library")
echo "$needs" | grep -iE 'libmpi|libopen-(rte|pal)|libpmix|libnetcdf|libcuda|libnccl' && complain "the library needs what it must not need"
if [ -z "${LOCKSTEP_SANITIZE:-}" ]; then
  # The system's own, and HDF5 with what HDF5 itself needs.
  direct=$(readelf -d "$library" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p')
  for name in $direct; do
    case $name in
      libhdf5*|libz.so*|libgomp.so*|libstdc++.so*|libm.so*|libgcc_s.so*|libc.so*|libpthread.so*|ld-linux*) ;;
      *) complain "the library needs $name" ;;
    esac
  done
fi
exit $status
