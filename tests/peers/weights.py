#!/usr/bin/env python3
"""Modules with the public code's parameter names, and two imports that change the form of weights: PyTorch's own attention
becomes separate matrices, and bfloat16 becomes float32. outputs.py imports every kind.

weights.py BIN
"""
import subprocess
import sys
import tempfile
from pathlib import Path

import h5py
import numpy as np
import torch
from safetensors.torch import load_file
from torch import nn

BIN = Path(sys.argv[1])


def run(*words, code=0):
    found = subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=120)
    if found.returncode != code:
        raise SystemExit(f"{' '.join(map(str, words))}: exit code {found.returncode}\n{found.stdout}{found.stderr}")
    return found.stdout + found.stderr


def tree(tensors):
    """A module with parameters of these names and values."""
    root = nn.Module()
    for name, value in tensors.items():
        *path, last = name.split(".")
        module = root
        for part in path:
            if not hasattr(module, part):
                module.add_module(part, nn.Module())
            module = getattr(module, part)
        module.register_parameter(last, nn.Parameter(value.detach().clone()))
    return root


class FusedAttention(nn.Module):
    """SASRec with PyTorch's own attention."""

    def __init__(self, data, d=8):
        super().__init__()
        norms = lambda: nn.ModuleList(nn.LayerNorm(d) for _ in range(2))
        self.item_emb, self.pos_emb = nn.Embedding(int(data.attrs["n_items"]) + 1, d), nn.Embedding(7, d)
        self.attention_layernorms, self.forward_layernorms, self.last_layernorm = norms(), norms(), nn.LayerNorm(d)
        self.attention_layers = nn.ModuleList(nn.MultiheadAttention(d, 2) for _ in range(2))
        self.forward_layers = nn.ModuleList(nn.ModuleDict({k: nn.Conv1d(d, d, 1) for k in ("conv1", "conv2")}) for _ in range(2))


def bprmf(data):
    return tree({f"{name}_embed.weight": torch.randn(int(data.attrs[f"n_{name}s"]), 8) for name in ("user", "item")})


DATA = {
    "sequences": "synth-sequences --users 12", "kg": "synth-kg --users 12", "har": "synth-har --subjects 6 --seconds 12",
    "sudoku": "synth-sudoku --order 2 --train 8 --test 4", "icecolumn": "synth-icecolumn --rows 60",
}


def prepared(name, folder):
    """A small data set, generated once."""
    data = folder / f"{name}.h5"
    if not data.exists():
        run(BIN / "lockstep-prep", *DATA[name].split(), "--quiet", "--output", data)
    return data


def check_fused(folder):
    """The one matrix of nn.MultiheadAttention is exported as three, which are its parts bit for bit."""
    data, weights, checkpoint, exported = prepared("sequences", folder), folder / "fused.pt", folder / "fused.h5", folder / "fused.safetensors"
    with h5py.File(data) as file:
        module = FusedAttention(file)
    state = {name: value.detach().clone() for name, value in module.state_dict().items()}
    torch.save(state, weights)
    words = "--model.num_heads 2 --model.norm original --model.ffn_residual true --model.pad_mask key --model.ln_eps 1e-8".split()
    run(BIN / "lockstep", "import", "--model.kind", "sasrec", "--weights", weights, "--data.path", data, *words, "--output", checkpoint)
    run(BIN / "lockstep", "eval", "--checkpoint", checkpoint)
    run(BIN / "lockstep", "export", "--checkpoint", checkpoint, "--format", "safetensors", "--output", exported)
    back = load_file(exported)
    for i in range(2):
        for part in ("weight", "bias"):
            names = [f"attention_layers.{i}.{name}_w.{part}" for name in "qkv"]
            back[f"attention_layers.{i}.in_proj_{part}"] = torch.cat([back.pop(name) for name in names])
            back[f"attention_layers.{i}.out_proj.{part}"] = back.pop(f"attention_layers.{i}.out_w.{part}")
    module.load_state_dict(back, strict=True)
    for name, value in state.items():
        assert torch.equal(module.state_dict()[name], value), f"{name} changed"


def check_halves(folder):
    """bfloat16 becomes float32, and the command says so; an array of another system is refused by name."""
    with h5py.File(prepared("kg", folder)) as file:
        state = {name: value.detach().bfloat16() for name, value in bprmf(file).state_dict().items()}
    torch.save(state, folder / "half.pt")
    words = ["--model.kind", "bprmf", "--data.path", folder / "kg.h5", "--output", folder / "half.h5"]
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
        check_fused(Path(place))
        check_halves(Path(place))
