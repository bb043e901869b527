#!/bin/bash
# In a bundle, makes data/ml-1m.h5, kgat-ml1m.h5 and hapt.h5 from the raw files that it carries, as docs/datasets.md
# does, unless they exist. check.sh takes them, and generates what is missing.
set -euo pipefail
home=$(cd "$(dirname "$0")/../.." && pwd)
raw=$home/raw data=$home/data
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
wants() { [ -e "$raw/$1" ] && [ ! -e "$data/$2" ]; }
prepare() { "$home/bin/lockstep-prep" "${@:2}" --output "$data/$1" --quiet; }
if wants ratings.dat.xz ml-1m.h5; then
  xz -dc "$raw/ratings.dat.xz" > "$work/ratings.dat"
  prepare ml-1m.h5 sequences --input "$work/ratings.dat"
fi
if wants kgat-ml1m kgat-ml1m.h5; then
  mkdir "$work/graph"
  for file in "$raw"/kgat-ml1m/*.xz; do xz -dc "$file" > "$work/graph/$(basename "$file" .xz)"; done
  prepare kgat-ml1m.h5 kg --input "$work/graph"
fi
if wants hapt_raw.tar.xz hapt.h5; then
  tar -C "$work" -xJf "$raw/hapt_raw.tar.xz"
  prepare hapt.h5 hapt-raw --input "$work/HAPT Data Set"
fi
