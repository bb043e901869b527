#!/usr/bin/env python3
"""Activity recognition in PyTorch, tuned for CPUs as an expert would: the baseline of compare_har.sh.

Written from docs/models/har.md; --check compares it with the golden files. Data are tensors, normalised (or drawn)
once; batches are cut with index_select from one permutation per epoch; queries, keys and values are one product;
attention is scaled_dot_product_attention; gradients lie in one flat tensor, so the fused AdamW, the clipping and the
all-reduce are one call each; the loop reads no loss back. The variant compile adds torch.compile.

  har_peer.py --check golden/har_*.h5
  har_peer.py --bench --input signal --ranks 2 --threads 1 --batch 64 --data hapt.h5      one JSON line: windows/s
"""
from common import Place, arguments, check

import h5py
import torch
import torch.nn.functional as F
from torch import nn


class Layer(nn.Module):
    def __init__(self, a):
        super().__init__()
        self.a = a
        columns = a["heads"] * a["head_dim"]
        self.mha_ln, self.layernorm = nn.LayerNorm(a["dim"], a["ln_eps"]), nn.LayerNorm(a["dim"], a["ln_eps"])
        self.qkv, self.out = nn.Linear(a["dim"], 3 * columns), nn.Linear(columns, a["dim"])
        self.up, self.down = nn.Linear(a["dim"], a["mlp"]), nn.Linear(a["mlp"], a["dim"])

    def mlp(self, x, drop):
        return F.dropout(self.down(F.dropout(F.gelu(self.up(x)), drop)), drop)

    def forward(self, x):
        a, (n, t, _) = self.a, x.shape
        drop = a["encoder_dropout"] if self.training else 0.0
        q, k, v = self.qkv(self.mha_ln(x)).view(n, t, 3, a["heads"], a["head_dim"]).permute(2, 0, 3, 1, 4)
        o = F.scaled_dot_product_attention(q, k, v, dropout_p=drop).transpose(1, 2).reshape(n, t, -1)
        x = x + F.dropout(self.out(o), drop)
        if a["mlp_norm"] == "pre":
            return x + self.mlp(self.layernorm(x), drop)
        return self.layernorm(x + self.mlp(x, drop))


class Network(nn.Module):
    """renamed() maps the golden files' parameter names to those of this network."""

    def __init__(self, a):
        super().__init__()
        self.a = a
        if a["input"] == "image":
            self.stem = nn.Conv2d(3, a["dim"], a["patch"], a["patch"])
            tokens = (a["image"] // a["patch"]) ** 2
        else:
            self.stem = nn.Linear(a["patch"], a["dim"])
            tokens = a["length"] // a["patch"]
        self.stem_ln, self.output_ln = nn.LayerNorm(a["dim"], a["ln_eps"]), nn.LayerNorm(a["dim"], a["ln_eps"])
        self.pos = nn.Parameter(0.02 * torch.randn(1, tokens, a["dim"]))
        self.layers = nn.ModuleList(Layer(a) for _ in range(a["layers"]))
        quarter = a["dim"] // 4
        scores = nn.Sequential(nn.Linear(a["dim"], quarter), nn.Tanh(), nn.Linear(quarter, 1))
        self.pool = None if a["mean_pool"] else scores
        head, width = [], a["channels"] * a["dim"]
        for h in a["hidden"]:
            head += [nn.Linear(width, h), nn.LayerNorm(h, a["ln_eps"]), nn.GELU(), nn.Dropout(a["dropout"])]
            width = h
        self.head = nn.Sequential(*head, nn.Linear(width, a["classes"]))

    def forward(self, x):
        x = self.stem(x)
        if self.a["input"] == "image":
            x = x.flatten(2).transpose(1, 2)
        x = self.stem_ln(x) + self.pos
        for layer in self.layers:
            x = layer(x)
        x = self.output_ln(x)
        z = x.mean(1) if self.pool is None else (torch.softmax(self.pool(x), 1) * x).sum(1)
        return self.head(z.reshape(-1, self.a["channels"] * self.a["dim"]))


# The parts of Network and of its layers under the public code's names.
PARTS = {"stem": "encoder.stem_conv", "stem_ln": "encoder.stem_ln", "output_ln": "encoder.output_ln",
         "pool": "pooling.attention", "head": "classifier.head"}
LAYER = {"mha_ln": "mha_ln", "out": "mha.output_dense", "layernorm": "mlp.layernorm", "up": "mlp.dense1",
         "down": "mlp.dense2"}


def public_names(name):
    """The public code's names of a parameter of Network: three of them for the one product of queries, keys, values."""
    first, _, rest = name.partition(".")
    if name == "pos":
        return ["encoder.pos_embedding"]
    if first != "layers":
        return [f"{PARTS[first]}.{rest}"]
    layer, part, kind = rest.split(".")
    names = [f"mha.{n}_dense" for n in ("query", "key", "value")] if part == "qkv" else [LAYER[part]]
    return [f"encoder.encoder_layers.{layer}.{n}.{kind}" for n in names]


def renamed(net, arrays):
    """The state of the network, or a part of it, from the public code's arrays."""
    found = {name: [arrays[public] for public in public_names(name) if public in arrays] for name in net.state_dict()}
    return {name: torch.cat([torch.as_tensor(part[()]) for part in parts]) for name, parts in found.items() if parts}


def compare(f, agreement):
    if "weights" not in f:
        return "no network"
    attributes = "image patch channels dim heads head_dim layers mlp classes mean_pool ln_eps"
    a = {name: f.attrs[name].item() for name in attributes.split()}
    a.update(input="image", mlp_norm=f.attrs["mlp_norm"], hidden=[int(h) for h in f.attrs["hidden_dims"]],
             encoder_dropout=0.0, dropout=0.0)
    torch.set_default_dtype(torch.float64)
    net = Network(a)
    net.load_state_dict({name: value.double() for name, value in renamed(net, f["weights"]).items()})
    images, labels = torch.from_numpy(f["inputs/images"][0]).double(), torch.from_numpy(f["inputs/labels"][0]).long()
    logits = net(images)
    F.cross_entropy(logits, labels, label_smoothing=0.1).backward()
    agreement.compare("logits", logits, f["outputs_f64/logits"], 1e-9)
    parameters = dict(net.named_parameters())
    for name, expected in renamed(net, f["grads_f64"]).items():
        agreement.compare(f"gradient of {name}", parameters[name].grad, expected, 1e-9)


def draw(signals, image):
    """Float pictures of every channel, with lines of lockstep's width, as the reference keeps them in memory. Speed
    does not depend on the pixels."""
    n, c, length = signals.shape
    low, high = signals.amin(2, keepdim=True), signals.amax(2, keepdim=True)
    inside = (signals - low) / (high - low).clamp(min=1e-8) * (image - 2 * (image // 20))
    y = image - 1 - inside.long() - image // 20
    out = torch.ones(n * c, 3, image, image)
    x = torch.linspace(0, image - 1, length).long().expand(n * c, length)
    for i in range(2):
        out[torch.arange(n * c)[:, None], :2, (y.view(n * c, length) - i).clamp(0, image - 1), x] = 0
    mean, std = (torch.tensor(v, device=out.device) for v in ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]))
    return ((out - mean[None, :, None, None]) / std[None, :, None, None]).view(n, c, 3, image, image)


def rate(o, place, a, x, labels, validation, variant):
    net = Network(a).train()
    params = list(net.parameters())
    flat = torch.zeros(sum(p.numel() for p in params))
    for p, piece in zip(params, flat.split([p.numel() for p in params])):
        p.grad = piece.view_as(p)
    optimizer = torch.optim.AdamW(params, lr=1e-3, weight_decay=1e-4, **place.fused())
    forward = place.compile(net, dynamic=False) if variant == "compile" else net
    loss = nn.CrossEntropyLoss(label_smoothing=0.1)
    generator, mine = place.generator(place.rank), o.batch // place.ranks
    orders = place.ahead(lambda: [torch.randperm(len(x), generator=generator)[:mine]])

    def step():
        order, = orders()
        flat.zero_()
        batch = x.index_select(0, order)
        with place.autocast():
            value = loss(forward(batch.view(-1, *batch.shape[2:])), labels.index_select(0, order))
        value.backward()
        place.sum(flat)
        flat.div_(place.ranks)
        flat.mul_(torch.clamp(1.0 / (flat.norm() + 1e-6), max=1.0))
        optimizer.step()

    def evaluate():
        net.eval()
        with torch.inference_mode():
            hits = sum(float((net(part.view(-1, *part.shape[2:])).argmax(1) == wanted).sum())
                       for part, wanted in zip(*(t.split(256) for t in validation)))
        net.train()
        return hits / len(validation[0])

    return place.rate(step, o.batch, evaluate, lambda: [net.state_dict(), optimizer.state_dict()])


def bench(o, place):
    torch.manual_seed(1)
    image = 224
    a = dict(input=o.input, length=128, image=image, patch=16, channels=9, classes=6, mean_pool=False, ln_eps=1e-5,
             encoder_dropout=0.1, dropout=0.1)
    if o.input == "signal":
        a.update(dim=64, layers=3, heads=4, head_dim=16, mlp=128, mlp_norm="pre", hidden=[64])
    else:
        a.update(dim=768, layers=12, heads=12, head_dim=64, mlp=3072, mlp_norm="post", hidden=[512])
    with h5py.File(o.data) as f:
        mean, std = (place.to(torch.from_numpy(f.attrs["channel_" + name])) for name in ("mean", "std"))
        count = f["train/labels"].shape[0] if o.training else 4096

        def windows(split):
            signals = place.to(torch.from_numpy(f[split + "/signals"][:count]))
            labels = place.to(torch.from_numpy(f[split + "/labels"][:count]).long())
            if o.input == "signal":
                return ((signals - mean[None, :, None]) / std[None, :, None]).float().view(-1, 9, 128 // 16, 16), labels
            x = draw(signals[:8 * o.batch], image)
            return x, labels[:len(x)]

        x, labels = windows("train")
        validation = windows("val") if o.training else None
    tokens = 128 // 16 if o.input == "signal" else (image // 16) ** 2
    kernel = place.attention(o.batch * a["channels"], a["heads"], tokens, a["head_dim"], dropout=a["encoder_dropout"])
    place.report({variant: rate(o, place, a, x, labels, validation, variant) for variant in o.variants.split(",")}, attention=kernel)
    place.leave()


def main():
    parser = arguments(__doc__)
    parser.add_argument("--bench", action="store_true", help="time training steps")
    parser.add_argument("--input", choices=["signal", "image"], default="signal")
    parser.add_argument("--variants", default="eager", help="some of eager,compile")
    parser.add_argument("--batch", type=int, default=32, help="windows of all ranks")
    parser.add_argument("--data", help="prepared file")
    o = parser.parse_args()
    if not o.check and not (o.bench and o.data):
        parser.error("give --check, or --bench and --data")
    place = Place(o)
    if o.check:
        check(o.check, compare)
    bench(o, place)


if __name__ == "__main__":
    main()
