#!/usr/bin/env bash
# data.layout: rows that stay in the file give the weights and metrics of rows in memory, on any number of ranks and
# over a restart; what cannot be divided is refused in one line.
source "$(dirname "$0")/systems.sh"
source "$(dirname "$0")/lib.sh" "$@"
needs h5diff hdf5-tools
needs python3 python3
tiny_data
EMULATOR="$(tiny_systems | sed -n "s/^emulator //p") --jacobian.every 1 --eval.every_steps 3"
# 16 KiB of a node for rows: fewer than 100 of the 600 rows are in memory at a time.
FILE="--data.layout divided --data.memory 1.6e-5"
ok "$LOCKSTEP" train $EMULATOR --run-dir plain
for n in 1 2 3; do
  ok on $n "$LOCKSTEP" train $EMULATOR --run-dir file-$n $FILE
  says_once 'rows: stay in the file, because a share of .* exceeds the 16.8 KiB of a node.s memory for them; [0-9]+ of 600 are read ahead'
  same_model plain/checkpoints/final.h5 file-$n/checkpoints/final.h5
  ok on $n "$LOCKSTEP" eval --checkpoint plain/checkpoints/final.h5 $FILE --json
  cp last.out eval-$n.json
done
ok "$LOCKSTEP" eval --checkpoint plain/checkpoints/final.h5 --json
for n in 1 2 3; do python3 - last.out eval-$n.json <<'END' || fail "the metrics differ on $n ranks"
import json, sys
a, b = (json.load(open(f)) for f in sys.argv[1:])
for r in (a, b): [r.pop(k, None) for k in ('seconds', 'samples_per_s')]
assert a['metrics'] == b['metrics'], (a, b)
END
done

# The layout is no part of what a checkpoint pins.
run 85 "$LOCKSTEP" train $EMULATOR --run-dir stopped --run.max_hours 1e-9
ok on 2 "$LOCKSTEP" train $EMULATOR --run-dir stopped $FILE
same_model plain/checkpoints/final.h5 stopped/checkpoints/final.h5
ok on 2 "$LOCKSTEP" replay file-3

ok "$LOCKSTEP" train $EMULATOR --run-dir fits --data.layout divided
says_once 'data.layout = divided: there is one node, .* it holds them all, as with replicate'
same_model plain/checkpoints/final.h5 fits/checkpoints/final.h5
run 2 "$LOCKSTEP" train $(tiny_systems | sed -n "s/^kgat //p") --run-dir kgat --data.layout divided
says_once 'option data.layout = divided: model.kind = kgat: .*; use replicate or auto'
passed "rows in the file train as rows in memory do"
