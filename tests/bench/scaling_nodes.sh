#!/usr/bin/env bash
# What messages cost on 2 and 4 nodes, in a training step of each system: strong scaling (the same batch for all nodes)
# and weak scaling (the same batch for each node). The nodes are those of the small Slurm of tests/cluster, with one
# thread each and throttled links. Prints a Markdown table and writes it to $BUILD/bench/nodes.md. Exit code 77 where the
# cluster cannot run (it needs root and namespaces).
#
#   tests/bench/scaling_nodes.sh [FOLDER]    ml-1m.h5, hapt.h5 and kgat-ml1m.h5 of this folder, else generated data
#
# The nodes share this machine's cores, so their speed together says nothing. What counts is the share of a step that
# waits for messages, with links slowed down as much as the cores are shared (shape_links in common.sh), and the bytes
# that a node sends. A step counts the wait of the rank that arrives last, which excludes waiting for slower ranks. The
# bytes are those that the network interface counts, in 10 steps of `lockstep train`.
#
# Variables besides those of common.sh: LOCKSTEP_BENCH_LINK (1000 Mbit/s), LOCKSTEP_BENCH_NODES (2 4),
# LOCKSTEP_BENCH_CASES (some of the table's names).
. "$(dirname "$0")/common.sh"
ROUNDS=${LOCKSTEP_BENCH_ROUNDS:-3} SECONDS_EACH=${LOCKSTEP_BENCH_SECONDS:-2} RATE=${LOCKSTEP_BENCH_LINK:-1000}
NODES=${LOCKSTEP_BENCH_NODES:-2 4}
systems "${1:+$(path "$1")}"
start_nodes "${NODES##* }"

sent_bytes() { for node in $(seq "$nodes"); do tests/cluster/small_slurm.sh exec "node$node" cat /proc/net/dev; done | tr ':' ' ' | awk '$1 == "eth0" {sum += $10} END {print sum}'; }
train() { # STEPS
  rm -rf "$work/run"
  # shellcheck disable=SC2046
  on_nodes "$nodes" "$LOCKSTEP" train $(system_options "$case") "${size[@]}" --threads 1 --steps "$1" --epochs 1000 --run-dir "$work/run" \
    --eval.every 1000000 --eval.final none --checkpoint.every 0 >/dev/null
}
waits() { # LINKS: milliseconds of computation and of waiting, the share of waiting
  shape_links "$1" "$nodes"
  # shellcheck disable=SC2046
  on_nodes "$nodes" "$LOCKSTEP" bench $(system_options "$case") "${size[@]}" --threads 1 --warmup 2 --seconds "$SECONDS_EACH" --json >"$work/last"
  for key in compute update exposed_s; do number $key <"$work/last"; done |
    awk '{v[NR] = $1} END {busy = v[1] + v[2]; print 1e3 * busy, 1e3 * v[3], 100 * v[3] / (busy + v[3])}'
}
{
  machine measure
  echo "Links of $RATE Mbit/s, one thread per node, $ROUNDS rounds; medians, and the range of the rounds."
  table_head "| training step | nodes | batch of all | a node sends per step, KB | computes, ms | with links as they are | waits for messages, ms | share of a step, % | with links as they are |"
  for case in ${LOCKSTEP_BENCH_CASES:-emulator SASRec HAR HRM KGAT KGAT-rows}; do
    for nodes in $NODES; do
      for batch in size per_rank; do
        [[ $case$batch != KGAT*rank ]] || continue  # a step computes the whole graph
        echo "$name: $case, $nodes nodes, batch.$batch" >&2
        size=("--batch.$batch" "$(system_batch "$case")")
        shape_links off "$nodes"
        counts=$(sent_bytes; train 4; sent_bytes; train 14; sent_bytes)
        sent=$(awk -v n="$nodes" '{v[NR] = $1} END {printf "%.1f", (v[3] - 2 * v[2] + v[1]) / 10 / n / 1e3}' <<<"$counts")
        rm -f "$work"/{slow,free}
        for _ in $(seq "$ROUNDS"); do
          waits off >>"$work/free"
          waits "$RATE" >>"$work/slow"
        done
        column() { cut -d' ' -f"$2" "$work/$1"; }
        all=$(system_batch "$case")
        [ $batch = size ] || all="$((all * nodes)), $all each"
        waiting="$(column slow 2 | cells %.2f) | $(column slow 3 | cells %.1f) | $(column free 3 | cells %.1f)"
        [[ $case != KGAT* ]] || waiting="- | - | -"  # its steps count their exchanges as computation
        echo "| $case | $nodes | $all | $sent | $(column slow 1 | cells %.1f) | $(column free 1 | cells %.1f) | $waiting |"
      done
    done
  done
} | tee "$out/nodes.md"
