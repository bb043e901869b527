# Every command of the README's ```sh blocks runs, in order, in a scratch directory that looks like the source tree; every page that it names exists.
source "$(dirname "$0")/lib.sh" "$1"
for entry in README.md configs tests docs data; do ln -s "$tree/$entry" "$entry"; done
mkdir build && ln -s "$BIN" build/bin
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_hwloc_base_binding_policy=none PRTE_MCA_hwloc_default_binding_policy=none
mapfile -t commands < <(awk '/^```sh$/ {inside = 1; next} /^```/ {inside = 0} inside && NF {whole = whole $0} inside && !sub(/\\$/, "", whole) && NF {print whole; whole = ""}' README.md)
[ "${#commands[@]}" -ge 10 ] || fail "only ${#commands[@]} commands found in README.md"
for command in "${commands[@]}"; do ok bash -c "$command"; done
for link in $(grep -oE '\]\([^)]+\)' README.md | tr -d '])('); do [ -e "$tree/$link" ] || fail "README.md names $link, which does not exist"; done
passed "${#commands[@]} commands of the README"
