#!/bin/bash
# What bounds the inner loops of kernels on an H100, from their machine code:
#   instructions.sh PROGRAM [KERNEL]     a program, object file or cubin; KERNEL: only names that match this pattern
# For each innermost loop with accesses to device memory or products on tensor cores (HMMA): its instructions, the bytes
# that a thread accesses, and the cycles of a multiprocessor that a warp needs for each of them, with 4 instructions,
# 14.5 bytes (3.35 TB/s, 132 multiprocessors, 1.755 GHz) and 4269 flop in bf16 per cycle; the largest is the bound.
# Cached bytes cost less, and branches may skip instructions. Exit code 77: no cuobjdump, a part of the CUDA Toolkit.
set -uo pipefail
tool=$(command -v cuobjdump || ls "${CUDA_HOME:-/usr/local/cuda}/bin/cuobjdump" 2> /dev/null)
[ -n "$tool" ] || { echo "instructions: no cuobjdump on this machine"; exit 77; }
arch=$("$tool" -lelf "${1:?PROGRAM}" | grep -om1 'sm_90a\?')  # of several; else all
names=$(command -v cu++filt || command -v c++filt || echo cat)
"$tool" ${arch:+-arch "$arch"} -sass "$1" | awk '
  function hex(text,   i, value) {
    for (i = 1; i <= length(text); ++i) value = 16 * value + index("0123456789abcdef", substr(text, i, 1)) - 1
    return value
  }
  function width(code) { return code ~ /\.128/ ? 16 : code ~ /\.64/ ? 8 : code ~ /\.[US]?8/ ? 1 : code ~ /\.[US]?16/ ? 2 : 4 }
  function close_kernel(   l, m, i, inner, bytes, products, issue, memory, tensor) {
    for (l = 1; l <= loops; ++l) {
      inner = 1
      for (m = 1; m <= loops; ++m) if (m != l && first[m] >= first[l] && last[m] <= last[l]) inner = 0
      if (!inner) continue
      bytes = products = 0
      for (i = first[l]; i <= last[l]; ++i) {
        if (code[i] ~ /^(LDG|STG|LDGSTS|LD\.|ST\.)/) bytes += width(code[i])
        if (code[i] ~ /^HMMA/) ++products
      }
      if (!bytes && !products) continue
      issue = (last[l] - first[l] + 1) / 4; memory = 32 * bytes / 14.5; tensor = 4096 * products / 4269
      printf "%d\t%d\t%d\t%.0f\t%.0f\t%.0f\t%s\t%s\n", last[l] - first[l] + 1, bytes, products, issue, memory, tensor,
        (issue >= memory && issue >= tensor ? "issue" : memory >= tensor ? "memory" : "tensor"), kernel
    }
    count = loops = 0
  }
  /Function : / { close_kernel(); kernel = $NF; next }
  !/^ *\/\*[0-9a-f]+\*\/ / { next }
  {
    address = $1; gsub(/[\/*]/, "", address)
    at[hex(address)] = ++count
    code[count] = $2 ~ /^@/ ? $3 : $2
    if (code[count] == "NOP") { --count; next }
    if (code[count] ~ /^BRA/ && match($0, /0x[0-9a-f]+/)) {
      target = hex(substr($0, RSTART + 2, RLENGTH - 2))
      if (target < hex(address) && target in at) { first[++loops] = at[target]; last[loops] = count }
    }
  }
  END { close_kernel() }' | "$names" | grep -E "${2:-.}" | sort -t "$(printf '\t')" -k4,4nr |
  { printf 'instructions\tbytes\tHMMA\tissue\tmemory\ttensor\tbound\tkernel\n' && cat; } | cut -c1-200 | expand -t 13,20,26,34,42,50,58
