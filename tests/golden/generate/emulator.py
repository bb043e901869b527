#!/usr/bin/env python3
"""Reference files of the column emulator: networks (below), prepared data, generated data, exported models.

Each network runs in the public PyTorch code, in single and in double precision (groups with suffix _f64).
"""
import importlib

import h5py
import numpy as np
import torch
from common import TORCH, copy_of, load, put, quiet, run

DEFAULTS = dict(
    inputs=7, hidden=13, layers=3, outputs=1, activation="gelu", conv_channels=0, conv_kernel=5, loss="mse",
    smooth_weight=0.0, smooth_order=2, optimizer="adam", lr=1e-3, momentum=0.9, weight_decay=1e-4, schedule="none",
    t_max=4, step_size=2, gamma=0.5, ema=0.0, samples=31, batches="12,12,7",
)
SMALL = dict(seed=14, inputs=5, hidden=8, layers=2, outputs=3, samples=19, batches="6,6,5")
NETWORKS = {
    "emulator_aice": dict(seed=11),
    "emulator_multi": dict(
        seed=12, inputs=9, hidden=17, layers=2, outputs=4, loss="huber", optimizer="sgd", lr=0.02, weight_decay=1e-3,
        schedule="cosine", samples=41, batches="15,15,11",
    ),
    "emulator_relu_mae": dict(
        seed=13, inputs=6, hidden=10, layers=1, outputs=2, activation="relu", loss="mae", schedule="step"
    ),
    **{f"emulator_act_{a}": dict(SMALL, activation=a) for a in ("tanh", "sigmoid", "leakyrelu", "elu", "silu")},
    "emulator_conv": dict(
        seed=15, inputs=10, hidden=12, layers=2, outputs=5, conv_channels=3, ema=0.9, smooth_weight=0.1
    ),
    "emulator_default": dict(seed=16, inputs=14, hidden=64, lr=1e-4, samples=40, batches="16,16,8"),
}
OTHERS = ("emulator_prep", "emulator_synth", "emulator_export", "emulator_torchscript")  # modules beside this one
SABER = "saber-pytorch/src/saber_pytorch/ml"
LOSSES = dict(mse=torch.nn.MSELoss, mae=torch.nn.L1Loss, huber=torch.nn.SmoothL1Loss)


def network(c, public):
    """The network and its public package: only the newer one has other activations and the convolution."""
    with quiet():
        if c["activation"] == "gelu" and not c["conv_channels"]:
            module = load(public / "aibalance", "ufsemulator.model")
            return module.create_ufs_emulator_ffnn(c["inputs"], c["hidden"], c["outputs"], c["layers"]), "ufsemulator"
        module = load(public / SABER, "ffnn")
        model = module.FFNN(
            c["inputs"], c["outputs"], c["hidden"], c["layers"], activation=c["activation"],
            use_conv1d=c["conv_channels"] > 0, conv_channels=max(c["conv_channels"], 1),
            conv_kernel_size=c["conv_kernel"],
        )
        model.init_weights()
        return model, "saber_pytorch"


def data(c, rng):
    """Moments that differ much between variables; inputs, targets, seeds of both derivatives; rows of the batches."""
    n_in, n_out, n = c["inputs"], c["outputs"], c["samples"]
    norm = dict(input_mean=np.round(rng.uniform(-300, 300, n_in), 3), input_std=np.exp(rng.uniform(-5, 4, n_in)))
    norm.update(output_mean=np.round(rng.uniform(-2, 2, n_out), 3), output_std=np.exp(rng.uniform(-3, 2, n_out)))
    norm = {name: value.astype(np.float32) for name, value in norm.items()}
    x = norm["input_mean"] + norm["input_std"] * rng.normal(0, 1, (n, n_in))
    t = norm["output_mean"] + norm["output_std"] * rng.normal(0, 1, (n, n_out))
    dx = norm["input_std"] * rng.normal(0, 0.3, (n, n_in))
    dy = rng.normal(0, 1, (n, n_out)) / norm["output_std"]
    cuts = np.cumsum([int(size) for size in c["batches"].split(",")])
    rows = np.split(rng.permutation(n)[: cuts[-1]], cuts[:-1])
    return norm, {name: value.astype(np.float32) for name, value in dict(x=x, t=t, dx=dx, dy=dy).items()}, rows


def evaluate(c, model, inputs, rows, smoothness):
    """Everything that depends on the precision: outputs, derivatives, loss, gradients, optimizer steps."""
    x, t, dx, dy = (inputs[name] for name in ("x", "t", "dx", "dy"))
    x_norm, t_norm = (x - model.input_mean) / model.input_std, (t - model.output_mean) / model.output_std
    out = dict(x_norm=x_norm, t_norm=t_norm)
    with torch.no_grad():
        h = x_norm
        if c["conv_channels"]:
            out["conv_pre"] = model.conv1d(h.unsqueeze(1))
            h = out["conv_act"] = model.conv_activation(out["conv_pre"]).flatten(1)
        for i, layer in enumerate(model.network):
            h = out[f"layer_{i}"] = layer(h)
        out["y_norm"], out["predict"] = model(x_norm), model.predict(x)
    physical = getattr(model, "jac_physical", None) or model._jac_physical
    out["jac_physical"] = physical(x).detach()
    out["jac"] = out["jac_physical"] / model.output_std[:, None] * model.input_std
    jvp = out["jvp_physical"] = torch.autograd.functional.jvp(model.predict, x, dx)[1]
    vjp = out["vjp_physical"] = torch.autograd.functional.vjp(model.predict, x, dy)[1]
    out["adjoint_lhs"] = (jvp.double() * dy.double()).sum(1)
    out["adjoint_rhs"] = (dx.double() * vjp.double()).sum(1)
    with torch.no_grad():
        out["taylor_eps"] = 0.5 ** torch.arange(8, dtype=x.dtype)
        remainders = [(model.predict(x + e * dx) - out["predict"] - e * jvp).norm() for e in out["taylor_eps"]]
        out["taylor_remainder"] = torch.stack(remainders)

    def loss_of(rows):
        y, target = model(x_norm[rows]), t_norm[rows]
        return LOSSES[c["loss"]]()(y, target) + (smoothness(y, target, model) if smoothness else 0)

    model.zero_grad()
    loss = loss_of(rows[0])
    loss.backward()
    out["loss_batch0"], out["loss_all"] = loss, loss_of(slice(None))
    result = dict(outputs=out, grads=copy_of((name, p.grad) for name, p in model.named_parameters()))
    result["jac_metrics"] = sensitivity(out["jac"])
    result.update(train(c, model, rows, loss_of))
    out["predict_after_steps"] = model.predict(x)
    return result


def sensitivity(jacobian):
    """The public code's monitor of training: measures of the gradient of the sum of outputs, one row per sample."""
    rows = jacobian.sum(1).double().numpy()
    s = np.linalg.svd(rows, compute_uv=False)
    mean = np.abs(rows).mean(0)
    return dict(
        rows=rows, frobenius_norm=np.linalg.norm(rows), mean_abs_gradient=mean.mean(), spectral_norm=s[0],
        stability=s[0] / s[-1] if s[-1] > 1e-12 else 1e6, max_gradient=np.abs(rows).max(), gradient_std=rows.std(),
        feature_sensitivity=mean, most_sensitive_feature=int(mean.argmax()),
    )


def train(c, model, rows, loss_of):
    """One optimizer step per batch; the schedule advances after each step."""
    parameters = dict(model.named_parameters())
    settings = dict(lr=c["lr"], weight_decay=c["weight_decay"])
    if c["optimizer"] == "adam":
        optimizer = torch.optim.Adam(parameters.values(), **settings)
    else:
        optimizer = torch.optim.SGD(parameters.values(), momentum=c["momentum"], **settings)
    schedule = None
    if c["schedule"] == "step":
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, c["step_size"], c["gamma"])
    elif c["schedule"] == "cosine":
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, c["t_max"])
    average, losses, rates = copy_of(parameters.items()), [], []
    for batch in rows:
        optimizer.zero_grad()
        loss = loss_of(batch)
        loss.backward()
        losses.append(loss.item())
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        for name, p in parameters.items():
            average[name].mul_(c["ema"]).add_(p.data, alpha=1 - c["ema"])
        if schedule:
            schedule.step()
    state = {f"{key}/{name}": value for name, p in parameters.items() for key, value in optimizer.state[p].items()}
    result = dict(steps=dict(loss=np.array(losses), lr=np.array(rates)), after_steps=copy_of(parameters.items()))
    result["opt_state"] = {key: value for key, value in state.items() if not key.startswith("step/")}
    return dict(result, after_steps_ema=average) if c["ema"] else result


def write_network(name, public, out):
    c = dict(DEFAULTS, **NETWORKS[name])
    torch.manual_seed(c["seed"])
    rng = np.random.default_rng(c["seed"])
    model, source = network(c, public)
    with torch.no_grad():
        for key, p in model.named_parameters():
            if key.endswith("bias"):  # far from zero, so that a forgotten bias shows
                p.copy_(torch.from_numpy(rng.normal(0, 0.2, p.shape).astype(np.float32)))
    norm, inputs, rows = data(c, rng)
    model.init_norm(*map(torch.from_numpy, norm.values()))
    smoothness = None
    if c["smooth_weight"]:
        losses = load(public / SABER, "losses")
        smoothness = losses.VerticalSmoothnessLoss(c["smooth_weight"], c["smooth_order"])
    raw = (norm["input_mean"] + norm["input_std"] * rng.normal(0, 1, (57, c["inputs"]))).astype(np.float32)
    raw[:, -1] = 3.25  # constant: its deviation of 0 is replaced by 1
    std = raw.std(0).astype(np.float32)
    moments = dict(raw=raw, mean=raw.mean(0).astype(np.float32), std=np.where(std > 1e-6, std, 1.0).astype(np.float32))
    weights = copy_of(model.named_parameters())
    with h5py.File(out / f"{name}.h5", "w") as f:
        f.attrs.update(c)
        f.attrs.update(system="emulator", module=source, torch=TORCH, adam_betas=[0.9, 0.999], adam_eps=1e-8)
        f.attrs["parameters"] = sum(w.numel() for w in weights.values())
        put(f, "", dict(inputs=inputs, norm=norm, weights=weights, batches=dict(zip("012", rows)), moments=moments))
        for dtype, suffix in ((torch.float32, ""), (torch.float64, "_f64")):
            model.load_state_dict(weights, strict=False)
            model.to(dtype)
            tensors = {key: torch.from_numpy(value).to(dtype) for key, value in inputs.items()}
            result = evaluate(c, model, tensors, rows, smoothness)
            put(f, "", {key + suffix: value for key, value in result.items()})


def make(name, public, out):
    if name in OTHERS:
        importlib.import_module(name).write(public, out)
    else:
        write_network(name, public, out)


if __name__ == "__main__":
    run(__doc__, make, [*NETWORKS, *OTHERS])
