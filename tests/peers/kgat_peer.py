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
import os

from common import Place, arguments, check

import h5py
import numpy as np
import torch
import torch.nn.functional as F

# ------------------------------------------------------------------------------------------------------------------ graph


class Graph:
    """Triples sorted by (head, tail, relation), the pattern of distinct pairs as CSR, and its transposition."""

    def __init__(self, n_nodes, n_relations, head, rel, tail):
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

    def matrices(self, values):
        size = (self.n, self.n)
        return (torch.sparse_csr_tensor(self.crow, self.col, values, size),
                torch.sparse_csr_tensor(self.crow, self.col, values[self.transpose], size))


# ---------------------------------------------------------------------------------------------------------------- network


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


class Kgat:
    def __init__(self, weights, aggregator, dropout, slope=0.01):
        self.aggregator, self.dropout, self.slope = aggregator, dropout, slope
        self.p = {name: value.clone().requires_grad_(True) for name, value in weights.items()}
        self.layers = 1 + max(int(name.split(".")[1]) for name in weights if name.startswith("aggregator_layers"))

    def final(self, a, at, training=False):
        """The layers' outputs side by side, (N, d + sum of widths)."""
        x = self.p["entity_user_embed.weight"]
        parts = [x]
        for layer in range(self.layers):
            w = lambda name: self.p[f"aggregator_layers.{layer}.{name}"]
            s = Product.apply(x, a, at)
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
        parts = self.final(a, at, training)
        u, i, j = (torch.cat([part[rows] for part in parts], 1) for rows in (user, pos, neg))
        rank = F.softplus((u * j).sum(1) - (u * i).sum(1)).mean()
        half = lambda x: x.pow(2).sum(1).mean() / 2
        return rank + lam * (half(u) + half(i) + half(j))

    def kg_loss(self, h, r, pos, neg, lam, variant="grouped"):
        """grouped: the batch is sorted by relation, one product per relation; bmm: one batched product with a gathered matrix per triple."""
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
        with torch.no_grad():
            table, matrices, y = self.p["entity_user_embed.weight"], self.p["trans_M"], self.p["relation_embed.weight"]
            like = {"dtype": table.dtype, "device": table.device}
            v = torch.empty(len(graph.head), **like)
            for r, at, heads, h_at, tails, t_at in graph.of_relation:
                left = torch.tanh(table[heads] @ matrices[r] + y[r])
                right = table[tails] @ matrices[r]
                for first in range(0, len(at), 1 << 15):
                    piece = slice(first, first + (1 << 15))
                    v[at[piece]] = torch.einsum("nk,nk->n", left[h_at[piece]], right[t_at[piece]])
            row = graph.row_of_triple
            if parallel == "sum_logits":
                v = torch.zeros(graph.nnz, **like).index_add_(0, graph.edge_of, v)
                row = graph.row_of_entry
            top = torch.full((graph.n,), -torch.inf, **like).scatter_reduce_(0, row, v, "amax")
            e = torch.exp(v - top[row])
            e /= torch.zeros(graph.n, **like).index_add_(0, row, e)[row]
            return e if parallel == "sum_logits" else torch.zeros(graph.nnz, **like).index_add_(0, graph.edge_of, e)


def optimizers(model, lr, how={"fused": True}):
    cf = [value for name, value in model.p.items() if name not in ("relation_embed.weight", "trans_M")]
    kg = [model.p[name] for name in ("entity_user_embed.weight", "relation_embed.weight", "trans_M")]
    return torch.optim.Adam(cf, lr, **how), torch.optim.Adam(kg, lr, **how)


# ------------------------------------------------------------------------------------------------------------- evaluation


class Ranking:
    """Training items to mask and test items to find, for blocks of test users; built once."""

    def __init__(self, n_items, train, test, block):
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

    def run(self, user_rows, item_rows, ks):
        """Sums over users of precision, recall, ndcg, hit at each K: (4, K)."""
        device = item_rows.device
        ks_t, k_max = torch.tensor(ks, device=device), max(ks)
        k_max = min(k_max, self.n_items)
        discount = 1 / torch.log2(torch.arange(2, k_max + 2, dtype=torch.float64, device=device))
        ideal = torch.cumsum(discount, 0)
        sums = torch.zeros(4, len(ks), dtype=torch.float64, device=device)
        columns = item_rows.t()
        relevant = torch.zeros(max(len(b[0]) for b in self.blocks) * self.n_items, dtype=torch.bool, device=device)
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


def compare(f, agreement):
    """The tolerances are those of tests/golden for float32."""
    a, close = dict(f.attrs), agreement.compare
    if "aggregator" not in a:
        return "no network"
    weights = {k: torch.from_numpy(v[...]) for k, v in f["weights"].items()}
    head, rel, tail = (f[f"inputs/ckg_{k}"][...] for k in "hrt")
    graph = Graph(int(a["n_nodes"]), int(a["n_relations"]), head, rel, tail)

    def matrix(group):
        dense = np.zeros((graph.n, graph.n), np.float32)
        dense[group["row"][...], group["col"][...]] = group["val"][...]
        return torch.from_numpy(dense[graph.row_of_entry.numpy(), graph.col_of_entry.numpy()])

    batch = lambda name, keys: [torch.from_numpy(f[f"inputs/{name}/{k}"][...]) for k in keys]
    new = lambda: Kgat(weights, a["aggregator"], 0.0, float(a["leaky_slope"]))
    lam_cf, lam_kg = float(a["cf_lambda"]), float(a["kg_lambda"])

    def loss_of(model, ab, name, variant="grouped"):
        if name.startswith("cf"):
            return model.cf_loss(*ab, *batch(name, ("user", "pos", "neg")), lam_cf)
        return model.kg_loss(*batch(name, ("h", "r", "pos_t", "neg_t")), lam_kg, variant)

    def backward(what, model, loss, wanted, gradients):
        loss.backward()
        close(f"{what} loss", loss, wanted, 1e-5)
        for name, want in gradients.items():
            close(f"{what} gradient of {name}", model.p[name].grad, want, 5e-5)

    for mode in ("laplacian", "per_triple", "sum_logits"):
        model = new()
        ab = graph.matrices(matrix(f["laplacian/random_walk" if mode == "laplacian" else f"outputs/attention/A_{mode}"]))
        with torch.no_grad():
            close(f"{mode} all_embed", torch.cat(model.final(*ab), 1), f[f"outputs/cf_{mode}/all_embed"], 1e-5)
        backward(mode, model, loss_of(model, ab, "cf0"), f[f"outputs/cf_{mode}/cf_loss"], f[f"grads/cf_{mode}"])
    for variant in ("grouped", "bmm"):
        model = new()
        loss = loss_of(model, None, "kg0", variant)
        backward(f"kg {variant}", model, loss, f["outputs/kg/kg_loss"], f["grads/kg"])

    def pairs_of(name):
        of = {}
        for line in bytes(f[f"raw/{name}.txt"][...]).decode().splitlines():
            user, *items = map(int, line.split())
            of.setdefault(user, set()).update(items)
        counts = [len(of.get(user, ())) for user in range(int(a["n_users"]))]
        return np.cumsum([0, *counts]), np.array([i for u in sorted(of) for i in sorted(of[u])], np.int32)

    for mode in ("per_triple", "sum_logits"):
        group = f[f"after_steps/{mode}"]
        model = new()
        close(f"attention {mode}", model.attention(graph, mode), matrix(f[f"outputs/attention/A_{mode}"]), 1e-6)
        optimizer = dict(zip(("cf", "kg"), optimizers(model, float(a["lr"]))))
        ab = graph.matrices(matrix(f["laplacian/random_walk"]))
        for job in ("cf0", "cf1", "cf2", "kg0", "kg1", "kg2", "refresh", "cf3", "cf4", "kg3"):
            if job == "refresh":
                ab = graph.matrices(model.attention(graph, mode))
                continue
            kind, n = job[:2], int(job[2:])
            optimizer[kind].zero_grad()
            loss = loss_of(model, ab, job)
            loss.backward()
            optimizer[kind].step()
            close(f"{mode} loss {job}", loss, group[f"{kind}_losses"][n], 2e-5)
        for name, want in group["epoch2"].items():
            close(f"{mode} {name} after the steps", model.p[name], want, 1e-5, 1)
        ab = graph.matrices(model.attention(graph, mode))
        with torch.no_grad():
            rows = torch.cat(model.final(*ab), 1)
        ranking = Ranking(int(a["n_items"]), pairs_of("train"), pairs_of("test"), 5)
        sums = ranking.run(rows[int(a["n_entities"]):], rows[:int(a["n_items"])], [int(k) for k in a["Ks"]])
        for row, name in enumerate(("precision", "recall", "ndcg", "hit")):
            close(f"{mode} {name}", sums[row], group[f"eval/{name}"][...].sum(0), 1e-6)


# ------------------------------------------------------------------------------------------------------------------ bench


def load(path):
    with h5py.File(path) as f:
        a = {k: int(f.attrs[k]) for k in ("n_users", "n_items", "n_entities", "n_nodes", "n_relations")}
        indptr = f["ckg/indptr"][...]
        head = np.repeat(np.arange(len(indptr) - 1, dtype=np.int32), np.diff(indptr))
        graph = Graph(a["n_nodes"], a["n_relations"], head, f["ckg/rel"][...], f["ckg/tail"][...])
        values = torch.from_numpy(f["adj/random_walk"][...])
        pair = lambda name: (f[f"cf/{name}/indptr"][...], f[f"cf/{name}/item"][...])
        return a, graph, values, pair("train"), pair("test")


def make_weights(n, r, dim=64, relation_dim=64, widths=(64, 32, 16)):
    """Random parameters of the bi-interaction network for n nodes and r relations."""
    uniform = lambda *shape, fan: torch.empty(*shape).uniform_(-(6 / fan) ** 0.5, (6 / fan) ** 0.5)
    w = {"entity_user_embed.weight": uniform(n, dim, fan=n + dim),
         "relation_embed.weight": uniform(r, relation_dim, fan=r + relation_dim),
         "trans_M": uniform(r, dim, relation_dim, fan=(dim + r) * relation_dim)}
    for layer, (inner, out) in enumerate(zip((dim, *widths), widths)):
        for name in ("linear1", "linear2"):
            w[f"aggregator_layers.{layer}.{name}.weight"] = uniform(out, inner, fan=inner + out)
            w[f"aggregator_layers.{layer}.{name}.bias"] = uniform(out, fan=6 * inner)
    return w


def bench(args, place):
    a, graph, values, train, test = load(args.data)
    graph.move(place)
    torch.manual_seed(2019)
    model = Kgat(make_weights(a["n_nodes"], a["n_relations"]), "bi-interaction", 0.1)
    cf, kg = optimizers(model, 1e-4, place.fused())
    ab = graph.matrices(place.to(values))
    sampler = Sampler(graph, a["n_items"], a["n_entities"], train, 2019)
    tensors = lambda arrays: [place.to(torch.from_numpy(np.ascontiguousarray(x))) for x in arrays]
    cf_loss, kg_loss = (place.compile(f, dynamic=False) if args.compile else f for f in (model.cf_loss, model.kg_loss))
    cf_batch = place.ahead(lambda: tensors(sampler.cf(args.batch)))
    kg_batch = place.ahead(lambda: tensors(sampler.kg(2 * args.batch)))

    def step(optimizer, draw, loss):
        def run():
            batch = draw()
            optimizer.zero_grad(set_to_none=False)
            with place.autocast():
                value = loss(*batch)
            value.backward()
            optimizer.step()

        return run

    def epoch():
        nonlocal ab
        run_cf, run_kg = step(cf, cf_batch, lambda *b: cf_loss(*ab, *b, 1e-5, True)), step(kg, kg_batch, lambda *b: kg_loss(*b, 1e-5, "grouped"))
        for _ in range(len(train[1]) // args.batch + 1):
            run_cf()
        for _ in range(len(graph.head) // (2 * args.batch) + 1):
            run_kg()
        ab = graph.matrices(model.attention(graph))

    ranking = {}

    def evaluation(block):
        if block not in ranking:
            ranking[block] = Ranking(a["n_items"], train, test, block)
            ranking[block].blocks = [tuple(map(place.to, b)) for b in ranking[block].blocks]
        with torch.inference_mode():
            rows = torch.cat(model.final(*ab), 1)
            return ranking[block].run(rows[a["n_entities"]:], rows[:a["n_items"]].contiguous(), [20, 40, 60, 80, 100])

    test_users = int(np.count_nonzero(np.diff(test[0])))
    jobs = {
        "cf": (args.batch, "samples", {"autograd": step(cf, cf_batch, lambda *batch: cf_loss(*ab, *batch, 1e-5, True))}),
        "kg": (2 * args.batch, "triples", {variant: step(kg, kg_batch, lambda *b, v=variant: kg_loss(*b, 1e-5, v))
                                           for variant in ("grouped", "bmm")[place.whole:]}),  # no graph can read counts back
        "attention": (len(graph.head), "triples", {"per_relation": lambda: model.attention(graph)}),
        "epoch": (len(train[1]), "interactions", {"grouped": epoch}),
        "evaluation": (test_users, "users", {f"blocks of {b}": (lambda b=b: evaluation(b)) for b in (256, 1024, 4096)}),
    }
    for job in args.bench.split(","):
        amount, unit, variants = jobs[job]
        state = lambda: [model.p, cf.state_dict(), kg.state_dict()]
        rates = {name: place.rate(step, amount, lambda: evaluation(1024), state) for name, step in variants.items()}
        place.report(rates, job=job, data=os.path.basename(args.data), unit=unit, seconds=amount / max(rates.values()))


def main():
    parser = arguments(__doc__)
    parser.add_argument("--bench", metavar="JOBS")
    parser.add_argument("--data", help="a prepared graph (lockstep-prep kg or synth-kg)")
    parser.add_argument("--batch", type=int, default=1024, help="CF batch; the KG batch is twice that")
    parser.add_argument("--compile", action="store_true", help="the losses through torch.compile")
    args = parser.parse_args()
    place = Place(args)
    if args.check:
        check(args.check, compare)
    bench(args, place)


if __name__ == "__main__":
    main()
