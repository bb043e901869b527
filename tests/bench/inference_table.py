"""inference_table.py RATIOS ROUND... PROCESSES: the tables of compare_inference.sh as Markdown.

ROUND holds the JSON lines of a round, PROCESSES those of new processes. The goals' ratios are added to RATIOS.
"""
import json
import statistics
import sys

HIDDEN = 14 * 64 + 2 * 64 * 64
# Of a prediction, and of a Jacobian: forward to the last hidden layer, and back from it.
FLOPS = {"predict": 2 * (HIDDEN + 64), "jacobian": 4 * HIDDEN}
SIDES = ("PyTorch", "TorchScript", "ONNX Runtime", "Fortran loop")
GOAL = 3

ratios_file, *files = sys.argv[1:]
*rounds, processes = ([json.loads(line) for line in open(name)] for name in files)
versions, cases, shares, peaks = {}, {}, {}, {}
for row in (row for rows in rounds for row in rows):
    if "seconds" not in row:
        versions |= row
        continue
    case = row["what"], row["type"], row["columns"], row["threads"]
    cases.setdefault(case, {}).setdefault(row["side"], []).append(row["seconds"])
    if row["side"] == "liblockstep":
        share = FLOPS[row["what"]] * row["columns"] / row["seconds"] / row["fma_peak"]
        shares.setdefault(case, []).append(share)
        peaks[row["type"], row["threads"]] = row["fma_peak"] / 1e9


def ns(case, side):
    return f"{statistics.median(cases[case][side]) / case[2] * 1e9:.0f}"


def times_ours(case, side):
    """Median, smallest and largest ratio of the rounds."""
    ratios = [theirs / ours for theirs, ours in zip(cases[case][side], cases[case]["liblockstep"])]
    return statistics.median(ratios), min(ratios), max(ratios)


def cell(case, side):
    if side not in cases[case]:
        return "-"
    middle, low, high = (f"{r:.1f}" if r < 10 else f"{r:.0f}" for r in times_ours(case, side))
    return f"{ns(case, side)}: **{middle}** ({low} to {high})"


if "torch" in versions:
    print(f"PyTorch {versions['torch']}, CPU capability {versions['cpu_capability']}.")
if "onnxruntime" in versions:
    print(f"ONNX Runtime {versions['onnxruntime']}.")
measured = [f"{peak:.0f} in {kind} with {threads} threads" for (kind, threads), peak in peaks.items()]
print(f"FMA peak, GFLOP/s: {', '.join(measured)}.")
print(f"Nanoseconds per column, median of {len(rounds)} rounds; behind a colon, how many times liblockstep's time: "
      "median (rounds).\n")
print(f"| | type | columns | threads | liblockstep | of FMA peak | {' | '.join(SIDES)} |")
print("|---|---|---|---|---|---|---|---|---|---|")
for case in sorted(cases, key=lambda case: case[0] == "jacobian"):
    share = f"{100 * statistics.median(shares[case]):.0f} %"
    others = [cell(case, side) for side in SIDES]
    print("|", " | ".join([*map(str, case), ns(case, "liblockstep"), share, *others]), "|")
alone = [f"{ns(case, side)} ({', '.join(map(str, case))})"
         for case, found in cases.items() for side in found if "per call" in side]
print("\nA Fortran loop that calls liblockstep for each column, ns per column:", "; ".join(alone) or "not measured")
print("\nA new process that predicts one column, medians of three:\n")
print("| side | start to result, s | opening, s | first call, us | memory, MB |\n|---|---|---|---|---|")
for side in dict.fromkeys(row["side"] for row in processes):
    mine = [row for row in processes if row["side"] == side]
    start = statistics.median((row["ready_ns"] - row["start_ns"]) * 1e-9 for row in mine)
    opening, first, memory = (statistics.median(row[key] for row in mine) for key in ("open_s", "first_s", "memory_mb"))
    print(f"| {side} | {start:.3f} | {opening:.4f} | {first * 1e6:.0f} | {memory:.0f} |")
with open(ratios_file, "a") as file:
    for what in FLOPS:
        case = what, "f64", 1000, 1
        if "PyTorch" in cases.get(case, ()):
            values = " ".join(f"{r:.6g}" for r in times_ours(case, "PyTorch"))
            print(f"inference\t{what} in double, 1000 columns\t{GOAL}\t{values}", file=file)
