#!/usr/bin/env bash
# On throttled links comm-test marks the slow node and estimates the communication cost of a model, and the scaling
# model predicts more nodes than there are. No check depends on this machine's own rates.

source "$(dirname "$0")/lib.sh" "$@"
ok "$PREP" synth-icecolumn --rows 4000 --seed 3 --output data.h5

slurm shape 1gbit || exit $?
slurm shape 20mbit node3 || exit $?
test_links() { on_nodes 0 4 "$LOCKSTEP" comm-test --json --max-bytes 1MiB --budget 4 --config configs/emulator-icecolumn.ini --data.path data.h5; }
test_links
# Neighbours on the machine can slow down all links alike for a while.
holds "r['ranks'][2]['slow_link']" 2>/dev/null || test_links
has "r['passed'] and [x['host'] for x in r['ranks']] == ['node1', 'node2', 'node3', 'node4']"
has "r['ranks'][2]['slow_link']"
has "{t['collective'] for t in r['timings']} >= {'link', 'all_reduce', 'start_all_reduce', 'broadcast'}"
has "r['model']['gradient_bytes'] > 0 and 0 < r['model']['exposed_s'] < r['model']['step_s']"
has "r['model']['expected'][0]['bucket_bytes'] == 4194304 and r['model']['alpha_s'] + r['model']['bytes_per_s'] > 0"

slurm shape 1gbit node3 || exit $?
on_nodes 0 2 "$LOCKSTEP" bench --config configs/emulator-icecolumn.ini --data.path data.h5 --seconds 0.5 --predict-ranks 2..8
grep -q 'prediction from alpha' last.out && grep -qE '^ +8 ' last.out && grep -q 'here, on 2 ranks' last.out || { cat last.out; fail "no prediction"; }
passed "slow links are reported, and their cost is predicted"
