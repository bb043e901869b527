"""What the generators share: their command line, modules of public checkouts, arrays in HDF5 files."""
import argparse
import contextlib
import importlib
import importlib.machinery
import io
import sys
import types
import warnings
from pathlib import Path

import h5py
import numpy as np
import torch

TORCH = str(torch.__version__)


def run(doc, make, names):
    """GENERATOR --public DIR --out DIR [NAME ...]: calls make(name, public, out) for each NAME, or for all names."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {' '.join(names)} (default: all)")
    parser.add_argument("--public", type=Path, default=Path("public"), help="folder of the checkouts (default: public)")
    parser.add_argument("--out", type=Path, required=True, help="folder for the files")
    options = parser.parse_args()
    unknown = set(options.names) - set(names)
    if unknown:
        parser.error(f"no such file: {' '.join(sorted(unknown))}")
    options.out.mkdir(parents=True, exist_ok=True)
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)  # the order of additions, and so the last digits, depend on the number of threads
    for name in options.names or names:
        make(name, options.public.resolve(), options.out)
        print(f"wrote {name}")


def stored(name):
    """The reference file of this name in the tree. Some generators take raw data of published data sets from it."""
    return h5py.File(Path(__file__).resolve().parent.parent / name)


def load(root, *names):
    """Imports modules of the checkout at root, in place of modules of the same name that another checkout had."""
    if not root.is_dir():
        raise SystemExit(f"cannot import {', '.join(names)} from {root}: no such folder; README.md names the checkouts")
    tops = {name.split(".")[0] for name in names}
    for name in [name for name in sys.modules if name.split(".")[0] in tops]:
        del sys.modules[name]
    sys.path.insert(0, str(root))
    try:
        with quiet():
            modules = [importlib.import_module(name) for name in names]
    finally:
        sys.path.remove(str(root))
    return modules[0] if len(modules) == 1 else modules


def quiet():
    """Hides what public code prints, progress bars included."""
    stack = contextlib.ExitStack()
    stack.enter_context(contextlib.redirect_stdout(io.StringIO()))
    stack.enter_context(contextlib.redirect_stderr(io.StringIO()))
    return stack


def replace_module(name, **members):
    """Puts a module with these members in the place of a package that the public code imports without need."""
    module = types.ModuleType(name)
    module.__spec__ = importlib.machinery.ModuleSpec(name, None)
    module.__dict__.update(members)
    sys.modules[name] = module
    return module


def put(group, path, value, dtype=None):
    """Writes a tensor, an array, a number or a nested dictionary of them; more than 64 values are compressed."""
    if isinstance(value, dict):
        for key, item in value.items():
            put(group, f"{path}/{key}" if path else key, item, dtype)
        return
    value = value.detach().numpy() if torch.is_tensor(value) else np.asarray(value)
    value = value if dtype is None else value.astype(dtype)
    packed = dict(compression="gzip", compression_opts=9, shuffle=True) if value.size > 64 else {}
    group.create_dataset(path, data=value, **packed)


def copy_of(tensors):
    """Detached copies of pairs of a name and a tensor, by name."""
    return {name: tensor.detach().clone() for name, tensor in tensors}


@contextlib.contextmanager
def watch(note, parts):
    """While active, note(name, output) receives what each module of the dictionary returns."""
    hook = lambda name: lambda module, inputs, output: note(name, output)
    hooks = [module.register_forward_hook(hook(name)) for name, module in parts.items()]
    yield
    for handle in hooks:
        handle.remove()
