#!/usr/bin/env python3
"""Weights of PyTorch modules go through lockstep import and lockstep export and come back bit for bit.

weights.py BIN: for every kind a module with the public code's parameter names is saved as it is in practice (torch.save,
alone or beside an optimizer, with prefixes of wrappers; NumPy's .npz; safetensors), imported with a small data set, exported,
and loaded with load_state_dict(strict=True).
"""
import json
import subprocess
import sys
import tempfile
import types
from pathlib import Path

try:
    import h5py
    import numpy as np
    import torch
    from safetensors import safe_open
    from safetensors.torch import load_file, save_file
    from torch import nn
except ImportError as missing:
    print("skipped:", missing)
    raise SystemExit(77)

from hrm_peer import inter_size
from sasrec_peer import Network

BIN = Path(sys.argv[1])


def run(*words, code=0):
    found = subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=120)
    if found.returncode != code:
        raise SystemExit(f"{' '.join(map(str, words))}: exit code {found.returncode}\n{found.stdout}{found.stderr}")
    return found.stdout + found.stderr


def tree(shapes):
    """A module with parameters of these names and shapes."""
    root = nn.Module()
    for name, shape in shapes.items():
        *path, last = name.split(".")
        module = root
        for part in path:
            if not hasattr(module, part):
                module.add_module(part, nn.Module())
            module = getattr(module, part)
        module.register_parameter(last, nn.Parameter(torch.randn(shape)))
    return root


def linear(name, out, inner):
    return {f"{name}.weight": (out, inner), f"{name}.bias": (out,)}


def sequence(timed, mhc):
    def make(data):
        options = dict(hidden=8, heads=2, blocks=2, maxlen=6, time_span=9, ln_eps=1e-8, streams=4, mhc=mhc, dropout=0.0)
        return Network(types.SimpleNamespace(model="tisasrec" if timed else "sasrec", **options), int(data.attrs["n_items"]))
    return make


class FusedAttention(nn.Module):
    """SASRec with PyTorch's own attention."""

    def __init__(self, data, d=8):
        super().__init__()
        norms = lambda: nn.ModuleList(nn.LayerNorm(d) for _ in range(2))
        self.item_emb, self.pos_emb = nn.Embedding(int(data.attrs["n_items"]) + 1, d), nn.Embedding(7, d)
        self.attention_layernorms, self.forward_layernorms, self.last_layernorm = norms(), norms(), nn.LayerNorm(d)
        self.attention_layers = nn.ModuleList(nn.MultiheadAttention(d, 2) for _ in range(2))
        self.forward_layers = nn.ModuleList(nn.ModuleDict({k: nn.Conv1d(d, d, 1) for k in ("conv1", "conv2")}) for _ in range(2))


def kgat(data):
    nodes, relations, d, k = int(data.attrs["n_nodes"]), int(data.attrs["n_relations"]), 8, 6
    shapes = {"entity_user_embed.weight": (nodes, d), "relation_embed.weight": (relations, k), "trans_M": (relations, d, k)}
    for layer, (inner, out) in enumerate(((8, 5), (5, 4))):
        for name in ("linear1", "linear2"):
            shapes |= linear(f"aggregator_layers.{layer}.{name}", out, inner)
    return tree(shapes)


def bprmf(data):
    return tree({"user_embed.weight": (int(data.attrs["n_users"]), 8), "item_embed.weight": (int(data.attrs["n_items"]), 8)})


def hrm(data):
    d, vocab = 16, int(data.attrs["vocab_size"])
    inter = inter_size(d, 4)
    shapes = {"embed_tokens.embedding_weight": (vocab, d), "lm_head.weight": (vocab, d), "H_init": (d,), "L_init": (d,)}
    shapes |= linear("q_head", 2, d) | {"puzzle_emb.weights": (int(data.attrs["num_puzzle_identifiers"]), d)}
    for level, layers in (("H", 1), ("L", 2)):
        for i in range(layers):
            block = f"{level}_level.layers.{i}."
            shapes |= {block + "self_attn.qkv_proj.weight": (3 * d, d), block + "self_attn.o_proj.weight": (d, d)}
            shapes |= {block + "mlp.gate_up_proj.weight": (2 * inter, d), block + "mlp.down_proj.weight": (d, inter)}
    return tree(shapes)


def har(data):
    d, columns, channels = 16, 32, data["train/signals"].shape[1]
    norm = lambda name, width: {f"{name}.weight": (width,), f"{name}.bias": (width,)}
    shapes = linear("encoder.stem", d, 16) | norm("encoder.stem_ln", d) | norm("encoder.output_ln", d)
    shapes["encoder.pos_embedding"] = (1, data["train/signals"].shape[2] // 16, d)
    layer = "encoder.encoder_layers.0."
    for name in ("query", "key", "value"):
        shapes |= linear(f"{layer}mha.{name}_dense", columns, d)
    shapes |= norm(layer + "mha_ln", d) | norm(layer + "mlp.layernorm", d) | linear(layer + "mha.output_dense", d, columns)
    shapes |= linear(layer + "mlp.dense1", 24, d) | linear(layer + "mlp.dense2", d, 24)
    shapes |= linear("pooling.attention.0", d // 4, d) | linear("pooling.attention.2", 1, d // 4)
    shapes |= linear("classifier.head.0", 10, channels * d) | norm("classifier.head.1", 10)
    return tree(shapes | linear("classifier.head.4", len(data.attrs["class_names"]), 10))


def emulator(data):
    n_in, n_out = int(data.attrs["n_in"]), int(data.attrs["n_out"])
    return tree(linear("network.0", 6, n_in) | linear("network.2", 6, 6) | linear("network.4", n_out, 6))


def save_alone(state, path):
    torch.save(state, path)


def save_beside(state, path):
    """As training scripts do, of a compiled network in a parallel wrapper."""
    wrapped = {"module._orig_mod." + name: value for name, value in state.items()}
    torch.save({"epoch": 3, "model": wrapped, "optimizer": {"state": {0: {"exp_avg": torch.zeros(2)}}, "lr": 1e-3}}, path)


def save_with_graph(state, path):
    """As the public KGAT does: the adjacency is a sparse parameter."""
    torch.save({**state, "A_in": torch.eye(len(state["entity_user_embed.weight"])).to_sparse()}, path)


def save_npz(state, path):
    with open(path, "wb") as file:
        np.savez_compressed(file, **{name: np.asfortranarray(value.numpy()) for name, value in state.items()})


def save_in_head(state, path):
    torch.save({"model.inner." + name: value for name, value in state.items()}, path)


CASES = {
    "sasrec": ("sequences", sequence(False, "none"), save_alone, "--model.num_heads 2"),
    "tisasrec": ("sequences", sequence(True, "streams"), save_beside, "--model.mhc streams --model.norm pre"),
    "sasrec fused": ("sequences", FusedAttention, save_alone, "--model.norm original"),
    "kgat": ("kg", kgat, save_with_graph, ""),
    "bprmf": ("kg", bprmf, save_npz, ""),
    "hrm": ("sudoku", hrm, save_in_head, "--model.num_heads 2"),
    "har": ("har", har, lambda state, path: save_file(state, path), ""),
    "emulator": ("icecolumn", emulator, save_alone, ""),
}
DATA = {
    "sequences": "synth-sequences --users 12", "kg": "synth-kg --users 12", "har": "synth-har --subjects 6 --seconds 12",
    "sudoku": "synth-sudoku --order 2 --train 8 --test 4", "icecolumn": "synth-icecolumn --rows 60",
}


def check(case, folder):
    set_name, make, save, options = CASES[case]
    kind, data = case.split()[0], folder / f"{set_name}.h5"
    if not data.exists():
        run(BIN / "lockstep-prep", *DATA[set_name].split(), "--quiet", "--output", data)
    with h5py.File(data) as file:
        module = make(file)
    state = {name: value.detach().clone() for name, value in module.state_dict().items()}
    weights, checkpoint, exported = folder / "weights", folder / "checkpoint.h5", folder / "exported.safetensors"
    save(state, weights)
    words = ["--model.kind", kind, "--weights", weights, "--data", data, *options.split(), "--output", checkpoint]
    run(BIN / "lockstep", "import", *words)
    run(BIN / "lockstep", "eval", "--checkpoint", checkpoint)
    run(BIN / "lockstep", "export", "--checkpoint", checkpoint, "--format", "safetensors", "--output", exported)
    back = load_file(exported)
    with safe_open(exported, "pt") as file:
        metadata = file.metadata()
    if kind == "emulator":
        for name in ("input_mean", "input_std", "output_mean", "output_std"):
            module.register_buffer(name, torch.zeros_like(back[name]))
    else:
        assert metadata["format"] == "lockstep-weights" and metadata["kind"] == kind, metadata
        json.loads(metadata["model.ln_eps"] if "model.ln_eps" in metadata else "0")
    if case == "sasrec fused":  # exported with separate matrices
        for i in range(2):
            for part in ("weight", "bias"):
                names = [f"attention_layers.{i}.{name}_w.{part}" for name in "qkv"]
                back[f"attention_layers.{i}.in_proj_{part}"] = torch.cat([back.pop(name) for name in names])
                back[f"attention_layers.{i}.out_proj.{part}"] = back.pop(f"attention_layers.{i}.out_w.{part}")
    module.load_state_dict(back, strict=True)
    for name, value in state.items():
        assert torch.equal(module.state_dict()[name], value), f"{case}: {name} changed"
    other = folder / "other.h5"
    refused = ["--model.kind", "bprmf" if kind != "bprmf" else "kgat", "--weights", weights, "--data", folder / "kg.h5"]
    if (folder / "kg.h5").exists():
        message = run(BIN / "lockstep", "import", *refused, "--output", other, code=3)
        assert "missing" in message and "not in this network" in message and not other.exists(), message
    print(f"{case}: {len(state)} arrays")


def check_halves(folder):
    """bfloat16 becomes float32, and the command says so; an array of another system is refused by name."""
    with h5py.File(folder / "kg.h5") as file:
        state = {name: value.detach().bfloat16() for name, value in bprmf(file).state_dict().items()}
    torch.save(state, folder / "half.pt")
    words = ["--model.kind", "bprmf", "--data", folder / "kg.h5", "--output", folder / "half.h5"]
    text = run(BIN / "lockstep", "import", "--weights", folder / "half.pt", *words)
    assert "2 of BFloat16 as f32" in text, text
    with h5py.File(folder / "half.h5") as file:
        assert np.array_equal(file["model/item_embed"][()], state["item_embed.weight"].float().numpy())
    torch.save(nn.Linear(2, 2), folder / "module.pt")
    text = run(BIN / "lockstep", "import", "--weights", folder / "module.pt", *words, code=3)
    assert "torch.nn.modules.linear.Linear" in text, text


if __name__ == "__main__":
    torch.manual_seed(1)
    with tempfile.TemporaryDirectory() as place:
        for name in CASES:
            check(name, Path(place))
        check_halves(Path(place))
