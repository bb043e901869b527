#!/usr/bin/env python3
"""Draws the pictures of the documentation as SVG, for light and dark pages: draw.py [DIR] (make docs runs it).

The numbers of scaling.svg are read from docs/benchmarks.md.
"""
import pathlib
import re
import sys

HERE = pathlib.Path(__file__).resolve().parent
BLUE, ORANGE, GREEN, GREY = "#3b82c4", "#d9822b", "#3f9c5a", "#8b949e"
STYLE = """<style>
text { font: 13px system-ui, sans-serif; fill: #1f2328 } .small { font-size: 11px } .head { font-weight: 600 }
.in { fill: #fff } .line { stroke: #57606a; fill: none } .box { fill: #eaeef2; stroke: #8b949e }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3 } .in { fill: #fff } .line { stroke: #9ea7b3 } .box { fill: #21262d; stroke: #6e7681 } }
</style>
<defs><marker id="a" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">
<path d="M0 0 8 4 0 8z" fill="#8b949e"/></marker></defs>"""


class Picture:
    """An SVG file under construction."""

    def __init__(self, name, width, height, title):
        self.path = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else HERE) / name
        self.parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
                      f'height="{height}" role="img"><title>{title}</title>', STYLE]

    def text(self, x, y, text, css="", anchor="start"):
        self.parts.append(f'<text x="{x:g}" y="{y:g}" class="{css}" text-anchor="{anchor}">{text}</text>')

    def box(self, x, y, w, h, text="", fill=None, css="small"):
        look = f'fill="{fill}"' if fill else 'class="box"'
        self.parts.append(f'<rect x="{x:g}" y="{y:g}" width="{w:g}" height="{h:g}" rx="3" {look}/>')
        if text:
            self.text(x + w / 2, y + h / 2 + 4, text, css + (" in" if fill else ""), "middle")

    def line(self, x1, y1, x2, y2, arrow=True, dash=""):
        end = ' marker-end="url(#a)"' if arrow else ""
        self.parts.append(f'<path d="M{x1:g} {y1:g}L{x2:g} {y2:g}" class="line" stroke-dasharray="{dash}"{end}/>')

    def save(self):
        self.path.write_text("\n".join(self.parts) + "\n</svg>\n")


def step():
    """The layers, and one training step on two ranks of two threads."""
    p = Picture("step.svg", 860, 330, "Layers of Lockstep, and one training step on two ranks")
    p.text(10, 20, "Layers: each uses only those below", "head")
    rows = ["programs: lockstep, lockstep-prep; liblockstep", "tasks: sasrec, kgat, emulator, hrm, har",
            "train: loop, evaluation, checkpoints, proof", "models, nn, optim, data",
            "ops: forward and backward, CPU and CUDA", "tensor, comm (MPI, NCCL), io (HDF5), device", "base: errors, options, random numbers"]
    for n, row in enumerate(rows):
        p.box(10, 34 + 40 * n, 310, 32, row)
    p.text(350, 20, "One step: every rank starts with the same weights", "head")
    p.box(350, 34, 500, 28,
          "batch: samples 0 .. 511 of the permutation of (seed, epoch)")
    for r in range(2):
        x = 350 + 255 * r
        p.box(x, 84, 245, 164)
        p.text(x + 10, 102, f"rank {r}", "head")
        for t in range(2):
            y = 112 + 44 * t
            p.box(x + 10, y, 110, 34, f"thread {t}: forward", BLUE)
            p.line(x + 120, y + 17, x + 130, y + 17)
            p.box(x + 132, y, 103, 34, "backward", BLUE)
        p.box(x + 10, 206, 225, 32, "gradient: sum over the threads' shards", GREEN)
        p.line(x + 122, 62, x + 122, 82)
        p.line(x + 122, 248, x + 122, 262)
    p.box(350, 264, 500, 28, "all-reduce over the ranks, in buckets during the backward pass", ORANGE)
    p.line(600, 292, 600, 304)
    p.text(600, 320, "norm, clipping, optimizer: the same update on every rank", "head", "middle")
    p.save()


def tree():
    """The fixed binary tree of gradient sums under --reproducible."""
    p = Picture("tree.svg", 760, 290, "Gradients of shards are added in one fixed binary tree")
    p.text(10, 20, "--reproducible: the gradients of 8 shards are added in one tree, whichever rank owns them", "head")
    x = [[50 + 94 * i for i in range(8)]]
    for _ in range(3):
        x.append([(x[-1][2 * i] + x[-1][2 * i + 1]) / 2 for i in range(len(x[-1]) // 2)])
    y = [180, 138, 96, 54]
    for level in range(3):
        for i, at in enumerate(x[level]):
            p.line(at, y[level] - 12, x[level + 1][i // 2], y[level + 1] + 13)
    for level in range(1, 4):
        for i, at in enumerate(x[level]):
            name = "sum" if level == 3 else f"{i << level}..{((i + 1) << level) - 1}"
            p.box(at - 28, y[level] - 12, 56, 24, name, ORANGE if level == 3 else GREEN)
    for i, at in enumerate(x[0]):
        p.box(at - 36, 168, 72, 24, f"shard {i}", BLUE)
    for n, (ranks, label) in enumerate([(1, "1 rank"), (2, "2 ranks"), (3, "3 ranks")]):
        top = 206 + 28 * n
        for r in range(ranks):
            first, last = 8 * r // ranks, 8 * (r + 1) // ranks
            name = f"{label}: rank 0" if r == 0 else f"rank {r}"
            p.box(x[0][first] - 36, top, x[0][last - 1] - x[0][first] + 72, 22, name)
    p.save()


def job():
    """The states of a job, and what moves it from one to another."""
    p = Picture("job.svg", 860, 300, "The states of a job")
    p.box(20, 110, 90, 40, "queue")
    p.box(160, 110, 90, 40, "preflight")
    p.box(300, 110, 130, 40, "training", BLUE)
    p.line(110, 130, 158, 130)
    p.line(250, 130, 298, 130)
    rows = [("done", "0: all steps are done", GREEN), ("stopped", "85: signal or time limit, checkpoint", GREY),
            ("rank lost", "86: another rank saves its state", ORANGE), ("fault", "1, 137, ...", ORANGE),
            ("refused", "2, 3: usage, data", GREY)]
    for n, (name, why, colour) in enumerate(rows):
        y = 14 + 56 * n
        p.line(430, 130, 488, y + 18)
        p.box(490, y, 90, 36, name, colour)
        p.text(590, y + 14, why, "small")
    notes = ["COMPLETED", "queue, if there is a checkpoint of this start; else as a fault",
             "training at once, at most RESCUES an hour, on the nodes that answer",
             "queue, RETRIES times without a new checkpoint", "FAILED"]
    for n, note in enumerate(notes):
        p.text(590, 14 + 56 * n + 30, "then: " + note, "small head")
    p.save()


def table(title, columns):
    """Rows of the first table with these columns after a heading of docs/benchmarks.md."""
    page = (HERE.parent / "benchmarks.md").read_text()
    lines = page[page.index(f"## {title}\n"):].splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("| " + columns))
    rows = []
    for line in lines[start + 2:]:
        if not line.startswith("|"):
            return rows
        rows.append([cell.strip() for cell in line.strip("|").split("|")])
    return rows


def number(cell):
    found = re.match(r"[\d.]+", cell)
    return float(found.group()) if found else None


def bars(p, left, top, groups, series, scale, height, unit):
    """Groups of bars, with their values above and a legend below."""
    width = 29
    for n, (name, values) in enumerate(groups):
        at = left + n * (width * len(series) + 22)
        for k, value in enumerate(values):
            if value is None:
                continue
            h = height * value / scale
            p.box(at + k * width, top + height - h, width - 4, h, "", series[k][1])
            p.text(at + k * width + width / 2 - 1, top + height - h - 4, f"{value:{unit}}", "small", "middle")
        p.text(at + width * len(series) / 2, top + height + 16, name, "small", "middle")
    end = left + len(groups) * (width * len(series) + 22) - 12
    p.line(left - 6, top + height, end, top + height, False)
    for k, (name, colour) in enumerate(series):
        p.box(left + 5, top + height + 26 + 17 * k, 11, 11, "", colour)
        p.text(left + 22, top + height + 36 + 17 * k, name, "small")
    return end


def scaling():
    """Strong and weak scaling on two cores, and the share of a step that waits on slow links."""
    p = Picture("scaling.svg", 1180, 660, "Speed on two ranks, and waiting for messages over slow links")
    p.text(20, 20, "Times as fast as one thread (goal of two ranks: 1.85), on Zen 5 and Zen 4", "head")
    groups = [(row[0].split(",")[0], [number(cell) for cell in row[3:6]])
              for row in table("Ranks, threads and size of the data", "training step | batch | samples/s")]
    series = [("2 threads", GREY), ("2 ranks, same batch for all (strong scaling)", BLUE),
              ("2 ranks, same batch each (weak scaling)", GREEN)]
    end = bars(p, 26, 50, groups, series, 2.0, 190, ".2f")
    p.line(20, 50 + 190 * (1 - 1.85 / 2), end, 50 + 190 * (1 - 1.85 / 2), False, "4 3")
    p.text(20, 350, "% of a step that waits, nodes with links of 1 Gbit/s, busy machine", "head")
    found = {}
    for row in table("Strong and weak scaling over nodes", "training step | batch | nodes"):
        if number(row[4]) is not None:
            found.setdefault(row[0], {})[row[2]] = (number(row[4]), number(row[6]))
    groups = [(name, [v["2"][0], v["2"][1], v["4"][0], v["4"][1]]) for name, v in found.items()]
    series = [("2 nodes, same batch for all", BLUE), ("2 nodes, same batch each", GREEN),
              ("4 nodes, same batch for all", ORANGE), ("4 nodes, same batch each", GREY)]
    bars(p, 26, 380, groups, series, 100, 190, ".0f")
    p.save()


if __name__ == "__main__":
    step()
    tree()
    job()
    scaling()
