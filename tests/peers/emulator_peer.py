#!/usr/bin/env python3
"""The emulator in PyTorch, tuned for CPUs as an expert would: the baseline of `make bench`.

Written from the formulas in docs/models/emulator.md; --check compares it with the golden files. All common
optimisations are in place: the data are tensors, normalised once; batches are cut from a permutation with index_select
(no DataLoader, no collate); parameters and gradients are views of one flat tensor, so the fused Adam and the all-reduce
are one call each; the loop reads no loss back; inference runs in inference_mode with the scales folded into the
weights. Every job has several variants: plain autograd, a hand-written closed form on retained buffers, and
torch.compile of that closed form with and without autotuning.

  emulator_peer.py --check golden/emulator*.h5
  emulator_peer.py --bench train --ranks 1 --threads 2     one JSON line: rows/s of every variant and of the best
  emulator_peer.py --bench train --ranks 2 --threads 1 --variants manual --seconds 2
"""
import math

from common import Place, arguments, check

import torch
import torch.nn.functional as F

# --------------------------------------------------------------------------------------------------------------- the network


def build_network(n_in, n_out, hidden, layers, activation="gelu", conv_channels=0, conv_kernel=3):
    """Parameters as views of one flat tensor, named as in the golden files."""
    shapes = {}
    if conv_channels:
        shapes["conv1d.weight"], shapes["conv1d.bias"] = (conv_channels, 1, conv_kernel), (conv_channels,)
    fan_in = n_in * max(conv_channels, 1)
    for k in range(layers + 1):
        fan_out = hidden if k < layers else n_out
        shapes[f"network.{2 * k}.weight"], shapes[f"network.{2 * k}.bias"] = (fan_out, fan_in), (fan_out,)
        fan_in = fan_out
    sizes = [math.prod(shape) for shape in shapes.values()]
    flat, grad = torch.zeros(sum(sizes)), torch.zeros(sum(sizes))
    views = lambda vector: {name: piece.view(shapes[name]) for name, piece in zip(shapes, vector.split(sizes))}
    net = {"flat": flat, "flat_grad": grad, "p": views(flat), "g": views(grad), "activation": activation,
           "conv_kernel": conv_kernel if conv_channels else 0}
    for name, p in net["p"].items():
        if name.endswith("weight"):
            fan_a, fan_b = (p.shape[2], p.shape[0] * p.shape[2]) if name.startswith("conv") else (p.shape[1], p.shape[0])
            p.normal_(0, math.sqrt(2 / (fan_a + fan_b)))
    for key, of, kind in (("W", "p", "weight"), ("b", "p", "bias"), ("gW", "g", "weight"), ("gb", "g", "bias")):
        net[key] = [net[of][f"network.{2 * k}.{kind}"] for k in range(layers + 1)]
    return net


ACTIVATIONS = {"gelu": F.gelu, "relu": F.relu, "tanh": torch.tanh, "sigmoid": torch.sigmoid, "leakyrelu": F.leaky_relu, "elu": F.elu, "silu": F.silu}


def forward(net, params, z):
    """Maps normalised inputs (N, n_in) to normalised outputs, by differentiable operations on these parameters."""
    phi, h = ACTIVATIONS[net["activation"]], z
    if net["conv_kernel"]:
        h = phi(F.conv1d(z.unsqueeze(1), params["conv1d.weight"], params["conv1d.bias"], padding=net["conv_kernel"] // 2)).flatten(1)
    layers = len(net["W"]) - 1
    for k in range(layers + 1):
        h = F.linear(h, params[f"network.{2 * k}.weight"], params[f"network.{2 * k}.bias"])
        if k < layers:
            h = phi(h)
    return h


def loss_of(y, t, loss="mse", smooth_weight=0.0, smooth_order=2, output_std=None, output_mean=None):
    value = {"mse": F.mse_loss, "mae": F.l1_loss, "huber": F.smooth_l1_loss}[loss](y, t)
    if smooth_weight > 0:
        value = value + smooth_weight * torch.diff(y * output_std + output_mean, n=smooth_order, dim=1).square().mean()
    return value


# --------------------------------------------------------------------------------- training: each variant fills net["flat_grad"]


def gradient_autograd(net, rows, total_rows, place, **loss):
    """Plain autograd over leaf views of the flat vector."""
    leaves = {name: p.detach().requires_grad_() for name, p in net["p"].items()}
    for name, leaf in leaves.items():
        leaf.grad = net["g"][name]
    scale = rows / total_rows

    def step(z, t):
        net["flat_grad"].zero_()
        with place.autocast():
            value = loss_of(forward(net, leaves, z), t, **loss)
        (value * scale if scale != 1 else value).backward()
        return value.detach()

    return step


def closed_form(W, b, z, t, total_rows):
    """Loss (sum of squares over total rows) and gradients of the erf-GELU network, written out; for torch.compile."""
    layers = len(W) - 1
    a, h = [], [z]
    for k in range(layers):
        a.append(torch.addmm(b[k], h[k], W[k].t()))
        h.append(F.gelu(a[k]))
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


def gradient_compiled(net, rows, total_rows, options, place):
    def whole(W, b, gW, gb, z, t):
        with place.autocast():
            value, new_gW, new_gb = closed_form(W, b, z, t, total_rows)
        for k in range(len(W)):
            gW[k].copy_(new_gW[k])
            gb[k].copy_(new_gb[k])
        return value

    if place.device == "cuda":
        options = {"max_autotune": "max_autotune" in options, "triton.cudagraphs": place.graphs}
    compiled = torch.compile(whole, fullgraph=True, dynamic=False, options=options)
    place.stays([*net["W"], *net["b"], *net["gW"], *net["gb"]])

    @torch.no_grad()
    def step(z, t):
        return compiled(net["W"], net["b"], net["gW"], net["gb"], z, t)

    return step


def gradient_manual(net, rows, total_rows):
    """The closed form on retained buffers: no autograd, no allocation."""
    W, b, gW, gb = net["W"], net["b"], net["gW"], net["gb"]
    layers, wt, n_out = len(W) - 1, [w.t() for w in W], W[-1].shape[0]
    a, h, d = ([torch.empty(rows, W[k].shape[0]) for k in range(layers)] for _ in range(3))
    y = torch.empty(rows, n_out)
    scale, aten = 1.0 / (total_rows * n_out), torch.ops.aten

    @torch.no_grad()
    def step(z, t):
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


def make_gradient(name, net, rows, total_rows, place, **loss):
    """loss: options of loss_of(), for autograd only."""
    if name == "autograd":
        return gradient_autograd(net, rows, total_rows, place, **loss)
    if name == "manual":
        return gradient_manual(net, rows, total_rows)
    return gradient_compiled(net, rows, total_rows, COMPILE[name], place)


COMPILE = {"compiled": {}, "compiled-max": {"max_autotune": True, "cpp_wrapper": True}}
TRAIN_VARIANTS = ["autograd", "manual", "compiled", "compiled-max"]


def make_optimizer(net, config, place):
    """One flat parameter."""
    flat = torch.nn.Parameter(net["flat"], requires_grad=True)
    flat.grad = net["flat_grad"]
    if config["optimizer"] == "sgd":
        return torch.optim.SGD([flat], lr=config["lr"], momentum=config["momentum"], weight_decay=config["weight_decay"], fused=True)
    return torch.optim.Adam([flat], lr=config["lr"], betas=tuple(config["betas"]), eps=config["eps"], weight_decay=config["weight_decay"], **place.fused())


# -------------------------------------------------------------------------------------------------- inference: predict, Jacobian


def folded(net, norm):
    """Weights with the output scale folded into the last layer; for Jacobians also the first layer with the input scale. Inputs are normalised
    explicitly: folding the means too loses three digits for a variable with a large mean and a small spread."""
    W, b = [w.clone() for w in net["W"]], [v.clone() for v in net["b"]]
    W[-1] = net["W"][-1] * norm["output_std"][:, None]
    b[-1] = net["b"][-1] * norm["output_std"] + norm["output_mean"]
    return W, b, {"mean": norm["input_mean"].clone(), "scale": 1 / norm["input_std"], "first": net["W"][0] / norm["input_std"]}


def hidden_layers(W, b, n, x):
    """Pre-activations and the last activation."""
    a, h = [], (x - n["mean"]) * n["scale"]
    for k in range(len(W) - 1):
        a.append(torch.addmm(b[k], h, W[k].t()))
        h = F.gelu(a[k])
    return a, h


def predict_plain(W, b, n, x):
    return torch.addmm(b[-1], hidden_layers(W, b, n, x)[1], W[-1].t())


def jacobian_plain(W, b, n, x):
    """Reverse mode written out: row o of J = W_1' D_1 W_2' D_2 ... w_o. gelu_backward is the product with phi'."""
    a, _ = hidden_layers(W, b, n, x)
    rows = []
    for o in range(W[-1].shape[0]):
        s = W[-1][o].expand(x.shape[0], -1)
        for k in range(len(W) - 2, -1, -1):
            s = torch.mm(torch.ops.aten.gelu_backward(s, a[k]), W[k] if k else n["first"])
        rows.append(s)
    return torch.stack(rows, 1) if len(rows) > 1 else rows[0].unsqueeze(1)


def retained(W, b, norm, block, jacobian):
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


def make_inference(what, name, net, norm, block):
    """f(x, out): physical rows (at most `block`) to predictions (n, n_out) or physical Jacobians (n, n_out, n_in)."""
    W, b, n = folded(net, norm)
    if name == "retained":
        return retained(W, b, n, block, what == "jacobian")
    plain = predict_plain if what == "predict" else jacobian_plain
    if name == "plain":
        return lambda x, out: out.copy_(plain(W, b, n, x))
    if name == "vmap-jacrev":
        f = torch.func.vmap(torch.func.jacrev(lambda row: predict_plain(W, b, n, row.unsqueeze(0)).squeeze(0)))
        return lambda x, out: out.copy_(f(x))
    if name == "autograd":  # the gradient of each output's sum over rows

        def by_autograd(x, out):
            with torch.inference_mode(False), torch.enable_grad():
                leaf = x.clone().requires_grad_()
                y = predict_plain(W, b, n, leaf)
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
        return plain([getattr(module, f"W{k}") for k in range(len(W))], [getattr(module, f"b{k}") for k in range(len(b))],
                     {k: getattr(module, k) for k in n}, x)

    module.forward = call
    compiled = torch.compile(module, fullgraph=True, dynamic=False, options=options)
    return lambda x, out: out.copy_(compiled(x))


INFERENCE_VARIANTS = {"predict": ["plain", "retained", "compiled", "compiled-max"],
                      "jacobian": ["plain", "retained", "autograd", "vmap-jacrev", "compiled", "compiled-max"]}

# ----------------------------------------------------------------------------------------------------------------- verification


def compare(f, agreement, variants, place):
    """The tolerances are the golden files' measured ones for float32; weights are in units of the learning rate."""
    if "weights" not in f or "after_steps" not in f:
        return "not a network's golden file"
    c = {k: (v.decode() if isinstance(v, bytes) else v) for k, v in f.attrs.items()}
    get = lambda name: torch.from_numpy(f[name][()])
    net = build_network(int(c["inputs"]), int(c["outputs"]), int(c["hidden"]), int(c["layers"]), c["activation"],
                        int(c["conv_channels"]), int(c["conv_kernel"]))
    norm = {k: get("norm/" + k).float() for k in f["norm"]}
    start = {k: get("weights/" + k) for k in f["weights"]}
    load = lambda: [net["p"][k].copy_(v) for k, v in start.items()]
    load()
    x, target = get("inputs/x"), get("inputs/t")
    z, t = (x - norm["input_mean"]) / norm["input_std"], (target - norm["output_mean"]) / norm["output_std"]
    closed = c["activation"] == "gelu" and not c["conv_channels"]
    normalised = forward(net, net["p"], z)
    agreement.compare("y_norm", normalised, f["outputs/y_norm"], 2e-6)
    agreement.compare("predict", normalised * norm["output_std"] + norm["output_mean"], f["outputs/predict"], 2e-6)
    row_of = lambda row: forward(net, net["p"], row.unsqueeze(0)).squeeze(0)
    agreement.compare("jac", torch.func.vmap(torch.func.jacrev(row_of))(z), f["outputs/jac"], 3e-6)
    for what, golden, tolerance in (("predict", "predict", 2e-6), ("jacobian", "jac_physical", 3e-6)):
        for name in (name for name in INFERENCE_VARIANTS[what] if closed and name in variants):
            out = torch.empty(f["outputs/" + golden].shape)
            with torch.no_grad():
                make_inference(what, name, net, norm, x.shape[0])(x, out)
            agreement.compare(f"{what} {name}", out, f["outputs/" + golden], tolerance)

    loss = dict(loss=c["loss"], smooth_weight=float(c["smooth_weight"]), smooth_order=int(c["smooth_order"]),
                output_std=norm["output_std"], output_mean=norm["output_mean"])
    plain = closed and c["loss"] == "mse" and not c["smooth_weight"]
    for name in (name for name in TRAIN_VARIANTS if name in variants and (plain or name == "autograd")):
        load()
        settings = {key: float(c[key]) for key in ("lr", "momentum", "weight_decay")}
        optimizer = make_optimizer(net, {**settings, "optimizer": c["optimizer"], "eps": float(c["adam_eps"]),
                                         "betas": [float(v) for v in c["adam_betas"]]}, place)
        ema = net["flat"].clone()
        for s in range(len(f["batches"])):
            rows = get(f"batches/{s}").long()
            n = len(rows)
            gradient = make_gradient(name, net, n, n, place, **loss)
            decay = {"none": 1.0, "step": float(c["gamma"]) ** (s // int(c["step_size"])),
                     "cosine": (1 + math.cos(math.pi * s / int(c["t_max"]))) / 2}[c["schedule"]]
            optimizer.param_groups[0]["lr"] = settings["lr"] * decay
            agreement.compare(f"{name} loss {s}", gradient(z[rows], t[rows]), f["steps/loss"][s], 2e-6)
            if s == 0:
                for k in net["g"]:
                    agreement.compare(f"{name} gradient of {k}", net["g"][k], f["grads/" + k], 5e-6)
            optimizer.step()
            ema.mul_(float(c["ema"])).add_(net["flat"].detach(), alpha=1 - float(c["ema"]))
        for group, vector in [("after_steps", net["flat"])] + ([("after_steps_ema", ema)] if c["ema"] > 0 else []):
            pieces = vector.detach().split([p.numel() for p in net["p"].values()])
            for (k, p), piece in zip(net["p"].items(), pieces):
                agreement.compare(f"{name} {group}/{k}", piece.view(p.shape), f[f"{group}/{k}"], 2e-3, settings["lr"])


# ------------------------------------------------------------------------------------------------------------------ measurement

N_IN, HIDDEN, LAYERS, N_OUT = 14, 64, 3, 1  # without --data
BLOCKS = (1000, 4000, 16000)  # rows per inference call to try


def read(path):
    """Normalised inputs and outputs of the training and of the validation rows of a prepared file."""
    import h5py

    with h5py.File(path) as f:
        split, moments = f["split"][:], f["moments"]
        found = [(f[name][:] - moments[what + "_mean"][:]) / moments[what + "_std"][:] for name, what in (("x", "input"), ("y", "output"))]
    return [torch.from_numpy(values[split == part]).float() for part in (0, 1) for values in found]


def training(net, variants, options, place, rows):
    z, t, *validation = rows or (torch.randn(options.rows, N_IN), torch.randn(options.rows, N_OUT))
    options.rows, mine = len(z), options.batch // place.ranks

    def rate(name):
        gradient = make_gradient(name, net, mine, options.batch, place)
        optimizer = make_optimizer(net, {"optimizer": "adam", "lr": 1e-4, "betas": (0.9, 0.999), "eps": 1e-8,
                                         "weight_decay": 1e-4}, place)
        generator = place.generator(7)  # the same permutation on all ranks

        def batches():
            while True:
                permutation = torch.randperm(options.rows, generator=generator)
                for first in range(0, options.rows - options.batch + 1, options.batch):
                    yield [permutation[first + place.rank * mine:][:mine]]

        batch = place.ahead(batches().__next__, options.rows // options.batch)

        def step():
            index, = batch()
            gradient(torch.index_select(z, 0, index), torch.index_select(t, 0, index))
            place.sum(net["flat_grad"])
            optimizer.step()

        def evaluate():
            identity = {"input_mean": torch.zeros(z.shape[1]), "input_std": torch.ones(z.shape[1]),
                        "output_mean": torch.zeros(t.shape[1]), "output_std": torch.ones(t.shape[1])}
            x, wanted = validation
            found = torch.empty_like(wanted)
            with torch.inference_mode():
                make_inference("predict", "plain", net, identity, len(x))(x, found)
            return float((found - wanted).square().mean())

        return place.rate(step, options.batch, evaluate, lambda: [net["flat"], optimizer.state_dict()])

    return {name: rate(name) for name in variants}


def inference(what, net, variants, options, place):
    norm = {"input_mean": torch.randn(N_IN), "input_std": torch.rand(N_IN) + 0.5,
            "output_mean": torch.randn(N_OUT), "output_std": torch.rand(N_OUT) + 0.5}
    share = options.rows // place.ranks
    x = torch.randn(share, N_IN)
    out = torch.empty(share, N_OUT) if what == "predict" else torch.empty(share, N_OUT, N_IN)

    def rate(name, block):
        # Whole blocks only, so that a compiled graph has one shape.
        ranges = [(i, i + block) for i in range(0, share - block + 1, block)]
        f = make_inference(what, name, net, norm, block)

        def sweep():
            with torch.inference_mode(name not in ("autograd", "vmap-jacrev")):
                for i, j in ranges:
                    f(x[i:j], out[i:j])

        return place.rate(sweep, len(ranges) * block * place.ranks)

    rates = {}
    for variant in variants:
        name, _, fixed = variant.partition("@")
        for block in [int(fixed)] if fixed else sorted({min(block, share) for block in BLOCKS}):
            rates[f"{name}@{block}"] = rate(name, block)
    return rates


def main():
    parser = arguments(__doc__)
    parser.add_argument("--bench", choices=["train", "predict", "jacobian"])
    parser.add_argument("--variants", help="only these, separated by commas; inference takes NAME@BLOCK")
    parser.add_argument("--batch", type=int, default=1000, help="global batch of a training step, split over the ranks")
    parser.add_argument("--rows", type=int, default=360000)
    parser.add_argument("--data", help="of a training: a prepared file instead of random rows")
    options = parser.parse_args()
    if not options.check and not options.bench:
        parser.error("say --check or --bench")
    place = Place(options)
    chosen = options.variants.split(",") if options.variants else None
    if options.check:
        every = {*TRAIN_VARIANTS, *INFERENCE_VARIANTS["jacobian"]}
        check(options.check, lambda f, agreement: compare(f, agreement, chosen or every, place))
    torch.manual_seed(1)
    rows = read(options.data) if options.data else None
    net = build_network(*([t.shape[1] for t in rows[:2]] if rows else (N_IN, N_OUT)), HIDDEN, LAYERS)
    if options.bench == "train":
        rates = training(net, chosen or TRAIN_VARIANTS, options, place, rows)
    else:
        rates = inference(options.bench, net, chosen or INFERENCE_VARIANTS[options.bench], options, place)
    place.report(rates, job=options.bench)
    place.leave()


if __name__ == "__main__":
    main()
