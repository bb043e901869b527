"""emulator_{script,trace,frozen}.ts: one small network as PyTorch saves it scripted, traced and frozen.

PyTorch's archives contain debug records with local paths, and list the constants of a class in any order. The script
repacks each archive without the debug records and sorts the constants, so that it writes the same bytes every time.
"""
import itertools
import tempfile
import zipfile
from pathlib import Path

import torch
from torch import nn


class Column(nn.Module):
    """3 inputs, two hidden layers of width 4, 2 outputs; weights and moments are simple fractions."""

    def __init__(self):
        super().__init__()
        inner = nn.Sequential(nn.Linear(4, 4), nn.GELU())
        self.body = nn.Sequential(nn.Linear(3, 4), nn.GELU(), nn.Dropout(0.1), inner, nn.Linear(4, 2, bias=False))
        for name, values in dict(input_mean=[1, 2, 3], input_std=[0.5, 1, 2], output_mean=[4, 5], output_std=[8, 16]).items():
            self.register_buffer(name, torch.tensor(values, dtype=torch.float32))
        with torch.no_grad():
            for parameter in self.parameters():
                parameter.copy_(torch.arange(parameter.numel()).reshape(parameter.shape) / 8 - 0.5)

    def forward(self, x):
        x = (x - self.input_mean) / self.input_std
        return self.body(x) * self.output_std + self.output_mean


def ordered(code):
    blocks = itertools.groupby(code.splitlines(keepends=True), lambda line: b" : Final[" in line)
    return b"".join(line for constants, lines in blocks for line in (sorted(lines) if constants else lines))


def save(module, path):
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / "net.ts"
        module.save(str(made))
        with zipfile.ZipFile(made) as archive, zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
            for name in archive.namelist():
                if not name.endswith(".debug_pkl") and "serialization_id" not in name:
                    content = archive.read(name)
                    content = ordered(content) if name.endswith(".py") else content
                    packed.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED)


def write(_public, out):
    module = Column().eval()
    scripted = torch.jit.script(module)
    save(scripted, out / "emulator_script.ts")
    save(torch.jit.trace(module, torch.zeros(2, 3)), out / "emulator_trace.ts")
    save(torch.jit.freeze(scripted), out / "emulator_frozen.ts")
    x = torch.tensor([[0.5, 1, 2], [1, 2, 4]])
    for kind in ("script", "trace", "frozen"):
        torch.testing.assert_close(torch.jit.load(out / f"emulator_{kind}.ts")(x), module(x))
