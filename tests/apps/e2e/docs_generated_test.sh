#!/usr/bin/env bash
# The pages about liblockstep's functions and lockstep_reader.py, and the pictures, are those that their scripts make.
source "$(dirname "$0")/lib.sh" "$1"
needs python3 python3
ok python3 "$tree/docs/reference.py" .
ok python3 "$tree/docs/pictures/draw.py" .
for file in *.md *.svg; do
  original=$(ls "$tree/docs/$file" "$tree/docs/pictures/$file" 2>/dev/null)
  cmp -s "$file" "$original" || fail "$file is not the generated one: make docs"
done
functions=$(grep -oE '\b(lsem|lsnet)_\w+\(' "$tree/include/lockstep/lockstep.h" | grep -v '()' | sort -u)
for function in $functions; do grep -qF "$function" c-api-reference.md || fail "c-api-reference.md lacks $function"; done
passed "$(ls -- *.md *.svg | wc -l) generated files"
