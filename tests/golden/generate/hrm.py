#!/usr/bin/env python3
"""Reference files of HRM in double precision: training steps and evaluation, also of TRM; optimizers and losses;
(hrm_prep.py) the preparation of puzzles.

The public modules run on the CPU: attention is its plain formula, Adam-atan2 the published update, and the names of
torch that ask for single precision, a GPU or random numbers are replaced in each module.
"""
import contextlib
import importlib
import math
import tempfile
import types

import h5py
import hrm_prep
import numpy as np
import torch
from common import copy_of, load, put, quiet, run, stored, replace_module, watch
from torch import nn

SEED, STEPS, STEPS_STORED, IGNORED = 4, 6, 3, -100
SHAPE = dict(
    batch=6, seq_len=9, vocab=11, hidden=20, heads=2, expansion=4.0, h_layers=1, l_layers=2, h_cycles=2, l_cycles=2,
    puzzle_ndim=20, num_ids=5, pos="rope", loss="stablemax_cross_entropy", halt_max_steps=4, explore=0.4,
)
RATES = dict(lr=2e-3, puzzle_lr=1e-2, wd=0.1, puzzle_wd=0.1, warmup=4, min_ratio=0.3, total_steps=40)
PUBLIC = ("hrm.hrm_act_v1", "layers", "losses", "common", "sparse_embedding")
# TRM with a gated layer across positions; the published runs have puzzle embeddings shorter than their positions too.
TRM_SHAPE = dict(
    SHAPE, seq_len=4, hidden=4, heads=1, h_layers=1, l_layers=1, h_cycles=2, l_cycles=2, puzzle_ndim=6, pos="none",
    mlp_t=True, puzzle_emb_len=3,
)
EMA = 0.9


class AdamATan2(torch.optim.Optimizer):
    """The first moment's correction multiplies the step (bias "package", adam-atan2 0.0.3) or the moment ("paper").

    source  arXiv:2407.05872
    """

    def __init__(self, params, lr=0.0, betas=(0.9, 0.95), weight_decay=0.1, bias="package"):
        super().__init__(params, dict(lr=lr, betas=betas, weight_decay=weight_decay, bias=bias))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            (beta1, beta2), rate = group["betas"], group["lr"]
            for p in (p for p in group["params"] if p.grad is not None):
                state = self.state[p] or dict(t=0, m=torch.zeros_like(p), v=torch.zeros_like(p))
                self.state[p] = state
                state["t"] += 1
                state["m"] += (1 - beta1) * (p.grad - state["m"])
                state["v"] += (1 - beta2) * (p.grad * p.grad - state["v"])
                correction = 1 - beta1 ** state["t"]
                scale = state["v"].sqrt() / math.sqrt(1 - beta2 ** state["t"])
                p.mul_(1 - rate * group["weight_decay"])
                if group["bias"] == "package":
                    p -= rate / correction * torch.atan2(state["m"], scale)
                else:
                    p -= rate * torch.atan2(state["m"] / correction, scale)


class Torch:
    """Stands for the name torch inside a public module."""

    def __init__(self, draws):
        self.float32, self.device = torch.float64, lambda *_: contextlib.nullcontext()
        self.zeros = lambda *size, device=None, **named: torch.zeros(*size, **named)
        self.rand_like, self.randint_like = (lambda *_, **__: draws["u"]), (lambda *_, **__: draws["n"])

    def __getattr__(self, name):
        return getattr(torch, name)


def plain_attention(q, k, v, causal=False):
    shares = torch.softmax(torch.einsum("bihd,bjhd->bhij", q, k) / math.sqrt(q.shape[-1]), -1)
    return torch.einsum("bhij,bjhd->bihd", shares, v).contiguous()


class Public:
    """The public modules of HRM, or of TRM; draws holds the exploration numbers that the next step takes."""

    def __init__(self, public, trm=False):
        self.trm, self.shape = trm, TRM_SHAPE if trm else SHAPE
        replace_module("flash_attn_interface", flash_attn_func=plain_attention)
        replace_module("adam_atan2", AdamATan2=AdamATan2)
        replace_module("hydra", main=lambda **_: lambda f: f)
        replace_module("omegaconf", DictConfig=dict)
        for name in ("wandb", "coolname"):
            replace_module(name)
        replace_module("argdantic", ArgParser=None)
        torch.Tensor.cuda = lambda tensor: tensor
        self.draws = {}
        self.public = public
        names = ("recursive_reasoning.trm", *PUBLIC[1:]) if trm else PUBLIC
        checkout = public / ("TinyRecursiveModels" if trm else "HRM")
        modules = load(checkout, *[f"models.{name}" for name in names], "pretrain", "puzzle_dataset")
        self.act, _, self.losses, self.common, self.sparse, self.pretrain, self.dataset = modules
        self.modules = modules[:-1]

    def to_double(self):
        torch.set_default_dtype(torch.float64)
        for module in self.modules:
            module.torch = Torch(self.draws)

    def build(self, weights=None):
        s = self.shape
        config = dict(
            batch_size=s["batch"], seq_len=s["seq_len"], puzzle_emb_ndim=s["puzzle_ndim"], vocab_size=s["vocab"],
            num_puzzle_identifiers=s["num_ids"], H_cycles=s["h_cycles"], L_cycles=s["l_cycles"], H_layers=s["h_layers"],
            L_layers=s["l_layers"], hidden_size=s["hidden"], expansion=s["expansion"], num_heads=s["heads"],
            pos_encodings=s["pos"], halt_max_steps=s["halt_max_steps"], halt_exploration_prob=s["explore"],
            forward_dtype="float32", mlp_t=s.get("mlp_t", False), puzzle_emb_len=s.get("puzzle_emb_len", 0),
        )
        kind = self.act.TinyRecursiveReasoningModel_ACTV1 if self.trm else self.act.HierarchicalReasoningModel_ACTV1
        model = self.losses.ACTLossHead(kind(config), loss_type=s["loss"])
        model.model.puzzle_emb.local_ids = nn.Buffer(torch.zeros(s["batch"], dtype=torch.int64), persistent=False)
        if weights:
            model.model.inner.load_state_dict(weights)
        return model


def draw(rng, shape):
    """Batches and exploration numbers; one step has a single label per row, one has a row without labels."""
    size = (shape["batch"], shape["seq_len"])
    batches, draws = [], []
    for t in range(STEPS):
        inputs, labels = (rng.integers(0, shape["vocab"], size) for _ in range(2))
        labels[rng.random(size) < 0.15] = IGNORED
        if t == 1:
            labels[:, 1:] = IGNORED
        if t == 2:
            labels[size[0] // 2] = IGNORED
        identifiers = rng.integers(0, shape["num_ids"], size[0])
        arrays = dict(inputs=inputs, labels=labels, puzzle_identifiers=identifiers)
        batches.append({key: torch.tensor(value) for key, value in arrays.items()})
        u = torch.tensor(rng.random(size[0]).astype(np.float32))
        draws.append(dict(u=u, n=torch.tensor(rng.integers(2, shape["halt_max_steps"] + 1, size[0]))))
    return batches, draws


def solve_some(model, carry, batch):
    """Makes every second newly loaded sequence exactly right, so that the halt target takes both values."""
    with torch.no_grad():
        predicted = model.model(carry=carry, batch=batch)[1]["logits"].argmax(-1)
    for row in carry.halted.nonzero().flatten()[::2]:
        labeled = batch["labels"][row] != IGNORED
        batch["labels"][row, labeled] = predicted[row, labeled]


def record_steps(hrm, weights, batches, draws):
    """The public training steps: what each computed, and the calls of the first pass."""
    model = hrm.build(weights).train()
    inner = model.model.inner
    r = RATES
    sparse = hrm.sparse.CastedSparseEmbeddingSignSGD_Distributed(
        inner.puzzle_emb.buffers(), world_size=1, lr=0, weight_decay=r["puzzle_wd"]
    )
    optimizers = [sparse, AdamATan2(model.parameters(), weight_decay=r["wd"])]
    state = hrm.pretrain.TrainState(
        model=model, optimizers=optimizers, optimizer_lrs=[r["puzzle_lr"], r["lr"]], carry=None, step=0,
        total_steps=r["total_steps"],
    )
    config = types.SimpleNamespace(lr_warmup_steps=r["warmup"], lr_min_ratio=r["min_ratio"])
    calls, log = [], []
    gradients, outputs, trace = {}, {}, {}
    levels_of = {name: part for name, part in inner.named_children() if name in ("H_level", "L_level")}
    parts = dict(levels_of, inner=inner)
    parts.update({f"first_{name}": part for name, part in inner.named_modules() if name.endswith(("self_attn", "mlp"))})
    embed, forward = inner._input_embeddings, model.forward
    inner._input_embeddings = lambda *arguments: calls.append(("input_embeddings", embed(*arguments))) or calls[-1][1]

    def keep_outputs(return_keys, **named):
        keys = ["logits", "q_halt_logits", "q_continue_logits", "target_q_continue"]
        result = forward(return_keys=keys, **named)
        outputs.update(loss=result[1], metrics=result[2], found=result[3])
        return result

    def keep_gradients(*_):
        table = inner.puzzle_emb
        gradients.update(copy_of((name, p.grad) for name, p in inner.named_parameters()))
        gradients["puzzle_emb.local_weights"] = table.local_weights.grad.clone()
        gradients["puzzle_emb.local_ids"] = table.local_ids.clone()

    for name, part in inner.named_modules() if hrm.trm else ():
        if name.endswith(".mlp"):  # its input is the block's state after the layer across positions
            mixed = f"first_{name.removesuffix('mlp')}mixed"
            part.register_forward_pre_hook(lambda _, inputs, mixed=mixed: calls.append((mixed, inputs[0])))
    average = importlib.import_module("models.ema").EMAHelper(EMA) if hrm.trm else None
    if average:
        average.register(inner)
    model.forward = keep_outputs
    sparse.register_step_pre_hook(keep_gradients)
    for batch, numbers in zip(batches, draws):
        hrm.draws.update(numbers)
        solve_some(model, state.carry or model.initial_carry(batch), batch)
        calls.clear()
        with watch(lambda name, out: calls.append((name, out)), parts):
            reduced = hrm.pretrain.train_batch(config, state, batch, hrm.shape["batch"], rank=0, world_size=1)
        if average:
            average.update(inner)
        names = [name for name, _ in calls]
        if not log:
            first = calls[: names.index("inner")]
            trace = {name: out for name, out in reversed(first) if name not in levels_of}
            levels = [(name, out) for name, out in first if name in levels_of]
            trace.update({f"{i:02d}_{name}": out for i, (name, out) in enumerate(levels)})
        found = dict(outputs["found"], loss=outputs["loss"])
        if not hrm.trm:
            after = calls[len(names) - 1 - names[::-1].index("inner")][1][2]
            found.update(next_q_halt_logits=after[0], next_q_continue_logits=after[1])
        carry, rates = state.carry, [optimizer.param_groups[0]["lr"] for optimizer in optimizers]
        attributes = {f"metric_{key}": float(value) for key, value in outputs["metrics"].items()}
        attributes.update({f"reduced_{key.replace('/', '_')}": float(value) for key, value in reduced.items()})
        attributes.update(lr_puzzle_emb=rates[0], lr=rates[1])
        counters = dict(steps=carry.steps, halted=carry.halted)
        counters.update({f"current_{key}": value for key, value in carry.current_data.items()})
        states = dict(z_H=carry.inner_carry.z_H, z_L=carry.inner_carry.z_L)
        kept = dict(carry=counters, states=states, outputs=found, grads=dict(gradients), after=inner.state_dict())
        kept["average"] = average.state_dict() if average else {}
        log.append({part: copy_of(values.items()) for part, values in kept.items()} | dict(attributes=attributes))
    return log, trace, inner


def record_evaluation(hrm, weights, sets):
    """The public evaluation: metrics of each set, and the last outputs of each batch."""
    model = hrm.build(weights).eval()
    forward = model.forward
    last = []

    def keep(return_keys, **named):
        result = forward(return_keys=["logits", "q_halt_logits"], **named)
        if bool(result[4]):
            last.append((result[3], result[2]))
        return result

    model.forward = keep
    with tempfile.TemporaryDirectory() as folder:
        sizes = dict(vocab_size=hrm.shape["vocab"], num_puzzle_identifiers=hrm.shape["num_ids"])
        hrm_prep.write_dataset(folder, "test", sets, **sizes)
        batches = list(hrm_prep.dataset(hrm.dataset, folder, "test", hrm.shape["batch"]))
    state = types.SimpleNamespace(model=model, step=0)
    config = types.SimpleNamespace(eval_save_outputs=[], checkpoint_path=None)
    data = types.SimpleNamespace(sets=sorted(sets))
    further = dict(evaluators=[], cpu_group=None) if hrm.trm else {}
    metrics = hrm.pretrain.evaluate(config, state, iter(batches), data, rank=0, world_size=1, **further)
    return metrics, [(*batch, *final) for batch, final in zip(batches, last)]


def write_training(hrm, f):
    rng = np.random.default_rng(SEED)
    shape, b = hrm.shape, hrm.shape["batch"]
    torch.manual_seed(SEED)
    weights = copy_of(hrm.build().model.inner.state_dict().items())
    hrm.to_double()
    # The special initial values, a zero table and a constant Q head, would hide errors.
    for name, deviation in (("puzzle_emb.weights", 0.3), ("q_head.weight", 0.35 / math.sqrt(shape["hidden"]) * 2)):
        weights[name] = torch.tensor(rng.normal(0, deviation, weights[name].shape).astype(np.float32))
    weights["q_head.bias"] = torch.tensor([-0.25, 0.15], dtype=torch.float32)
    if hrm.trm:
        # Few digits: any version of torch draws the same, and the file is smaller. Halved layers: a network of 4
        # channels amplifies the rounding of single precision.
        halved = lambda name, drawn: drawn / 2 if "mlp" in name else drawn
        weights = {name: (halved(name, drawn) * 64).round() / 64 for name, drawn in weights.items()}
    else:
        # Newer versions of torch round the inverse of erf differently.
        with stored("hrm_rope_stablemax.h5") as reference:
            for name, drawn in weights.items():
                weights[name] = torch.tensor(reference[f"weights/{name}"][()])
                torch.testing.assert_close(drawn, weights[name], rtol=0, atol=5e-7)
    batches, draws = draw(rng, shape)
    log, trace, inner = record_steps(hrm, weights, batches, draws)
    sorted_logits = torch.stack([step["outputs"]["logits"] for step in log]).sort(-1).values
    over = lambda found: found["q_halt_logits"] - (0 if hrm.trm else found["q_continue_logits"])
    margins = [over(step["outputs"]).abs().min() for step in log]
    f.attrs.update(shape | RATES, steps=STEPS_STORED, seed=SEED, global_batch_size=b, beta1=0.9, beta2=0.95)
    f.attrs.update(adam_atan2_bias="package", rms_norm_eps=1e-5, rope_theta=10000.0, ignore_label=IGNORED)
    f.attrs["puzzle_emb_len"] = inner.puzzle_emb_len
    if hrm.trm:
        f.attrs["ema"] = EMA
    f.attrs.update(inter=inner.L_level.layers[0].mlp.down_proj.weight.shape[1], min_halt_margin=float(min(margins)))
    f.attrs["min_top2_logit_margin"] = float((sorted_logits[..., -1] - sorted_logits[..., -2]).min())
    put(f, "", dict(weights=weights, trace=trace))
    for t, step in enumerate(log[:STEPS_STORED]):
        group = f.create_group(f"steps/{t}")
        put(group, "batch", batches[t], np.int32)
        put(group, "carry", step["carry"], np.int32)
        put(group, "draws", dict(explore_u=draws[t]["u"], explore_n=draws[t]["n"].int()))
        put(group, "outputs", step["outputs"])
        group["outputs"].attrs.update(step["attributes"])
        put(group, "after/puzzle_emb.weights", step["after"]["puzzle_emb.weights"])
        if t != 1:
            put(group, "carry", step["states"], np.float64 if t == 0 else np.float32)
        for name, gradient in step["grads"].items():
            if t == 0 or name.startswith("puzzle_emb"):
                kind = np.int32 if name.endswith("ids") else np.float32 if "mlp" in name else np.float64
                put(group, f"grads/{name}", gradient, kind)
    last = log[STEPS_STORED - 1]
    put(f, f"after_steps/{STEPS_STORED}", last["after"], np.float32)
    small = {name: value for name, value in last["average"].items() if "mlp" not in name}
    put(f, f"average_after_steps/{STEPS_STORED}", small, np.float32)

    size = shape["seq_len"]
    sets = {}
    for name, n in (("all", 2 * b + 2), ("second", b - 1)):
        inputs, labels = (rng.integers(1, shape["vocab"], (n, size)).astype(np.uint8) for _ in range(2))
        identifiers = rng.integers(0, shape["num_ids"], n).astype(np.int32)
        index = np.arange(n + 1, dtype=np.int32)
        labels[rng.random((n, size)) < 0.1] = 0
        sets[name] = dict(zip(hrm_prep.FIELDS, (inputs, labels, identifiers, index, index)))
    starts = dict.fromkeys(sets, 0)
    for name, _, n, out, _ in record_evaluation(hrm, weights, sets)[1]:
        for row in range(0, n, 3):  # every third row becomes exactly right
            labels, start = sets[name]["labels"], starts[name]
            labels[start + row] = np.where(labels[start + row] != 0, out["logits"][row].argmax(-1).numpy(), 0)
        starts[name] += n
    metrics, finals = record_evaluation(hrm, weights, sets)
    for name in sets:
        put(f, f"eval/{name}/data", sets[name])
        f[f"eval/{name}"].attrs.update({key: float(value) for key, value in metrics[name].items()})
    for i, (name, batch, n, out, measured) in enumerate(finals):
        put(f, f"eval/batches/{i}", dict(batch, **out))
        f[f"eval/batches/{i}"].attrs.update({f"metric_{key}": float(value) for key, value in measured.items()})
        f[f"eval/batches/{i}"].attrs.update(set=name, effective_batch=n)


def write_optimizers(hrm, f, seed=5, steps=8, n=37):
    hrm.to_double()
    rng = np.random.default_rng(seed)
    rate = hrm.pretrain.cosine_schedule_with_warmup_lr_lambda
    lr = lambda step, base, warmup, total, least: rate(
        step, base_lr=base, num_warmup_steps=warmup, num_training_steps=total, min_ratio=least
    )
    gradients = rng.normal(0, 1, (steps, n)) * 10.0 ** rng.integers(-6, 3, n)
    gradients[:, 0] = 0
    gradients[2:, 1] = 0
    gradients[:, 2] = np.where(np.arange(steps) % 2, 1, -1)
    gradients[:, 3:6] = 1e-18, -1e18, 0.5
    gradients, start = (x.astype(np.float32).astype(float) for x in (gradients, rng.normal(0, 0.5, n)))
    rates = [lr(t + 1, RATES["lr"], 3, 20, 0.1) for t in range(steps)]
    put(f, "adam_atan2", dict(param0=start, grads=gradients, lr=rates))
    for bias in ("package", "paper"):
        for decay in (0.1, 1.0):
            p = nn.Parameter(torch.tensor(start))
            found = dict(param=[], exp_avg=[], exp_avg_sq=[])
            optimizer = AdamATan2([p], weight_decay=decay, bias=bias)
            for gradient, rate_now in zip(gradients, rates):
                optimizer.param_groups[0]["lr"], p.grad = rate_now, torch.tensor(gradient)
                optimizer.step()
                for values, value in zip(found.values(), (p, optimizer.state[p]["m"], optimizer.state[p]["v"])):
                    values.append(value.detach().clone())
            put(f, f"adam_atan2/{bias}_wd{decay}", {key: torch.stack(values) for key, values in found.items()})
            f[f"adam_atan2/{bias}_wd{decay}"].attrs.update(beta1=0.9, beta2=0.95, weight_decay=decay)
    rows, width, gathered = 11, 7, 6
    weights, ids = rng.normal(0, 1, (rows, width)), rng.integers(0, rows - 2, gathered)
    ids[1] = ids[-1] = ids[0]  # repeated ids, some of whose gradients cancel
    gradients = rng.normal(0, 1e-3, (gathered, width))
    gradients[2] = gradients[-1, :3] = 0
    gradients[1, :3] = -gradients[0, :3]
    after, settings = torch.tensor(weights), dict(lr=0.01, weight_decay=0.1)
    hrm.sparse._sparse_emb_signsgd_dist(torch.tensor(gradients), torch.tensor(ids), after, world_size=1, **settings)
    put(f, "sign_sgd", dict(weights=weights, ids=ids.astype(np.int32), grads=gradients, weights_after=after))
    f["sign_sgd"].attrs.update(settings)
    table = []
    for case in ((1e-4, 2000, 26041, 1.0), (3e-4, 2000, 180555, 0.1), (7e-5, 0, 50, 0.25), (1e-2, 7, 40, 0.0)):
        warmup, total = case[1:3]
        chosen = {1, 2, 3, max(1, warmup - 1), warmup, warmup + 1, (warmup + total) // 2, total - 1, total}
        table += [[*case, step, lr(step, *case)] for step in sorted(chosen) if step >= 1]
    put(f, "lr_schedule/table", table)
    f["lr_schedule/table"].attrs["columns"] = "base_lr,warmup,total_steps,min_ratio,step(1-based),lr"
    u01 = np.concatenate([[0.0, 1.0], rng.random(61)])
    uniform = torch.Tensor.uniform_
    torch.Tensor.uniform_ = lambda tensor, low, high: tensor.copy_(torch.tensor(low + (high - low) * u01))
    for i, deviation in enumerate((1.0, 0.25)):
        put(f, f"trunc_normal/std{i}", hrm.common.trunc_normal_init_(torch.empty(len(u01)), std=deviation))
        f[f"trunc_normal/std{i}"].attrs["std"] = deviation
    torch.Tensor.uniform_ = uniform
    put(f, "trunc_normal/u01", u01)
    logits = rng.normal(0, 3, (3, 5, 7))
    logits[0, 0] = [0, -0.0, 50, -50, 1e-3, -1e-3, 5]
    labels = rng.integers(0, 7, (3, 5))
    labels[1, 2:] = labels[2] = IGNORED
    put(f, "losses", dict(logits=logits, labels=labels.astype(np.int32)))
    for name in ("stablemax_cross_entropy", "softmax_cross_entropy"):
        x = torch.tensor(logits, requires_grad=True)
        loss = getattr(hrm.losses, name)(x, torch.tensor(labels), ignore_index=IGNORED)
        loss.sum().backward()
        put(f, "losses", {name: loss, f"{name}_dlogits": x.grad})
    f.attrs["seed"] = seed


FILES = dict(hrm_rope_stablemax=("train", write_training), hrm_optim=("optim", write_optimizers))
FILES["hrm_trm_mlp_t"] = ("train", write_training)
FILES["hrm_prep"] = ("prep", hrm_prep.write)


def make(name, public, out):
    with quiet(), h5py.File(out / f"{name}.h5", "w", libver=("v110", "v110")) as f:
        torch.set_default_dtype(torch.float32)
        f.attrs["mode"], write = FILES[name]
        write(Public(public, trm=name.startswith("hrm_trm")), f)


if __name__ == "__main__":
    run(__doc__, make, FILES)
