#!/usr/bin/env python3
"""Reference files of KGAT: a tiny graph with the irregularities of real ones, both losses, a short training.

KGAT runs in single and in double precision (groups with suffix _f64), and with two rules for parallel edges: a softmax
over all triples of a head (per_triple), and the public code's over the summed logits of parallel edges (sum_logits).
"""
import random
import tempfile
import types
from pathlib import Path

import h5py
import numpy as np
import torch
import torch.nn.functional as F
from common import TORCH, copy_of, load, put, quiet, run, replace_module, watch

SEED, USERS, ITEMS, ENTITIES, RELATIONS = 7, 9, 11, 19, 3
CF_BATCH, KG_BATCH, RATE, CUTS = 6, 13, 0.01, [1, 2, 3, 5]
CONFIG = dict(embed_dim=10, relation_dim=7, mess_dropout=0.0, cf_lambda=0.013, kg_lambda=0.017)
CONV_DIMS = [9, 6, 5]
NAMES = ("kgat_bi-interaction", "kgat_graphsage", "kgat_graph")
TWO_PRECISIONS = ((torch.float32, ""), (torch.float64, "_f64"))


def raw_files(rng):
    """The three files, with repeated lines, parallel edges, a self loop, an unused id and a user without test items."""
    train, test = [], []
    for _ in range(USERS):
        n = rng.integers(2, max(3, ITEMS // 2))
        items = rng.permutation(ITEMS)[: n + 2].tolist()
        train.append(items[:n])
        test.append(items[n:])
    if not any(ITEMS - 1 in items for items in train):  # the highest ids must occur
        train[0].append(ITEMS - 1)
        test[0] = [i for i in test[0] if i != ITEMS - 1] or [next(i for i in range(ITEMS) if i not in train[0])]
    test[2] = []
    train_text = ""
    for user, items in enumerate(train):
        repeated = items[:1] if user == 1 else []
        train_text += " ".join(map(str, [user, *items, *repeated])) + ("\n" if user % 2 else " \n")
    test_text = "".join(" ".join(map(str, [user, *items])) + "\n" for user, items in enumerate(test))
    unused = ENTITIES - 2
    triples = []
    for head in (head for head in range(ENTITIES) if head != unused):
        for _ in range(2):
            tail = head
            while tail in (head, unused):
                tail = int(rng.integers(0, ENTITIES))
            triples.append((head, int(rng.integers(0, RELATIONS)), tail))
    head, relation, tail = triples[0]
    triples += [(head, (relation + k) % RELATIONS, tail) for k in (1, 2)] + [triples[3], triples[5]]
    triples += [(ITEMS, 0, ITEMS), (0, RELATIONS - 1, ENTITIES - 1)]
    kg_text = "".join("%d %d %d\n" % triples[k] for k in rng.permutation(len(triples)))
    return {"train.txt": train_text, "test.txt": test_text, "kg_final.txt": kg_text}


class Reference:
    """The public model and loader on the tiny graph, with fixed weights and fixed batches."""

    def __init__(self, aggregator, public):
        for name in ("sklearn", "sklearn.metrics"):
            replace_module(name, roc_auc_score=None, log_loss=None, mean_squared_error=None)
        root = public / "KGAT-pytorch"
        model, loader, self.metrics = load(root, "model.KGAT", "data_loader.loader_kgat", "utils.metrics")
        random.seed(SEED)
        np.random.seed(SEED)
        self.raw = raw_files(np.random.default_rng(SEED))
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "tiny").mkdir()
            for name, text in self.raw.items():
                (Path(folder) / "tiny" / name).write_text(text)
            args = types.SimpleNamespace(
                data_dir=folder, data_name="tiny", use_pretrain=0, pretrain_embedding_dir="", test_batch_size=10000,
                cf_batch_size=CF_BATCH, kg_batch_size=KG_BATCH, aggregation_type=aggregator,
                conv_dim_list=str(CONV_DIMS), mess_dropout=str([0.0] * len(CONV_DIMS)), embed_dim=CONFIG["embed_dim"],
                relation_dim=CONFIG["relation_dim"], kg_l2loss_lambda=CONFIG["kg_lambda"],
                cf_l2loss_lambda=CONFIG["cf_lambda"],
            )
            log = types.SimpleNamespace(info=lambda *_: None)
            args.laplacian_type = "random-walk"
            data = self.data = loader.DataLoaderKGAT(args, log)
            args.laplacian_type = "symmetric"
            self.symmetric_upstream = loader.DataLoaderKGAT(args, log).A_in
        self.h, self.r, self.t, self.nodes = data.h_list, data.r_list, data.t_list, data.n_users_entities
        self.out_degree, self.in_degree = (self.degree(ends) for ends in (self.h, self.t))
        self.new_model = lambda: model.KGAT(args, data.n_users, data.n_entities, data.n_relations, data.A_in)
        torch.manual_seed(SEED + 1)
        first = self.new_model()
        with torch.no_grad():  # larger values reach the non-linear parts of softmax, tanh and leaky ReLU
            first.entity_user_embed.weight.mul_(2.0)
            first.trans_M.mul_(1.5)
        self.weights = copy_of((name, p) for name, p in first.named_parameters() if name != "A_in")
        self.draw_batches()

    def degree(self, ends):
        """For each triple, the number of triples of its relation that share its end."""
        counts = torch.zeros(self.data.n_relations, self.nodes, dtype=torch.float64)
        counts.index_put_((self.r, ends), torch.ones(1, dtype=torch.float64), accumulate=True)
        return counts[self.r, ends]

    def draw_batches(self):
        """Batches drawn by the public loader's rules."""
        data = self.data
        tensors = lambda columns: [torch.tensor(np.array(column, dtype=np.int64)) for column in columns]
        self.cf, self.kg = [], []
        for _ in range(5):
            users = random.sample(list(data.train_user_dict), CF_BATCH)
            samplers = (data.sample_pos_items_for_u, data.sample_neg_items_for_u)
            items = [[sample(data.train_user_dict, user, 1)[0] for sample in samplers] for user in users]
            self.cf.append(tensors([users, *zip(*items)]))
        for _ in range(4):
            heads = random.sample(list(data.train_kg_dict), KG_BATCH)
            triples = []
            for head in heads:
                relations, tails = data.sample_pos_triples_for_h(data.train_kg_dict, head, 1)
                others = data.sample_neg_triples_for_h(data.train_kg_dict, head, relations[0], 1, self.nodes)
                triples.append((relations[0], tails[0], others[0]))
            self.kg.append(tensors([heads, *zip(*triples)]))

    def matrix(self, values):
        """Sparse matrix with one value per triple; parallel edges add."""
        return torch.sparse_coo_tensor(torch.stack([self.h, self.t]), values, (self.nodes, self.nodes)).coalesce()

    def random_walk(self, dtype):
        return self.data.A_in.coalesce() if dtype == torch.float32 else self.matrix(1 / self.out_degree)

    def symmetric(self):
        return self.matrix((self.out_degree * self.in_degree).rsqrt()).float()

    def fresh(self, dtype):
        model = self.new_model()
        model.load_state_dict(self.weights, strict=False)
        model.to(dtype)
        model.A_in.data = self.random_walk(dtype)
        return model

    def logits(self, model):
        values = torch.zeros(len(self.h), dtype=model.trans_M.dtype)
        with torch.no_grad():
            for relation in self.data.laplacian_dict:
                rows = torch.where(self.r == relation)[0]
                values[rows] = model.update_attention_batch(self.h[rows], self.t[rows], relation)
        return values

    def per_triple(self, model):
        v = self.logits(model)
        largest = torch.full((self.nodes,), -1e30, dtype=v.dtype).scatter_reduce(0, self.h, v, "amax")
        e = torch.exp(v - largest[self.h])
        return e / torch.zeros(self.nodes, dtype=v.dtype).index_add(0, self.h, e)[self.h]

    def refresh(self, model, rule):
        """Recomputes the attention of all edges."""
        if rule == "per_triple":
            model.A_in.data = self.matrix(self.per_triple(model))
        else:
            model(self.h, self.t, self.r, list(self.data.laplacian_dict), mode="update_att")
        return model.A_in.data.coalesce()


def sparse(matrix):
    matrix = matrix.coalesce()
    row, col = matrix.indices().int()
    return dict(row=row, col=col, val=matrix.values())


def half_square(*tensors):
    return sum((x * x).sum(1).mean() / 2 for x in tensors)


def gradients(model):
    return {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


def cf_step(ref, dtype, adjacency):
    """Forward and backward pass of the first batch of interactions."""
    model = ref.fresh(dtype)
    model.A_in.data = adjacency
    found = {}
    nodes = [model.entity_user_embed.weight]
    with watch(lambda name, out: nodes.append(out), dict(enumerate(model.aggregator_layers))):
        table = found["all_embed"] = model.calc_cf_embeddings()
    for k, (x, out) in enumerate(zip(nodes, nodes[1:])):
        found[f"layer{k}"] = dict(side=torch.sparse.mm(adjacency, x), out=out, norm_out=F.normalize(out, p=2, dim=1))
    user, liked, other = (table[rows] for rows in ref.cf[0])
    positive, negative = (user * liked).sum(1), (user * other).sum(1)
    loss = model(*ref.cf[0], mode="train_cf")
    loss.backward()
    found.update(pos_score=positive, neg_score=negative, bpr_loss=F.softplus(negative - positive).mean())
    return dict(found, l2=half_square(user, liked, other), cf_loss=loss), gradients(model)


def kg_step(ref, dtype):
    """Forward and backward pass of the first batch of triples."""
    model = ref.fresh(dtype)
    heads, relations, *tails = ref.kg[0]
    relation = model.relation_embed.weight[relations]
    project = lambda rows: torch.einsum("bd,bdk->bk", model.entity_user_embed.weight[rows], model.trans_M[relations])
    h, tail, wrong = map(project, (heads, *tails))
    positive, negative = (((h + relation - t) ** 2).sum(1) for t in (tail, wrong))
    loss = model(*ref.kg[0], mode="train_kg")
    loss.backward()
    found = dict(proj_h=h, proj_pos_t=tail, proj_neg_t=wrong, pos_score=positive, neg_score=negative, kg_loss=loss)
    found.update(rank_loss=F.softplus(positive - negative).mean(), l2=half_square(h, relation, tail, wrong))
    return found, gradients(model)


def train(ref, dtype, rule):
    """Two short epochs: steps on interactions, steps on triples, new attention. Then a ranking of all items."""
    model = ref.fresh(dtype)
    found, losses = {}, dict(cf=[], kg=[])
    optimizers = {phase: torch.optim.Adam(model.parameters(), lr=RATE) for phase in losses}
    weights = lambda: copy_of((name, p) for name, p in model.named_parameters() if name != "A_in")

    def steps(phase, batches):
        for batch in batches:
            loss = model(*batch, mode=f"train_{phase}")
            loss.backward()
            optimizers[phase].step()
            optimizers[phase].zero_grad(set_to_none=False)  # zeros give all parameters a state, as before torch 2.0
            losses[phase].append(loss.item())

    steps("cf", ref.cf[:3])
    found["epoch1_cf"] = weights()
    steps("kg", ref.kg[:3])
    found.update(epoch1_kg=weights(), epoch1_A=sparse(ref.refresh(model, rule)))
    steps("cf", ref.cf[3:])
    steps("kg", ref.kg[3:])
    found["epoch2"] = weights()
    for phase, optimizer in optimizers.items():
        states = {name: optimizer.state[p] for name, p in model.named_parameters() if p in optimizer.state}
        moments = {key: {name: state[key] for name, state in states.items()} for key in ("exp_avg", "exp_avg_sq")}
        found.update({f"epoch2_adam_{phase}": moments, f"{phase}_losses": np.array(losses[phase])})
    found["epoch2_A"] = sparse(ref.refresh(model, rule))
    return dict(found, eval=ranking(ref, model))


def ranking(ref, model):
    data, items = ref.data, np.arange(ITEMS)
    users = np.array(sorted(data.test_user_dict))
    with torch.no_grad():
        scores = model(torch.tensor(users), torch.tensor(items), mode="predict")
    masked = scores.clone()
    for row, user in enumerate(users):
        masked[row, data.train_user_dict[user].astype(np.int64)] = -np.inf
    order = masked.sort(descending=True, stable=True)[1].int()
    known = (data.train_user_dict, data.test_user_dict)
    result = ref.metrics.calc_metrics_at_k(scores.clone(), *known, users, items, CUTS)
    found = {name: np.stack([result[k][name] for k in CUTS], 1) for name in ("precision", "recall", "ndcg")}
    hits = [[float(np.isin(row[:k], data.test_user_dict[user]).any()) for k in CUTS] for row, user in zip(order, users)]
    return dict(found, user=users, scores=scores, ranking=order, hit=np.array(hits))


def make(name, public, out):
    kind = name.removeprefix("kgat_")
    with quiet():
        ref = Reference("graphsage" if kind == "graph" else kind, public)
    data = ref.data
    sizes = dict(n_users=data.n_users, n_items=data.n_items, n_entities=data.n_entities, n_nodes=ref.nodes)
    sizes.update(n_relations=data.n_relations, n_kg_relations=RELATIONS, n_triples_ckg=len(ref.h))
    sizes.update(n_cf_train=data.n_cf_train, n_cf_test=data.n_cf_test, user_offset=data.n_entities)
    with h5py.File(out / f"{name}.h5", "w") as f:
        f.attrs.update(sizes, system="kgat")
        put(f, "raw", {key: np.frombuffer(text.encode(), np.uint8) for key, text in ref.raw.items()})
        put(f, "inputs", dict(ckg_h=ref.h, ckg_r=ref.r, ckg_t=ref.t))
        laplacians = dict(random_walk=data.A_in, symmetric_upstream=ref.symmetric_upstream, symmetric=ref.symmetric())
        put(f, "laplacian", {key: sparse(matrix) for key, matrix in laplacians.items()})
        if kind == "graph":
            return
        f.attrs.update(CONFIG, aggregator=kind, seed=SEED, conv_dims=CONV_DIMS, lr=RATE, adam_betas=[0.9, 0.999])
        f.attrs.update(adam_eps=1e-8, leaky_slope=0.01, normalize_eps=1e-12, Ks=CUTS, torch_version=TORCH)
        put(f, "inputs", {f"cf{k}": dict(zip(("user", "pos", "neg"), batch)) for k, batch in enumerate(ref.cf)})
        put(f, "inputs", {f"kg{k}": dict(zip(("h", "r", "pos_t", "neg_t"), batch)) for k, batch in enumerate(ref.kg)})
        put(f, "weights", ref.weights)
        for dtype, suffix in TWO_PRECISIONS:
            model = ref.fresh(dtype)
            logits, share = ref.logits(model), ref.per_triple(model)
            matrices = dict(laplacian=ref.random_walk(dtype), per_triple=ref.matrix(share))
            matrices["sum_logits"] = ref.refresh(model, "sum_logits")
            attention = dict(logits=logits, pi_per_triple=share)
            attention.update({f"A_{rule}": sparse(matrices[rule]) for rule in ("per_triple", "sum_logits")})
            passes = {f"cf_{rule}": cf_step(ref, dtype, matrix) for rule, matrix in matrices.items()}
            passes["kg"] = kg_step(ref, dtype)
            put(f, f"outputs{suffix}", dict(attention=attention, **{key: found for key, (found, _) in passes.items()}))
            put(f, f"grads{suffix}", {key: found for key, (_, found) in passes.items()})
            put(f, f"after_steps{suffix}", {rule: train(ref, dtype, rule) for rule in ("per_triple", "sum_logits")})


if __name__ == "__main__":
    run(__doc__, make, NAMES)
