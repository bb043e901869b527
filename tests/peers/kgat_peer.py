#!/usr/bin/env python3
"""KGAT in PyTorch, tuned for CPUs as an expert would: a baseline for lockstep.

Written from the formulas of the paper; --check compares it with the golden files. All common optimisations are in place: the graph is a CSR matrix
with a stored transpose (autograd would rebuild it) and the 32-bit indices that the vendor's library needs, Adam is fused, sampling is vectorised, the
loop reads no loss back, the triples of a knowledge-graph batch are grouped by relation for one product each, the attention projects each node once
per relation, evaluation masks and ranks whole blocks of users. Where the fastest form is not obvious there are several variants, and `--bench`
reports the best.

  kgat_peer.py --check golden/kgat_*.h5
  kgat_peer.py --bench cf,kg,attention,evaluation --data kgat-ml1m.h5 --threads 2     one JSON line per job
"""
import argparse
import json
import os
import resource
import sys

import numpy as np

from place import Place, add_options

# ------------------------------------------------------------------------------------------------------------------ graph


class Graph:
    """Triples sorted by (head, tail, relation), the pattern of distinct pairs as CSR, and its transposition."""

    def __init__(self, torch, n_nodes, n_relations, head, rel, tail):
        order = np.lexsort((rel, tail, head))
        self.n, self.n_relations = n_nodes, n_relations
        self.head, self.rel, self.tail = head[order], rel[order], tail[order]
        key = self.head.astype(np.int64) * n_nodes + self.tail
        first = np.flatnonzero(np.r_[True, key[1:] != key[:-1]])
        self.edge_of = torch.from_numpy(np.cumsum(np.r_[True, key[1:] != key[:-1]]) - 1)
        row, col = self.head[first], self.tail[first]
        self.nnz = len(first)
        self.transpose = torch.from_numpy(np.lexsort((row, col)))  # the pattern is symmetric: entry (t, h) of each (h, t)
        crow = np.zeros(n_nodes + 1, np.int64)
        np.cumsum(np.bincount(row, minlength=n_nodes), out=crow[1:])
        self.crow, self.col = torch.from_numpy(crow.astype(np.int32)), torch.from_numpy(col.astype(np.int32))
        self.row_of_triple = torch.from_numpy(self.head.astype(np.int64))
        self.row_of_entry = torch.from_numpy(row.astype(np.int64))
        self.col_of_entry = torch.from_numpy(col.astype(np.int64))
        indptr = np.zeros(n_nodes + 1, np.int64)
        np.cumsum(np.bincount(self.head, minlength=n_nodes), out=indptr[1:])
        self.indptr = indptr
        by_relation = np.argsort(self.rel, kind="stable")
        cuts = np.searchsorted(self.rel[by_relation], np.arange(n_relations + 1))
        self.of_relation = []
        for r in range(n_relations):  # distinct heads and tails of each relation, and where each triple finds them
            at = by_relation[cuts[r]:cuts[r + 1]]
            if len(at):
                heads, h_at = np.unique(self.head[at], return_inverse=True)
                tails, t_at = np.unique(self.tail[at], return_inverse=True)
                self.of_relation.append((r, *(torch.from_numpy(np.ascontiguousarray(a).astype(np.int64)) for a in (at, heads, h_at, tails, t_at))))

    def move(self, place):
        """Moves all tensors to the device that computes."""
        for name, value in vars(self).items():
            if hasattr(value, "to"):
                setattr(self, name, place.to(value))
        self.of_relation = [(r, *map(place.to, tensors)) for r, *tensors in self.of_relation]

    def matrices(self, torch, values):
        size = (self.n, self.n)
        return (torch.sparse_csr_tensor(self.crow, self.col, values, size),
                torch.sparse_csr_tensor(self.crow, self.col, values[self.transpose], size))


# ---------------------------------------------------------------------------------------------------------------- network


def make_product(torch):
    class Product(torch.autograd.Function):
        """A x, with the gradient through the stored transpose."""

        @staticmethod
        def forward(ctx, x, a, at):
            ctx.at = at
            with torch.autocast(x.device.type, enabled=False):  # sparse products have no bf16
                return a @ x.to(a.dtype)

        @staticmethod
        def backward(ctx, g):
            return ctx.at @ g.contiguous().to(ctx.at.dtype), None, None

    return Product.apply


class Kgat:
    def __init__(self, torch, weights, aggregator, dropout, slope=0.01):
        self.torch, self.aggregator, self.dropout, self.slope = torch, aggregator, dropout, slope
        self.p = {name: value.clone().requires_grad_(True) for name, value in weights.items()}
        self.layers = 1 + max(int(name.split(".")[1]) for name in weights if name.startswith("aggregator_layers"))
        self.product = make_product(torch)

    def final(self, a, at, training=False):
        """The layers' outputs side by side, (N, d + sum of widths)."""
        torch, F = self.torch, self.torch.nn.functional
        x = self.p["entity_user_embed.weight"]
        parts = [x]
        for layer in range(self.layers):
            w = lambda name: self.p[f"aggregator_layers.{layer}.{name}"]
            s = self.product(x, a, at)
            if self.aggregator == "bi-interaction":
                y = F.leaky_relu(F.linear(x + s, w("linear1.weight"), w("linear1.bias")), self.slope)
                y = y + F.leaky_relu(F.linear(x * s, w("linear2.weight"), w("linear2.bias")), self.slope)
            else:
                z = x + s if self.aggregator == "gcn" else torch.cat([x, s], 1)
                y = F.leaky_relu(F.linear(z, w("linear.weight"), w("linear.bias")), self.slope)
            x = F.dropout(y, self.dropout, training) if training and self.dropout else y
            parts.append(F.normalize(x, dim=1))
        return parts

    def cf_loss(self, a, at, user, pos, neg, lam, training=False):
        torch, F = self.torch, self.torch.nn.functional
        parts = self.final(a, at, training)
        u, i, j = (torch.cat([part[rows] for part in parts], 1) for rows in (user, pos, neg))
        rank = F.softplus((u * j).sum(1) - (u * i).sum(1)).mean()
        half = lambda x: x.pow(2).sum(1).mean() / 2
        return rank + lam * (half(u) + half(i) + half(j))

    def kg_loss(self, h, r, pos, neg, lam, variant="grouped"):
        """grouped: the batch is sorted by relation, one product per relation; bmm: one batched product with a gathered matrix per triple."""
        torch, F = self.torch, self.torch.nn.functional
        table, matrices = self.p["entity_user_embed.weight"], self.p["trans_M"]
        if variant == "grouped":
            r, order = torch.sort(r)
            h, pos, neg = h[order], pos[order], neg[order]
            e = F.embedding(torch.stack([h, pos, neg], 1), table)  # (M, 3, d)
            counts = torch.bincount(r, minlength=matrices.shape[0]).tolist()
            used = [k for k, n in enumerate(counts) if n]
            pieces = torch.split(e.flatten(0, 1), [3 * counts[k] for k in used])
            chosen = matrices.unbind(0)
            projected = torch.cat([piece @ chosen[k] for piece, k in zip(pieces, used)]).unflatten(0, (-1, 3))
        else:
            e = F.embedding(torch.stack([h, pos, neg], 1), table)
            projected = torch.bmm(e, matrices[r])
        y = F.embedding(r, self.p["relation_embed.weight"])
        ph, pt, pn = projected.unbind(1)
        f, g = (ph + y - pt).pow(2).sum(1), (ph + y - pn).pow(2).sum(1)
        half = lambda x: x.pow(2).sum(1).mean() / 2
        return F.softplus(f - g).mean() + lam * (half(ph) + half(y) + half(pt) + half(pn))

    def attention(self, graph, parallel="per_triple"):
        """New values of the pattern's entries."""
        torch = self.torch
        with torch.no_grad():
            table, matrices, y = self.p["entity_user_embed.weight"], self.p["trans_M"], self.p["relation_embed.weight"]
            v = torch.empty(len(graph.head), dtype=table.dtype)
            for r, at, heads, h_at, tails, t_at in graph.of_relation:
                left = torch.tanh(table[heads] @ matrices[r] + y[r])
                right = table[tails] @ matrices[r]
                for first in range(0, len(at), 1 << 15):
                    piece = slice(first, first + (1 << 15))
                    v[at[piece]] = torch.einsum("nk,nk->n", left[h_at[piece]], right[t_at[piece]])
            row = graph.row_of_triple
            if parallel == "sum_logits":
                v = torch.zeros(graph.nnz, dtype=v.dtype).index_add_(0, graph.edge_of, v)
                row = graph.row_of_entry
            top = torch.full((graph.n,), -torch.inf, dtype=v.dtype).scatter_reduce_(0, row, v, "amax")
            e = torch.exp(v - top[row])
            e /= torch.zeros(graph.n, dtype=v.dtype).index_add_(0, row, e)[row]
            return e if parallel == "sum_logits" else torch.zeros(graph.nnz, dtype=v.dtype).index_add_(0, graph.edge_of, e)


def optimizers(torch, model, lr):
    cf = [value for name, value in model.p.items() if name not in ("relation_embed.weight", "trans_M")]
    kg = [model.p[name] for name in ("entity_user_embed.weight", "relation_embed.weight", "trans_M")]
    return torch.optim.Adam(cf, lr, fused=True), torch.optim.Adam(kg, lr, fused=True)


# ------------------------------------------------------------------------------------------------------------- evaluation


class Ranking:
    """Training items to mask and test items to find, for blocks of test users; built once."""

    def __init__(self, torch, n_items, train, test, block):
        train_ptr, train_item = train
        test_ptr, test_item = test
        users = np.flatnonzero(np.diff(test_ptr))
        self.n_items, self.blocks = n_items, []
        for first in range(0, len(users), block):
            some = users[first:first + block]
            pairs = []
            for ptr, item in ((train_ptr, train_item), (test_ptr, test_item)):
                counts = ptr[some + 1] - ptr[some]
                rows = np.repeat(np.arange(len(some)), counts)
                items = item[np.repeat(ptr[some], counts) + np.arange(counts.sum()) - np.repeat(np.r_[0, np.cumsum(counts)[:-1]], counts)]
                pairs.append(torch.from_numpy(rows * n_items + items.astype(np.int64)))
                n_test = torch.from_numpy(counts)
            self.blocks.append((torch.from_numpy(some), *pairs, n_test))

    def run(self, torch, user_rows, item_rows, ks):
        """Sums over users of precision, recall, ndcg, hit at each K: (4, K)."""
        ks_t, k_max = torch.tensor(ks), max(ks)
        k_max = min(k_max, self.n_items)
        discount = 1 / torch.log2(torch.arange(2, k_max + 2, dtype=torch.float64))
        ideal = torch.cumsum(discount, 0)
        sums = torch.zeros(4, len(ks), dtype=torch.float64)
        columns = item_rows.t()
        relevant = torch.zeros(max(len(b[0]) for b in self.blocks) * self.n_items, dtype=torch.bool)
        for users, masked, wanted, n_test in self.blocks:
            scores = user_rows[users] @ columns
            scores.view(-1)[masked] = -torch.inf
            best, top = torch.topk(scores, k_max, dim=1)
            relevant[wanted] = True
            hits = relevant.view(-1, self.n_items)[:len(users)].gather(1, top) & (best > -torch.inf)
            relevant[wanted] = False
            count = torch.cumsum(hits, 1)[:, ks_t.clamp(max=k_max) - 1].double()
            gain = torch.cumsum(hits * discount, 1)[:, ks_t.clamp(max=k_max) - 1]
            best_gain = ideal[torch.minimum(ks_t.clamp(max=k_max), n_test[:, None]) - 1]
            sums += torch.stack([(count / ks_t).sum(0), (count / n_test[:, None]).sum(0), (gain / best_gain).sum(0), (count > 0).double().sum(0)])
        return sums


# --------------------------------------------------------------------------------------------------------------- sampling


class Sampler:
    """Batches without a Python loop over samples: candidates are drawn in bulk, and the few positives among them are drawn again."""

    def __init__(self, graph, n_items, n_entities, train, seed):
        self.graph, self.n_items, self.n_entities, self.rng = graph, n_items, n_entities, np.random.default_rng(seed)
        self.ptr, self.item = train
        self.users = np.flatnonzero(np.diff(self.ptr))
        user = np.repeat(np.arange(len(self.ptr) - 1), np.diff(self.ptr))
        self.known = user * n_items + self.item.astype(np.int64)  # ascending
        self.heads = np.flatnonzero(np.diff(graph.indptr))
        triple = (graph.head.astype(np.int64) * graph.n + graph.tail) * graph.n_relations + graph.rel
        self.known_triples = triple  # ascending too, in the order of the triples

    @staticmethod
    def _member(sorted_keys, keys):
        at = np.minimum(np.searchsorted(sorted_keys, keys), len(sorted_keys) - 1)
        return sorted_keys[at] == keys

    def _rejecting(self, count, limit, key_of, known):
        drawn = self.rng.integers(0, limit, count)
        again = np.flatnonzero(self._member(known, key_of(drawn, slice(None))))
        while len(again):
            drawn[again] = self.rng.integers(0, limit, len(again))
            again = again[self._member(known, key_of(drawn[again], again))]
        return drawn

    def cf(self, batch):
        user = self.rng.choice(self.users, batch, replace=batch > len(self.users))
        degree = self.ptr[user + 1] - self.ptr[user]
        pos = self.item[self.ptr[user] + (self.rng.random(batch) * degree).astype(np.int64)].astype(np.int64)
        neg = self._rejecting(batch, self.n_items, lambda drawn, at: user[at] * self.n_items + drawn, self.known)
        return user + self.n_entities, pos, neg

    def kg(self, batch):
        g = self.graph
        head = self.rng.choice(self.heads, batch, replace=batch > len(self.heads))
        at = g.indptr[head] + (self.rng.random(batch) * (g.indptr[head + 1] - g.indptr[head])).astype(np.int64)
        rel, tail = g.rel[at].astype(np.int64), g.tail[at].astype(np.int64)
        neg = self._rejecting(batch, g.n, lambda drawn, i: (head[i] * g.n + drawn) * g.n_relations + rel[i], self.known_triples)
        return head, rel, tail, neg


# ------------------------------------------------------------------------------------------------------------------ check


def check(torch, path):
    """Largest error of each kind, as a share of its tolerance (docs of the golden files)."""
    import h5py
    worst = []

    def close(name, got, want, tolerance):
        got, want = np.asarray(got, np.float64), np.asarray(want, np.float64)
        share = np.abs(got - want).max() / (tolerance * max(np.abs(want).max(), 1e-30))
        worst.append((share, name))

    with h5py.File(path) as f:
        a = dict(f.attrs)
        weights = {k: torch.from_numpy(v[...]) for k, v in f["weights"].items()}
        head, rel, tail = (f[f"inputs/ckg_{k}"][...] for k in "hrt")
        graph = Graph(torch, int(a["n_nodes"]), int(a["n_relations"]), head, rel, tail)

        def matrix(group):
            row, col, val = (group[k][...] for k in ("row", "col", "val"))
            dense = np.zeros((graph.n, graph.n), np.float32)
            dense[row, col] = val
            return torch.from_numpy(dense[graph.row_of_entry.numpy(), graph.col_of_entry.numpy()])

        def values_in_order(group):
            return matrix(group).numpy()

        batch = lambda name, keys: [torch.from_numpy(f[f"inputs/{name}/{k}"][...]) for k in keys]
        cf_batch = lambda k: batch(f"cf{k}", ("user", "pos", "neg"))
        kg_batch = lambda k: batch(f"kg{k}", ("h", "r", "pos_t", "neg_t"))
        new = lambda: Kgat(torch, weights, a["aggregator"], 0.0, float(a["leaky_slope"]))
        lam_cf, lam_kg = float(a["cf_lambda"]), float(a["kg_lambda"])
        for mode in ("laplacian", "per_triple", "sum_logits"):
            values = matrix(f["laplacian/random_walk"] if mode == "laplacian" else f[f"outputs/attention/A_{mode}"])
            model = new()
            ab = graph.matrices(torch, values)
            with torch.no_grad():
                close(f"{mode} all_embed", torch.cat(model.final(*ab), 1), f[f"outputs/cf_{mode}/all_embed"], 1e-5)
            loss = model.cf_loss(*ab, *cf_batch(0), lam_cf)
            loss.backward()
            close(f"{mode} cf_loss", loss.item(), f[f"outputs/cf_{mode}/cf_loss"][()], 1e-5)
            for name, want in f[f"grads/cf_{mode}"].items():
                close(f"{mode} grad {name}", model.p[name].grad, want[...], 5e-5)
        for variant in ("grouped", "bmm"):
            model = new()
            loss = model.kg_loss(*kg_batch(0), lam_kg, variant)
            loss.backward()
            close(f"kg_loss {variant}", loss.item(), f["outputs/kg/kg_loss"][()], 1e-5)
            for name, want in f["grads/kg"].items():
                close(f"kg {variant} grad {name}", model.p[name].grad, want[...], 5e-5)
        raw = {name: bytes(f[f"raw/{name}.txt"][...]).decode() for name in ("train", "test")}

        def pairs_of(text):
            of = {}
            for line in text.splitlines():
                ids = [int(x) for x in line.split()]
                if ids:
                    of.setdefault(ids[0], set()).update(ids[1:])
            ptr = np.zeros(int(a["n_users"]) + 1, np.int64)
            for u, items in of.items():
                ptr[u + 1] = len(items)
            return np.cumsum(ptr), np.array([i for u in sorted(of) for i in sorted(of[u])], np.int32)

        train, test = pairs_of(raw["train"]), pairs_of(raw["test"])
        for mode in ("per_triple", "sum_logits"):
            group = f[f"after_steps/{mode}"]
            model = new()
            close(f"attention {mode}", model.attention(graph, mode), values_in_order(f[f"outputs/attention/A_{mode}"]), 1e-6)
            cf, kg = optimizers(torch, model, float(a["lr"]))
            ab = graph.matrices(torch, matrix(f["laplacian/random_walk"]))
            for k, job in enumerate(("cf0", "cf1", "cf2", "kg0", "kg1", "kg2", "refresh", "cf3", "cf4", "kg3")):
                n = int(job[2:]) if job != "refresh" else 0
                if job == "refresh":
                    ab = graph.matrices(torch, model.attention(graph, mode))
                    continue
                optimizer = cf if job.startswith("cf") else kg
                optimizer.zero_grad()
                loss = model.cf_loss(*ab, *cf_batch(n), lam_cf) if job.startswith("cf") else model.kg_loss(*kg_batch(n), lam_kg)
                loss.backward()
                optimizer.step()
                close(f"{mode} loss {job}", loss.item(), group[f"{job[:2]}_losses"][n], 2e-5)
            for name, want in group["epoch2"].items():
                worst.append((np.abs(model.p[name].detach().numpy() - want[...]).max() / 1e-5, f"{mode} {name} after the steps"))
            ab = graph.matrices(torch, model.attention(graph, mode))
            with torch.no_grad():
                rows = torch.cat(model.final(*ab), 1)
            ks = [int(k) for k in a["Ks"]]
            sums = Ranking(torch, int(a["n_items"]), train, test, 5).run(torch, rows[int(a["n_entities"]):], rows[:int(a["n_items"])], ks)
            for row, name in enumerate(("precision", "recall", "ndcg", "hit")):
                close(f"{mode} {name}", sums[row], group[f"eval/{name}"][...].sum(0), 1e-6)
    share, name = max(worst)
    print(f"{os.path.basename(path)}: {len(worst)} tensors agree, the worst at {share:.2f} of its tolerance: {name}" if share <= 1 else f"{path}: {name}: {share:.2f} times the tolerance")
    return share <= 1


# ------------------------------------------------------------------------------------------------------------------ bench


def load(torch, path):
    import h5py
    with h5py.File(path) as f:
        a = {k: f.attrs[k] for k in ("n_users", "n_items", "n_entities", "n_nodes", "n_relations")}
        indptr = f["ckg/indptr"][...]
        head = np.repeat(np.arange(len(indptr) - 1, dtype=np.int32), np.diff(indptr))
        graph = Graph(torch, int(a["n_nodes"]), int(a["n_relations"]), head, f["ckg/rel"][...], f["ckg/tail"][...])
        values = torch.from_numpy(f["adj/random_walk"][...])
        pair = lambda name: (f[f"cf/{name}/indptr"][...], f[f"cf/{name}/item"][...])
        return a, graph, values, pair("train"), pair("test")


def make_weights(torch, a, aggregator, dim=64, relation_dim=64, widths=(64, 32, 16)):
    torch.manual_seed(2019)
    n, r = int(a["n_nodes"]), int(a["n_relations"])
    uniform = lambda *shape, fan: torch.empty(*shape).uniform_(-(6 / fan) ** 0.5, (6 / fan) ** 0.5)
    w = {"entity_user_embed.weight": uniform(n, dim, fan=n + dim), "relation_embed.weight": uniform(r, relation_dim, fan=r + relation_dim),
         "trans_M": uniform(r, dim, relation_dim, fan=(dim + r) * relation_dim)}
    i = dim
    for layer, o in enumerate(widths):
        names = ("linear1", "linear2") if aggregator == "bi-interaction" else ("linear",)
        width = 2 * i if aggregator == "graphsage" else i
        for name in names:
            w[f"aggregator_layers.{layer}.{name}.weight"] = uniform(o, width, fan=width + o)
            w[f"aggregator_layers.{layer}.{name}.bias"] = uniform(o, fan=6 * width)
        i = o
    return w


def bench(torch, args):
    place = Place(torch, args)
    a, graph, values, train, test = load(torch, args.data)
    graph.move(place)
    values = place.to(values)
    model = Kgat(torch, make_weights(torch, a, args.aggregator), args.aggregator, args.dropout)
    cf, kg = optimizers(torch, model, 1e-4)
    ab = graph.matrices(torch, values)
    sampler = Sampler(graph, int(a["n_items"]), int(a["n_entities"]), train, 2019)
    tensors = lambda arrays: [place.to(torch.from_numpy(np.ascontiguousarray(x))) for x in arrays]
    cf_loss, kg_loss = (place.compile(f, dynamic=False) if args.compile else f for f in (model.cf_loss, model.kg_loss))

    cf_batch = place.ahead(lambda: tensors(sampler.cf(args.batch)))
    kg_batch = place.ahead(lambda: tensors(sampler.kg(2 * args.batch)))

    def cf_step():
        batch = cf_batch()
        cf.zero_grad(set_to_none=False)
        with place.autocast():
            loss = cf_loss(*ab, *batch, 1e-5, True)
        loss.backward()
        cf.step()

    def kg_step(variant):
        batch = kg_batch()
        kg.zero_grad(set_to_none=False)
        with place.autocast():
            loss = kg_loss(*batch, 1e-5, variant)
        loss.backward()
        kg.step()

    ranking = {}

    def evaluation(block):
        if block not in ranking:
            ranking[block] = Ranking(torch, int(a["n_items"]), train, test, block)
            ranking[block].blocks = [tuple(map(place.to, b)) for b in ranking[block].blocks]
        with torch.inference_mode():
            rows = torch.cat(model.final(*ab), 1)
            return ranking[block].run(torch, rows[int(a["n_entities"]):], rows[:int(a["n_items"])].contiguous(), [20, 40, 60, 80, 100])

    test_users = int(np.count_nonzero(np.diff(test[0])))
    jobs = {
        "cf": (args.batch, "samples", {"autograd": cf_step}),
        "kg": (2 * args.batch, "triples", {"grouped": lambda: kg_step("grouped"), "bmm": lambda: kg_step("bmm")}),
        "attention": (len(graph.head), "triples", {"per_relation": lambda: model.attention(graph)}),
        "evaluation": (test_users, "users", {f"blocks of {b}": (lambda b=b: evaluation(b)) for b in (256, 1024, 4096)}),
    }
    for job in args.bench.split(","):
        amount, unit, variants = jobs[job]
        rates = {name: place.rate(step, amount, args.seconds, args.warmup) for name, step in variants.items() if args.variant in ("", name)}
        best = max(rates, key=rates.get)
        print(json.dumps({"job": job, "data": os.path.basename(args.data), "threads": args.threads, "seconds": amount / rates[best], "per_s": rates[best], "unit": unit, "best_variant": best,
                          "variants": rates, "peak_rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
                          "torch": torch.__version__, **place.facts(), "cpu_capability": torch.backends.cpu.get_cpu_capability()}), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", nargs="+", metavar="GOLDEN")
    parser.add_argument("--bench", metavar="JOBS")
    parser.add_argument("--data", help="a prepared graph (lockstep-prep kg or synth-kg)")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--seconds", type=float, default=5, help="per variant")
    parser.add_argument("--batch", type=int, default=1024, help="CF batch; the KG batch is twice that")
    parser.add_argument("--warmup", type=int, default=2, help="steps before the measured ones")
    parser.add_argument("--aggregator", default="bi-interaction")
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--variant", default="")
    parser.add_argument("--compile", action="store_true", help="the losses through torch.compile")
    add_options(parser)
    args = parser.parse_args()
    try:
        import torch
        import h5py  # noqa: F401
    except ImportError as missing:
        print(f"skipped: {missing}")
        sys.exit(77)
    torch.set_num_threads(args.threads)
    if args.check:
        sys.exit(0 if all([check(torch, path) for path in args.check]) else 1)
    bench(torch, args)


if __name__ == "__main__":
    main()
