#!/usr/bin/env bash
# Runs every command of the README's ```sh blocks, in order, in a scratch directory that looks like the source tree.
set -euo pipefail
source_dir=$1 build_dir=$2
scratch=$(mktemp -d); trap 'rm -rf "$scratch"' EXIT
for entry in README.md configs tests docs data; do ln -s "$source_dir/$entry" "$scratch/$entry"; done
ln -s "$build_dir" "$scratch/build"
cd "$scratch"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_hwloc_base_binding_policy=none OMP_NUM_THREADS=1
mapfile -t commands < <(awk '/^```sh$/ {inside = 1; next} /^```/ {inside = 0} inside && NF' README.md)
[ "${#commands[@]}" -ge 8 ] || { echo "README.md: only ${#commands[@]} commands found"; exit 1; }
for command in "${commands[@]}"; do
  echo "\$ $command"
  bash -c "$command" >output.txt 2>&1 || { cat output.txt; echo "README.md: this command failed: $command"; exit 1; }
done
# Every document that the README names exists.
for link in $(grep -oE '\]\([^)]+\)' README.md | tr -d '])('); do [ -e "$source_dir/$link" ] || { echo "README.md names $link, which does not exist"; exit 1; }; done
echo "${#commands[@]} commands ran"
