#!/bin/sh
# check_scores PROGRAM MODELS: PROGRAM gives for each network of make_models the scores that the network itself gives, to the last bit.
set -eu
program=$1 models=$2 checked=0
out=$(mktemp)
trap 'rm -f "$out"' EXIT
for expected in "$models"/*.scores; do
  model=${expected%.scores}
  "$program" "$model.safetensors" "$out" "$model".input*
  cmp "$out" "$expected" || { echo "$program: other scores for $model"; exit 1; }
  checked=$((checked + 1))
done
[ "$checked" -ge 10 ] || { echo "only $checked networks"; exit 1; }
