#!/usr/bin/env bash
# What communication costs a step on slow links: `lockstep bench` on 2 and 4 nodes of a small Slurm (tests/cluster) whose links are
# throttled, with and without overlap and with bf16; and what the scaling model says before.
#   BUILD=build tests/bench/compare_links.sh RATE CONFIG.ini [option of lockstep bench ...]      such as 1gbit configs/emulator-icecolumn.ini
# Nodes share this machine's cores: shares count, not rates. Prints one line per case: nodes, way, step, exposed share, prediction.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
home=$(cd "$here/../.." && pwd)
rate=${1:?a rate, such as 1gbit} config=${2:?a configuration}; shift 2
SMALL_SLURM_DIR=$(mktemp -d /tmp/lsXXXXXX)
export SMALL_SLURM_DIR OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}
cluster=$here/../cluster/small_slurm.sh
lockstep=$home/${BUILD:-build}/bin/lockstep
trap '"$cluster" down' EXIT
"$cluster" up 4 || exit $?
"$cluster" shape "$rate" || exit $?
bench() {  # bench NODES OPTION...
  local nodes=$1 out; shift
  for _ in 1 2; do  # Open MPI 4.1.4 sometimes fails in MPI_Init over TCP
    out=$("$cluster" exec head timeout 120 srun --mpi=pmix --nodes="$nodes" --ntasks-per-node=1 "$lockstep" bench --config "$config" --json --warmup 3 --seconds 4 "$@" 2>/dev/null) && break
  done
  echo "$out"
}
json() { python3 -c "import json,sys
rows = [json.loads(l) for l in sys.stdin if l.startswith('{')]
t = next(r for r in rows if r['job'] == 'train')
p = next((r for r in rows if r['job'] == 'predict_ranks'), None)
s = t['step_s']['mean']
line = f\"{t['ranks']} nodes  $1  step {1e3 * s:8.2f} ms  exposed {100 * t['all_reduce']['share_least_waiting_rank']:5.1f} % (mean {100 * t['all_reduce']['share']:5.1f} %)  gradient {t['all_reduce']['bytes'] / 1e6:.2f} MB\"
if p: line += '  predicted ' + ', '.join(f\"{q['ranks']}: {1e3 * q['step_s']:.2f} ms, exposed {100 * q['exposed_share']:.1f} %\" for q in p['predictions']) + f\"  (alpha {1e6 * p['alpha_s']:.0f} us, {p['bytes_per_s'] / 1e6:.0f} MB/s)\"
print(line)"; }
echo "links at $rate, $config $*"
for nodes in 2 4; do
  bench "$nodes" "$@" --dist.bucket_bytes 1GiB | json "one bucket      "
  bench "$nodes" "$@" --predict_ranks 2..4 | json "overlapped      "
  bench "$nodes" "$@" --dist.compress bf16 | json "overlapped, bf16"
done
