#!/usr/bin/env python3
"""The emulator in PyTorch, tuned for CPUs as an expert would: the baseline of `make bench`.

Written from the formulas in docs/models/emulator.md; --check compares it with the golden files. All common optimisations are in place: the
data are tensors, normalised once; batches are cut from a permutation with index_select (no DataLoader, no collate); parameters and gradients
are views of one flat tensor, so the fused Adam and the all-reduce are one call each; the loop reads no loss back; inference runs in
inference_mode with the scales folded into the weights. Every job has several variants: plain autograd, a hand-written closed form on retained
buffers, and torch.compile of that closed form with and without autotuning. `--tune` times all variants and reports the best.

  emulator_peer.py --check golden/emulator*.h5
  emulator_peer.py --bench train --ranks 1 --threads 2 --tune     one JSON line: rows/s of every variant and of the best
  emulator_peer.py --bench train --ranks 2 --threads 1 --variant manual --seconds 2
"""
import argparse
import json
import math
import os
import resource
import statistics
import sys
import time

from place import Place, add_options, add_rank_options, join_ranks, start_ranks

# --------------------------------------------------------------------------------------------------------------- the network


def build_network(torch, n_in, n_out, hidden, layers, activation="gelu", conv_channels=0, conv_kernel=3):
    """Parameters as views of one flat tensor, named as in the golden files."""
    shapes = {}
    if conv_channels:
        shapes["conv1d.weight"], shapes["conv1d.bias"] = (conv_channels, 1, conv_kernel), (conv_channels,)
    fan_in = n_in * max(conv_channels, 1)
    for k in range(layers + 1):
        fan_out = hidden if k < layers else n_out
        shapes[f"network.{2 * k}.weight"], shapes[f"network.{2 * k}.bias"] = (fan_out, fan_in), (fan_out,)
        fan_in = fan_out
    total = sum(math.prod(s) for s in shapes.values())
    flat, grad = torch.zeros(total), torch.zeros(total)
    net = {"flat": flat, "flat_grad": grad, "p": {}, "g": {}, "activation": activation, "conv_kernel": conv_kernel if conv_channels else 0}
    at = 0
    for name, shape in shapes.items():
        n = math.prod(shape)
        net["p"][name], net["g"][name] = flat[at:at + n].view(shape), grad[at:at + n].view(shape)
        at += n
    for name, p in net["p"].items():
        if name.endswith("weight"):
            fan_a, fan_b = (p.shape[2], p.shape[0] * p.shape[2]) if name.startswith("conv") else (p.shape[1], p.shape[0])
            p.normal_(0, math.sqrt(2 / (fan_a + fan_b)))
    net["W"] = [net["p"][f"network.{2 * k}.weight"] for k in range(layers + 1)]
    net["b"] = [net["p"][f"network.{2 * k}.bias"] for k in range(layers + 1)]
    net["gW"] = [net["g"][f"network.{2 * k}.weight"] for k in range(layers + 1)]
    net["gb"] = [net["g"][f"network.{2 * k}.bias"] for k in range(layers + 1)]
    return net


def activations(torch):
    F = torch.nn.functional
    return {"gelu": F.gelu, "relu": F.relu, "tanh": torch.tanh, "sigmoid": torch.sigmoid, "leakyrelu": F.leaky_relu, "elu": F.elu, "silu": F.silu}


def forward(torch, net, params, z):
    """Maps normalised inputs (N, n_in) to normalised outputs, by differentiable operations on these parameters."""
    F, phi = torch.nn.functional, activations(torch)[net["activation"]]
    h = z
    if net["conv_kernel"]:
        h = phi(F.conv1d(z.unsqueeze(1), params["conv1d.weight"], params["conv1d.bias"], padding=net["conv_kernel"] // 2)).flatten(1)
    layers = len(net["W"]) - 1
    for k in range(layers + 1):
        h = F.linear(h, params[f"network.{2 * k}.weight"], params[f"network.{2 * k}.bias"])
        if k < layers:
            h = phi(h)
    return h


def loss_of(torch, y, t, loss="mse", smooth_weight=0.0, smooth_order=2, output_std=None, output_mean=None):
    F = torch.nn.functional
    value = {"mse": F.mse_loss, "mae": F.l1_loss, "huber": F.smooth_l1_loss}[loss](y, t)
    if smooth_weight > 0:
        value = value + smooth_weight * torch.diff(y * output_std + output_mean, n=smooth_order, dim=1).square().mean()
    return value


# --------------------------------------------------------------------------------- training: each variant fills net["flat_grad"]


def gradient_autograd(torch, net, rows, total_rows, place, **loss):
    """Plain autograd over leaf views of the flat vector."""
    leaves = {name: p.detach().requires_grad_() for name, p in net["p"].items()}
    for name, leaf in leaves.items():
        leaf.grad = net["g"][name]
    scale = rows / total_rows

    def step(z, t):
        net["flat_grad"].zero_()
        with place.autocast():
            value = loss_of(torch, forward(torch, net, leaves, z), t, **loss)
        (value * scale if scale != 1 else value).backward()
        return value.detach()

    return step


def closed_form(torch, W, b, z, t, total_rows):
    """Loss (sum of squares over total rows) and gradients of the erf-GELU network, written out; for torch.compile."""
    layers = len(W) - 1
    a, h = [], [z]
    for k in range(layers):
        a.append(torch.addmm(b[k], h[k], W[k].t()))
        h.append(torch.nn.functional.gelu(a[k]))
    y = torch.addmm(b[layers], h[layers], W[layers].t())
    d = y - t
    scale = 1.0 / (total_rows * t.shape[1])
    value = d.square().sum() * scale
    d = d * (2 * scale)
    gW, gb = [None] * (layers + 1), [None] * (layers + 1)
    for k in range(layers, -1, -1):
        gW[k], gb[k] = torch.mm(d.t(), h[k]), d.sum(0)
        if k:
            d = torch.ops.aten.gelu_backward(torch.mm(d, W[k]), a[k - 1])
    return value, gW, gb


def gradient_compiled(torch, net, rows, total_rows, options, place):
    def whole(W, b, gW, gb, z, t):
        with place.autocast():
            value, new_gW, new_gb = closed_form(torch, W, b, z, t, total_rows)
        for k in range(len(W)):
            gW[k].copy_(new_gW[k])
            gb[k].copy_(new_gb[k])
        return value

    if place.device == "cuda":
        options = {"max_autotune": "max_autotune" in options, "triton.cudagraphs": place.graphs}
    compiled = torch.compile(whole, fullgraph=True, dynamic=False, options=options)

    @torch.no_grad()
    def step(z, t):
        return compiled(net["W"], net["b"], net["gW"], net["gb"], z, t)

    return step


def gradient_manual(torch, net, rows, total_rows):
    """The closed form on retained buffers: no autograd, no allocation."""
    W, b, gW, gb = net["W"], net["b"], net["gW"], net["gb"]
    layers, wt, n_out = len(W) - 1, [w.t() for w in W], W[-1].shape[0]
    buffers = {}

    def buffers_for(n):
        if n not in buffers:
            buffers[n] = ([torch.empty(n, W[k].shape[0]) for k in range(layers)], [torch.empty(n, W[k].shape[0]) for k in range(layers)],
                          [torch.empty(n, W[k].shape[0]) for k in range(layers)], torch.empty(n, n_out))
        return buffers[n]

    scale, aten = 1.0 / (total_rows * n_out), torch.ops.aten

    @torch.no_grad()
    def step(z, t):
        a, h, d, y = buffers_for(z.shape[0])
        x = z
        for k in range(layers):
            torch.addmm(b[k], x, wt[k], out=a[k])
            aten.gelu.out(a[k], out=h[k])
            x = h[k]
        torch.addmm(b[layers], x, wt[layers], out=y)
        y.sub_(t)
        value = torch.dot(y.view(-1), y.view(-1))
        y.mul_(2 * scale)
        g = y
        for k in range(layers, 0, -1):
            torch.mm(g.t(), h[k - 1], out=gW[k])
            torch.sum(g, 0, out=gb[k])
            torch.mm(g, W[k], out=d[k - 1])
            aten.gelu_backward.grad_input(d[k - 1], a[k - 1], grad_input=d[k - 1])
            g = d[k - 1]
        torch.mm(g.t(), z, out=gW[0])
        torch.sum(g, 0, out=gb[0])
        return value * scale

    return step


def make_gradient(torch, name, net, rows, total_rows, place):
    if name == "autograd":
        return gradient_autograd(torch, net, rows, total_rows, place)
    if name == "manual":
        return gradient_manual(torch, net, rows, total_rows)
    return gradient_compiled(torch, net, rows, total_rows, COMPILE[name], place)


COMPILE = {"compiled": {}, "compiled-max": {"max_autotune": True, "cpp_wrapper": True}}
TRAIN_VARIANTS = ["autograd", "manual", "compiled", "compiled-max"]


def make_optimizer(torch, net, config):
    """One flat parameter; the fused kernel where the version has it for this device."""
    flat = torch.nn.Parameter(net["flat"], requires_grad=True)
    flat.grad = net["flat_grad"]
    if config["optimizer"] == "sgd":
        return torch.optim.SGD([flat], lr=config["lr"], momentum=config["momentum"], weight_decay=config["weight_decay"], fused=True)
    return torch.optim.Adam([flat], lr=config["lr"], betas=tuple(config["betas"]), eps=config["eps"], weight_decay=config["weight_decay"], fused=True)


# -------------------------------------------------------------------------------------------------- inference: predict, Jacobian


def folded(torch, net, norm):
    """Weights with the output scale folded into the last layer; for Jacobians also the first layer with the input scale. Inputs are normalised
    explicitly: folding the means too loses three digits for a variable with a large mean and a small spread."""
    W, b = [w.clone() for w in net["W"]], [v.clone() for v in net["b"]]
    W[-1] = net["W"][-1] * norm["output_std"][:, None]
    b[-1] = net["b"][-1] * norm["output_std"] + norm["output_mean"]
    return W, b, {"mean": norm["input_mean"].clone(), "scale": 1 / norm["input_std"], "first": net["W"][0] / norm["input_std"]}


def hidden_layers(torch, W, b, n, x):
    """Pre-activations and the last activation."""
    a, h = [], (x - n["mean"]) * n["scale"]
    for k in range(len(W) - 1):
        a.append(torch.addmm(b[k], h, W[k].t()))
        h = torch.nn.functional.gelu(a[k])
    return a, h


def predict_plain(torch, W, b, n, x):
    return torch.addmm(b[-1], hidden_layers(torch, W, b, n, x)[1], W[-1].t())


def jacobian_plain(torch, W, b, n, x):
    """Reverse mode written out: row o of J = W_1' D_1 W_2' D_2 ... w_o. gelu_backward is the product with phi'."""
    a, _ = hidden_layers(torch, W, b, n, x)
    rows = []
    for o in range(W[-1].shape[0]):
        s = W[-1][o].expand(x.shape[0], -1)
        for k in range(len(W) - 2, -1, -1):
            s = torch.mm(torch.ops.aten.gelu_backward(s, a[k]), W[k] if k else n["first"])
        rows.append(s)
    return torch.stack(rows, 1) if len(rows) > 1 else rows[0].unsqueeze(1)


def retained(torch, W, b, norm, block, jacobian):
    """Prediction and Jacobian on retained buffers of one block."""
    layers, wt = len(W) - 1, [w.t() for w in W]
    widths = [w.shape[0] for w in W]
    a = [torch.empty(block, widths[k]) for k in range(layers)]
    s = [torch.empty(block, widths[k]) for k in range(layers)]
    z, back = torch.empty(block, W[0].shape[1]), [norm["first"]] + W[1:]
    aten = torch.ops.aten

    def run(x, out):
        n = x.shape[0]
        cut = (lambda v: v) if n == block else (lambda v: v[:n])
        h = torch.sub(x, norm["mean"], out=cut(z)).mul_(norm["scale"])
        for k in range(layers):
            torch.addmm(b[k], h, wt[k], out=cut(a[k]))
            if k + 1 < layers or not jacobian:
                h = aten.gelu.out(cut(a[k]), out=cut(s[k]))
        if not jacobian:
            torch.addmm(b[layers], h, wt[layers], out=out)
            return
        for o in range(widths[layers]):
            seed = W[layers][o].expand(n, -1)
            for k in range(layers - 1, -1, -1):
                aten.gelu_backward.grad_input(seed, cut(a[k]), grad_input=cut(s[k]))
                seed = torch.mm(cut(s[k]), back[k], out=out[:, o] if k == 0 else cut(s[k - 1]))

    return run


def make_inference(torch, what, name, net, norm, block):
    """f(x, out): physical rows (at most `block`) to predictions (n, n_out) or physical Jacobians (n, n_out, n_in)."""
    W, b, n = folded(torch, net, norm)
    if name == "retained":
        return retained(torch, W, b, n, block, what == "jacobian")
    plain = predict_plain if what == "predict" else jacobian_plain
    if name == "plain":
        return lambda x, out: out.copy_(plain(torch, W, b, n, x))
    if name == "vmap-jacrev":
        f = torch.func.vmap(torch.func.jacrev(lambda row: predict_plain(torch, W, b, n, row.unsqueeze(0)).squeeze(0)))
        return lambda x, out: out.copy_(f(x))
    if name == "autograd":  # the gradient of each output's sum over rows

        def by_autograd(x, out):
            with torch.inference_mode(False), torch.enable_grad():
                leaf = x.clone().requires_grad_()
                y = predict_plain(torch, W, b, n, leaf)
                for o in range(y.shape[1]):
                    out[:, o] = torch.autograd.grad(y[:, o].sum(), leaf, retain_graph=o + 1 < y.shape[1])[0]

        return by_autograd
    options = dict(COMPILE[name], **({"freezing": True} if "max" in name else {}))
    module = torch.nn.Module()
    for k, (w, v) in enumerate(zip(W, b)):
        module.register_buffer(f"W{k}", w)
        module.register_buffer(f"b{k}", v)
    for k, v in n.items():
        module.register_buffer(k, v)

    def call(x):
        return plain(torch, [getattr(module, f"W{k}") for k in range(len(W))], [getattr(module, f"b{k}") for k in range(len(b))],
                     {k: getattr(module, k) for k in n}, x)

    module.forward = call
    compiled = torch.compile(module, fullgraph=True, dynamic=False, options=options)
    return lambda x, out: out.copy_(compiled(x))


INFERENCE_VARIANTS = {"predict": ["plain", "retained", "compiled", "compiled-max"],
                      "jacobian": ["plain", "retained", "autograd", "vmap-jacrev", "compiled", "compiled-max"]}

# ----------------------------------------------------------------------------------------------------------------- verification


def check(torch, files, compile_variants, place):
    """Largest differences from the golden files, relative to each array's largest value. The bounds are the golden files' measured tolerances for
    float32; optimizer steps are in units of the learning rate."""
    import h5py

    bound = {"outputs": 2e-6, "jac": 3e-6, "grads": 5e-6, "steps/lr": 2e-3}
    failed = False
    for path in files:
        with h5py.File(path) as f:
            if "weights" not in f or "after_steps" not in f:
                print(f"{os.path.basename(path):28s} skipped: not a network's golden file")
                continue
            c = {k: (v.decode() if isinstance(v, bytes) else v) for k, v in f.attrs.items()}
            get = lambda name: torch.from_numpy(f[name][()])
            net = build_network(torch, int(c["inputs"]), int(c["outputs"]), int(c["hidden"]), int(c["layers"]), c["activation"],
                                int(c["conv_channels"]), int(c["conv_kernel"]))
            norm = {k: get("norm/" + k).float() for k in f["norm"]}
            start = {k: get("weights/" + k) for k in f["weights"]}
            load = lambda: [net["p"][k].copy_(v) for k, v in start.items()]
            load()
            x, target = get("inputs/x"), get("inputs/t")
            z, t = (x - norm["input_mean"]) / norm["input_std"], (target - norm["output_mean"]) / norm["output_std"]
            closed = c["activation"] == "gelu" and not c["conv_channels"]
            gap = lambda mine, name: float((mine.detach() - get(name)).abs().max() / get(name).abs().max())
            worst = {}
            note = lambda key, value: worst.__setitem__(key, max(worst.get(key, 0.0), value))

            predict = lambda: forward(torch, net, net["p"], z) * norm["output_std"] + norm["output_mean"]
            note("outputs", gap(forward(torch, net, net["p"], z), "outputs/y_norm"))
            note("outputs", gap(predict(), "outputs/predict"))
            jacobian = torch.func.vmap(torch.func.jacrev(lambda row: forward(torch, net, net["p"], row.unsqueeze(0)).squeeze(0)))(z)
            note("jac", gap(jacobian, "outputs/jac"))
            if closed:
                for what, golden in (("predict", "outputs/predict"), ("jacobian", "outputs/jac_physical")):
                    for name in INFERENCE_VARIANTS[what]:
                        if name.startswith("compiled") and not compile_variants:
                            continue
                        out = torch.empty(get(golden).shape)
                        with torch.no_grad():
                            make_inference(torch, what, name, net, norm, x.shape[0])(x, out)
                        note({"predict": "outputs", "jacobian": "jac"}[what], gap(out, golden))

            loss = dict(loss=c["loss"], smooth_weight=float(c["smooth_weight"]), smooth_order=int(c["smooth_order"]),
                        output_std=norm["output_std"], output_mean=norm["output_mean"])
            variants = ["autograd"]
            if closed and c["loss"] == "mse" and not c["smooth_weight"]:
                variants += ["manual"] + (["compiled", "compiled-max"] if compile_variants else [])
            for name in variants:
                load()
                optimizer = make_optimizer(torch, net, {"optimizer": c["optimizer"], "lr": float(c["lr"]), "momentum": float(c["momentum"]),
                                                        "weight_decay": float(c["weight_decay"]), "betas": [float(v) for v in c["adam_betas"]],
                                                        "eps": float(c["adam_eps"])})
                ema = net["flat"].clone()
                for s in range(len(f["batches"])):
                    rows = get(f"batches/{s}").long()
                    n = len(rows)
                    gradient = gradient_autograd(torch, net, n, n, place, **loss) if name == "autograd" else make_gradient(torch, name, net, n, n, place)
                    lr = float(c["lr"])
                    lr *= {"none": 1.0, "step": float(c["gamma"]) ** (s // int(c["step_size"])),
                           "cosine": (1 + math.cos(math.pi * s / int(c["t_max"]))) / 2}[c["schedule"]]
                    optimizer.param_groups[0]["lr"] = lr
                    value = gradient(z[rows], t[rows])
                    note("outputs", abs(float(value) - float(f["steps/loss"][s])) / abs(float(f["steps/loss"][s])))
                    if s == 0:
                        for k in net["g"]:
                            note("grads", gap(net["g"][k], "grads/" + k))
                    optimizer.step()
                    ema.mul_(float(c["ema"])).add_(net["flat"].detach(), alpha=1 - float(c["ema"]))
                groups = [("after_steps", net["flat"])] + ([("after_steps_ema", ema)] if c["ema"] > 0 else [])
                for group, vector in groups:
                    at = 0
                    for k, p in net["p"].items():
                        mine = vector[at:at + p.numel()].detach().view(p.shape)
                        note("steps/lr", float((mine - get(f"{group}/{k}")).abs().max()) / float(c["lr"]))
                        at += p.numel()
            bad = [k for k, v in worst.items() if not v <= bound[k]]
            failed |= bool(bad)
            print(f"{os.path.basename(path):28s} " + "  ".join(f"{k} {v:.1e}" for k, v in worst.items()) +
                  f"  variants: {', '.join(variants)}  " + ("FAILED: " + ", ".join(bad) if bad else "ok"))
    return 1 if failed else 0


# ------------------------------------------------------------------------------------------------------------------ measurement


def measure(torch, dist, options, run, rows_per_call, calls_per_chunk, seconds):
    """Rows per second over all ranks, in chunks: a chunk ends when its slowest rank does."""
    for _ in range(options.warmup):
        run()
    options.place.wait()
    rates, cpu, rows = [], 0.0, 0
    stop = torch.zeros(1)
    begin = time.perf_counter()
    while True:
        if dist:
            dist.barrier()
        t0, c0 = time.perf_counter(), time.process_time()
        for _ in range(calls_per_chunk):
            run()
        options.place.wait()
        if dist:
            dist.barrier()
        t1, c1 = time.perf_counter(), time.process_time()
        rates.append(calls_per_chunk * rows_per_call * options.ranks / (t1 - t0))
        cpu, rows = cpu + c1 - c0, rows + calls_per_chunk * rows_per_call
        stop[0] = 1.0 if t1 - begin >= seconds and len(rates) >= 5 else 0.0
        if dist:
            dist.broadcast(stop, 0)
        if stop[0] == 1.0:
            break
    return {"rows_per_s": statistics.median(rates), "best": max(rates), "worst": min(rates), "rows_per_cpu_s": rows / cpu, "chunks": len(rates)}


def bench(torch, options):
    dist = join_ranks(options)
    torch.manual_seed(1)
    n_in, hidden, layers, n_out = options.shape
    net = build_network(torch, n_in, n_out, hidden, layers)
    norm = {"input_mean": torch.randn(n_in), "input_std": torch.rand(n_in) + 0.5, "output_mean": torch.randn(n_out), "output_std": torch.rand(n_out) + 0.5}
    rows = options.rows
    results = {}
    variants = [options.variant] if options.variant else (TRAIN_VARIANTS if options.bench == "train" else INFERENCE_VARIANTS[options.bench])

    if options.bench == "train":
        z, t = torch.randn(rows, n_in), torch.randn(rows, n_out)
        mine = options.batch // options.ranks
        state = {"perm": None, "at": 0}
        for name in variants:
            gradient = make_gradient(torch, name, net, mine, options.batch, options.place)
            optimizer = make_optimizer(torch, net, {"optimizer": "adam", "lr": 1e-4, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 1e-4})
            generator = options.place.generator(7)  # the same permutation on all ranks
            state["perm"], state["at"] = torch.randperm(rows, generator=generator), 0

            def step():
                if state["at"] + options.batch > rows:
                    state["perm"], state["at"] = torch.randperm(rows, generator=generator), 0
                begin = state["at"] + options.rank * mine
                index = state["perm"][begin:begin + mine]
                value = gradient(torch.index_select(z, 0, index), torch.index_select(t, 0, index))
                if dist:
                    dist.all_reduce(net["flat_grad"])
                optimizer.step()
                state["at"] += options.batch
                return value

            results[name] = measure(torch, dist, options, step, mine, 40, options.seconds)
    else:
        share = rows // options.ranks
        x = torch.randn(share, n_in)
        out = torch.empty(share, n_out) if options.bench == "predict" else torch.empty(share, n_out, n_in)
        for name in variants:
            base, _, fixed = name.partition("@")
            for block in ([int(fixed)] if fixed else options.blocks):
                block = min(block, share)
                # Whole blocks only, so that a compiled graph has one shape.
                ranges = [(i, i + block) for i in range(0, share - block + 1, block)]
                f = make_inference(torch, options.bench, base, net, norm, block)

                def sweep():
                    with torch.inference_mode(base != "autograd" and base != "vmap-jacrev"):
                        for i, j in ranges:
                            f(x[i:j], out[i:j])

                results[f"{base}@{block}"] = measure(torch, dist, options, sweep, len(ranges) * block, 1, options.seconds)
    best = max(results, key=lambda k: results[k]["rows_per_s"])
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    if dist:
        peak = torch.tensor([memory])
        dist.all_reduce(peak, op=dist.ReduceOp.MAX)
        memory = float(peak)
        dist.barrier()
    config = torch.__config__.show()
    return {"job": options.bench, "torch": torch.__version__, **options.place.facts(), "blas": next((l.strip(" -") for l in config.splitlines() if "Math Kernel" in l or "OpenBLAS" in l), "unknown"),
            "cpu_capability": torch.backends.cpu.get_cpu_capability(), "preload": os.environ.get("LD_PRELOAD", ""), "ranks": options.ranks, "threads": options.threads,
            "shape": options.shape, "batch": options.batch, "rows": rows, "best_variant": best, **results[best], "peak_rss_mb": memory,
            "start_s": options.start_s, "variants": {k: round(v["rows_per_s"]) for k, v in results.items()}}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", nargs="+", metavar="GOLDEN.h5", help="compare with golden files; exit 1 if any array is out of bounds")
    parser.add_argument("--no-compile", action="store_true", help="leave torch.compile out of --check and --tune")
    parser.add_argument("--bench", choices=["train", "predict", "jacobian"])
    parser.add_argument("--tune", action="store_true", help="time every variant (the default without --variant)")
    parser.add_argument("--variant", help="time this one only; inference takes NAME@BLOCK")
    parser.add_argument("--shape", type=lambda s: [int(v) for v in s.split(",")], default=[14, 64, 3, 1], help="inputs,hidden,layers,outputs")
    parser.add_argument("--batch", type=int, default=1000, help="global batch of a training step, split over the ranks")
    parser.add_argument("--rows", type=int, default=360000)
    parser.add_argument("--blocks", type=lambda s: [int(v) for v in s.split(",")], default=[1000, 4000, 16000], help="rows per inference call to try")
    parser.add_argument("--seconds", type=float, default=1.5, help="measured per variant")
    parser.add_argument("--warmup", type=int, default=5)
    add_options(parser)
    add_rank_options(parser)
    options = parser.parse_args()
    if not options.check and not options.bench:
        parser.error("say --check or --bench")

    start_ranks(options)  # rank 0 prints
    os.environ["OMP_NUM_THREADS"] = str(options.threads)
    begin = time.perf_counter()
    import torch

    torch.set_num_threads(options.threads)
    torch.set_flush_denormal(True)
    options.start_s = time.perf_counter() - begin
    options.place = Place(torch, options)
    if options.check:
        return check(torch, options.check, not options.no_compile, options.place)
    if options.no_compile:
        global TRAIN_VARIANTS
        TRAIN_VARIANTS = [v for v in TRAIN_VARIANTS if not v.startswith("compiled")]
        for what, names in INFERENCE_VARIANTS.items():
            INFERENCE_VARIANTS[what] = [v for v in names if not v.startswith("compiled")]
    result = bench(torch, options)
    if options.rank == 0:
        print(json.dumps(result), flush=True)
    os._exit(0)  # an orderly shutdown of the process group sometimes aborts in gloo's threads


if __name__ == "__main__":
    sys.exit(main())
