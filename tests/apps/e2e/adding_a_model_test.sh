#!/usr/bin/env bash
# docs/adding-a-model.md: its blocks compile with the flags of the build and link before the built libraries; its tests
# pass; its commands run; ten steps lower the loss and give the same bits on one rank and on two.
build=$(cd "$1/.." && pwd)
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh" "$1"
needs h5diff hdf5-tools
page=$tree/docs/adding-a-model.md

# --- the blocks: a file each, or (diff) lines to add to a copy of the tree's file
awk '/^```/ {path = $2; if (!path) next; if (/^```diff/) path = path ".diff"
              dir = path; sub("/[^/]*$", "", dir); system("mkdir -p " dir); printf "" >path; next}
     path {print >path}' "$page"
mapfile -t sources < <(find src include tests -name '*.cpp' | sort)
mapfile -t patches < <(find . -name '*.diff' | sort)
[ "${#sources[@]}" = 4 ] && [ "${#patches[@]}" = 1 ] || fail "blocks found: ${sources[*]} ${patches[*]}"
for patch in "${patches[@]}"; do
  file=${patch%.diff}
  awk 'NR == FNR {if (/^\+/) {added[before] = added[before] "\n" substr($0, 2)} else {before = substr($0, 2)}; next}
       {line = $0; if (line in added) {++used[line]; line = line added[line]} print line}
       END {for (line in added) if (used[line] != 1) {print "not one line: " line >"/dev/stderr"; exit 1}}' \
    "$patch" "$tree/$file" >"$file" || fail "$page: the lines for $file do not fit it"
done

# --- compiled as the build compiles the registry and the test of another kind
# compile_as FILE_OF_THE_TREE SOURCE OBJECT
compile_as() {
  local command
  command=$(grep -m1 -E "\"command\".* -c [^ ]*/$1\"" "$build/compile_commands.json" |
    sed -E 's/^ *"command": "(.*)",?$/\1/; s/\\(.)/\1/g; s/ -o .*//')
  [ -n "$command" ] || fail "compile_commands.json does not name $1"
  eval "$command -I$work/include -o $3 -c $2" || fail "$2 does not compile"
}
objects=()
for source in src/tasks/registry.cpp "${sources[@]}"; do
  like=src/tasks/registry.cpp object=$(basename "$source" .cpp).o
  case $source in tests/*) like=tests/tasks/har/har_task_test.cpp ;; *) objects+=("$work/$object") ;; esac
  compile_as "$like" "$source" "$object" &
  pids+=($!)
done
for pid in "${pids[@]}"; do wait "$pid" || fail "a block does not compile"; done

# --- linked as the build links PROGRAM, with the objects of the page first
# link_as PROGRAM OBJECTS_LEFT_OUT OUTPUT OBJECT...
link_as() {
  local program=$1 without=$2 output=$3 folder=$build command; shift 3
  if [ -f "$build/build.ninja" ]; then
    local ninja
    ninja=$(sed -n 's/^CMAKE_MAKE_PROGRAM:[A-Z]*=//p' "$build/CMakeCache.txt")
    command=$("$ninja" -C "$build" -t commands "bin/$program" | tail -1)
  else
    command=$(find "$build" -path "*/$program.dir/link.txt")
    folder=${command%/CMakeFiles/*}
    command=$(cat "$command")
  fi
  command=$(sed -E "s# [^ ]*$without##g; s# -o (bin/)?[^ ]*$program # $* -o $work/$output #" <<<"$command")
  (cd "$folder" && eval "$command") || fail "$output does not link"
}
mkdir -p bin
link_as lockstep /nothing bin/lockstep "${objects[@]}"
link_as test_tasks '_test\.cpp\.o' bin/test_moons "$work/moons_task_test.o" "${objects[@]}"
ok bin/test_moons
says '[1-9][0-9]* passed'

# --- the commands of the page, by its program
mkdir build && ln -s ../bin build/bin
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_hwloc_base_binding_policy=none PRTE_MCA_hwloc_default_binding_policy=none
mapfile -t commands < <(awk '/^```sh$/ {inside = 1; next} /^```/ {inside = 0} inside && NF {line = line $0; if (sub(/ \\$/, "", line)) next; print line; line = ""}' "$page")
[ "${#commands[@]}" -ge 4 ] || fail "only ${#commands[@]} commands found in $page"
for command in "${commands[@]}"; do
  ok bash -c "$command"
  case $command in *' eval '*) right=$(awk '$1 == "accuracy" {print $2}' last.out) ;; esac
done
same_model runs/one/checkpoints/final.h5 runs/two/checkpoints/final.h5
mapfile -t losses < <(grep -oE '"loss": ?[-+0-9.eE]+' runs/two/metrics.jsonl | sed -E 's/.*: ?//')
[ "${#losses[@]}" -ge 10 ] || fail "${#losses[@]} losses logged in ten steps"
below "${losses[9]}" "$(awk -v l="${losses[0]}" 'BEGIN {print l / 2}')" "the loss after ten steps"
below 0.95 "$right" "95 % against the accuracy: it"
# The shipped program does not know the kind.
run 2 "$LOCKSTEP" train --config configs/moons.ini --run-dir none
says "model.kind = moons"
passed "docs/adding-a-model.md"
