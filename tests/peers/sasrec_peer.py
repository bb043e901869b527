#!/usr/bin/env python3
"""SASRec and TiSASRec in PyTorch, each with or without mHC streams, tuned for CPUs as an expert would: a baseline for lockstep.

Written from the formulas in docs/models/sasrec.md; --check compares it with the golden files. All common optimisations are in place: windows and
times are tensors, made once; relation buckets come from one vectorised subtraction; rejection of negatives is one table lookup; Adam is fused; the
attention of a head is a batched product without copies; time tables are used through their buckets unless their dropout is element-wise; the three
mHC maps are one product; --chunk cuts a batch into micro-batches of similar length and removes their leading padding.

  sasrec_peer.py --check golden/tisasrec_default_*.h5
  sasrec_peer.py --train ml1m.h5 --model tisasrec --maxlen 50 --hidden 50 --heads 1 --epochs 200 --log run.jsonl
  sasrec_peer.py --bench ml1m.h5 --model sasrec --ranks 2 --threads 1      one JSON line: sequences/s of every variant and of the best
"""
import argparse
import itertools
import json
import math
import sys
import time

from common import Place, arguments, check

import h5py
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

# --------------------------------------------------------------------------------------------------------------- the network


class Mhc(nn.Module):
    """The maps of one sub-layer: n streams in, one input u of the sub-layer, n streams out. The three projections are one product."""

    def __init__(self, n, d, site, gate=0.01, iterations=20):
        super().__init__()
        self.n, self.iterations = n, iterations
        for kind, rows in (("pre", n), ("post", n), ("res", n * n)):
            setattr(self, f"alpha_{kind}", nn.Parameter(torch.tensor(gate)))
            phi = nn.Linear(n * d, rows)
            nn.init.xavier_normal_(phi.weight)
            setattr(self, f"phi_{kind}", phi)
        with torch.no_grad():
            self.phi_pre.bias.fill_(-4)[site % n] = 4 if n > 1 else 10
            self.phi_post.bias.zero_()
            self.phi_res.bias.copy_((torch.eye(n) - 1).mul(8).flatten())

    def maps(self, X):
        n = self.n
        r = F.rms_norm(X.flatten(-2), (X.shape[-1] * n,), eps=1e-8)
        weight = torch.cat([self.alpha_pre * self.phi_pre.weight, self.alpha_post * self.phi_post.weight, self.alpha_res * self.phi_res.weight])
        z = F.linear(r, weight, torch.cat([self.phi_pre.bias, self.phi_post.bias, self.phi_res.bias]))
        pre, post, res = z.split([n, n, n * n], -1)
        M = res.unflatten(-1, (n, n)).clamp(-10, 10).exp()
        for _ in range(self.iterations):
            M = M / M.sum(-2, keepdim=True)
            M = M / M.sum(-1, keepdim=True)
        return torch.sigmoid(pre), 2 * torch.sigmoid(post), M

    def forward(self, X, layer):
        pre, post, res = self.maps(X)
        y = layer(torch.matmul(pre.unsqueeze(-2), X).squeeze(-2))
        return torch.matmul(res, X) + post.unsqueeze(-1) * y.unsqueeze(-2)


class Attention(nn.Module):
    def __init__(self, d, names):
        super().__init__()
        for name in names:
            setattr(self, name, nn.Linear(d, d))


class FeedForward(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv1d(d, d, 1), nn.Conv1d(d, d, 1)

    def forward(self, x, rate, training):
        h = F.relu(F.dropout(F.linear(x, self.conv1.weight.squeeze(-1), self.conv1.bias), rate, training))
        return F.dropout(F.linear(h, self.conv2.weight.squeeze(-1), self.conv2.bias), rate, training)


class Network(nn.Module):
    """Names and shapes of parameters as in the golden files."""

    def __init__(self, o, items):
        super().__init__()
        self.o, d, L = o, o.hidden, o.blocks
        self.timed = o.model == "tisasrec"
        self.item_emb = nn.Embedding(items + 1, d, padding_idx=0)
        if self.timed:
            self.abs_pos_K_emb, self.abs_pos_V_emb = nn.Embedding(o.maxlen, d), nn.Embedding(o.maxlen, d)
            self.time_matrix_K_emb, self.time_matrix_V_emb = nn.Embedding(o.time_span + 1, d), nn.Embedding(o.time_span + 1, d)
        else:
            self.pos_emb = nn.Embedding(o.maxlen + 1, d, padding_idx=0)
        norm = lambda: nn.LayerNorm(d, eps=o.ln_eps)
        self.attention_layernorms, self.forward_layernorms = nn.ModuleList(norm() for _ in range(L)), nn.ModuleList(norm() for _ in range(L))
        names = ("Q_w", "K_w", "V_w") if self.timed else ("q_w", "k_w", "v_w", "out_w")
        self.attention_layers = nn.ModuleList(Attention(d, names) for _ in range(L))
        self.forward_layers = nn.ModuleList(FeedForward(d) for _ in range(L))
        self.last_layernorm = norm()
        for name, p in self.named_parameters():
            if p.dim() > 1:
                nn.init.xavier_normal_(p)
            elif name.endswith("_w.bias") or "conv" in name:
                nn.init.uniform_(p, -1 / math.sqrt(d), 1 / math.sqrt(d))
        with torch.no_grad():
            self.item_emb.weight[0] = 0
            if not self.timed:
                self.pos_emb.weight[0] = 0
        if o.mhc == "streams":
            self.mhc_attn = nn.ModuleList(Mhc(o.streams, d, 2 * i) for i in range(L))
            self.mhc_ffn = nn.ModuleList(Mhc(o.streams, d, 2 * i + 1) for i in range(L))

    def tables(self):
        if not self.timed:
            return [self.item_emb.weight]
        return [m.weight for m in (self.item_emb, self.abs_pos_K_emb, self.abs_pos_V_emb, self.time_matrix_K_emb, self.time_matrix_V_emb)]

    def dropout(self, x):
        return F.dropout(x, self.o.dropout, self.training)

    def split(self, x):
        return x.unflatten(-1, (self.o.heads, -1)).transpose(1, 2)

    def attend(self, A, a, c, blocked, seen, times):
        """Attention of all heads, (B, T, d), before an output projection. blocked (B, 1, T, T) leaves every row at least one key."""
        o = self.o
        if not self.timed:
            q, k, v = self.split(A.q_w(a)), self.split(A.k_w(c)), self.split(A.v_w(c))
            if o.sdpa:
                out = F.scaled_dot_product_attention(q, k, v, attn_mask=~blocked, dropout_p=o.dropout if self.training else 0)
            else:
                s = torch.matmul(q * (q.shape[-1] ** -0.5), k.transpose(-1, -2)).masked_fill(blocked, -math.inf)
                out = torch.matmul(self.dropout(torch.softmax(s, -1)), v)
            return A.out_w(out.transpose(1, 2).flatten(-2))
        posK, posV, timeK, timeV, rel = times
        q, k, v = self.split(A.Q_w(a)), self.split(A.K_w(c) + posK), self.split(A.V_w(c) + posV)
        B, h, T, e = q.shape
        q = q * (e ** -0.5)
        s = torch.matmul(q, k.transpose(-1, -2))
        if timeK.dim() == 4:  # gathered, (B, T, T, d): one small product per query and head
            heads = [slice(g * e, (g + 1) * e) for g in range(h)]
            tk = timeK.flatten(0, 1)
            s = s + torch.stack([torch.bmm(tk[..., g], q[:, i].reshape(B * T, e, 1)).view(B, T, T) for i, g in enumerate(heads)], 1)
            p = self.dropout(torch.softmax(s.masked_fill(blocked, -math.inf), -1))
            tv = timeV.flatten(0, 1)
            out = torch.matmul(p, v) + torch.stack(
                [torch.bmm(p[:, i].reshape(B * T, 1, T), tv[..., g]).view(B, T, e) for i, g in enumerate(heads)], 1)
        else:  # by bucket: G = q TK^T, gathered; W = histogram of the weights, times TV
            tk, tv = (t.unflatten(-1, (h, e)).transpose(-2, -3) for t in (timeK, timeV))
            index = rel.unsqueeze(1).expand(B, h, T, T)
            s = s + torch.gather(torch.matmul(q, tk.transpose(-1, -2)), 3, index)
            p = self.dropout(torch.softmax(s.masked_fill(blocked, -math.inf), -1))
            W = torch.zeros(B, h, T, tk.shape[-2], dtype=p.dtype, device=p.device).scatter_add(3, index, p)
            out = torch.matmul(p, v) + torch.matmul(W, tv)
        return out.transpose(1, 2).flatten(-2)

    def features(self, seq, time):
        """f (B, T, d) of right-aligned windows; T may be shorter than maxlen when the leading slots are padding for all."""
        o, (B, T) = self.o, seq.shape
        real = seq != 0
        seen = real.unsqueeze(-1).to(self.item_emb.weight.dtype)
        causal = torch.ones(T, T, dtype=torch.bool, device=seq.device).triu(1)
        itself = torch.eye(T, dtype=torch.bool, device=seq.device)  # torch.compile does not use the default device for it
        blocked = (causal | ~real.unsqueeze(1)).masked_fill(itself, False).unsqueeze(1)
        x = self.item_emb(seq) * math.sqrt(o.hidden)
        slot = torch.arange(o.maxlen - T, o.maxlen, device=seq.device)
        times = None
        if self.timed:
            position = lambda m: self.dropout(m.weight[slot].expand(B, -1, -1))
            rel = (time.unsqueeze(2) - time.unsqueeze(1)).abs().clamp(max=o.time_span).long()
            if o.time_dropout == "element" and not (o.dropout == 0 or not self.training):
                table = lambda m: F.dropout(m(rel), o.dropout, True, inplace=True)
            elif self.training and o.dropout > 0:
                table = lambda m: self.dropout(m.weight.expand(B, -1, -1))
            else:
                table = lambda m: m.weight
            times = (position(self.abs_pos_K_emb), position(self.abs_pos_V_emb), table(self.time_matrix_K_emb), table(self.time_matrix_V_emb), rel)
        else:
            x = x + self.pos_emb((slot + 1) * real)
        x = self.dropout(x) * seen
        streams = o.mhc == "streams"
        X = x.unsqueeze(2).expand(-1, -1, o.streams, -1) if streams else None
        for i in range(o.blocks):
            A, W = self.attention_layers[i], self.forward_layers[i]
            ln1, ln2 = self.attention_layernorms[i], self.forward_layernorms[i]
            if streams:
                def attention(u):
                    z = ln1(u)
                    return self.attend(A, z, u if self.timed else z, blocked, seen, times)
                X = self.mhc_attn[i](X, attention) * seen.unsqueeze(-1)
                X = self.mhc_ffn[i](X, lambda u: W(ln2(u), o.dropout, self.training)) * seen.unsqueeze(-1)
            elif self.timed:
                q = ln1(x)
                z = ln2(q + self.attend(A, q, x, blocked, seen, times) * seen)
                x = (z + W(z, o.dropout, self.training)) * seen
            else:
                z = ln1(x)
                x = x + self.attend(A, z, z, blocked, seen, times)
                x = (x + W(ln2(x), o.dropout, self.training)) * seen
        return self.last_layernorm(X.sum(2) if streams else x)

    def logits(self, seq, time, pos, neg):
        f = self.features(seq, time)
        return (f * self.item_emb(pos)).sum(-1), (f * self.item_emb(neg)).sum(-1)

    def loss_sum(self, seq, time, pos, neg):
        """The loss summed over the targets, without regularisation."""
        if self.o.loss == "softmax":
            targets = pos != 0
            return F.cross_entropy(self.features(seq, time)[targets] @ self.item_emb.weight[1:].T, pos[targets].long() - 1, reduction="sum")
        p, n = self.logits(seq, time, pos, neg)
        return ((F.softplus(-p) + F.softplus(n)) * (pos != 0)).sum()

    def l2(self):
        return self.o.l2 * sum(t.square().sum() for t in self.tables())

    def predict(self, seq, time, candidates):
        return torch.bmm(self.item_emb(candidates), self.features(seq, time)[:, -1].unsqueeze(-1)).squeeze(-1)


def adam(o, net, lr, how={"fused": True}):
    kind = torch.optim.AdamW if o.optimizer == "adamw" else torch.optim.Adam
    return kind(net.parameters(), lr=lr, betas=(0.9, 0.98), eps=1e-8, weight_decay=o.weight_decay, **how)


# ------------------------------------------------------------------------------------------------------------ golden files


def compare(f, agreement):
    a = f.attrs
    if a.get("pad_mask") != "key" or a.get("loss", "softmax") != "softmax":
        return "a compatibility mode or another loss"
    torch.set_default_dtype(torch.float64)
    o = argparse.Namespace(model=str(a["model"]), mhc=str(a["mhc"]), streams=int(a["n_streams"]), time_dropout="table",
                           sdpa=False, loss=str(a.get("loss", "bce")), dropout=0.0, l2=float(a["l2_emb"]),
                           optimizer=str(a["optimizer"]), weight_decay=float(a["weight_decay"]), ln_eps=float(a["ln_eps"]))
    for name in ("hidden", "heads", "blocks", "maxlen", "time_span"):
        setattr(o, name, int(a[name]))
    if o.optimizer == "adam":
        o.weight_decay = 0.0
    get = lambda name: torch.from_numpy(f["inputs/" + name][()].astype(np.int64))
    timed = o.model == "tisasrec"
    # TiSASRec also on the path of element-wise dropout, at rate 0; SASRec also with PyTorch's fused attention.
    for variant in ("", "gathered" if timed else "sdpa"):
        o.sdpa = variant == "sdpa"
        if variant == "gathered":
            o.time_dropout, o.dropout = "element", 1e-300
        net = Network(o, int(a["items"]))
        net.load_state_dict({n: torch.as_tensor(f["weights"][n][()]).double() for n, _ in net.named_parameters()})
        optimizer = adam(o, net, float(a["lr"]))
        close = lambda what, ours, wanted: agreement.compare(f"{what} {variant}", ours, wanted, 1e-9)
        batches = [[get(f"batch{b}/{n}") if n != "time" or timed else None for n in ("seq", "time", "pos", "neg")]
                   for b in range(3)]
        net.eval()
        with torch.no_grad():
            targets = (batches[0][2] != 0).numpy()
            for what, logits in zip(("pos_logits", "neg_logits"), net.logits(*batches[0])):
                close(what, logits[targets], f[f"outputs64/{what}"][()][targets])
            close("predict", net.predict(*batches[0][:2], get("candidates")), f["outputs64/predict"])
        net.train()
        moved = {name for name, _ in net.named_parameters() if np.abs(f["grads64"][name][()]).max() > 1e-7}
        losses = []
        for b, batch in enumerate(batches):
            optimizer.zero_grad()
            losses.append(net.loss_sum(*batch) / (batch[2] != 0).sum() + net.l2())
            losses[-1].backward()
            if b == 0:
                for name, p in net.named_parameters():
                    if name in moved:
                        close(f"gradient of {name}", p.grad, f["grads64"][name])
            optimizer.step()
        close("losses", torch.stack(losses), f["after_steps64/losses"])
        for name, p in net.named_parameters():
            if name in moved:
                close(f"{name} after the steps", p, f["after_steps64/weights"][name])


# -------------------------------------------------------------------------------------------------------------------- data


class Data:
    """A prepared file (lockstep-seqrec): training windows and evaluation inputs as tensors, created once."""

    def __init__(self, path, o, place):
        f = h5py.File(path)
        self.place = place
        self.items, self.users = int(f.attrs["n_items"]), int(f.attrs["n_users"])
        offsets, n_train = f["users/offsets"][()], f["users/n_train"][()].astype(np.int64)
        item, T = f["inter/item"][()].astype(np.int64), o.maxlen
        timed = o.model == "tisasrec"
        scaled = f["inter/time_scaled"][()] if timed else item
        self.known = np.zeros((self.users, self.items + 1), bool)
        self.train_known = np.zeros((self.users, self.items + 1), bool)
        self.known[:, 0] = self.train_known[:, 0] = True

        def window(values, last):
            out = np.zeros(T, np.int64)
            kept = values[max(0, last - T):last]
            out[T - len(kept):] = kept
            return out

        def narrow(time):  # gaps above the span count as the span: 32 bits hold it, buckets stay
            real = time > 0
            gaps = np.minimum(np.diff(time, prepend=0), o.time_span) * real
            return np.cumsum(gaps)

        rows, evals = [], {"valid": [], "test": []}
        for u in range(self.users):
            x, t, m = item[offsets[u]:offsets[u + 1]], scaled[offsets[u]:offsets[u + 1]], n_train[u]
            self.known[u, x] = True
            self.train_known[u, x[:m]] = True
            if m >= 2:
                rows.append((u, window(x, m - 1), narrow(window(t, m - 1)), window(x[1:], m - 1)))
            if len(x) > m:
                evals["valid"].append((u, window(x, m), narrow(window(t, m)), x[m]))
                evals["test"].append((u, window(x, m + 1), narrow(window(t, m + 1)), x[m + 1]))
        stack = lambda rows, k: place.to(torch.from_numpy(np.stack([r[k] for r in rows])))
        self.user, self.seq, self.time, self.pos = torch.tensor([r[0] for r in rows]), stack(rows, 1), stack(rows, 2).int(), stack(rows, 3)
        self.known, self.train_known = place.to(torch.from_numpy(self.known)), place.to(torch.from_numpy(self.train_known))
        self.evals = {}
        for split, rows in evals.items():
            user = torch.tensor([r[0] for r in rows])
            negatives = self.draw(self.known, user, 100, place.generator(2024))
            target = torch.tensor([int(r[3]) for r in rows]).unsqueeze(1)
            self.evals[split] = (stack(rows, 1), stack(rows, 2).int(), torch.cat([target, negatives], 1))

    def draw(self, known, user, count, generator, rounds=0):
        """Uniform items outside the user's known items. rounds: of drawing again, of which a few known items may be left; 0: until there is none,
        which a GPU must be asked for each time."""
        table = known[user]
        new = lambda: torch.randint(1, self.items + 1, (len(user), count), generator=generator, device=table.device)
        out = new()
        for done in itertools.count(1):
            bad = torch.gather(table, 1, out)
            if not rounds and not bad.any():
                return out
            out = torch.where(bad, new(), out)
            if done == rounds:
                return out

    def batch(self, index, generator, rounds=0):
        pos = self.pos[index]
        neg = self.draw(self.train_known, self.user[index], pos.shape[1], generator, rounds) * (pos != 0)
        return self.seq[index], self.time[index], pos, neg

    @staticmethod
    def chunks(batch, size):
        """Micro-batches of users of similar length, without the slots that are padding for all of them."""
        seq = batch[0]
        if size <= 0:
            yield batch
            return
        lengths = (seq != 0).sum(1)
        for part in lengths.argsort().split(size):
            longest = int(lengths[part].max())
            yield tuple(t[part, -longest:] for t in batch)


def evaluate(net, data, split, block=64):
    seq, time_, candidates = data.evals[split]
    lengths = (seq != 0).sum(1)
    hits = ndcg = 0.0
    net.eval()
    with torch.inference_mode():
        for part in lengths.argsort().split(block):
            longest = int(lengths[part].max())
            score = net.predict(seq[part, -longest:], time_[part, -longest:], candidates[part])
            rank = (score[:, 1:] > score[:, :1]).sum(1)
            hits += float((rank < 10).sum())
            ndcg += float(torch.where(rank < 10, 1 / torch.log2(rank + 2.0), torch.zeros(())).sum())
    net.train()
    return {"hr@10": hits / len(seq), "ndcg@10": ndcg / len(seq)}


# ---------------------------------------------------------------------------------------------------------------- training


def step_of(net, optimizer, o, place, loss_sum):
    """One update with the gradient of the mean over the targets of the whole batch."""

    def step(batch):
        targets = (batch[2] != 0).sum()
        place.sum(targets)
        total = torch.zeros((), device=targets.device)
        optimizer.zero_grad(set_to_none=True)
        for part in Data.chunks(batch, o.chunk):
            with place.autocast():
                loss = loss_sum(*part) / targets
            loss.backward()
            total += loss.detach()
        if o.l2:
            penalty = net.l2() / place.ranks
            penalty.backward()
            total += penalty.detach()
        if place.dist:
            grads = [p.grad for p in net.parameters()]
            flat = torch._utils._flatten_dense_tensors(grads)
            place.sum(flat)
            for g, new in zip(grads, torch._utils._unflatten_dense_tensors(flat, grads)):
                g.copy_(new)
        optimizer.step()
        return total

    return step


def train(o, place):
    torch.manual_seed(o.seed)
    data = Data(o.train, o, place)
    net = Network(o, data.items)
    optimizer = adam(o, net, o.lr)
    step = step_of(net, optimizer, o, place, net.loss_sum)
    generator = place.generator(o.seed)
    begin, best, since, steps = time.time(), {}, 0, 0
    log = open(o.log, "a") if o.log else sys.stdout
    print(json.dumps({"options": vars(o), "users": len(data.user), "evaluated": len(data.evals["test"][0]), "torch": torch.__version__}), file=log, flush=True)
    for epoch in range(1, o.epochs + 1):
        losses = [float(step(data.batch(index, generator))) for index in torch.randperm(len(data.user), generator=generator).split(o.batch)]
        steps += len(losses)
        if epoch % o.eval_every and epoch != o.epochs:
            continue
        valid, test = evaluate(net, data, "valid"), evaluate(net, data, "test")
        better = valid["ndcg@10"] > best.get("valid", {}).get("ndcg@10", 0)
        if better:
            best, since = {"epoch": epoch, "valid": valid, "test": test}, 0
        else:
            since += 1
        print(json.dumps({"epoch": epoch, "steps": steps, "seconds": round(time.time() - begin, 1), "cpu_seconds": round(time.process_time(), 1),
                          "loss": sum(losses) / len(losses), "valid": valid, "test": test, "best": better}), file=log, flush=True)
        if o.patience and since >= o.patience:
            break
    print(json.dumps({"result": best, "epochs": epoch, "steps": steps, "seconds": round(time.time() - begin, 1)}), file=log, flush=True)


# ----------------------------------------------------------------------------------------------------------- speed and memory


def bench(o, place):
    """Sequences per second over all ranks; each rank takes its share of the batch."""
    torch.manual_seed(1)
    data = Data(o.bench, o, place)
    generator = place.generator(place.rank + 1)

    def rate(name):
        parts = name.split("+")
        o.chunk, o.sdpa = next((int(p[5:]) for p in parts if p.startswith("chunk")), 0), "sdpa" in parts
        net = Network(o, data.items)
        loss_sum = place.compile(net.loss_sum, dynamic=False) if "compiled" in parts else net.loss_sum
        optimizer = adam(o, net, o.lr, place.fused())
        step = step_of(net, optimizer, o, place, loss_sum)
        order = torch.randperm(len(data.user), generator=place.generator(7))

        def users():
            for k in itertools.count():
                yield [order[(k * o.batch) % (len(order) - o.batch):][:o.batch].chunk(place.ranks)[place.rank]]

        share, rounds = place.ahead(users().__next__), 4 if place.device == "cuda" or place.whole else 0
        return place.rate(lambda: step(data.batch(*share(), generator, rounds)), o.batch,
                          lambda: evaluate(net, data, "valid"), lambda: [net.state_dict(), optimizer.state_dict()])

    rates = {name: rate(name) for name in o.variants.split(",")}
    mask = torch.ones(o.batch, 1, o.maxlen, o.maxlen, dtype=torch.bool)
    fused = {} if o.model == "tisasrec" else {"attention": place.attention(
        o.batch, o.heads, o.maxlen, o.hidden // o.heads, mask=mask, dropout=o.dropout)}
    place.report(rates, model=o.model, mhc=o.mhc, time_dropout=o.time_dropout, **fused)
    place.leave()


def main():
    p = arguments(__doc__)
    p.add_argument("--train", metavar="DATA.h5")
    p.add_argument("--bench", metavar="DATA.h5")
    p.add_argument("--model", choices=["sasrec", "tisasrec"], default="sasrec")
    p.add_argument("--mhc", choices=["none", "streams"], default="none")
    for name, default in dict(maxlen=200, hidden=100, heads=2, blocks=2, streams=4, time_span=256, batch=128, epochs=200,
                              eval_every=20, patience=3, chunk=0, seed=1).items():
        p.add_argument("--" + name.replace("_", "-"), type=int, default=default)
    for name, default in dict(dropout=0.2, l2=0.0, lr=1e-3, weight_decay=0.0, ln_eps=1e-8).items():
        p.add_argument("--" + name.replace("_", "-"), type=float, default=default)
    p.add_argument("--loss", choices=["bce", "softmax"], default="bce")
    p.add_argument("--time-dropout", choices=["element", "table"], default="element")
    p.add_argument("--optimizer", choices=["adam", "adamw"], default="adam")
    p.add_argument("--sdpa", action="store_true", help="PyTorch's fused attention, where a model has no time buckets")
    p.add_argument("--variants", default="plain",
                   help="for --bench: names joined from chunkN, sdpa, compiled with '+', separated by commas")
    p.add_argument("--log", help="of --train; standard output without it")
    o = p.parse_args()
    if sum(map(bool, (o.check, o.train, o.bench))) != 1:
        p.error("give one of --check, --train and --bench")
    place = Place(o)
    if o.check:
        check(o.check, compare)
    train(o, place) if o.train else bench(o, place)


if __name__ == "__main__":
    main()
