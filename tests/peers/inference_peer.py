#!/usr/bin/env python3
"""Small and large calls of a trained emulator in PyTorch (eager and TorchScript) and ONNX Runtime, for compare_inference.sh.

  inference_peer.py DIRECTORY --threads 1      a JSON line per case: seconds per call, the median of windows
  inference_peer.py DIRECTORY --first torch    what a new process needs for one column: torch, torchscript or onnxruntime

DIRECTORY holds what bench_columns wrote: the network, and states with their predictions and Jacobians, which every side must reproduce
before it is timed. Eager is the better of two variants: plain tensors, and operations into retained buffers. TorchScript is the plain variant
traced and frozen. ONNX Runtime has no derivatives, and its file holds f32. All take many columns in blocks. One thread is measured in
processor time, several in wall time.
"""
import argparse
import json
import os
import resource
import statistics
import struct
import sys
import time

COLUMNS = [1, 10, 100, 1000, 100000]
BLOCK = 4000  # rows of a block on retained buffers that stay in the second-level cache


def read_model(directory):
    """Arrays of model.safetensors, and x, y, j of the 1000 states."""
    import numpy as np

    with open(os.path.join(directory, "model.safetensors"), "rb") as f:
        header = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
        data = f.read()
    kind = {"F32": np.float32, "F64": np.float64}
    arrays = {name: np.frombuffer(data[slice(*a["data_offsets"])], kind[a["dtype"]]).reshape(a["shape"])
              for name, a in header.items() if name != "__metadata__"}
    return arrays, {name: np.fromfile(os.path.join(directory, name)).reshape(1000, -1) for name in "xyj"}


def torch_sides(arrays, dtype, what, columns):
    """(side, function of x) for each variant."""
    import emulator_peer as peer
    import torch

    torch.set_default_dtype(dtype)
    layers = sum(name.startswith("network.") for name in arrays) // 2 - 1
    first, last = arrays["network.0.weight"], arrays[f"network.{2 * layers}.weight"]
    net = peer.build_network(first.shape[1], last.shape[0], first.shape[0], layers)
    tensor = lambda name: torch.from_numpy(arrays[name].copy()).to(dtype)
    for name, p in net["p"].items():
        p.copy_(tensor(name))
    norm = {name: tensor(name) for name in ("input_mean", "input_std", "output_mean", "output_std")}
    out = torch.empty((columns, last.shape[0]) + ((first.shape[1],) if what == "jacobian" else ()))
    block = min(columns, BLOCK)
    W, b, n = peer.folded(net, norm)
    plain = peer.predict_plain if what == "predict" else peer.jacobian_plain
    module = torch.nn.Module()
    module.forward = lambda x: plain(W, b, n, x)
    traced = torch.jit.freeze(torch.jit.trace(module.eval(), torch.zeros(block, first.shape[1])))
    whole = lambda f: f if block == columns else lambda x: [f(x[i:i + block]) for i in range(0, columns, block)]
    retained = peer.make_inference(what, "retained", net, norm, block)

    def into_buffers(x):
        for i in range(0, columns, block):
            retained(x[i:i + block], out[i:i + block])
        return out

    return [("PyTorch", whole(module.forward)), ("PyTorch", into_buffers), ("TorchScript", whole(traced))]


def onnx_session(directory, threads):
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads, options.log_severity_level = threads, 1, 4
    return onnxruntime.InferenceSession(os.path.join(directory, "model.onnx"), options, ["CPUExecutionProvider"])


def seconds_per_call(call, seconds, clock, windows=9):
    call()
    start = clock()
    call()
    calls = max(1, int(seconds / windows / max(clock() - start, 1e-6)))
    times = []
    for _ in range(windows):
        start = clock()
        for _ in range(calls):
            call()
        times.append((clock() - start) / calls)
    return statistics.median(times)


def bench(options):
    clock = time.process_time if options.threads == 1 else time.perf_counter
    arrays, expected = read_model(options.directory)

    def agree(found, name, wide, side):
        import numpy as np

        found = np.asarray(found[0] if isinstance(found, list) else found, np.float64)[:1000]
        right = expected[name][:len(found)]
        gap = float(np.abs(found.reshape(right.shape) - right).max() / np.abs(right).max())
        if not gap < (1e-10 if wide else 1e-4):
            sys.exit(f"inference_peer: {side} differs from liblockstep by {gap:.1e} of the largest value")

    def report(side, what, wide, columns, seconds):
        print(json.dumps({"side": side, "what": what, "type": "f64" if wide else "f32", "columns": columns, "threads": options.threads,
                          "seconds": seconds}), flush=True)

    try:
        import torch

        torch.set_num_threads(options.threads)
        print(json.dumps({"torch": torch.__version__, "cpu_capability": torch.backends.cpu.get_cpu_capability()}))
    except ImportError:
        torch = None
        print("inference_peer: PyTorch is left out: not installed", file=sys.stderr)
    try:
        import onnxruntime

        print(json.dumps({"onnxruntime": onnxruntime.__version__}))
    except ImportError:
        onnxruntime = None
        print("inference_peer: ONNX Runtime is left out: not installed", file=sys.stderr)

    import numpy as np

    session = onnx_session(options.directory, options.threads) if onnxruntime else None
    for wide in (False, True):
        for columns in COLUMNS:
            states = np.resize(expected["x"], (columns, expected["x"].shape[1])).astype(np.float64 if wide else np.float32)
            if session and not wide:
                name, block = session.get_inputs()[0].name, min(columns, BLOCK)
                call = lambda: [session.run(None, {name: states[i:i + block]})[0] for i in range(0, columns, block)]
                agree(call(), "y", wide, "ONNX Runtime")
                report("ONNX Runtime", "predict", wide, columns, seconds_per_call(call, options.seconds, clock))
            if not torch:
                continue
            with torch.inference_mode():
                for what, name in (("predict", "y"), ("jacobian", "j")):
                    x, best = torch.from_numpy(states), {}
                    for side, f in torch_sides(arrays, torch.float64 if wide else torch.float32, what, columns):
                        agree(f(x), name, wide, side)
                        best[side] = min(best.get(side, float("inf")), seconds_per_call(lambda: f(x), options.seconds, clock))
                    for side, seconds in best.items():
                        report(side, what, wide, columns, seconds)


def first(options):
    """From the import to the first prediction; compare_inference.sh adds the start of the interpreter."""
    begin = time.perf_counter()
    arrays, states = read_model(options.directory)
    if options.first == "onnxruntime":
        import onnxruntime  # noqa: F401  counted as part of opening

        session = onnx_session(options.directory, 1)
        x = states["x"][:1].astype("float32")
        call = lambda: session.run(None, {session.get_inputs()[0].name: x})
    else:
        import torch

        torch.set_num_threads(1)
        sides = torch_sides(arrays, torch.float64, "predict", 1)
        f, x = sides[2 if options.first == "torchscript" else 0][1], torch.from_numpy(states["x"][:1])

        def call():
            with torch.inference_mode():
                f(x)
    opened = time.perf_counter()
    call()
    done = time.perf_counter()
    side = {"torch": "PyTorch", "torchscript": "TorchScript", "onnxruntime": "ONNX Runtime"}[options.first]
    print(json.dumps({"side": side, "open_s": opened - begin, "first_s": done - opened, "ready_ns": time.time_ns(),
                      "memory_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000}))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=0.1, help="per case")
    parser.add_argument("--first", choices=["torch", "torchscript", "onnxruntime"])
    options = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = str(options.threads)
    first(options) if options.first else bench(options)


if __name__ == "__main__":
    main()
