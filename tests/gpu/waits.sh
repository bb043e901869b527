#!/bin/bash
# Machine code of kernels that may start early: no access to memory before their wait, and no branch around it.
#   waits.sh PROGRAM...     programs, object files or cubins with code for compute capability 9.0 or later
# The source of each such kernel waits first (include/lockstep/device/cuda_earlier.hpp), but a compiler may move loads.
# Exit code 0: all right; 1: a wrong kernel, or none that waits; 77: no cuobjdump, which is a part of the CUDA Toolkit.
set -uo pipefail
tool=$(command -v cuobjdump || ls "${CUDA_HOME:-/usr/local/cuda}/bin/cuobjdump" 2>/dev/null)
[ -n "$tool" ] || { echo "waits: no cuobjdump on this machine"; exit 77; }
for program in "$@"; do "$tool" -sass "$program" || exit 1; done | awk '
  function close_kernel() {
    if (waits && before != "") { print kernel ": " before " before its wait"; bad = 1 }
    if (!waits && version >= 90 && kernel ~ /7Earlier/ && kernel !~ /7Earlier4wait/) { print kernel ": no wait"; bad = 1 }
    total += waits; waits = 0; before = kernel = ""
  }
  /code for sm_/ { close_kernel(); version = $NF; gsub(/[^0-9]/, "", version); version += 0 }
  /Function : / { close_kernel(); kernel = $NF; next }
  !/^ *\/\*[0-9a-f]+\*\/ +[@A-Z]/ || waits { next }
  { code = $2 ~ /^@/ ? $3 : $2 }
  code == "ACQBULK" { waits = 1; next }
  before == "" && code ~ /^(LDG|STG|LD|ST|ATOM|ATOMG|RED|REDG|LDGSTS|UBLK[A-Z]*|UTMA[A-Z]*|BRA|BRX|JMP|CALL|EXIT|RET|BAR)(\.|$)/ { before = code }
  END { close_kernel(); print total " kernels wait"; exit bad || total == 0 }'
