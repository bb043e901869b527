#!/usr/bin/env bash
# What communication costs a step on slow links: `lockstep bench` on 2 and 4 nodes of a small Slurm (tests/cluster) whose links are
# throttled: the gradient in one message, in buckets that travel while the backward pass goes on, and in bf16; beside what the scaling
# model predicts from the two-node run.
#   BUILD=build tests/bench/compare_links.sh RATE CONFIG.ini BUCKET [option of lockstep bench ...]
#   BUILD=build STEPS=12 tests/bench/compare_links.sh 1gbit configs/sasrec-ml1m.ini 64KiB --batch.scope rank
# Nodes share this machine's cores, so a step on them tells nothing. What a rank waits for messages does: of each step the wait of the rank
# that came last, so that waiting for slower ranks does not count, and the median of these; held against the step of one rank that has a core to itself.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
home=$(cd "$here/../.." && pwd)
rate=${1:?a rate, such as 1gbit} config=${2:?a configuration} bucket=${3:?bytes of a bucket}; shift 3
SMALL_SLURM_DIR=$(mktemp -d /tmp/lsXXXXXX)
export SMALL_SLURM_DIR OMP_NUM_THREADS=1
cluster=$here/../cluster/small_slurm.sh
lockstep=$home/${BUILD:-build}/bin/lockstep
trap '"$cluster" down' EXIT
"$cluster" up 4 || exit $?
"$cluster" shape "$rate" || exit $?
measure=(--config "$config" --json --warmup 2 --steps "${STEPS:-12}" "$@")
bench() {  # bench WAY NODES OPTION...
  local way=$1 nodes=$2 out; shift 2
  for _ in 1 2; do  # Open MPI 4.1.4 sometimes fails in MPI_Init over TCP
    out=$("$cluster" exec head timeout 120 srun --mpi=pmix --nodes="$nodes" --ntasks-per-node=1 \
      "$lockstep" bench "${measure[@]}" --predict-ranks 2..4 "$@" 2>/dev/null) && break
  done
  echo "case $nodes $way"; echo "$out"
}
{
  echo "case 1 alone"; "$lockstep" bench "${measure[@]}"
  for nodes in 2 4; do
    bench "one message" $nodes --dist.bucket_bytes 1GiB
    bench "buckets of $bucket" $nodes --dist.bucket_bytes "$bucket"
    bench "in bf16" $nodes --dist.bucket_bytes "$bucket" --dist.compress bf16
  done
} | python3 -c '
import json, sys
cases, key = {}, None
for line in sys.stdin:
    if line.startswith("case "):
        key = tuple(line.split(None, 2)[1:])
        key = (int(key[0]), key[1].strip())
    elif line.startswith("{"):
        row = json.loads(line)
        cases.setdefault(key, {})[row["job"]] = row
alone = cases[(1, "alone")]["train"]
step = alone["step_s"]["median"]
gradient = alone["all_reduce"]["bytes"] / 1e6
print(f"links at {sys.argv[1]}, {sys.argv[2]}: gradient {gradient:.2f} MB; a step of one rank on a core of its own {1e3 * step:.1f} ms")
print("nodes  way                  waits for messages   share of a step   predicted (fit on two nodes)")
for (nodes, way), rows in cases.items():
    if nodes == 1: continue
    if "train" not in rows: print(f"{nodes:5}  {way:20} failed"); continue
    wait = rows["train"]["all_reduce"]["exposed_s"]
    fit = cases.get((2, way), {}).get("predict_ranks")
    said = next((p["exposed_s"] for p in fit["predictions"] if p["ranks"] == nodes), None) if fit else None
    print(f"{nodes:5}  {way:20} {1e3 * wait:14.2f} ms   {100 * wait / (step + wait):13.1f} %   " + (f"{1e3 * said:12.2f} ms, {100 * said / (step + said):.1f} %" if said is not None else "-"))
fit = cases.get((2, "one message"), {}).get("predict_ranks")
if fit:
    alpha, rate = 1e6 * fit["alpha_s"], fit["bytes_per_s"] / 1e6
    print(f"the cost of a message between two nodes: {alpha:.0f} us + bytes / {rate:.0f} MB/s")
' "$rate" "$config"
