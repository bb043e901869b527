#!/usr/bin/env python3
"""Opens the model files of every format with the programs that they are for. Emulators must give PyTorch's results,
the ONNX files of other networks our own scores.

    model_files.py MODELS GOLDEN

MODELS is the output directory of make_models, GOLDEN the directory of the golden files.
"""
import glob
import os
import sys

import h5py
import numpy as np
import onnx
import onnxruntime
import torch
from safetensors import safe_open
from safetensors.numpy import load_file

torch.manual_seed(0)
TOLERANCE = 2e-6  # outputs, relative to the largest
JACOBIAN = 3e-6
SCORES = 1e-5
NUMPY = {"tensor(float)": np.float32, "tensor(int64)": np.int64}
worst = {}
failures = []


def check(what, model, found, expected, tolerance):
    found, expected = np.asarray(found, np.float64), np.asarray(expected, np.float64)
    if found.shape != expected.shape:
        failures.append(f"{model}: {what}: shape {found.shape}, expected {expected.shape}")
        return
    difference = np.abs(found - expected).max() / max(np.abs(expected).max(), 1e-300)
    if not difference <= tolerance:
        failures.append(f"{model}: {what}: {difference:.2e} apart, tolerance {tolerance:.0e}")
    if difference >= worst.get(what, (-1,))[0]:
        worst[what] = (difference, model)


def require(condition, message):
    if not condition:
        failures.append(message)


def opened(path):
    """The ONNX model and a session that runs it."""
    model = onnx.load(path)
    onnx.checker.check_model(model, full_check=True)
    return model, onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])


def check_network(base):
    name = os.path.basename(base)
    model, session = opened(base + ".onnx")
    inputs = {entry.name: np.fromfile(f"{base}.input{i}", NUMPY[entry.type]).reshape(-1, *entry.shape[1:])
              for i, entry in enumerate(session.get_inputs())}
    expected = np.fromfile(base + ".scores", np.float32).reshape(-1, session.get_outputs()[0].shape[1])
    for rows in (slice(None), slice(0, 1)):
        found = session.run(["scores"], {key: values[rows] for key, values in inputs.items()})[0]
        check("ONNX scores", name, found, expected[rows], SCORES)
    kind = session.get_modelmeta().custom_metadata_map["kind"]
    require(kind in ("har", "sasrec") and model.opset_import[0].version == 13, f"{name}: metadata or opset")


def check_onnx(model, path, golden):
    session = opened(path)[1]
    for rows in (slice(None), slice(0, 1)):
        check("ONNX predict", model, session.run(["y"], {"x": golden["inputs/x"][rows]})[0], golden["outputs/predict"][rows], TOLERANCE)
    meta = session.get_modelmeta().custom_metadata_map
    require(meta["input_names"].split(",") == [f"in{i}" for i in range(golden["inputs/x"].shape[1])], f"{model}: ONNX input names")
    require(meta["meta.1.value"] == "two lines\nand a \\ and an = sign", f"{model}: ONNX metadata")


def check_torchscript(model, path, golden):
    module = torch.jit.load(path)
    x = torch.tensor(golden["inputs/x"][()])
    n, n_out = golden["outputs/predict"].shape
    n_in = x.shape[1]
    inside = torch.zeros(n, 1)  # the mask selects values from -2.5 upwards
    outside = torch.full((n, 1), -3.0)
    check("TorchScript predict", model, module.predict(x), golden["outputs/predict"], TOLERANCE)
    check("TorchScript forward", model, module.forward(torch.tensor(golden["outputs/x_norm"][()])), golden["outputs/y_norm"], TOLERANCE)
    jacobian = module.jac_physical(x, inside)
    # In physical units the input with the smallest spread would dominate: compare in normalised units.
    units = golden["norm/output_std"][()][:, None] / golden["norm/input_std"][()][None, :]
    check("TorchScript jac_physical", model, jacobian, golden["outputs/jac_physical"], JACOBIAN)
    check("TorchScript jac (normalised)", model, jacobian.numpy() / units, golden["outputs/jac"], JACOBIAN)
    require(not module.jac_physical(x, outside).any(), f"{model}: TorchScript: a masked Jacobian is not zero")
    require(module.compute_mask(torch.tensor([[-2.5], [-2.51], [float("nan")]])).flatten().tolist() == [1, 0, 0], f"{model}: TorchScript compute_mask")
    for value in ("nan", "inf", "-inf"):
        broken = x.clone()
        broken[0, 0] = float(value)
        without = module.jac_physical(broken, inside)
        require(not without[0].any() and bool((without[1:] == jacobian[1:]).all()), f"{model}: TorchScript: state with {value}")
    rows = torch.tensor([n_out - 1, 0])
    columns = torch.tensor([1, n_in - 1])
    pairs = module.jac_physical(x, inside, rows, columns)
    require(bool((pairs == jacobian[:, rows, columns]).all()), f"{model}: TorchScript: chosen pairs")
    require(module.input_names[:2] == ["sea_water_temperature", "in1"] and module.input_short_names[0] == "in0", f"{model}: TorchScript names")
    require(module.input_levels == list(range(n_in)) and module.output_levels == [0] * n_out, f"{model}: TorchScript levels")
    require(module.mask_var_name == "in1" and module.mask_min == -2.5 and module.mask_max == 1e30, f"{model}: TorchScript mask")
    require(module.meta["meta.2.value"] == model, f"{model}: TorchScript meta")
    # The Jacobian of the archive against PyTorch's own differentiation of its prediction.
    automatic = torch.stack([torch.autograd.functional.jacobian(module.predict, row[None])[0, :, 0, :] for row in x[:5]])
    check("TorchScript jac_physical against autograd", model, jacobian[:5], automatic, JACOBIAN)


def check_safetensors(model, path, golden):
    tensors = load_file(path)
    for name, weights in golden["weights"].items():
        require(np.array_equal(tensors[name], weights[()]), f"{model}: safetensors {name}")
    for name, values in golden["norm"].items():
        require(np.array_equal(tensors[name], values[()].astype(np.float64)), f"{model}: safetensors {name}")
    require(len(tensors) == len(golden["weights"]) + 4, f"{model}: safetensors: {len(tensors)} tensors")
    with safe_open(path, "np") as file:
        require(file.metadata()["format"] == "lockstep-emulator-model", f"{model}: safetensors metadata")
    # Load the weights into a user's own module.
    layers = []
    for k in range(golden.attrs["layers"] + 1):
        out, inner = tensors[f"network.{2 * k}.weight"].shape
        layers += [torch.nn.Linear(inner, out), torch.nn.Identity()]
    state = {name[len("network."):]: torch.tensor(value) for name, value in tensors.items() if name.startswith("network.")}
    torch.nn.Sequential(*layers[:-1]).load_state_dict(state, strict=True)


def check_h5(model, path, golden):
    with h5py.File(path) as file:
        for name, weights in golden["weights"].items():
            require(np.array_equal(file["weights"][name][()], weights[()]), f"{model}: HDF5 {name}")
        for name, values in golden["norm"].items():
            require(np.array_equal(file["norm"][name][()], values[()].astype(np.float64)), f"{model}: HDF5 {name}")
        require(file.attrs["activation"] in (golden.attrs["activation"], golden.attrs["activation"].encode()), f"{model}: HDF5 activation")
        module = torch.jit.load(path.replace(".h5", ".ts")).double()
        x = torch.tensor(file["selftest/x"][()])
        check("HDF5 selftest y", model, module.predict(x), file["selftest/y"], 1e-9)
        check("HDF5 selftest J", model, module.jac_physical(x, torch.zeros(len(x), 1, dtype=torch.float64)), file["selftest/J"], 1e-9)


def check_lsem(model, path, golden):
    """Reads the file from the description of the format alone."""
    import zlib

    raw = open(path, "rb").read()
    require(raw[:8] == b"LSEMUL01", f"{model}: lsem magic")
    require(zlib.crc32(raw[:-4]) == int.from_bytes(raw[-4:], "little"), f"{model}: lsem CRC-32")
    header = raw[16:16 + int.from_bytes(raw[8:16], "little")].decode()
    entries = dict(line.split("=", 1) for line in header.splitlines())
    tensors = {}
    for key, value in entries.items():
        if key.startswith("tensor."):
            dtype, extents, offset = value.split(" ")
            shape = [int(extent) for extent in extents.split(",")]
            require(int(offset) % 64 == 0, f"{model}: lsem {key} is not aligned")
            tensors[key[7:]] = np.frombuffer(raw, {"f32": "<f4", "f64": "<f8"}[dtype], int(np.prod(shape)), int(offset)).reshape(shape)
    for name, weights in golden["weights"].items():
        require(np.array_equal(tensors[name], weights[()]), f"{model}: lsem {name}")
    for name, values in golden["norm"].items():
        require(np.array_equal(tensors["norm." + name], values[()].astype(np.float64)), f"{model}: lsem {name}")
    require(int(entries["n_in"]) == golden.attrs["inputs"] and entries["activation"] == golden.attrs["activation"], f"{model}: lsem header")


def main():
    models, golden_dir = sys.argv[1:3]
    paths = sorted(glob.glob(os.path.join(models, "*.ts")))
    require(len(paths) >= 10, f"only {len(paths)} models under {models}")
    for path in paths:
        model = os.path.basename(path)[:-3]
        with h5py.File(os.path.join(golden_dir, model + ".h5")) as golden:
            check_torchscript(model, path, golden)
            for suffix, peer in ((".onnx", check_onnx), (".safetensors", check_safetensors), (".h5", check_h5), (".lsem", check_lsem)):
                peer(model, os.path.join(models, model + suffix), golden)
    networks = [path[:-len(".scores")] for path in sorted(glob.glob(os.path.join(models, "*.scores")))]
    networks = [base for base in networks if os.path.exists(base + ".onnx")]
    require(len(networks) >= 8, f"only {len(networks)} networks under {models}")
    for base in networks:
        check_network(base)
    print(f"torch {torch.__version__}, onnx {onnx.__version__}, onnxruntime {onnxruntime.__version__}, h5py {h5py.__version__}; {len(paths)} emulators, {len(networks)} networks")
    for what, (difference, model) in worst.items():
        print(f"{what:45} {difference:9.2e}  ({model})")
    for failure in failures:
        print("FAILED", failure)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
