#!/usr/bin/env python3
"""Activity recognition in PyTorch, tuned for CPUs as an expert would: the baseline of compare_har.sh.

Written from docs/models/har.md; --check compares it with the golden files. Data are tensors, normalised (or drawn) once; batches are cut with
index_select from one permutation per epoch; queries, keys and values are one product; attention is scaled_dot_product_attention; gradients lie
in one flat tensor, so the fused AdamW, the clipping and the all-reduce are one call each; the loop reads no loss back. --variant compile adds
torch.compile.

  har_peer.py --check golden/har_*.h5
  har_peer.py --bench --input signal --ranks 2 --threads 1 --batch 32 --data hapt.h5      one JSON line: windows/s
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


def make_model(torch, a):
    """The network. renamed() maps the golden files' parameter names to its own."""
    nn, F = torch.nn, torch.nn.functional

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            columns = a["heads"] * a["head_dim"]
            self.mha_ln, self.layernorm = nn.LayerNorm(a["dim"], a["ln_eps"]), nn.LayerNorm(a["dim"], a["ln_eps"])
            self.qkv, self.out = nn.Linear(a["dim"], 3 * columns), nn.Linear(columns, a["dim"])
            self.up, self.down = nn.Linear(a["dim"], a["mlp"]), nn.Linear(a["mlp"], a["dim"])

        def mlp(self, x):
            drop = a["encoder_dropout"] if self.training else 0.0
            return F.dropout(self.down(F.dropout(F.gelu(self.up(x)), drop)), drop)

        def forward(self, x):
            n, t, _ = x.shape
            drop = a["encoder_dropout"] if self.training else 0.0
            q, k, v = self.qkv(self.mha_ln(x)).view(n, t, 3, a["heads"], a["head_dim"]).permute(2, 0, 3, 1, 4)
            o = F.scaled_dot_product_attention(q, k, v, dropout_p=drop).transpose(1, 2).reshape(n, t, -1)
            x = x + F.dropout(self.out(o), drop)
            return x + self.mlp(self.layernorm(x)) if a["mlp_norm"] == "pre" else self.layernorm(x + self.mlp(x))

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            if a["input"] == "image":
                self.stem = nn.Conv2d(3, a["dim"], a["patch"], a["patch"])
                tokens = (a["image"] // a["patch"]) ** 2
            else:
                self.stem = nn.Linear(a["patch"], a["dim"])
                tokens = a["length"] // a["patch"]
            self.stem_ln, self.output_ln = nn.LayerNorm(a["dim"], a["ln_eps"]), nn.LayerNorm(a["dim"], a["ln_eps"])
            self.pos = nn.Parameter(0.02 * torch.randn(1, tokens, a["dim"]))
            self.layers = nn.ModuleList(Layer() for _ in range(a["layers"]))
            self.pool = None if a["mean_pool"] else nn.Sequential(nn.Linear(a["dim"], a["dim"] // 4), nn.Tanh(), nn.Linear(a["dim"] // 4, 1))
            head, width = [], a["channels"] * a["dim"]
            for h in a["hidden"]:
                head += [nn.Linear(width, h), nn.LayerNorm(h, a["ln_eps"]), nn.GELU(), nn.Dropout(a["dropout"])]
                width = h
            self.head = nn.Sequential(*head, nn.Linear(width, a["classes"]))

        def forward(self, x):
            x = self.stem(x)
            if a["input"] == "image":
                x = x.flatten(2).transpose(1, 2)
            x = self.stem_ln(x) + self.pos
            for layer in self.layers:
                x = layer(x)
            x = self.output_ln(x)
            z = x.mean(1) if self.pool is None else (torch.softmax(self.pool(x), 1) * x).sum(1)
            return self.head(z.reshape(-1, a["channels"] * a["dim"]))

    return Net()


def renamed(a, torch, weights, prefix):
    """The state of Net from the arrays of a golden file; None if the file has none."""
    get = lambda name: torch.from_numpy(weights[prefix + name][()]) if prefix + name in weights else None
    state = {"stem.weight": get("encoder.stem_conv.weight"), "stem.bias": get("encoder.stem_conv.bias"), "pos": get("encoder.pos_embedding")}
    for ln in ("stem_ln", "output_ln"):
        for kind in ("weight", "bias"):
            state[f"{ln}.{kind}"] = get(f"encoder.{ln}.{kind}")
    for l in range(a["layers"]):
        path = f"encoder.encoder_layers.{l}."
        for kind in ("weight", "bias"):
            parts = [get(f"{path}mha.{p}_dense.{kind}") for p in ("query", "key", "value")]
            state[f"layers.{l}.qkv.{kind}"] = None if parts[0] is None else torch.cat(parts)
            for mine, theirs in (("mha_ln", "mha_ln"), ("out", "mha.output_dense"), ("layernorm", "mlp.layernorm"), ("up", "mlp.dense1"), ("down", "mlp.dense2")):
                state[f"layers.{l}.{mine}.{kind}"] = get(f"{path}{theirs}.{kind}")
    if not a["mean_pool"]:
        for i in (0, 2):
            for kind in ("weight", "bias"):
                state[f"pool.{i}.{kind}"] = get(f"pooling.attention.{i}.{kind}")
    for i in range(len(a["hidden"]) * 4 + 1):
        if i % 4 < 2:
            for kind in ("weight", "bias"):
                state[f"head.{i}.{kind}"] = get(f"classifier.head.{i}.{kind}")
    return state


def golden_arch(attrs):
    a = {k: attrs[k].item() for k in ("image", "patch", "channels", "dim", "heads", "head_dim", "layers", "mlp", "classes", "mean_pool", "ln_eps")}
    a.update(input="image", mlp_norm=attrs["mlp_norm"], hidden=[int(h) for h in attrs["hidden_dims"]], encoder_dropout=0.0, dropout=0.0)
    return a


def check(torch, files):
    import h5py
    torch.set_default_dtype(torch.float64)
    good = True
    for path in files:
        with h5py.File(path) as f:
            if "weights" not in f:
                continue
            a = golden_arch(f.attrs)
            net = make_model(torch, a)
            net.load_state_dict({k: v.double() for k, v in renamed(a, torch, f, "weights/").items()})
            images, labels = torch.from_numpy(f["inputs/images"][0]).double(), torch.from_numpy(f["inputs/labels"][0]).long()
            logits = net(images)
            torch.nn.functional.cross_entropy(logits, labels, label_smoothing=0.1).backward()
            rows = [("logits", logits.detach(), torch.from_numpy(f["outputs_f64/logits"][()]))]
            expected = renamed(a, torch, f, "grads_f64/")
            grads = {n: p.grad for n, p in net.named_parameters()}
            rows += [(n, grads[n], e) for n, e in expected.items() if e is not None]
            worst = ("", 0.0)
            for name, value, reference in rows:
                error = ((value - reference).abs().max() / reference.abs().max().clamp(min=1e-12)).item()
                if reference.abs().max() < 1e-12:  # zero up to rounding
                    error = (value - reference).abs().max().item()
                worst = max(worst, (name, error), key=lambda r: r[1])
            ok = worst[1] < 1e-9
            good &= ok
            print(f"{os.path.basename(path)}: {len(rows)} arrays, worst {worst[0]} {worst[1]:.1e} {'ok' if ok else 'FAIL'}")
    return good


def draw(torch, signals, image):
    """Float pictures of every channel, with lines of lockstep's width, as the reference keeps them in memory. Speed does not depend on the pixels."""
    n, c, length = signals.shape
    low, high = signals.amin(2, keepdim=True), signals.amax(2, keepdim=True)
    y = image - 1 - ((signals - low) / (high - low).clamp(min=1e-8) * (image - 2 * (image // 20))).long() - image // 20
    out = torch.ones(n * c, 3, image, image)
    x = torch.linspace(0, image - 1, length).long().expand(n * c, length)
    for i in range(2):
        out[torch.arange(n * c)[:, None], :2, (y.view(n * c, length) - i).clamp(0, image - 1), x] = 0
    mean, std = (torch.tensor(v, device=out.device) for v in ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]))
    return ((out - mean[None, :, None, None]) / std[None, :, None, None]).view(n, c, 3, image, image)


def bench(torch, o):
    dist = join_ranks(o)
    place = Place(torch, o)
    torch.set_num_threads(o.threads)
    torch.set_flush_denormal(True)
    torch.manual_seed(1)
    a = dict(input=o.input, length=128, image=o.image, patch=16, channels=9, classes=6, mean_pool=False, ln_eps=1e-5, encoder_dropout=o.dropout, dropout=o.dropout)
    if o.input == "signal":
        a.update(dim=64, layers=3, heads=4, head_dim=16, mlp=128, mlp_norm="pre", hidden=[64])
    else:
        a.update(dim=768, layers=o.layers, heads=12, head_dim=64, mlp=3072, mlp_norm="post", hidden=[512])
    if o.data:
        import h5py
        with h5py.File(o.data) as f:
            signals, labels = torch.from_numpy(f["train/signals"][: o.windows]), torch.from_numpy(f["train/labels"][: o.windows]).long()
            mean, std = torch.from_numpy(f.attrs["channel_mean"]), torch.from_numpy(f.attrs["channel_std"])
            signals, labels, mean, std = (place.to(t) for t in (signals, labels, mean, std))
    else:
        signals, labels = torch.randn(o.windows, 9, 128, dtype=torch.float64).cumsum(2), torch.randint(0, 6, (o.windows,))
        mean, std = signals.mean((0, 2)), signals.std((0, 2))
    if o.input == "signal":
        x = ((signals - mean[None, :, None]) / std[None, :, None]).float().view(-1, 9, 128 // 16, 16)
    else:
        x = draw(torch, signals[: min(len(signals), 8 * o.batch)], o.image)
        labels = labels[: len(x)]
    del signals
    net = make_model(torch, a)
    net.train()
    params = list(net.parameters())
    flat = torch.zeros(sum(p.numel() for p in params))
    at = 0
    for p in params:
        p.grad = flat[at : at + p.numel()].view_as(p)
        at += p.numel()
    optimizer = torch.optim.AdamW(params, lr=1e-3, weight_decay=1e-4, fused=True)
    forward = place.compile(net, dynamic=False) if o.variant == "compile" else net
    loss = torch.nn.CrossEntropyLoss(label_smoothing=0.1)

    def step(order):
        flat.zero_()
        batch = x.index_select(0, order)
        with place.autocast():
            value = loss(forward(batch.view(-1, *batch.shape[2:])), labels.index_select(0, order))
        value.backward()
        if o.ranks > 1:
            dist.all_reduce(flat)
            flat.div_(o.ranks)
        flat.mul_(torch.clamp(1.0 / (flat.norm() + 1e-6), max=1.0))
        optimizer.step()

    generator = place.generator(o.rank)
    orders = torch.stack([torch.randperm(len(x), generator=generator)[: o.batch] for _ in range(64)])
    for i in range(o.warmup):
        step(orders[i % 64])
    place.wait()
    each = time.perf_counter()
    step(orders[0])
    place.wait()
    each = time.perf_counter() - each
    if o.ranks > 1:
        slowest = torch.tensor([each])
        dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
        each = slowest.item()
    steps = o.steps or max(3, int(o.seconds / each))
    rates, per_window = [], max(1, steps // 5)
    start = time.perf_counter()
    for i in range(steps):
        step(orders[i % 64])
        if (i + 1) % per_window == 0:
            place.wait()
            now = time.perf_counter()
            rates.append(per_window * o.batch * o.ranks / (now - start))
            start = now
    if o.rank == 0:
        print(json.dumps({"windows_per_s": statistics.median(rates), "best": max(rates), "worst": min(rates), "steps": steps, "ranks": o.ranks, "threads": o.threads, "batch": o.batch,
                          "variant": o.variant, "peak_rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, "torch": torch.__version__, **place.facts(),
                          "cpu_capability": torch.backends.cpu.get_cpu_capability()}))
    if o.ranks > 1:
        dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", nargs="+", metavar="GOLDEN.h5", help="compare with golden files; exit 1 if any array is out of bounds")
    parser.add_argument("--bench", action="store_true", help="time training steps")
    parser.add_argument("--input", choices=["signal", "image"], default="signal")
    parser.add_argument("--variant", choices=["eager", "compile"], default="eager")
    add_options(parser)
    add_rank_options(parser)
    parser.add_argument("--batch", type=int, default=32, help="windows per rank")
    parser.add_argument("--windows", type=int, default=4096)
    parser.add_argument("--image", type=int, default=224)
    parser.add_argument("--layers", type=int, default=12, help="of the image network")
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--data", default="", help="prepared file; synthetic signals without it")
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--steps", type=int, default=0)
    parser.add_argument("--warmup", type=int, default=5)
    o = parser.parse_args()
    if o.check:
        import torch
        sys.exit(0 if check(torch, o.check) else 1)
    if not o.bench:
        parser.error("give --check or --bench")
    start_ranks(o)
    import torch
    bench(torch, o)


if __name__ == "__main__":
    main()
