#!/usr/bin/env bash
# Every command of every page runs, except those of README.md and docs/your-own-data.md, which have tests of their own,
# and those that pages_not_run.txt lists. The runs and files that the pages suppose are small, and trainings take at
# most 30 steps.
source "$(dirname "$0")/pages.sh" "$1"
mkdir -p bin data raw/kgat-ml1m
cat >bin/lockstep <<END
#!/bin/sh
case \$1 in train | folds | sweep) set -- "\$@" --steps 30 ;; esac
exec "$LOCKSTEP" "\$@"
END
cat >bin/srun <<'END'
#!/bin/sh
while [ "${1#-}" != "$1" ]; do [ "$1" != -N ] || shift; shift; done
exec mpirun -n 2 "$@"
END
chmod +x bin/*
export PATH=$work/bin:$PATH SLURM_TMPDIR=$work

# --- what the pages suppose; the pages named first train two of the runs that others read
ok "$PREP" synth-icecolumn --rows 2000 --output data/icecolumn.h5
awk 'BEGIN {for (n = 0; n < 4000; ++n) print n % 200 + 1 "::" n * n % 53 + 1 "::5::" 978300000 + 60 * n}' >ratings.dat
ok "$PREP" sequences --input ratings.dat --output data/ml-1m.h5
ok "$PREP" synth-kg --users 160 --output data/kgat-ml1m.h5
awk 'BEGIN {print "org_id remap_id"; for (n = 0; n < 400; ++n) print "film-" n, n}' >raw/kgat-ml1m/item_list.txt
awk 'BEGIN {for (n = 1; n < 54; ++n) print n "::Film " n " (1995)::Comedy"}' >movies.dat
ok "$PREP" synth-har --subjects 6 --output data/hapt.h5
cp data/icecolumn.h5 data/arctic20.h5
cp data/icecolumn.h5 states.h5
cp data/kgat-ml1m.h5 data/kgat-book-crossing.h5
cp data/ml-1m.h5 ml-1m.h5
cp configs/emulator-icecolumn.ini run.ini
ok lockstep train --config configs/emulator-icecolumn.ini --run-dir runs/ice
ok lockstep train --config configs/sasrec-ml1m.ini --run-dir runs/ml-1m
first=(docs/profiling.md docs/cluster.md)

# --- the pages
mapfile -t others < <(cd "$tree" && find docs data tests -name '*.md' |
  grep -vxF "$(printf '%s\n' "${first[@]}" docs/your-own-data.md)" | sort)
for page in "${first[@]}" "${others[@]}"; do run_page "$page"; done
for page in $(cut -d '|' -f 1 "$not_run_list" | grep -v '^#'); do
  [ -e "$tree/$page" ] || fail "pages_not_run.txt names $page, which does not exist"
done
passed "the commands of $((${#first[@]} + ${#others[@]})) pages"
