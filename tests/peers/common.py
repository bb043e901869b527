"""What the peers share: options, device and precision, ranks, timing, results as JSON, comparison with golden files.

A peer runs on the CPU, or on a GPU with settings that an expert would choose. With --device cuda, the set-up creates
tensors on the GPU by default (torch.set_default_device), and Place.to() moves those that come from files. Measured
steps run without a default device, which makes each call of PyTorch slower on the host: they name the device of new
tensors. fp32 keeps products in fp32; tf32 lets tensor cores round their factors; bf16 runs the forward pass under
autocast, with parameters and optimizer in fp32. --graphs makes torch.compile record CUDA graphs (mode reduce-overhead),
and is an error where it cannot. --whole records a whole step, from the choice of the batch to the update, as one CUDA
graph.
"""
import argparse
import itertools
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np

_begin = time.perf_counter()  # so peers import this module before torch
import torch  # noqa: E402

IMPORT_S = time.perf_counter() - _begin


def arguments(doc):
    """A parser with the options of all peers."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--check", nargs="+", metavar="GOLDEN.h5", help="compare with golden files; exit code 1 if one differs")
    add("--device", choices=["cpu", "cuda"], default="cpu")
    add("--precision", choices=["fp32", "tf32", "bf16"], default="fp32")
    add("--graphs", action="store_true", help="torch.compile records CUDA graphs")
    add("--whole", action="store_true", help="a step is one CUDA graph; on a CPU it runs the same code without a graph")
    add("--processor-time", action="store_true", help="rates per processor second: for busy machines, one thread")
    add("--seconds", type=float, default=3, help="measured per variant")
    add("--warmup", type=int, default=2, help="calls before the measured ones")
    add("--training", type=int, nargs=2, metavar=("STEPS", "EVERY"),
        help="of a bench: no measurement, but a whole training, with an evaluation and a checkpoint after EVERY steps")
    add("--ranks", type=int, default=1)
    add("--threads", type=int, default=1, help="per rank")
    add("--rank", type=int, default=0, help=argparse.SUPPRESS)
    add("--rendezvous", default="", help=argparse.SUPPRESS)
    return parser


class Place:
    """Where a peer computes: device, precision, ranks.

    With --ranks above 1, the first Place runs this script once per rank and ends with their exit code. A rank itself
    continues.
    """

    def __init__(self, options):
        self.device, self.precision = options.device, options.precision
        self.graphs, self.whole, self.generators = options.graphs, options.whole, []
        self.ranks, self.rank, self.threads, self.dist = options.ranks, options.rank, options.threads, None
        self.seconds, self.warmup, self.training = options.seconds, options.warmup, options.training
        self.clock = time.process_time if options.processor_time else time.perf_counter
        if self.ranks > 1 and not options.rendezvous:
            self.start_ranks()
        torch.set_num_threads(self.threads)
        if self.ranks > 1:
            import torch.distributed as dist

            meet = "file://" + options.rendezvous
            dist.init_process_group("gloo", init_method=meet, rank=self.rank, world_size=self.ranks)
            self.dist = dist
        if self.device == "cuda":
            if not torch.cuda.is_available():
                print("skipped: PyTorch sees no GPU")
                sys.exit(77)
            torch.set_default_device("cuda")
            import torch._inductor.config as inductor

            inductor.triton.cudagraph_or_error = self.graphs
        if self.whole and self.ranks > 1:
            sys.exit("--whole: the sum over ranks is not part of a graph; use one rank")
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = self.precision == "tf32"

    def start_ranks(self):
        with tempfile.TemporaryDirectory() as folder:
            meet = ["--rendezvous", os.path.join(folder, "meet"), "--rank"]
            command = [sys.executable, "-W", "ignore", *sys.argv, *meet]
            environment = {**os.environ, "OMP_NUM_THREADS": str(self.threads)}
            ranks = [subprocess.Popen([*command, str(r)], env=environment) for r in range(self.ranks)]
            sys.exit(max(abs(r.wait()) for r in ranks))

    def to(self, tensor):
        return tensor.to(self.device, non_blocking=True)

    def generator(self, seed):
        self.generators.append(torch.Generator(self.device).manual_seed(seed))
        return self.generators[-1]

    def fused(self):
        """Options of an optimizer: its fused kernel, whose step counter a graph can advance."""
        return {"fused": True, **({"capturable": True} if self.whole and self.device == "cuda" else {})}

    def attention(self, *shape, mask=None, dropout=0.0):
        """The kernel that scaled_dot_product_attention chooses for queries, keys and values of this shape."""
        x = torch.empty(shape, dtype=torch.bfloat16 if self.precision == "bf16" else torch.float32, requires_grad=True)
        choice = torch._fused_sdp_choice(x, x, x, mask, dropout, False)
        return next(name for name, kernel in torch.nn.attention.SDPBackend.__members__.items() if kernel.value == choice)

    def autocast(self):
        return torch.autocast(self.device, torch.bfloat16, enabled=self.precision == "bf16")

    def compile(self, function, **how):
        if self.graphs:
            how["mode"] = "reduce-overhead"
        return torch.compile(function, **how)

    def stays(self, tensors):
        """Tells torch.compile that these inputs keep their memory: graphs read and write them without a copy."""
        for tensor in tensors:
            torch._dynamo.mark_static_address(tensor)

    def captured(self, step):
        """step as one CUDA graph. Nothing that differs between steps may lie on the host: see ahead() and fused()."""
        if self.device != "cuda":
            return step
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):  # libraries initialise themselves, which no graph may contain
            for _ in range(11):
                step()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        for generator in self.generators:
            graph.register_generator_state(generator)
        with torch.cuda.graph(graph):
            step()
        return graph.replay

    def sum(self, tensor):
        """Sums over the ranks, in place."""
        if self.dist:
            self.dist.all_reduce(tensor)

    def largest(self, value):
        """The largest of the ranks' numbers."""
        if not self.dist:
            return value
        tensor = torch.tensor(float(value), dtype=torch.float64)
        self.dist.all_reduce(tensor, op=self.dist.ReduceOp.MAX)
        return tensor.item()

    def wait(self):
        """Waits for the GPU and for all ranks. Call it before reading a clock."""
        if self.device == "cuda":
            torch.cuda.synchronize()
        if self.dist:
            self.dist.barrier()

    def train(self, step, amount, evaluate, state):
        """A whole training instead of rate(): the time and memory of the process are the result."""
        steps, every = self.training
        with tempfile.TemporaryDirectory() as folder:
            for i in range(1, steps + 1):
                step()
                if i % every == 0 or i == steps:
                    evaluate()
                    torch.save(state(), os.path.join(folder, "checkpoint.pt"))
        return steps * amount / (time.perf_counter() - _begin)

    def rate(self, step, amount, evaluate=None, state=None):
        """Amount per second of calls of step: the median over about 40 windows, as `lockstep bench` measures it.

        Within a window nothing waits for the GPU; a window ends when its slowest rank does. The warm-up includes the
        compiler and the recording of graphs. amount counts the work of all ranks in a call. With --training this is
        train(), for which evaluate() computes the validation metrics and state() returns what a checkpoint holds.
        """
        if self.training:
            return self.train(step, amount, evaluate, state)
        torch.set_flush_denormal(True)
        torch.set_default_device(None)
        if self.whole:
            step = self.captured(step)
        for _ in range(self.warmup):
            step()
        self.wait()
        begin = self.clock()
        for _ in range(3):
            step()
        self.wait()
        steps = max(3, int(self.seconds * 3 / self.largest(self.clock() - begin)))
        window, rates = min(max(steps // 40, 1), 200), []
        for _ in range(max(3, steps // window)):
            begin = self.clock()
            for _ in range(window):
                step()
            self.wait()
            rates.append(window * amount / (self.clock() - begin))
        if self.device == "cuda":
            torch.set_default_device("cuda")
        return statistics.median(rates)

    def ahead(self, draw, count=64):
        """Batches of draw(), each a list of tensors: on a GPU `count` of them, drawn and copied in advance, in turn, so
        that no step waits for the host; on the CPU a new one at each call."""
        if self.device != "cuda" and not self.whole:
            return draw
        batches = [draw() for _ in range(count)]
        if not self.whole:
            return itertools.cycle(batches).__next__
        parts, turn = [torch.stack(part) for part in zip(*batches)], torch.zeros(1, dtype=torch.long)

        def batch():
            chosen = [part.index_select(0, turn).squeeze(0) for part in parts]
            turn.add_(1).remainder_(count)
            return chosen

        return batch

    def report(self, rates, **more):
        """Prints the best variant's rate, and what it was measured with, as a JSON line of rank 0."""
        if self.device == "cuda":
            name, peak = torch.cuda.get_device_name(), torch.cuda.max_memory_allocated()
        else:
            name = torch.backends.cpu.get_cpu_capability()
            peak = self.largest(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
        build = torch.__config__.show().splitlines()
        blas = next((line.strip(" -") for line in build if "Math Kernel" in line or "OpenBLAS" in line), "unknown")
        best = max(rates, key=rates.get)
        result = {"per_s": rates[best], "best_variant": best, "variants": rates, "ranks": self.ranks,
                  "threads": self.threads, "device": self.device, "processor": name, "precision": self.precision,
                  "graphs": "whole" if self.whole else self.graphs, "peak_memory_bytes": peak, "torch": torch.__version__, "blas": blas,
                  "import_s": IMPORT_S}
        if self.rank == 0:
            print(json.dumps({**result, **more}), flush=True)

    def leave(self):
        """Ends a rank: an orderly shutdown of the process group sometimes aborts in gloo's threads."""
        if self.dist:
            os._exit(0)


class Agreement:
    """Differences from a golden file, each as a share of its tolerance."""

    def __init__(self):
        self.shares = []

    def compare(self, what, found, expected, tolerance, unit=None):
        """tolerance: relative to unit, by default the largest expected value; absolute where that is almost 0"""
        found, expected = (np.asarray(x.detach() if torch.is_tensor(x) else x, np.float64) for x in (found, expected))
        largest = unit or np.abs(expected).max()
        share = np.abs(found - expected).max() / (tolerance * (largest if largest >= 1e-12 else 1))
        self.shares.append((share if share == share else np.inf, what))


def check(paths, compare):
    """Runs compare(file, agreement) on golden files, prints a line for each, and ends the program: 1 if one differs."""
    import h5py

    good = True
    for path in paths:
        agreement = Agreement()
        with h5py.File(path) as file:
            left_out = compare(file, agreement)
        share, what = max(agreement.shares, default=(0, ""))
        good &= share <= 1
        text = f"{len(agreement.shares)} arrays agree, the worst at {share:.1g} of its tolerance: {what}"
        if share > 1:
            text = f"FAILED: {what}: {share:.1g} times the tolerance"
        print(f"{os.path.basename(path)}: " + (f"left out: {left_out}" if left_out else text))
    sys.exit(0 if good else 1)
