#!/usr/bin/env python3
"""Reference files of the sequence models in double precision, and tisasrec_data, the preparation of rated items.

Seven variants run in the public code; those called default in tisasrec_reference.py, and three of them with another
loss, written out in loss_of().
"""
import collections
import contextlib
import os
import tempfile
import types

import h5py
import numpy as np
import tisasrec_reference
import torch
import torch.nn.functional as F
from common import TORCH, load, put, quiet, run, watch

SIZES = dict(hidden=12, heads=3, blocks=2, items=41, maxlen=11, time_span=14)
SIZES.update(n_streams=4, sinkhorn_iters=20, mhc_rms_eps=1e-8)
BATCH, STEPS, RATE, DECAY = 5, 3, 1e-3, 0.01
NEGATIVES, CALIBRATION = 6, 0.75
COLUMNS = ("module", "model", "norm", "pad_mask", "ffn_residual", "mhc", "ln_eps", "loss")
VARIANTS = {
    "sasrec": ("model", "sasrec", "pre", "none", True, "none", 1e-8),
    "sasrec_postln": ("model_mhc", "sasrec", "post", "none", True, "none", 1e-6),
    "sasrec_mhc": ("model_mhc", "sasrec", "post", "none", True, "collapsed", 1e-6),
    "sasrec_mhc_prenorm": ("model_mhc", "sasrec", "pre", "none", True, "collapsed", 1e-6),
    "tisasrec": ("model_mhc", "tisasrec", "original", "query", True, "none", 1e-8),
    "tisasrec_noffnres": ("model", "tisasrec", "original", "query", False, "none", 1e-8),
    "tisasrec_mhc": ("model_mhc", "tisasrec", "original", "query", True, "collapsed", 1e-8),
    "default_sasrec": (None, "sasrec", "pre", "key", True, "none", 1e-8),
    "default_tisasrec": (None, "tisasrec", "original", "key", True, "none", 1e-8),
    "default_tisasrec_mhc": (None, "tisasrec", "pre", "key", True, "streams", 1e-8),
}
LOSSES = ("gbce", "sampled_softmax", "softmax")
VARIANTS.update({f"loss_{loss}": (*VARIANTS["default_sasrec"], loss) for loss in LOSSES})
KEPT = ("log_feats", "pos_logits", "neg_logits", "loss", "predict")  # outputs in the files of losses
FILLS = dict(none=-1000.0, query=1.0 - 2.0**32, key=-np.inf)  # in place of the scores of masked pairs


def draw_batches(rng):
    """Batches with a full window, a window of one item, tied times, and negatives that the window does not hold."""
    items, maxlen = SIZES["items"], SIZES["maxlen"]
    batches = []
    for _ in range(STEPS):
        seq, pos, neg, time = np.zeros((4, BATCH, maxlen), np.int64)
        for b in range(BATCH):
            length = maxlen if b == 0 else 1 if b == 1 else int(rng.integers(2, maxlen + 1))
            window = rng.integers(1, items + 1, length + 1)
            seq[b, -length:], pos[b, -length:] = window[:-1], window[1:]
            for t in range(maxlen - length, maxlen):
                while neg[b, t] == 0 or neg[b, t] in window:
                    neg[b, t] = rng.integers(1, items + 1)
            gaps = rng.integers(0, max(2, SIZES["time_span"] // 3), length)
            time[b, -length:] = 1 + np.cumsum(gaps) - gaps[0]
        batches.append(dict(seq=seq, pos=pos, neg=neg, time=time))
    return batches, rng.integers(1, items + 1, (BATCH, 7))


def shapes(c):
    """Shapes of the parameters in the order in which the weights are drawn."""
    d, n = c["hidden"], c["n_streams"]
    tables = dict(pos_emb=c["maxlen"] + 1)
    names = ("q_w", "k_w", "v_w", "out_w")
    if c["model"] == "tisasrec":
        rows, buckets = c["maxlen"], c["time_span"] + 1
        tables = dict(abs_pos_K_emb=rows, abs_pos_V_emb=rows, time_matrix_K_emb=buckets, time_matrix_V_emb=buckets)
        names = ("Q_w", "K_w", "V_w")
    found = {f"{name}.weight": (rows, d) for name, rows in dict(item_emb=c["items"] + 1, **tables).items()}
    layer = lambda name, *size: found.update({f"{name}.weight": size, f"{name}.bias": size[:1]})
    for i in range(c["blocks"]):
        layer(f"attention_layernorms.{i}", d)
        layer(f"forward_layernorms.{i}", d)
        for name in names:
            layer(f"attention_layers.{i}.{name}", d, d)
        for name in ("conv1", "conv2"):
            layer(f"forward_layers.{i}.{name}", d, d, 1)
        for site in ("attn", "ffn") if c["mhc"] != "none" else ():
            for kind, rows in dict(pre=n, post=n, res=n * n).items():
                found[f"mhc_{site}.{i}.alpha_{kind}"] = ()
                layer(f"mhc_{site}.{i}.phi_{kind}", rows, n * d)
    layer("last_layernorm", d)
    return found


def draw_weights(c, seed):
    """Weights without special values: perturbed norms, gates and biases; normal matrices with Xavier's variance."""
    generator = torch.Generator().manual_seed(seed)
    weights = {}
    for name, shape in shapes(c).items():
        draw = torch.rand if "alpha" in name else torch.randn
        value = draw(shape, generator=generator)
        if len(shape) > 1:
            value *= (2.0 / (shape[0] + shape[1])) ** 0.5
        elif "layernorm" in name and name.endswith("weight"):
            value = 1.0 + 0.1 * value
        else:
            value = 0.3 + 0.5 * value if "alpha" in name else 0.15 * value
        if name in ("item_emb.weight", "pos_emb.weight"):
            value[0] = 0
        weights[name] = value
    return weights


def add_draws(batches, loss, rng):
    """The items that a loss draws: per position (gbce), or once for all positions, popular ones more often."""
    items = SIZES["items"]
    for batch in batches:
        if loss == "gbce":
            drawn = rng.integers(1, items + 1, (*batch["pos"].shape, NEGATIVES))
            batch["neg"] = drawn * (batch["pos"] != 0)[..., None]
        if loss == "sampled_softmax":
            q = 1.0 / np.arange(1, items + 1)
            q /= q.sum()
            batch["candidates"] = rng.choice(items, 4 * NEGATIVES, p=q) + 1
            batch["candidates"][0] = batch["pos"][0, -1]  # not compared with itself
            batch["bias"] = -np.log(4 * NEGATIVES * q[batch["candidates"] - 1])


class Public:
    """The network of the public code."""

    def __init__(self, c, weights, public):
        args = types.SimpleNamespace(
            device="cpu", hidden_units=c["hidden"], maxlen=c["maxlen"], num_blocks=c["blocks"], num_heads=c["heads"],
            dropout_rate=0.0, norm_first=c["norm"] == "pre", no_mhc=c["mhc"] == "none", mhc_no_amp=False,
            mhc_expansion_rate=c["n_streams"], layer_norm_eps=c["ln_eps"], time_span=c["time_span"],
        )
        module = load(public / "SASRec.pytorch/python", c["module"])
        self.c = c
        self.timed = c["model"] == "tisasrec"
        sizes = (BATCH, c["items"], c["time_span"]) if self.timed else (BATCH, c["items"])
        self.net = getattr(module, "TiSASRec" if self.timed else "SASRec")(*sizes, args).double()
        self.net.load_state_dict(weights)
        self.parameters = dict(self.net.named_parameters())
        self.users = np.arange(1, BATCH + 1)

    def logits(self, batch, rel, found):
        def note(name, out):
            out = out[0] if isinstance(out, tuple) else out
            if name.endswith("sigmoid"):  # called twice
                name += "_post" if f"{name}_pre" in found else "_pre"
            found[name] = out if out.shape[0] == BATCH else out.transpose(0, 1)

        parts = dict(log_feats=self.net.last_layernorm)
        for i in range(self.c["blocks"]):
            parts[f"block{i}/attn_out"] = self.net.attention_layers[i]
            parts[f"block{i}/ffn_out"] = self.net.forward_layers[i]
            for site in ("attn", "ffn") if self.c["mhc"] != "none" else ():
                connection = getattr(self.net, f"mhc_{site}")[i]
                parts.update({f"block{i}/{site}/mhc_out": connection, f"block{i}/{site}/sigmoid": connection.sigmoid})
        with watch(note, parts):
            return self.net(self.users, batch["seq"], *[rel] * self.timed, batch["pos"], batch["neg"])

    def predict(self, batch, rel, candidates):
        return self.net.predict(self.users, batch["seq"], *[rel] * self.timed, candidates).reshape(candidates.shape)


class Reference:
    """The network of tisasrec_reference.py."""

    def __init__(self, c, weights, _public):
        self.c = c
        self.parameters = {name: value.double().requires_grad_() for name, value in weights.items()}
        for name in ("item_emb.weight", "pos_emb.weight"):  # row 0 stands for no item and stays 0
            if name in weights:
                self.parameters[name].register_hook(lambda g: torch.cat([torch.zeros_like(g[:1]), g[1:]]))
        self.items = self.parameters["item_emb.weight"]

    def features(self, batch, rel, found):
        return tisasrec_reference.features(self.parameters, self.c, torch.tensor(batch["seq"]), rel, found)

    def logits(self, batch, rel, found):
        f = self.features(batch, rel, found)
        scores = lambda items: torch.einsum("bt...d,btd->bt...", self.items[items], f)
        return [scores(batch[side]) for side in ("pos", "neg")]

    def predict(self, batch, rel, candidates):
        return torch.einsum("bcd,bd->bc", self.items[candidates], self.features(batch, rel, {})[:, -1])


def write_network(variant, public, out):
    c = dict(SIZES, **dict(zip(COLUMNS, VARIANTS[variant])))
    if "loss" in c:  # the network is that of default_sasrec, so that one block will do
        c.update(blocks=1)
    timed = c["model"] == "tisasrec"
    is_public = c["module"] is not None
    seed = 22 if variant == "sasrec_mhc" else 20
    l2 = 5e-4 if timed else 0.0
    optimizer = "adamw" if variant == "sasrec_postln" else "adam"
    tables = ["item_emb"]  # that the loss penalizes; the public code leaves the others out
    if timed and not is_public:
        tables += ["abs_pos_K_emb", "abs_pos_V_emb", "time_matrix_K_emb", "time_matrix_V_emb"]
    rng = np.random.default_rng(seed)
    batches, candidates = draw_batches(rng)
    loss_kind = c.get("loss", "bce")
    add_draws(batches, loss_kind, rng)
    weights = draw_weights(c, seed)
    torch.set_default_dtype(torch.float64)
    model = (Public if is_public else Reference)(c, weights, public)

    def relations(batch):
        return np.minimum(np.abs(batch["time"][:, :, None] - batch["time"][:, None]), c["time_span"])

    def target_loss(batch, positive, negative, f, real):
        """The mean over targets."""
        if loss_kind == "bce":
            return (F.softplus(-positive[real]) + F.softplus(negative[real])).mean()
        if loss_kind == "gbce":
            beta = 1 - CALIBRATION * (1 - NEGATIVES / (c["items"] - 1))
            return (-beta * F.logsigmoid(positive[real]) + F.softplus(negative[real]).sum(-1)).mean()
        table, pos = p["item_emb.weight"], torch.tensor(batch["pos"])[real]
        if loss_kind == "softmax":
            return F.cross_entropy(f[real] @ table[1:].T, pos - 1)
        ids = torch.tensor(batch["candidates"])
        scores = f[real] @ table[ids].T + torch.tensor(batch["bias"])
        scores = scores.masked_fill(ids == pos[:, None], -np.inf)
        return -torch.cat([positive[real][:, None], scores], 1).log_softmax(1)[:, 0].mean()

    def loss_of(batch, positive, negative, found):
        real = torch.tensor(batch["pos"] != 0)
        squares = sum(model.parameters[f"{table}.weight"].square().sum() for table in tables)
        return target_loss(batch, positive, negative, found.get("log_feats"), real) + l2 * squares

    outputs, p = {}, model.parameters
    positive, negative = model.logits(batches[0], relations(batches[0]), outputs)
    outputs.update(pos_logits=positive, neg_logits=negative, loss=loss_of(batches[0], positive, negative, outputs))
    outputs["loss"].backward()
    outputs["predict"] = model.predict(batches[0], relations(batches[0]), candidates)
    gradients = {name: torch.zeros_like(w) if w.grad is None else w.grad.clone() for name, w in p.items()}
    unused = [name for name, w in p.items() if w.grad is None]
    kind, decay = (torch.optim.AdamW, DECAY) if optimizer == "adamw" else (torch.optim.Adam, 0.0)
    steps = kind(p.values(), lr=RATE, betas=(0.9, 0.98), eps=1e-8, weight_decay=decay)
    losses = []
    for batch in batches:
        steps.zero_grad()
        found = {}
        loss = loss_of(batch, *model.logits(batch, relations(batch), found), found)
        loss.backward()
        steps.step()
        losses.append(loss.item())
    if "loss" in c:
        outputs = {name: value for name, value in outputs.items() if name in KEPT}
    torch.set_default_dtype(torch.float32)
    with h5py.File(out / f"tisasrec_{variant}.h5", "w") as f:
        f.attrs.update({key: value for key, value in c.items() if key != "module"}, variant=variant, seed=seed)
        if "loss" in c:
            f.attrs.update(negatives=NEGATIVES, calibration=CALIBRATION)
        f.attrs.update(batch=BATCH, torch_version=TORCH, causal_fill=FILLS[c["pad_mask"]])
        f.attrs.update(source="upstream" if is_public else "reference", l2_emb=l2, l2_tables=",".join(tables), lr=RATE)
        f.attrs.update(optimizer=optimizer, weight_decay=DECAY, adam_beta1=0.9, adam_beta2=0.98, adam_eps=1e-8)
        f.attrs["params_without_gradient"] = ",".join(unused)
        for i, batch in enumerate(batches):
            bias = batch.pop("bias", None)
            put(f, f"inputs/batch{i}", {key: x for key, x in batch.items() if timed or key != "time"}, np.int32)
            if bias is not None:
                put(f, f"inputs/batch{i}", dict(bias=bias))
        put(f, "inputs/candidates", candidates, np.int32)
        put(f, "", dict(weights=weights, outputs64=outputs, grads64=gradients))
        put(f, "after_steps64", dict(weights=p, losses=np.array(losses)))


def write_data(public, out, users=60, items=30, maxlen=8, time_span=15, seed=20, least=5):
    """Rated items with tied times: the public preparation filters, numbers, scales, splits and windows them."""
    utils = load(public / "TiSASRec.pytorch", "utils")
    rng = np.random.default_rng(seed)
    rows = []
    for user in range(1, users + 1):
        n = int(rng.integers(3, 14) if user % 5 else rng.integers(1, 5))
        times = 978300000 + int(rng.integers(0, 50000)) + np.cumsum(rng.integers(0, 4, n) * int(rng.integers(1, 40)))
        if user == 3:
            times[:] = times[0]
        chosen = rng.choice(np.arange(1, items + 1), n, replace=False)
        rows += [(user, int(item), int(rng.integers(1, 6)), int(time)) for item, time in zip(chosen, times)]
    rows = [rows[i] for i in rng.permutation(len(rows))]
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        os.mkdir("data")
        with open("data/rows.txt", "w") as file:
            file.writelines("\t".join(map(str, row)) + "\n" for row in rows)
        *parts, n_users, n_items, latest = utils.data_partition("rows")
    counts = [collections.Counter(row[column] for row in rows) for column in (0, 1)]
    kept = [row for row in rows if all(counts[column][row[column]] >= least for column in (0, 1))]
    offsets, found = [0], []
    with h5py.File(out / "tisasrec_data.h5", "w") as f:
        f.attrs.update(seed=seed, maxlen=maxlen, time_span=time_span, min_user=least, min_item=least, source="upstream")
        f.attrs.update(usernum=n_users, itemnum=n_items, time_max=latest)
        for user in range(1, n_users + 1):
            found += [(item, time, split) for split, part in enumerate(parts) for item, time in part[user]]
            offsets.append(len(found))
            if parts[0][user]:
                history = parts[0][user][:-1][-maxlen:]
                window = np.array([(0, 0)] * (maxlen - len(history)) + list(map(tuple, history)), np.int32)
                relations = utils.computeRePos(window[:, 1], time_span)
                put(f, f"outputs/user{user}", dict(seq=window[:, 0], time_seq=window[:, 1], rel=relations), np.int32)
        put(f, "inputs/rows", rows, np.int64)
        raw_users, raw_items = ([0, *sorted({row[column] for row in kept})] for column in (0, 1))
        item, time, split = np.array(found).T
        numbers = dict(raw_user_of=raw_users, raw_item_of=raw_items, offsets=offsets, times_scaled=time)
        put(f, "outputs", numbers, np.int64)
        put(f, "outputs", dict(items=item.astype(np.int32), split=split.astype(np.int8)))


def make(name, public, out):
    with quiet():
        variant = name.removeprefix("tisasrec_")
        write_data(public, out) if variant == "data" else write_network(variant, public, out)


if __name__ == "__main__":
    run(__doc__, make, [f"tisasrec_{variant}" for variant in (*VARIANTS, "data")])
