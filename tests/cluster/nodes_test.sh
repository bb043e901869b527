#!/usr/bin/env bash
# A data set is staged on each of several nodes, and the doctor tells throttled links from free ones. Rates are compared
# with the throttled rate only, never with this machine's own.

source "$(dirname "$0")/lib.sh" "$@"
source "$here/../apps/e2e/systems.sh"
tiny_data

# /tmp is one directory for these nodes, /dev/shm is each node's own.
TRAIN="--data.path data.h5 --batch.size 100 --model.hidden_size 16 --epochs 1 --reproducible"
mkdir stage
on_nodes 2 2 "$LOCKSTEP" train $TRAIN --run-dir refused --data.stage "$work/stage"
says_once 'option data.stage = .*/stage: hosts node[12] and node[12] share this directory; choose a directory on storage of the node itself'
[ -z "$(ls -A stage)" ] || fail "left in the stage directory: $(ls -A stage)"
on_nodes 0 2 "$LOCKSTEP" train $TRAIN --run-dir staged --data.stage /dev/shm
says_once 'data set staged in /dev/shm of 2 nodes'
for node in node1 node2; do ! slurm exec $node ls /dev/shm | grep -q stage || fail "a copy stays on $node"; done
ok "$LOCKSTEP" train $TRAIN --run-dir plain
ok "$LOCKSTEP" checkpoint diff plain/checkpoints/final.h5 staged/checkpoints/final.h5

# Rows that are divided over 2 and 4 nodes, in memory and in the file, train as rows on each node do. On 4 nodes each may
# hold little more than a quarter of the rows, so that `auto` divides them.
declare -A quarter=([emulator]=2.5e-5 [tisasrec]=1.6e-6 [hrm]=8.5e-7 [har]=3.4e-4)  # GiB
for kind in emulator tisasrec hrm har; do
  options=$(tiny_systems | sed -n "s/^$kind //p")
  same() { ok "$LOCKSTEP" checkpoint diff $kind/checkpoints/final.h5 "$1/checkpoints/final.h5"; }
  ok "$LOCKSTEP" train $options --run-dir $kind
  on_nodes 0 2 "$LOCKSTEP" train $options --run-dir $kind-2 --data.layout divided
  says_once "rows: divided over 2 nodes"
  same $kind-2
  on_nodes 0 4 "$LOCKSTEP" train $options --run-dir $kind-4 --data.memory ${quarter[$kind]}
  says_once "rows: divided over 4 nodes"
  same $kind-4
  on_nodes 0 2 "$LOCKSTEP" train $options --run-dir $kind-file --data.memory ${quarter[$kind]}
  says_once 'rows: stay in the file'
  same $kind-file
  on_nodes 0 2 "$LOCKSTEP" eval --checkpoint $kind/checkpoints/final.h5 --data.layout divided
done

# The doctor reads the interfaces of its own network namespace.
for k in 1 2 3 4; do slurm exec node$k mount -t sysfs sysfs /sys || { echo "skipped: no sysfs for a node"; exit 77; }; done
examine() { on_nodes 0 4 "$LOCKSTEP" comm-test --doctor --json --max-bytes 64KiB --budget 6 "$@"; }
slurm shape 200mbit || exit $?
slurm shape 10mbit node3 || exit $?
examine --write-site slow.sh
holds "'with node3' in found" 2>/dev/null || examine  # neighbours can slow down all links alike for a while
has "r['passed'] and [h['host'] for h in d['hosts']] == ['node1', 'node2', 'node3', 'node4'] and len(d['pairs']) == 6"
has "'every measured pair with node3 is slow' in found and 'with node1' not in found and 'with node4' not in found"
has "'of the stated speed of their links' in found and 'through eth0' in found"
has "all(l['carried'] > 0.5 for h in d['hosts'] for l in h['links'] if l['name'] == 'eth0')"
# A link of 10 Mbit/s moves 1.25 MB/s, of which the protocols take some percent, and a burst of 128 KiB passes at once.
has "all(0.6e6 < p['bytes_per_s'] < 1.6e6 for p in d['pairs'] if 2 in (p['a'], p['b']))"
grep -q 'INTERFACE=${INTERFACE:-eth0}' slow.sh && grep -q 'sites/tcp.sh' slow.sh || fail "the site file: $(cat slow.sh)"
LOCKSTEP_HOME=$home bash -euc '. ./slow.sh; [ "$OMPI_MCA_pml" = ob1 ]' || fail "the site file cannot be used"
slurm shape off || exit $?
for _ in 1 2 3; do examine; holds "'is slow' not in found" 2>/dev/null && break; done
has "'is slow' not in found and min(p['bytes_per_s'] for p in d['pairs']) > 1.6e6"
OMPI_MCA_oob_tcp_if_include=eth0 NCCL_SOCKET_IFNAME=ib7 examine
has "'NCCL_SOCKET_IFNAME = ib7, but node1 has no ib7' in found"
passed "data sets are staged on each node, and the doctor tells throttled links from free ones"
