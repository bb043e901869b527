# shellcheck shell=bash
# Sourced by scripts that have sections. ctest has an entry for each section and runs the script with LOCKSTEP_SECTION=<section>;
# without it, the script runs all of them. The line "# sections ..." at the head of the script names them; tests/CMakeLists.txt reads it.
sections=$(sed -n 's/^# sections //p' "$0")
section() {  # NAME: whether this run includes it
  [[ " $sections " == *" $1 "* ]] || { echo "FAILED: $0: '$1' is not among the sections at its head"; exit 1; }
  [ "${LOCKSTEP_SECTION-$1}" = "$1" ]
}
[[ " $sections " == *" ${LOCKSTEP_SECTION-${sections%% *}} "* ]] || { echo "FAILED: $0 has no section '$LOCKSTEP_SECTION'"; exit 1; }
