#!/usr/bin/env bash
# The cost of communication on slow links: `lockstep bench` on 2 and 4 nodes of a small Slurm cluster (tests/cluster)
# with throttled links. Compares the gradient in large buckets (one message, embeddings apart), in buckets that are sent
# during the backward pass, and in bf16, each with the prediction of the scaling model from the two-node run.
#   BUILD=build tests/bench/compare_links.sh RATE CONFIG.ini BUCKET [option of lockstep bench ...]
#   STEPS=12 tests/bench/compare_links.sh 1000 configs/sasrec-ml1m.ini 64KiB --batch.per_rank 128   (Mbit/s)
# All nodes share this machine's cores (shape_links in common.sh).
# A step counts the wait of the rank that arrived last, which excludes waiting for slower ranks; the median over steps
# is reported. "Links as they are" is the same wait without throttling: the time that this machine needs to move
# messages between processes that share its cores.
rate=${1:?Mbit/s of a link} config=${2:?a configuration} bucket=${3:?bytes of a bucket}; shift 3
. "$(dirname "$0")/common.sh"
set +e  # a failed case is a row of the table
start_nodes 4
measure=(--config "$(path "$config")" --json --warmup 2 --steps "${STEPS:-12}" "$@")
bench() {  # bench WAY NODES OPTION...
  echo "case $links $2 $1"
  on_nodes "$2" "$LOCKSTEP" bench "${measure[@]}" --predict-ranks 2..4 "${@:3}"
}
{
  for nodes in ${NODES:-2 4}; do
    for links in off "$rate"; do
      shape_links "$links" "$nodes" || exit $?
      bench "large buckets" "$nodes" --dist.bucket_bytes 1GiB
      bench "buckets of $bucket" "$nodes" --dist.bucket_bytes "$bucket"
      bench "large, bf16" "$nodes" --dist.bucket_bytes 1GiB --dist.compress bf16
      bench "buckets, bf16" "$nodes" --dist.bucket_bytes "$bucket" --dist.compress bf16
    done
  done
} | python3 -c '
import json, sys
cases, key = {}, None
for line in sys.stdin:
    if line.startswith("case "):
        _, links, nodes, way = line.strip().split(None, 3)
        key = (links != "off", int(nodes), way)
        cases.setdefault(key, {})
    elif line.startswith("{"):
        row = json.loads(line)
        cases[key][row["job"]] = row
def parts(key):
    train = cases.get(key, {}).get("train")
    return (train["phases_s"]["compute"] + train["phases_s"]["update"], train["all_reduce"]["exposed_s"]) if train else None
first = next((c["train"] for c in cases.values() if "train" in c), None)
gradient = first["all_reduce"]["bytes"] / 1e6 if first else 0
print(f"links at {sys.argv[1]} Mbit/s, {sys.argv[2]}: gradient {gradient:.2f} MB")
print("nodes  way                   computes   waits for messages   share of a step   predicted from two nodes   links as they are")
for (slow, nodes, way) in cases:
    if not slow: continue
    here, free = parts((True, nodes, way)), parts((False, nodes, way))
    if not here: print(f"{nodes:5}  {way:20} failed"); continue
    fit = cases.get((True, 2, way), {}).get("predict_ranks")
    said = next((100 * p["exposed_share"] for p in fit["predictions"] if p["ranks"] == nodes), None) if fit else None
    print(f"{nodes:5}  {way:20} {1e3 * here[0]:7.1f} ms   {1e3 * here[1]:15.2f} ms   {100 * here[1] / sum(here):13.1f} %   "
          + (f"{said:22.1f} %" if said is not None else " " * 24)
          + (f"   {1e3 * free[1]:14.2f} ms" if free else ""))
for (slow, nodes, way), rows in cases.items():
    fit = rows.get("predict_ranks")
    if slow and nodes == 2 and fit: print("%s: a message costs %.0f us + bytes / %.0f MB/s" % (way, 1e6 * fit["alpha_s"], fit["bytes_per_s"] / 1e6))
' "$rate" "$config"
