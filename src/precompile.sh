#!/bin/sh
# precompile.sh COMPILER...: compiles a precompiled header and writes its checksum beside it. ccache hashes that instead
# of the 90 MB header for each file (CCACHE_PCH_EXTSUM): 0.09 s of a hit's 0.1 s.
#
# GCC recognises a header with #pragma once by the bytes that it had when the precompiled header was made. By default
# ccache also compares preprocessed text, which lacks comments, and would return one made from an older comment.
CCACHE_DEPEND=1 "$@" || exit
for file; do
  case $file in *.gch) sha1sum <"$file" >"$file.sum" ;; esac
done
