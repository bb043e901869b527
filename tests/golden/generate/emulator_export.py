"""emulator_aice.onnx and emulator_aice.ts: the network of emulator_aice.h5 as the program's export formats describe it.

The onnx package builds the ONNX graph. The TorchScript archive is written member by member, without libtorch, and then
run by PyTorch.
"""
import struct
import zipfile

import numpy as np
import torch
from common import stored

NORM = ("input_mean", "input_std", "output_mean", "output_std")


def write_onnx(path, layers, norm):
    from onnx import TensorProto, checker, helper, numpy_helper, save

    constants = dict(norm, rsqrt2=np.float32(0.5**0.5), one=np.float32(1), half=np.float32(0.5))
    nodes, last = [], len(layers) - 1

    def node(op, inputs, output, **attributes):
        nodes.append(helper.make_node(op, inputs.split(), [output], f"{output}_node", **attributes))
        return output

    node("Sub", "x input_mean", "x_centred")
    h = node("Div", "x_centred input_std", "x_norm")
    for i, (weight, bias) in enumerate(layers):
        constants.update({f"w{i}": weight, f"b{i}": bias})
        node("Gemm", f"{h} w{i} b{i}", f"a{i}", transB=1)
        if i < last:  # GELU in operators of opset 13
            node("Mul", f"a{i} rsqrt2", f"s{i}")
            node("Erf", f"s{i}", f"e{i}")
            node("Add", f"e{i} one", f"p{i}")
            node("Mul", f"a{i} p{i}", f"q{i}")
            h = node("Mul", f"q{i} half", f"h{i}")
    node("Mul", f"a{last} output_std", "y_scaled")
    node("Add", "y_scaled output_mean", "y")
    n_in, n_out = layers[0][0].shape[1], layers[-1][0].shape[0]
    value = lambda name, size: helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", size])
    tensors = [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()]
    graph = helper.make_graph(nodes, "emulator", [value("x", n_in)], [value("y", n_out)], tensors)
    opset = helper.make_opsetid("", 13)
    model = helper.make_model(graph, ir_version=8, producer_name="lockstep", opset_imports=[opset])
    names = dict(input_names=[f"in{i}" for i in range(n_in)], output_names=[f"out{i}" for i in range(n_out)])
    helper.set_model_props(model, {key: ",".join(items) for key, items in names.items()})
    checker.check_model(model, full_check=True)
    save(model, path)


def source(layers, attributes):
    """The archive's code: network, normalisation, and the Jacobian as a product of weights and GELU derivatives."""
    last = len(layers) - 1
    lines = ["class Emulator(Module):", "  __parameters__ = []"]
    lines.append("  __buffers__ = [" + "".join(f'"{name}", ' for name in attributes) + "]")
    lines += [f"  {name} : Tensor" for name in attributes]
    types = dict(input_names="List[str]", output_names="List[str]", input_levels="List[int]", output_levels="List[int]")
    types.update(mask_var_name="str", mask_min="float", mask_max="float", training="bool")
    lines += [f"  {name} : {kind}" for name, kind in types.items()]

    def method(name, arguments, *body):
        lines.append(f"  def {name}(self: __torch__.Emulator,\n    {arguments}) -> Tensor:")
        lines.extend(f"    {line}" for line in body)

    linear = lambda i, h: f"a{i} = torch.linear({h if i == 0 else f'h{i - 1}'}, self.w{i}, self.b{i})"
    forward, jacobian = [], ["z = (self).normalize_input(inputs, )"]
    for i in range(last + 1):
        forward.append(linear(i, "x"))
        jacobian.append(linear(i, "z"))
        first = "torch.unsqueeze(torch.div(self.w0, torch.unsqueeze(self.input_std, 0)), 0)"
        jacobian.append(f"j{i} = " + (first if i == 0 else f"torch.matmul(self.w{i}, k{i - 1})"))
        if i < last:
            forward.append(f"h{i} = torch.gelu(a{i})")
            normal = f"torch.mul(torch.add(torch.erf(torch.mul(a{i}, 0.70710678118654752)), 1.), 0.5)"
            density = f"torch.mul(a{i}, torch.exp(torch.mul(torch.mul(a{i}, a{i}), -0.5)))"
            jacobian.append(f"g{i} = torch.add({normal}, torch.mul({density}, 0.39894228040143268))")
            jacobian.append(f"k{i} = torch.mul(torch.unsqueeze(g{i}, 2), j{i})")
            jacobian.append(f"h{i} = torch.gelu(a{i})")
    jacobian.append(f"J = torch.mul(j{last}, torch.unsqueeze(torch.unsqueeze(self.output_std, 0), 2))")
    jacobian.append("return torch.mul(J, torch.unsqueeze((self).compute_mask(mask_var, ), 2))")
    method("normalize_input", "x: Tensor", "return torch.div(torch.sub(x, self.input_mean), self.input_std)")
    method("forward", "x: Tensor", *forward, f"return a{last}")
    predict = "y = (self).forward((self).normalize_input(x, ), )"
    method("predict", "x: Tensor", predict, "return torch.add(torch.mul(y, self.output_std), self.output_mean)")
    mask = "m = torch.mul(torch.ge(mask_var, self.mask_min), torch.le(mask_var, self.mask_max))"
    method("compute_mask", "mask_var: Tensor", mask, "return torch.type_as(m, mask_var)")
    method("jac_physical", "inputs: Tensor,\n    mask_var: Tensor", *jacobian)
    return "\n".join(lines) + "\n"


def text(value):
    return b"X" + struct.pack("<I", len(value)) + value.encode()


def integer(value):
    return b"K" + struct.pack("<B", value) if value < 256 else b"M" + struct.pack("<H", value)


def sequence(items):
    return b"](" + b"".join(items) + b"e"


def pickled(attributes, n_in, n_out):
    """The module's state as pickle opcodes of protocol 2, and the bytes of its tensors."""
    blobs = []

    def tensor(value):
        strides = np.array(value.strides) // value.itemsize
        storage = b"(" + text("storage") + b"ctorch\nFloatStorage\n" + text(str(len(blobs))) + text("cpu")
        storage += integer(value.size)
        blobs.append(value.tobytes())
        shape, steps = (b"(" + b"".join(integer(int(v)) for v in values) + b"t" for values in (value.shape, strides))
        arguments = storage + b"tQ" + integer(0) + shape + steps + b"\x89" + b"ccollections\nOrderedDict\n)R"
        return b"ctorch._utils\n_rebuild_tensor_v2\n(" + arguments + b"tR"

    levels = lambda n: b"ctorch.jit._pickle\nbuild_intlist\n" + sequence([integer(0)] * n) + b"\x85R"
    state = {name: tensor(value) for name, value in attributes.items()}
    state["input_names"] = sequence(text(f"in{i}") for i in range(n_in))
    state["output_names"] = sequence(text(f"out{i}") for i in range(n_out))
    state.update(input_levels=levels(n_in), output_levels=levels(n_out), mask_var_name=text(""))
    state.update(mask_min=b"G" + struct.pack(">d", -1e30), mask_max=b"G" + struct.pack(">d", 1e30), training=b"\x89")
    items = b"".join(text(name) + value for name, value in state.items())
    return b"\x80\x02c__torch__\nEmulator\n)\x81}(" + items + b"ub.", blobs


def write_torchscript(path, layers, norm):
    attributes = {f"{letter}{i}": value for i, pair in enumerate(layers) for letter, value in zip("wb", pair)}
    attributes.update(norm)
    state, blobs = pickled(attributes, layers[0][0].shape[1], layers[-1][0].shape[0])
    members = {"data.pkl": state, "code/__torch__.py": source(layers, attributes).encode()}
    members.update({f"data/{i}": blob for i, blob in enumerate(blobs)})
    members.update({"constants.pkl": b"\x80\x02).", "version": b"3\n"})
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for name, content in members.items():
            info = zipfile.ZipInfo(f"emulator/{name}")
            padding = -(archive.fp.tell() + 34 + len(info.filename)) % 64  # data begin at multiples of 64 bytes
            info.extra = struct.pack("<HH", 0x4246, padding) + b"Z" * padding
            archive.writestr(info, content)


def write(_public, out):
    with stored("emulator_aice.h5") as f:
        keys = sorted((key for key in f["weights"] if key.endswith("weight")), key=lambda key: int(key.split(".")[1]))
        layers = [(f["weights"][key][()], f["weights"][key.replace("weight", "bias")][()]) for key in keys]
        norm = {name: f["norm"][name][()] for name in NORM}
        arrays = (f[key][()] for key in ("inputs/x", "outputs/predict", "outputs/jac_physical"))
        x, predicted, jacobian = map(torch.tensor, arrays)
    write_torchscript(out / "emulator_aice.ts", layers, norm)
    module = torch.jit.load(out / "emulator_aice.ts")
    torch.testing.assert_close(module.predict(x), predicted)
    torch.testing.assert_close(module.jac_physical(x, torch.zeros(len(x), 1)), jacobian)
    write_onnx(str(out / "emulator_aice.onnx"), layers, norm)
