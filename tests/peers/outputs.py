#!/usr/bin/env python3
"""PyTorch modules and the networks that lockstep import makes of them compute the same outputs.

outputs.py BIN: for every kind a module takes a few steps in PyTorch, is saved as it is in practice (torch.save, alone or
beside an optimizer, with prefixes of wrappers; NumPy's .npz; safetensors) and imported; lockstep predict must give its
outputs to 1e-5 of the largest. Exported, and loaded with load_state_dict(strict=True) into another module, the weights
and the outputs must be those of the first module bit for bit. An import as another kind is refused.
"""
import sys
import tempfile
import types
from pathlib import Path

import weights
from weights import BIN, prepared, run

import h5py
import numpy as np
import torch
import torch.nn.functional as F
from safetensors import safe_open
from safetensors.torch import load_file, save_file

import emulator_peer
import har_peer
import hrm_peer
import kgat_peer
import sasrec_peer
from common import Place, arguments

TOLERANCE = 1e-5  # relative to the largest output
STEPS = 5


def few_steps(module, loss, lr=1e-2):
    optimizer = torch.optim.Adam(module.parameters(), lr)
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss().backward()
        optimizer.step()


# Each function returns: a trained module, a function that makes an untrained one, the outputs of a module (an array per
# column of the prediction), the options of import, and those of predict.


def sequence(kind, mhc):
    def make(path, folder):
        place = Place(arguments("").parse_args([]))
        o = types.SimpleNamespace(model=kind, mhc=mhc, hidden=8, heads=2, blocks=2, maxlen=30, time_span=9, streams=4, ln_eps=1e-8, dropout=0.2,
                                  time_dropout="element", sdpa=False, l2=0, weight_decay=0, optimizer="adam", chunk=0, loss="bce")
        data = sasrec_peer.Data(path, o, place)
        new = lambda: sasrec_peer.Network(o, data.items)
        module = new()
        step = sasrec_peer.step_of(module, sasrec_peer.adam(o, module, 1e-2), o, place, module.loss_sum)
        for i in range(STEPS):
            step(data.batch(torch.arange(len(data.seq)), place.generator(i)))
        with h5py.File(path) as f:
            cuts, item, time = f["users/offsets"][1:-1], f["inter/item"][()].astype(np.int64), f["inter/time_scaled"][()]
            raw = f["items/raw_id"][()]

        def newest(values):  # zeros before histories that are shorter than the window
            return torch.from_numpy(np.stack([np.pad(history, (o.maxlen, 0))[-o.maxlen:] for history in np.split(values, cuts)]))

        assert (newest(item) == 0).any() and (newest(item)[:, 0] > 0).any()
        candidates = torch.arange(1, data.items + 1).expand(data.users, -1)
        outputs = lambda net: {"score": net.eval().predict(newest(item), newest(time), candidates)}
        (folder / "items").write_text("".join(f"{id}\n" for id in raw))
        words = f"--model.num_heads 2 --model.time_span 9 --model.mhc {mhc} --model.pad_mask key --model.ln_eps 1e-8 --model.ffn_residual true".split()
        words += [] if kind == "tisasrec" and mhc == "none" else ["--model.norm", "pre", "--model.mhc_sinkhorn_iter", "20"]
        return module, new, outputs, words, ["--all-users", "--candidates-file", folder / "items"]
    return make


def bprmf(path, folder):
    with h5py.File(path) as f:
        new = lambda: weights.bprmf(f)
        module, others = new(), new()
        users, items = int(f.attrs["n_users"]), int(f.attrs["n_items"])
        user, item = np.repeat(np.arange(users), np.diff(f["cf/train/indptr"])), f["cf/train/item"][()].astype(np.int64)
    scores = lambda net: net.user_embed.weight @ net.item_embed.weight.T
    other = torch.randint(items, (len(item),))
    few_steps(module, lambda: F.softplus(scores(module)[user, other] - scores(module)[user, item]).mean())
    (folder / "items").write_text("".join(f"{i}\n" for i in range(items)))
    return module, lambda: others, lambda net: {"score": scores(net)}, [], ["--all-users", "--candidates-file", folder / "items"]


class Har(torch.nn.Module):
    """The peer's network, whose state_dict has the public code's names."""

    def __init__(self, a):
        super().__init__()
        self.net = har_peer.Network(a)

    def state_dict(self):
        state = {}
        for name, value in self.net.state_dict().items():
            names = [n.replace("stem_conv", "stem") for n in har_peer.public_names(name)]
            state |= {n: piece.clone() for n, piece in zip(names, value.chunk(len(names)))}
        return state

    def load_state_dict(self, state, strict):
        assert state.keys() == self.state_dict().keys()
        golden = {name.replace("encoder.stem.", "encoder.stem_conv."): value for name, value in state.items()}
        self.net.load_state_dict(har_peer.renamed(self.net, golden), strict=strict)


def har(path, folder):
    with h5py.File(path) as f:
        channels, length, classes = *f["train/signals"].shape[1:], len(f.attrs["class_names"])
        mean, std = (f.attrs["channel_" + n][:, None] for n in ("mean", "std"))
        normal = lambda split: torch.from_numpy((f[split + "/signals"][()] - mean) / std).float().reshape(-1, length // 16, 16)
        x, labels, test = normal("train"), torch.from_numpy(f["train/labels"][()]).long(), normal("test")
    a = dict(input="signal", length=length, patch=16, channels=channels, classes=classes, mean_pool=False, ln_eps=1e-5, encoder_dropout=0.1, dropout=0.1,
             dim=16, layers=2, heads=4, head_dim=8, mlp=24, mlp_norm="pre", hidden=[10])
    module = Har(a)
    few_steps(module, lambda: F.cross_entropy(module.net(x), labels))
    outputs = lambda m: {"probability": torch.softmax(m.net.eval()(test), 1)}
    return module, lambda: Har(a), outputs, "--model.heads 4 --model.head_width 8 --model.mode flatten --model.mlp_norm pre --model.ln_eps 1e-5".split(), []


def emulator(path, folder):
    with h5py.File(path) as f:
        x, y = torch.from_numpy(f["x"][()]), torch.from_numpy(f["y"][()])
        moments = {name: torch.from_numpy(value[()]).float() for name, value in f["moments"].items()}

    peer = emulator_peer.build_network(x.shape[1], y.shape[1], 6, 2)

    def new():
        net = weights.tree(peer["p"])
        for name, value in moments.items():
            net.register_buffer(name, torch.zeros_like(value))
        return net

    module, other = new(), new()
    for name, value in moments.items():
        getattr(module, name).copy_(value)

    def forward(net):
        z = (x - net.input_mean) / net.input_std
        return emulator_peer.forward(peer, dict(net.named_parameters()), z) * net.output_std + net.output_mean

    few_steps(module, lambda: F.mse_loss((forward(module) - module.output_mean) / module.output_std, (y - module.output_mean) / module.output_std))
    return module, lambda: other, lambda net: {"y": forward(net)}, ["--model.activation", "gelu"], ["--input", path]


def kgat(path, folder):
    size, graph, _, train, _ = kgat_peer.load(path)
    sampler = kgat_peer.Sampler(graph, size["n_items"], size["n_entities"], train, 1)
    new = lambda: weights.tree(kgat_peer.make_weights(size["n_nodes"], size["n_relations"], 8, 6, (5, 4)))
    module, other = new(), new()

    def peer(net):
        """The peer's network on the parameters of net, and the adjacency: the attention of its embeddings."""
        model = kgat_peer.Kgat(net.state_dict(), "bi-interaction", 0.0)
        model.p = dict(net.named_parameters())
        return model, graph.matrices(model.attention(graph))

    def loss():
        model, adjacency = peer(module)
        tensors = lambda batch: [torch.from_numpy(np.asarray(v)) for v in batch]
        return model.cf_loss(*adjacency, *tensors(sampler.cf(64)), 1e-5) + model.kg_loss(*tensors(sampler.kg(64)), 1e-5)

    def outputs(net):
        model, adjacency = peer(net)
        final = torch.cat(model.final(*adjacency), 1)
        return {"score": final[size["n_entities"]:] @ final[:size["n_items"]].T}

    few_steps(module, loss)
    (folder / "items").write_text("".join(f"{i}\n" for i in range(size["n_items"])))
    words = "--model.attention true --model.parallel_edges per_triple --model.leaky_slope 0.01".split()
    return module, lambda: other, outputs, words, ["--all-users", "--candidates-file", folder / "items"]


def hrm(path, folder):
    with h5py.File(path) as f:
        read = lambda split, name: torch.from_numpy(f[f"{split}/all/{name}"][()]).long()
        inputs, labels, test = read("train", "inputs"), read("train", "labels"), read("test", "inputs")
        c = dict(hidden=16, heads=2, expansion=4, h_layers=1, l_layers=2, h_cycles=2, l_cycles=2, pos="rope", puzzle_ndim=16, puzzle_emb_len=1, seq_len=16, form="hrm",
                 num_ids=int(f.attrs["num_puzzle_identifiers"]), vocab=int(f.attrs["vocab_size"]))
    net = hrm_peer.Network(c)
    with torch.no_grad():  # the states decide q, not the bias
        net.p["q_head.weight"].normal_()
        net.p["q_head.bias"].zero_()
    trainer = hrm_peer.Trainer(net, len(inputs), 1e-3, 0.1)
    for _ in range(12 * STEPS):  # until the answers differ
        trainer.step(inputs, torch.where(labels == 0, -100, labels), torch.zeros(len(inputs), dtype=torch.long))
    tree = lambda net: weights.tree({**net.p, "puzzle_emb.weights": net.table, "H_init": net.h_init, "L_init": net.l_init})
    module, other = tree(net), tree(hrm_peer.Network(c, seed=1))
    (folder / "puzzles").write_text("".join("".join(str(int(token) - 1) for token in row) + "\n" for row in test))

    def outputs(net):
        peer = hrm_peer.Network(c, weights={name: value.detach() for name, value in net.state_dict().items()})
        answer, q = hrm_peer.evaluate(peer, test, 3)
        return {"q_halt": q[:, 0], "q_continue": q[:, 1], "answer": answer - 1}

    words = "--model.num_heads 2 --model.h_cycles 2 --model.l_cycles 2 --model.pos_encodings rope --model.puzzle_emb_len -1".split()
    words += "--model.halt_max_steps 16 --model.q_continue true".split()
    return module, lambda: other, outputs, words, ["--input", folder / "puzzles", "--segments", "3"]


def beside(state, path):
    """As training scripts save, of a compiled network in a parallel wrapper."""
    wrapped = {"module._orig_mod." + name: value for name, value in state.items()}
    torch.save({"epoch": 3, "model": wrapped, "optimizer": {"state": {0: {"exp_avg": torch.zeros(2)}}, "lr": 1e-3}}, path)


def with_graph(state, path):
    """As the public KGAT saves: the adjacency is a sparse parameter."""
    torch.save({**state, "A_in": torch.eye(len(state["entity_user_embed.weight"])).to_sparse()}, path)


def npz(state, path):
    with open(path, "wb") as file:
        np.savez_compressed(file, **{name: np.asfortranarray(value.numpy()) for name, value in state.items()})


def in_head(state, path):
    torch.save({"model.inner." + name: value for name, value in state.items()}, path)


CASES = {  # data, module, how its weights are saved
    "sasrec": ("sequences", sequence("sasrec", "none"), torch.save),
    "sasrec streams": ("sequences", sequence("sasrec", "streams"), torch.save),
    "har": ("har", har, save_file),
    "emulator": ("icecolumn", emulator, torch.save),
    "bprmf": ("kg", bprmf, npz),
    "tisasrec": ("sequences", sequence("tisasrec", "none"), torch.save),
    "tisasrec streams": ("sequences", sequence("tisasrec", "streams"), beside),
    "kgat": ("kg", kgat, with_graph),
    "hrm": ("sudoku", hrm, in_head),
}


@torch.no_grad()
def check(case, save, module, new, outputs, import_words, predict_words, data, folder):
    saved, checkpoint, table, exported = (folder / name for name in ("weights", "checkpoint.h5", "table.h5", "exported.safetensors"))
    kind, state = case.split()[0], {name: value.detach() for name, value in module.state_dict().items()}
    save(state, saved)
    wrong = ["--model.kind", "kgat" if kind == "bprmf" else "bprmf", "--weights", saved, "--data.path", prepared("kg", folder)]
    wrong += "--model.attention true --model.parallel_edges per_triple --model.leaky_slope 0.01".split() if kind == "bprmf" else []
    message = run(BIN / "lockstep", "import", *wrong, "--output", folder / "refused.h5", code=3)
    assert "missing" in message and "not in this network" in message and not (folder / "refused.h5").exists(), message
    run(BIN / "lockstep", "import", "--model.kind", kind, "--weights", saved, "--data.path", data, *import_words, "--output", checkpoint)
    run(BIN / "lockstep", "eval", "--checkpoint", checkpoint)
    run(BIN / "lockstep", "predict", "--checkpoint", checkpoint, *predict_words, "--output", table)
    run(BIN / "lockstep", "export", "--checkpoint", checkpoint, "--format", "safetensors", "--output", exported)
    with safe_open(exported, "pt") as file:
        metadata = file.metadata()
    if kind != "emulator":
        assert metadata["format"] == "lockstep-weights" and metadata["kind"] == kind, metadata
    other = new()
    other.load_state_dict(load_file(exported), strict=True)
    for name, value in state.items():
        assert torch.equal(other.state_dict()[name], value), f"{case}: {name} changed"
    expected, again = outputs(module), outputs(other)
    for name, value in expected.items():
        assert torch.equal(value, again[name]), f"{case}: {name} changed by export"
        with h5py.File(table) as f:
            found = f[name][()]
        if found.dtype.kind == "S":  # text: a digit per cell
            found = np.array([[int(cell) for cell in row.decode()] for row in found])
        found = torch.from_numpy(found)
        assert found.shape == value.shape, f"{case}: {name} is {tuple(found.shape)}, not {tuple(value.shape)}"
        gap = float((found - value).abs().max() / value.abs().max())
        assert gap <= TOLERANCE, f"{case}: {name} is {gap:.1e} apart"
        print(f"{case}: {name} {tuple(value.shape)} at most {gap:.1e} apart")


def main(folder):
    for case, (set_name, make, save) in CASES.items():
        torch.manual_seed(1)
        data = prepared(set_name, folder)
        check(case, save, *make(data, folder), data, folder)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        main(Path(place))
