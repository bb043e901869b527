# Library of the tests that run the commands of the pages: `source pages.sh BIN_DIR`, in a scratch directory that looks
# like the source tree. pages_not_run.txt lists the commands that are not run.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
not_run_list=$tree/tests/apps/e2e/pages_not_run.txt
for entry in README.md configs docs tests; do ln -s "$tree/$entry" "$entry"; done
cp -r "$tree/slurm" slurm  # a command writes a file there
mkdir build && ln -s "$BIN" build/bin
export PATH=$BIN:$PATH PYTHON=${LOCKSTEP_PYTHON:-python3} PYTHONPATH=$tree/src/capi PYTHONDONTWRITEBYTECODE=1
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_hwloc_base_binding_policy=none PRTE_MCA_hwloc_default_binding_policy=none
"$PYTHON" -c 'import h5py, numpy' 2>/dev/null || PYTHON=true
# run_page PAGE: runs the commands of its ```sh blocks and its ```python blocks that begin with an import, in order, but
# not what the list names. A row of the list without a command, and a command outside of such blocks, fail.
run_page() {
  awk -F ' *[|] *' -v page="$1" '
    function listed(text,  row) {
      for (row in begins) if (substr(text, 1, length(begins[row])) == begins[row]) return used[row] = 1
      return 0
    }
    function bad(what) {print page ": " what >"/dev/stderr"; failed = 1}
    FNR == NR {if ($1 == page) begins[FNR] = $2; language = "none"; next}
    /^```/ && language == "python" && text ~ /^(from|import) / && !listed(text) {
      print "\"$PYTHON\" - <<\"END\"\n" text "END"
    }
    /^```/ {open = !open; language = open ? substr($0, 4) : "none"; text = ""; next}
    language == "python" {text = text $0 "\n"}
    language == "sh" {
      text = text $0
      if (sub(/\\$/, "", text)) next
      if (!listed(text)) print text
      text = ""
    }
    /^(    )?([$]|make|mpirun|srun|sbatch|lockstep|lockstep-prep|build\/[^ ]*|tests\/[^ ]*) / && !listed($0) {
      if (language == "" || language == "none" && /^ /) bad("a command outside of an sh block: " $0)
    }
    END {for (row in begins) if (!(row in used)) bad("no command begins with \"" begins[row] "\""); exit failed}
  ' "$not_run_list" "$tree/$1" >page.sh || fail "$1 and pages_not_run.txt do not agree"
  [ "$PYTHON" != true ] || ! grep -q '"$PYTHON"' page.sh || not_run "the Python of $1: python3 has no h5py"
  LIMIT=500 ok bash -euxo pipefail page.sh
}
