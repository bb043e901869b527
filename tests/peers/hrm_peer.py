#!/usr/bin/env python3
"""The hierarchical reasoning model and TRM in PyTorch, tuned as an expert would: a baseline for lockstep.

Written from the formulas in docs/models/hrm.md; --check compares it with the golden files. Input embeddings and rotary
tables are computed once, inner calls without gradient run under no_grad, attention is scaled_dot_product_attention, the
optimizer updates all tensors by foreach calls, and the timed loop reads nothing back. --compile wraps the blocks in
torch.compile; --precision bf16 runs the matrix products in bfloat16 with master weights in fp32, cast once per step.
--form trm is TRM with attention, mlp_t that with a gated layer across positions, with their published depths.

  hrm_peer.py --check golden/hrm_rope_stablemax.h5
  hrm_peer.py --bench --batch 16 --threads 2 --seconds 30               one JSON line: samples/s, peak memory
  hrm_peer.py --train data/sudoku.h5 --batch 96 --steps 2000 --lr 1e-3  quality: exact answers on the test puzzles
"""
import itertools
import json
import math
import time

from common import Place, arguments, check

import h5py
import numpy as np
import torch
import torch.nn.functional as F


def inter_size(hidden, expansion):
    return 256 * math.ceil(round(expansion * hidden * 2 / 3) / 256)


def rms(x, eps=1e-5):
    return F.rms_norm(x, (x.shape[-1],), eps=eps)


def gated(x, gate_up, down):
    g, u = F.linear(x, gate_up).chunk(2, -1)
    return F.linear(F.silu(g) * u, down)


def stablemax_loss(logits, labels):
    """Loss per position; labels < 0 give 0. The two branches are separated before the division, so that no gradient is NaN."""
    s = torch.where(logits >= 0, logits + 1, 1 / (1 - torch.clamp(logits, max=0)))
    p = torch.log(s) - torch.log(s.sum(-1, keepdim=True))
    mask = labels >= 0
    return torch.where(mask, -p.gather(-1, labels.clamp(min=0)[..., None])[..., 0], torch.zeros((), dtype=p.dtype, device=p.device))


def softmax_loss(logits, labels):
    return F.cross_entropy(logits.flatten(0, -2), labels.flatten().masked_fill(labels.flatten() < 0, -100), ignore_index=-100, reduction="none").view(labels.shape)


class Network:
    """Weights by name, as plain tensors; the levels H and L are functions of them."""

    def __init__(self, c, dtype=torch.float32, weights=None, seed=0):
        self.c, self.dtype = c, dtype
        d, v, inter = c["hidden"], c["vocab"], inter_size(c["hidden"], c["expansion"])
        self.trm, self.prefix = c["form"] != "hrm", c["puzzle_emb_len"]
        self.length = self.prefix + c["seq_len"]
        shapes = {"embed_tokens.embedding_weight": (v, d), "lm_head.weight": (v, d), "q_head.weight": (2, d), "q_head.bias": (2,)}
        if c["pos"] == "learned":
            shapes["embed_pos.embedding_weight"] = (self.length, d)
        if c["form"] == "mlp_t":
            t, wide = self.length, inter_size(self.length, c["expansion"])
            layer = {"mlp_t.gate_up_proj": (2 * wide, t), "mlp_t.down_proj": (t, wide)}
        else:
            layer = {"self_attn.qkv_proj": (3 * d, d), "self_attn.o_proj": (d, d)}
        layer |= {"mlp.gate_up_proj": (2 * inter, d), "mlp.down_proj": (d, inter)}
        levels = {"L": c["l_layers"]} if self.trm else {"H": c["h_layers"], "L": c["l_layers"]}
        self.layers = {level: [[f"{level}_level.layers.{i}.{n}.weight" for n in layer] for i in range(count)]
                       for level, count in levels.items()}
        for names in itertools.chain(*self.layers.values()):
            shapes |= zip(names, layer.values())
        g = torch.Generator(torch.get_default_device()).manual_seed(seed)
        self.p = {}
        for name, shape in shapes.items():
            if weights is not None:
                w = torch.as_tensor(np.asarray(weights[name]), dtype=dtype)
            elif name == "q_head.weight":
                w = torch.zeros(shape, dtype=dtype)
            elif name == "q_head.bias":
                w = torch.full(shape, -5.0, dtype=dtype)
            else:
                fan = d if name.startswith("embed") else shape[1]
                w = torch.nn.init.trunc_normal_(torch.empty(shape, dtype=dtype), std=1, a=-2, b=2, generator=g) / (0.8796256610342398 * math.sqrt(fan))
            self.p[name] = w.requires_grad_()
        take = lambda name, default: torch.as_tensor(np.asarray(weights[name]), dtype=dtype) if weights is not None else default
        self.table = take("puzzle_emb.weights", torch.zeros(c["num_ids"], c["puzzle_ndim"], dtype=dtype))
        self.h_init = take("H_init", torch.nn.init.trunc_normal_(torch.empty(d), generator=g).to(dtype))
        self.l_init = take("L_init", torch.nn.init.trunc_normal_(torch.empty(d), generator=g).to(dtype))
        if c["pos"] == "rope":
            half = d // c["heads"] // 2
            angle = torch.arange(self.length, dtype=torch.float64)[:, None] * 1e4 ** (-torch.arange(half, dtype=torch.float64) / half)
            self.cos, self.sin = (torch.cat([f(angle)] * 2, -1).to(dtype)[None, None] for f in (torch.cos, torch.sin))
        self.cast = self.p  # the weights that matrix products read
        self.block_function = self.block

    def use_bf16(self):
        self.cast = {n: w.detach().to(torch.bfloat16).requires_grad_() if w.dim() == 2 else w for n, w in self.p.items()}

    def refresh_bf16(self):
        with torch.no_grad():
            for n, w in self.p.items():
                if self.cast[n] is not w:
                    self.cast[n].copy_(w)

    def block(self, x, mix_in, mix_out, gate_up, down):
        mix = self.mix_positions if self.c["form"] == "mlp_t" else self.attend
        x = mix(x, mix_in, mix_out)
        return rms(x + gated(x, gate_up, down))

    def mix_positions(self, x, gate_up, down):
        x = x.transpose(1, 2)
        return rms(x + gated(x, gate_up, down)).transpose(1, 2)

    def attend(self, x, qkv, o):
        b, t, d = x.shape
        h = self.c["heads"]
        q, k, v = F.linear(x, qkv).view(b, t, 3, h, d // h).permute(2, 0, 3, 1, 4)
        if self.c["pos"] == "rope":
            half = d // h // 2
            turn = lambda y: y * self.cos.to(y.dtype) + torch.cat((-y[..., half:], y[..., :half]), -1) * self.sin.to(y.dtype)
            q, k = turn(q), turn(k)
        a = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, t, d)
        return rms(x + F.linear(a, o))

    def level(self, name, z, injection):
        x = z + injection
        for names in self.layers["L" if self.trm else name]:
            x = self.block_function(x, *(self.cast[n] for n in names))
        return x

    def embed(self, tokens, rows):
        e = F.embedding(tokens, self.cast["embed_tokens.embedding_weight"])
        d = self.c["hidden"]
        parts = [e]
        if self.prefix:
            parts.insert(0, F.pad(rows.to(e.dtype), (0, self.prefix * d - rows.shape[1])).view(-1, self.prefix, d))
        x = torch.cat(parts, 1)
        if self.c["pos"] == "learned":
            x = 0.707106781 * (x + self.cast["embed_pos.embedding_weight"])
        return math.sqrt(d) * x

    def inner(self, z_h, z_l, x):
        n, m = self.c["h_cycles"], self.c["l_cycles"]
        differentiated = m if self.trm else 1  # calls of L; the last call of H is always differentiated
        with torch.no_grad():
            for i in range(n):
                for _ in range(m if i != n - 1 else m - differentiated):
                    z_l = self.level("L", z_l, z_h + x)
                if i != n - 1:
                    z_h = self.level("H", z_h, z_l)
        for _ in range(differentiated):
            z_l = self.level("L", z_l, z_h + x)
        z_h = self.level("H", z_h, z_l)
        logits = F.linear(z_h[:, self.prefix:], self.cast["lm_head.weight"])
        q = F.linear(z_h[:, 0], self.cast["q_head.weight"]).to(self.p["q_head.bias"].dtype) + self.p["q_head.bias"]
        return z_h, z_l, logits, q


class AdamAtan2:
    """The number of steps is a tensor, which a CUDA graph can advance."""

    def __init__(self, params, beta1, beta2, wd):
        self.params, self.b1, self.b2, self.wd = params, beta1, beta2, wd
        self.t = torch.zeros((), dtype=params[0].dtype)
        self.m, self.v = [torch.zeros_like(p) for p in params], [torch.zeros_like(p) for p in params]

    @torch.no_grad()
    def step(self, grads, lr):
        self.t.add_(1)
        torch._foreach_mul_(self.params, 1 - lr * self.wd)
        torch._foreach_lerp_(self.m, grads, 1 - self.b1)
        torch._foreach_mul_(self.v, self.b2)
        torch._foreach_addcmul_(self.v, grads, grads, 1 - self.b2)
        d = torch._foreach_sqrt(self.v)
        torch._foreach_div_(d, (1 - self.b2 ** self.t).sqrt())
        moves = [torch.atan2(m, denominator) for m, denominator in zip(self.m, d)]
        torch._foreach_mul_(moves, -lr / (1 - self.b1 ** self.t))
        torch._foreach_add_(self.params, moves)


class Trainer:
    """The carry of all slots and one training step."""

    def __init__(self, net, batch, lr, wd, beta1=0.9, beta2=0.95, puzzle_lr=None, puzzle_wd=None, schedule=lambda t: 1.0, halt_max_steps=16, explore=0.1, loss="stablemax", ema=0.999):
        self.net, self.batch, self.lr, self.schedule = net, batch, lr, schedule
        self.puzzle_lr, self.puzzle_wd = lr if puzzle_lr is None else puzzle_lr, wd if puzzle_wd is None else puzzle_wd
        self.names = list(net.p)
        self.optimizer = AdamAtan2([net.p[n] for n in self.names], beta1, beta2, wd)
        self.halt_max_steps, self.explore, self.ema = halt_max_steps, explore, ema
        self.average = {n: p.detach().clone() for n, p in net.p.items()} if net.trm else None
        self.in_place = False  # whether the next step's states are new values of the same tensors, as graphs need them
        self.token_loss = stablemax_loss if loss.startswith("stablemax") else softmax_loss
        act = torch.bfloat16 if net.cast is not net.p else net.dtype
        self.z_h = torch.zeros(batch, net.length, net.c["hidden"], dtype=act)
        self.z_l = torch.zeros_like(self.z_h)
        self.steps, self.halted = torch.zeros(batch, dtype=torch.long), torch.ones(batch, dtype=torch.bool)
        self.inputs = torch.zeros(batch, net.c["seq_len"], dtype=torch.long)
        self.labels, self.ids = torch.full_like(self.inputs, -100), torch.zeros(batch, dtype=torch.long)
        self.t = 0

    def hold(self, **states):
        for name, value in states.items():
            if self.in_place:
                getattr(self, name).copy_(value)
            else:
                setattr(self, name, value)

    def step(self, inputs, labels, ids, least=None):
        net, h, device = self.net, self.halted, self.z_h.device
        z_h = torch.where(h[:, None, None], net.h_init.to(self.z_h.dtype), self.z_h)
        z_l = torch.where(h[:, None, None], net.l_init.to(self.z_l.dtype), self.z_l)
        inputs, labels = torch.where(h[:, None], inputs, self.inputs), torch.where(h[:, None], labels, self.labels)
        ids = torch.where(h, ids, self.ids)
        steps = torch.where(h, 0, self.steps) + 1
        rows = net.table[ids].requires_grad_()
        x = net.embed(inputs, rows)
        z_h, z_l, logits, q = net.inner(z_h, z_l, x)
        z_h, z_l = z_h.detach(), z_l.detach()
        last = steps >= self.halt_max_steps
        if least is None:
            longer = torch.randint(2, self.halt_max_steps + 1, (self.batch,), device=device)
            least = torch.where(torch.rand(self.batch, device=device) < self.explore, longer, 0)
        nq = None
        if not net.trm:
            with torch.no_grad():
                nq = net.inner(z_h, z_l, x)[3]
                target = torch.sigmoid(torch.where(last, nq[:, 0], torch.maximum(nq[:, 0], nq[:, 1])))
        self.hold(z_h=z_h, z_l=z_l, inputs=inputs, labels=labels, ids=ids, steps=steps,
                  halted=(last | (q[:, 0] > (0 if net.trm else q[:, 1]))).detach() & (steps >= least))
        mask = labels >= 0
        n = mask.sum(-1)
        exact = ((logits.argmax(-1) == labels) & mask).sum(-1) == n
        lm = (self.token_loss(logits.to(net.dtype), labels).sum(-1) / n.clamp(min=1)).sum()
        loss = lm + 0.5 * F.binary_cross_entropy_with_logits(q[:, 0], exact.to(q.dtype), reduction="sum")
        if not net.trm:
            loss = loss + 0.5 * F.binary_cross_entropy_with_logits(q[:, 1], target, reduction="sum")
        leaves = [net.cast[n] for n in self.names]
        grads = torch.autograd.grad(loss / self.batch, leaves + [rows], allow_unused=True)
        row_grads = grads[-1]
        grads = [torch.zeros_like(net.p[n]) if g is None else g.to(net.p[n].dtype) for n, g in zip(self.names, grads[:-1])]
        self.t += 1
        factor = self.schedule(self.t)
        self.optimizer.step(grads, self.lr * factor)
        if net.trm:
            with torch.no_grad():
                torch._foreach_lerp_(list(self.average.values()), list(net.p.values()), 1 - self.ema)
        if row_grads is not None:
            with torch.no_grad():  # all rows of the table, which is small here: no number of rows goes to the host
                seen = torch.zeros(len(net.table), 1, dtype=torch.bool, device=device).index_fill_(0, ids, True)
                total = torch.zeros_like(net.table).index_add_(0, ids, row_grads)
                lr = self.puzzle_lr * factor
                net.table.copy_(torch.where(seen, net.table * (1 - lr * self.puzzle_wd) - lr * torch.sign(total), net.table))
        if net.cast is not net.p:
            net.refresh_bf16()
        self.last = {"loss": loss.detach(), "logits": logits.detach(), "q": q.detach(), "next_q": nq, "grads": grads, "row_grads": row_grads, "exact": exact, "halted": self.halted}
        return self.last


def cosine(warmup, total, min_ratio):
    def factor(t):
        if t < warmup:
            return t / max(1, warmup)
        progress = (t - warmup) / max(1, total - warmup)
        return min_ratio + max(0.0, (1 - min_ratio) * 0.5 * (1 + math.cos(math.pi * progress)))
    return factor


def compare(f, agreement):
    if "steps" not in f:
        return "no training"
    c = {k: (v.item() if hasattr(v, "item") else v) for k, v in f.attrs.items()}
    c["form"] = "mlp_t" if c.get("mlp_t") else "hrm"
    weights = {}
    f["weights"].visititems(lambda n, o: weights.update({n: o[:]}) if hasattr(o, "shape") else None)
    net = Network(c, torch.float64, weights)
    trainer = Trainer(net, c["batch"], c["lr"], c["wd"], c["beta1"], c["beta2"], c["puzzle_lr"], c["puzzle_wd"],
                      cosine(c["warmup"], c["total_steps"], c["min_ratio"]), c["halt_max_steps"], c["explore"], c["loss"], c.get("ema"))
    for t in range(c["steps"]):
        s = f[f"steps/{t}"]
        close = lambda name, found, wanted: agreement.compare(f"{name} of step {t}", found, s[wanted], 1e-6)
        batch = [torch.as_tensor(s[f"batch/{n}"][:], dtype=torch.long) for n in ("inputs", "labels", "puzzle_identifiers")]
        least = torch.as_tensor(np.where(s["draws/explore_u"][:] < c["explore"], s["draws/explore_n"][:], 0))
        out = trainer.step(*batch, least)
        close("logits", out["logits"], "outputs/logits")
        close("q", out["q"][:, 0], "outputs/q_halt_logits")
        if not net.trm:
            close("next_q", out["next_q"][:, 0], "outputs/next_q_halt_logits")
        close("loss", out["loss"], "outputs/loss")
        close("halted", out["halted"], "carry/halted")
        close("puzzle rows", out["row_grads"], "grads/puzzle_emb.local_weights")
        close("puzzle table", net.table, "after/puzzle_emb.weights")
        for n, g in zip(trainer.names, out["grads"]):
            if "grads/" + n in s:
                close(f"gradient of {n}", g, "grads/" + n)
    for n in trainer.names:
        agreement.compare(n, net.p[n], f[f"after_steps/{c['steps']}/{n}"], 1e-6)
        if f"average_after_steps/{c['steps']}/{n}" in f:
            agreement.compare(f"average of {n}", trainer.average[n], f[f"average_after_steps/{c['steps']}/{n}"], 1e-6)


def configuration(a, seq_len, vocab):
    published = {"h_layers": 4, "l_layers": 4, "h_cycles": 2, "l_cycles": 2, "puzzle_emb_len": 1}
    if a.form != "hrm":
        published |= {"l_layers": 2, "h_cycles": 3, "l_cycles": 6, "puzzle_emb_len": 16}
    sizes = {name: getattr(a, name, None) or size for name, size in published.items()}
    return {**sizes, "form": a.form, "hidden": a.hidden, "heads": a.heads, "expansion": 4.0, "puzzle_ndim": a.hidden,
            "pos": "none" if a.form == "mlp_t" else "rope", "num_ids": 1, "seq_len": seq_len, "vocab": vocab}


def bench(a, place):
    net = Network(configuration(a, a.seq_len, a.vocab))
    if a.precision == "bf16":
        net.use_bf16()
    if a.compile:
        net.block_function = place.compile(net.block, dynamic=False)
        place.stays(net.cast.values())
    trainer = Trainer(net, a.batch, a.lr, a.wd)
    trainer.in_place = place.graphs or place.whole
    # Random data suffice: the work of a step does not depend on them.
    cells = lambda: torch.randint(1, a.vocab, (a.batch, a.seq_len))
    batch = place.ahead(lambda: [cells(), cells(), torch.zeros(a.batch, dtype=torch.long)])

    def step():
        if place.graphs:
            torch.compiler.cudagraph_mark_step_begin()
        trainer.step(*batch())

    test = torch.randint(1, a.vocab, (a.test, a.seq_len))
    rate = place.rate(step, a.batch, lambda: [evaluate(net, part, a.halt_max_steps) for part in test.split(a.eval_batch)],
                      lambda: [net.p, net.table, trainer.average])
    kernel = {}
    if a.form != "mlp_t":
        kernel["attention"] = place.attention(a.batch, a.heads, net.length, a.hidden // a.heads)
    place.report({"compile" if a.compile else "eager": rate}, **kernel)


@torch.inference_mode()
def evaluate(net, inputs, segments):
    """The most likely tokens (rows, cells) after this many segments, without halting, and the q values."""
    x = net.embed(inputs, net.table[torch.zeros(len(inputs), dtype=torch.long)])
    z_h, z_l = (z.expand(len(inputs), net.length, -1) for z in (net.h_init, net.l_init))
    for _ in range(segments):
        z_h, z_l, logits, q = net.inner(z_h, z_l, x)
    return logits.argmax(-1), q


def train(a):
    f = h5py.File(a.train)
    part = f["train/all"]
    inputs, labels, groups = part["inputs"][:], part["labels"][:], part["group_indices"][:]
    test = f["test/all"]
    count = min(a.test, test["inputs"].shape[0])
    sources = [s.decode() if isinstance(s, bytes) else s for s in f["source_names"][:]] if "source_names" in f else ["all"]
    source = torch.as_tensor(test["source"][:count] if "source" in test else np.zeros(count, dtype=int))
    rng = np.random.default_rng(a.seed)
    torch.manual_seed(a.seed)
    net = Network(configuration(a, inputs.shape[1], int(f.attrs["vocab_size"])), seed=a.seed)
    if a.compile:
        net.block_function = torch.compile(net.block, dynamic=False)
    trainer = Trainer(net, a.batch, a.lr, a.wd, schedule=cosine(a.warmup_steps, a.steps, a.min_ratio), halt_max_steps=a.halt_max_steps)
    order = np.empty(0, dtype=int)
    ids, processor_begin, began = torch.zeros(a.batch, dtype=torch.long), time.process_time(), time.perf_counter()
    test_inputs, test_labels = (torch.as_tensor(test[n][:count], dtype=torch.long) for n in ("inputs", "labels"))
    for step in range(1, a.steps + 1):
        while len(order) < a.batch:
            order = np.concatenate([order, rng.permutation(len(groups) - 1)])
        g, order = order[:a.batch], order[a.batch:]
        rows = groups[g] + (rng.random(a.batch) * (groups[g + 1] - groups[g])).astype(int)
        x, y = torch.as_tensor(inputs[rows], dtype=torch.long), torch.as_tensor(labels[rows], dtype=torch.long)
        out = trainer.step(x, torch.where(y == 0, -100, y), ids)
        if step % a.log_every == 0:
            print(json.dumps({"step": step, "loss": float(out["loss"]) / a.batch}), flush=True)
        if step == a.steps or (a.eval_every and step % a.eval_every == 0):
            trained, net.cast = net.cast, trainer.average or net.cast
            hits = torch.cat([evaluate(net, test_inputs[i:i + a.eval_batch], a.eval_segments or a.halt_max_steps)[0] == test_labels[i:i + a.eval_batch]
                              for i in range(0, count, a.eval_batch)])
            net.cast = trained
            exact, cells = hits.all(-1).double(), hits.double().mean(-1)
            result = {"step": step, "processor_s": time.process_time() - processor_begin, "wall_s": time.perf_counter() - began, "puzzles": count,
                      "exact_accuracy": exact.mean().item(), "accuracy": cells.mean().item()}
            for k, name in enumerate(sources):
                if (source == k).any():
                    result |= {"exact." + name: exact[source == k].mean().item(), "accuracy." + name: cells[source == k].mean().item()}
            print(json.dumps(result), flush=True)


def main():
    p = arguments(__doc__)
    p.add_argument("--bench", action="store_true")
    p.add_argument("--train", metavar="DATA.h5")
    for name, default in {"batch": 16, "steps": 1000, "hidden": 512, "heads": 8, "h-layers": 0, "l-layers": 0, "h-cycles": 0,
                          "l-cycles": 0, "seq-len": 81, "vocab": 11, "warmup-steps": 100, "halt-max-steps": 16,
                          "eval-segments": 0, "eval-every": 0, "eval-batch": 50, "log-every": 50, "test": 1000,
                          "seed": 0}.items():
        p.add_argument("--" + name, type=int, default=default)
    for name, default in {"lr": 1e-4, "wd": 0.1, "min-ratio": 1.0}.items():
        p.add_argument("--" + name, type=float, default=default)
    p.add_argument("--form", choices=["hrm", "trm", "mlp_t"], default="hrm", help="0 layers or cycles: as published")
    p.add_argument("--compile", action="store_true")
    a = p.parse_args()
    if sum(map(bool, (a.check, a.train, a.bench))) != 1:
        p.error("give one of --check, --train and --bench")
    place = Place(a)
    if a.check:
        check(a.check, compare)
    train(a) if a.train else bench(a, place)


if __name__ == "__main__":
    main()
