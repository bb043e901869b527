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
  local want=$1 nodes=$2 code; shift 2
  for _ in 1 2 3 4; do  # Open MPI 4.1.4 sometimes fails in MPI_Init over TCP
    code=0; slurm exec head timeout 180 srun --mpi=pmix --kill-on-bad-exit=0 --nodes="$nodes" --ntasks-per-node=1 "$@" >last.out 2>last.err || code=$?
    [ "$code" = "$want" ] && return
  done
  fail "exit code $code instead of $want: srun $*"
}
# Whether an expression holds for last.out: r is its JSON, d its object `doctor`, found the text of its findings.
holds() { python3 -c "import json; r = json.load(open('last.out')); d = r.get('doctor'); found = ' '.join(f['what'] for f in d['findings']) if d else ''; assert $1"; }
has() { holds "$1" || fail "this does not hold: $1"; }
