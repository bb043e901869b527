# Library of the tests on a small Slurm: `source lib.sh BIN_DIR` starts NODES (4) nodes, which stop on exit. Where that
# is impossible, it skips the test with a reason.
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
home=$(cd "$here/../.." && pwd)
source "$here/../apps/e2e/lib.sh" "$@"
needs h5diff hdf5-tools
needs python3 python3
export SMALL_SLURM_DIR=$(mktemp -d /tmp/lsXXXXXX)
slurm() { "$here/small_slurm.sh" "$@"; }
trap 'code=$?; cd /; slurm down; [ -n "${KEEP_WORK:-}" ] && echo "kept $work" || rm -rf "$work"; exit $code' EXIT
slurm up "${NODES:-4}" || exit $?

# Jobs are submitted from a folder with slurm/ and build/, as users do.
ln -s "$home/slurm" slurm
ln -s "$home/configs" configs
mkdir -p build && ln -s "$BIN" build/bin
# In the small cluster processes cannot be bound to cores, and waiting threads must yield.
export SRUN_FLAGS=--cpu-bind=none MPIRUN_FLAGS="--bind-to none" WAIT=15 OMP_NUM_THREADS=1

# srun of jobs and of on_nodes. Over TCP, Open MPI 4.1.4 sometimes calls a null pointer in MPI_Init. A start that dies so,
# before the first line of the program's log, is repeated, and the log says so.
export REAL_SRUN=$(type -P srun) PATH=$work/tools:$PATH
mkdir tools && cat >tools/srun <<'END'
#!/usr/bin/env bash
[[ " $* " == *" --mpi=pmix "* ]] || exec "$REAL_SRUN" "$@"
log=$(mktemp -p "$(dirname "$0")")
trap 'signalled=yes; kill -USR1 "$step"' USR1
for try in 1 2 3 4; do
  [ "$try" = 1 ] || echo "srun: a rank died in MPI_Init: start $try" >&2
  setpriv --pdeathsig KILL "$REAL_SRUN" "$@" 2> >(tee "$log" >&2) &
  step=$! signalled=yes
  while [ -n "$signalled" ]; do
    signalled=
    wait "$step"
    code=$?
  done
  [ "$code" = 139 ] || break
  sleep 1  # for tee
  grep -q 'Failing at address: (nil)' "$log" &&
    ! grep -vE '^(srun|slurmstepd)' "$log" | grep -qE '^[a-z ]+: |^(error|warning) ' || break
done
exit "$code"
END
chmod +x tools/srun

# submit SCRIPT [sbatch option ...]: sets $job to the job's number.
submit() {
  local script=$1; shift
  job=$(slurm exec head sbatch --parsable --cpus-per-task=1 "$@" "slurm/$script") || fail "sbatch refused $script"
}
# The log of the last submitted job.
log_of() { ls ./*-"$job".log 2>/dev/null | head -1; }
job_says() { for t in "$@"; do grep -qE -- "$t" "$(log_of)" || { tail -n 60 "$(log_of)"; fail "job $job: no '$t' in its log"; }; done; }
# until_true S COMMAND...: repeats the command until it succeeds, for at most S seconds
until_true() { local limit=$((SECONDS + $1)); shift; until "$@" >/dev/null 2>&1; do [ "$SECONDS" -lt "$limit" ] || return 1; sleep 0.2; done; }
state_is() { slurm exec head scontrol -o show job "$job" | grep -q "JobState=$1 "; }
# ends S: waits for the end of the job and writes its record to last.out. Starts a requeued job at once instead of after
# two minutes.
ends() {
  local limit=$((SECONDS + $1))
  while ! slurm wait "$job" 2 >last.out && grep -q 'is still' last.out; do
    [ "$SECONDS" -lt "$limit" ] || fail "job $job is still there after $1 s: $(tail -n 40 "$(log_of)")"
    state_is PENDING && slurm exec head scontrol update jobid="$job" StartTime=now
  done
}
completes() { ends "${1:-120}"; grep -q JobState=COMPLETED last.out || { cat last.out; tail -n 60 "$(log_of)"; fail "job $job did not complete"; }; }
trained() { [ "$(ls "$1"/checkpoints/step-*.h5 2>/dev/null | wc -l)" -ge 1 ]; }
# on_nodes CODE N COMMAND...: one rank on each of N nodes ends with this exit code; the output is in last.out and
# last.err
on_nodes() {
  local want=$1 nodes=$2; shift 2
  LIMIT=180 run "$want" "$here/small_slurm.sh" exec head \
    srun --mpi=pmix --kill-on-bad-exit=0 --wait="$WAIT" --nodes="$nodes" --ntasks-per-node=1 "$@"
}
# Whether an expression holds for last.out: r is its JSON, d its object `doctor`, found the text of its findings.
holds() { python3 -c "import json; r = json.load(open('last.out')); d = r.get('doctor'); found = ' '.join(f['what'] for f in d['findings']) if d else ''; assert $1"; }
has() { holds "$1" || fail "this does not hold: $1"; }
