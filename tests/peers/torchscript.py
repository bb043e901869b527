#!/usr/bin/env python3
"""Modules that torch.jit.script, trace and freeze save become emulators, and back: the results agree.

torchscript.py BIN
"""
import itertools
import sys
import tempfile
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn
from weights import BIN, run

TOLERANCE = 1e-5  # relative to the largest value


class Normalised(nn.Module):
    def __init__(self, body):
        super().__init__()
        self.body = body
        for name, n in dict(input_mean=3, input_std=3, output_mean=2, output_std=2).items():
            self.register_buffer(name, torch.rand(n) + 0.5)

    def forward(self, x):
        return self.body((x - self.input_mean) / self.input_std) * self.output_std + self.output_mean


class Functional(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = nn.Linear(3, 4, bias=False), nn.Linear(4, 4), nn.Linear(4, 2)
        self.register_buffer("mean", torch.rand(1, 3))
        self.register_buffer("variance", torch.rand(1, 3))

    def forward(self, x):
        x = (x - self.mean) / (self.variance + 1e-6)
        x = F.dropout(F.relu(self.a(x)), 0.5, self.training)
        x = torch.relu_(self.b(x))
        return 0.5 + 2.0 * self.c(x)


def layers(phi):
    return nn.Sequential(nn.Linear(3, 4), phi, nn.Dropout(0.2), nn.Sequential(nn.Linear(4, 4), phi), nn.Linear(4, 2))


def export(source, form, output, code=0):
    return run(BIN / "lockstep", "export", "--checkpoint", source, "--format", form, "--output", output, code=code)


def main(folder):
    torch.manual_seed(1)
    x = 3 * torch.randn(50, 3)
    nets = {f"{phi}": layers(phi) for phi in (nn.GELU(), nn.ReLU(inplace=True), nn.Tanh(), nn.Sigmoid(), nn.LeakyReLU(), nn.ELU(), nn.SiLU(True))}
    nets |= {f"normalised {name}": Normalised(net) for name, net in nets.items()}
    nets |= {"functional": Functional(), "double": Normalised(layers(nn.Tanh())).double()}
    failures = []
    for (name, net), save in itertools.product(nets.items(), ("script", "trace", "freeze")):
        net.eval()
        at = x.to(next(net.parameters()).dtype)
        saved = torch.jit.trace(net, at) if save == "trace" else torch.jit.script(net)
        (torch.jit.freeze(saved) if save == "freeze" else saved).save(str(folder / "net.ts"))
        export(folder / "net.ts", "torchscript", folder / "again.ts")
        expected, found = net(at), torch.jit.load(folder / "again.ts").predict(x)
        gap = float((found - expected).detach().abs().max() / expected.detach().abs().max())
        if not gap <= TOLERANCE:
            failures.append(f"{save} of {name}: {gap:.1e} apart")
    for name, net, word in (
        ("tanh gelu", layers(nn.GELU("tanh")), "torch.gelu"),
        ("softmax", layers(nn.Softmax(1)), "softmax"),
        ("leaky", layers(nn.LeakyReLU(0.2)), "(LeakyRelu)"),
    ):
        torch.jit.script(net.eval()).save(str(folder / "net.ts"))
        message = export(folder / "net.ts", "lsem", folder / "out", code=2)
        if word not in message or "code/__torch__" not in message or message.count("\n") != 1:
            failures.append(f"{name}: {message}")
    print("\n".join(failures) or f"{3 * len(nets)} archives agree")
    return 1 if failures else 0


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        sys.exit(main(Path(folder)))
