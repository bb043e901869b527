"""Device and precision of a peer: the CPU, or a GPU with settings that an expert would choose.

With --device cuda, tensors are created on the GPU by default (torch.set_default_device), and Place.to() moves those that come from files. fp32 keeps
products in fp32; tf32 lets tensor cores round their factors; bf16 runs the forward pass under autocast, with parameters and optimizer in fp32.
--graphs makes torch.compile record CUDA graphs (mode reduce-overhead).
"""
import argparse
import itertools
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time


def add_options(parser):
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--precision", choices=["fp32", "tf32", "bf16"], default="fp32")
    parser.add_argument("--graphs", action="store_true", help="torch.compile records CUDA graphs")
    parser.add_argument("--processor-time", action="store_true", help="rates per second of this process's processor time: for busy machines, with one thread")


def add_rank_options(parser):
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1, help="per rank")
    parser.add_argument("--rank", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--rendezvous", default="", help=argparse.SUPPRESS)


def start_ranks(options):
    """With --ranks above 1: runs this script once per rank and ends with their exit code. A rank itself continues."""
    if options.ranks == 1 or options.rendezvous:
        return
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-W", "ignore", *sys.argv, "--rendezvous", os.path.join(folder, "meet"), "--rank"]
        environment = {**os.environ, "OMP_NUM_THREADS": str(options.threads)}
        ranks = [subprocess.Popen([*command, str(r)], env=environment) for r in range(options.ranks)]
        sys.exit(max(abs(r.wait()) for r in ranks))


def join_ranks(options):
    """torch.distributed, with all ranks connected; None for one rank."""
    if options.ranks == 1:
        return None
    import torch.distributed as dist

    dist.init_process_group("gloo", init_method="file://" + options.rendezvous, rank=options.rank, world_size=options.ranks)
    return dist


class Place:
    def __init__(self, torch, options):
        self.torch, self.device, self.precision, self.graphs = torch, options.device, options.precision, options.graphs
        self.clock = time.process_time if getattr(options, "processor_time", False) else time.perf_counter
        if self.device == "cuda":
            if not torch.cuda.is_available():
                print("skipped: PyTorch sees no GPU")
                sys.exit(77)
            torch.set_default_device("cuda")
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = self.precision == "tf32"

    def to(self, tensor):
        return tensor.to(self.device, non_blocking=True)

    def generator(self, seed):
        return self.torch.Generator(self.device).manual_seed(seed)

    def autocast(self):
        return self.torch.autocast(self.device, self.torch.bfloat16, enabled=self.precision == "bf16")

    def compile(self, function, **how):
        if self.graphs:
            how["mode"] = "reduce-overhead"
        return self.torch.compile(function, **how)

    def wait(self):
        """Waits for the GPU to finish. Call it before reading a clock."""
        if self.device == "cuda":
            self.torch.cuda.synchronize()

    def rate(self, step, amount, seconds, warmup):
        """Amount per second of calls of step: the median over about 40 windows, as `lockstep bench` measures it. Within a window nothing waits for
        the GPU. The warm-up includes the compiler and the recording of graphs."""
        for _ in range(warmup):
            step()
        self.wait()
        begin = self.clock()
        for _ in range(3):
            step()
        self.wait()
        steps = max(3, int(seconds * 3 / (self.clock() - begin)))
        window, rates = min(max(steps // 40, 1), 200), []
        for _ in range(max(3, steps // window)):
            begin = self.clock()
            for _ in range(window):
                step()
            self.wait()
            rates.append(window * amount / (self.clock() - begin))
        return statistics.median(rates)

    def ahead(self, draw, count=64):
        """Batches of draw(): on a GPU drawn and copied in advance, so that no step waits for the host; on the CPU one at each call."""
        return itertools.cycle([draw() for _ in range(count)]).__next__ if self.device == "cuda" else draw

    def facts(self):
        """Fields of the result: device, precision and peak memory."""
        peak = self.torch.cuda.max_memory_allocated() if self.device == "cuda" else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        name = self.torch.cuda.get_device_name() if self.device == "cuda" else self.torch.backends.cpu.get_cpu_capability()
        return {"device": self.device, "processor": name, "precision": self.precision, "graphs": self.graphs, "peak_memory_bytes": peak}
