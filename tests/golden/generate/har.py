#!/usr/bin/env python3
"""Reference files of activity recognition: the network in double precision, and the picture of a signal.

har_raster takes its recorded signals from the stored file: they are windows of the UCI HAR data set.
"""
import json
import tempfile

import h5py
import numpy as np
import torch
from common import TORCH, load, put, quiet, run, stored, watch

DEFAULTS = dict(
    image=28, patch=8, in_channels=3, channels=3, dim=20, heads=2, layers=2, mlp=36, hidden_dims=[14, 11], classes=6,
    batch=4, steps=3, accum=1, lr=1e-3, weight_decay=1e-4, clip=1.0, epochs=20, warmup=2, frozen=False, mean_pool=False,
    mlp_norm="post", ln_eps=1e-5, kind="model", length=128, windows=4,
)
NETWORKS = {
    "har_frozen": dict(seed=12, frozen=True, lr=3e-3),
    "har_single_meanpool": dict(seed=13, channels=1, mean_pool=True, batch=5, dim=18, heads=1, mlp=30, hidden_dims=[9]),
    "har_accum_clip": dict(seed=14, accum=2, clip=0.05, weight_decay=0.05, lr=4e-3, batch=2),
}
SCHEDULES = dict(default=(1e-3, 2, 20), warm3=(4e-3, 3, 30), warm0=(5e-5, 0, 10))  # rate, epochs of warm-up, epochs


def network(c, module):
    """The public classifier with a small encoder, and with every parameter far from its special initial value."""
    full_size = module.Pix2SeqViTEncoder
    module.Pix2SeqViTEncoder = lambda patch_size, image_size, **_: full_size(
        image_size=image_size, patch_size=patch_size, in_channels=c["in_channels"], hidden_dim=c["dim"],
        num_layers=c["layers"], num_heads=c["heads"], mlp_dim=c["mlp"], dropout=0.0,
    )
    model = module.EncoderClassifier(
        num_classes=c["classes"], num_channels=c["channels"], freeze_encoder=c["frozen"], hidden_dims=c["hidden_dims"],
        dropout=0.0, encoder_dim=c["dim"], patch_size=c["patch"], image_size=c["image"],
        use_attention_pooling=not c["mean_pool"],
    )
    for layer in model.modules():
        if isinstance(layer, torch.nn.LayerNorm):
            layer.eps = c["ln_eps"]
    generator = torch.Generator().manual_seed(c["seed"] + 1)
    with torch.no_grad():
        for name, p in model.named_parameters():
            noise = torch.randn(p.shape, generator=generator)
            matrix = noise * (1 / np.sqrt(p[0].numel()))
            p.copy_(0.1 * noise if name.endswith("bias") else 1 + 0.2 * noise if p.dim() == 1 else matrix)
    return model


def forward(model, x, y):
    """One forward pass on a micro-batch: its intermediate values and the loss."""
    encoder = model.encoder
    found = {}
    parts = dict(stem_ln=encoder.stem_ln, tokens=encoder)
    for i, layer in enumerate(encoder.encoder_layers):
        parts.update({f"layer{i}_mha": layer.mha, f"layer{i}_attn": layer.mha.dropout, f"layer{i}": layer})
    if isinstance(model.pooling, torch.nn.Module):
        parts.update(pool_scores=model.pooling.attention, pooled=model.pooling)
    with watch(found.__setitem__, parts):
        logits = model(x)
    found.setdefault("pooled", found["tokens"].mean(1))
    loss = torch.nn.functional.cross_entropy(logits, y, label_smoothing=0.1)
    plain = torch.nn.functional.cross_entropy(logits, y)
    found.update(logits=logits, log_probs=logits.log_softmax(1), loss=loss, loss_no_smoothing=plain)
    return dict(found, pred=logits.argmax(1))


def train(c, trainer, model, batches):
    """One epoch of the public trainer, then its validation on the same batches."""

    class Loader(list):
        batch_size = c["batch"]

    clip = torch.nn.utils.clip_grad_norm_
    norms = []

    def record(parameters, *arguments, **named):
        norms.append(float(clip(list(parameters), *arguments, **named)))

    torch.nn.utils.clip_grad_norm_ = record
    try:
        with tempfile.TemporaryDirectory() as folder:
            run = trainer.OptimizedTrainer(
                model, *[Loader(batches)] * 3, device="cpu", num_epochs=c["epochs"], learning_rate=c["lr"],
                weight_decay=c["weight_decay"], warmup_epochs=c["warmup"], gradient_accumulation_steps=c["accum"],
                max_grad_norm=c["clip"], early_stopping_patience=7, save_dir=folder, use_amp=False, log_interval=10**9,
            )
            (loss, accuracy), (later_loss, later_accuracy) = run.train_epoch(0), run.validate(0)
    finally:
        torch.nn.utils.clip_grad_norm_ = clip
    return dict(
        microbatch_loss=np.array(run.train_metrics.metrics["loss"]), grad_norm_before_clip=np.array(norms),
        mean_loss=np.float64(loss), mean_accuracy_pct=np.float64(accuracy), val_loss_after=np.float64(later_loss),
        val_accuracy_pct_after=np.float64(later_accuracy),
    )


def put_schedules(f, trainer):
    for name, (rate, warmup, epochs) in SCHEDULES.items():
        optimizer = torch.optim.AdamW([torch.nn.Parameter(torch.zeros(1))], lr=rate)
        schedule = trainer.WarmupCosineScheduler(optimizer, warmup, epochs)
        rates = np.array([(optimizer.param_groups[0]["lr"], schedule.step()) for _ in range(epochs)])
        put(f, f"schedule/{name}", dict(lr_used_in_epoch_upstream=rates[:, 0], lr_returned_by_step=rates[:, 1]))
        f[f"schedule/{name}"].attrs.update(base_lr=rate, warmup_epochs=warmup, total_epochs=epochs, min_lr=1e-6)
    noise = np.random.default_rng(7).normal(0, 0.0008, 30)
    scores = np.round(np.concatenate([np.linspace(50, 90, 8), 90 + noise]), 4)
    stopping = trainer.EarlyStopping(patience=5, min_delta=0.001, mode="max")
    flags = np.array([bool(stopping(float(score))) for score in scores], np.uint8)
    put(f, "early_stopping", dict(scores=scores, stop_flag=flags))
    f["early_stopping"].attrs.update(patience=5, min_delta=0.001)


def write_network(name, public, out):
    c = dict(DEFAULTS, **NETWORKS[name])
    module, trainer = load(public / "ts2seq", "models.encoder_cls", "train_optimized")
    torch.manual_seed(c["seed"])
    model = network(c, module)
    generator = torch.Generator().manual_seed(c["seed"] + 2)
    n = c["steps"] * c["accum"]
    size = (c["batch"] * c["channels"], c["in_channels"], c["image"], c["image"])
    images = torch.stack([torch.randn(size, generator=generator) for _ in range(n)])
    labels = torch.stack([torch.randint(0, c["classes"], (c["batch"],), generator=generator) for _ in range(n)])
    with h5py.File(out / f"{name}.h5", "w") as f:
        f.attrs.update(c, head_dim=64, label_smoothing=0.1, adam_betas=(0.9, 0.999), adam_eps=1e-8)
        f.attrs["torch_version"] = TORCH
        put(f, "", dict(inputs=dict(images=images, labels=labels), weights=model.state_dict()))
        model.double().eval()
        outputs = forward(model, images[0].double(), labels[0])
        outputs["loss"].backward()
        gradients = {key: p.grad for key, p in model.named_parameters() if p.grad is not None}
        outputs["grad_norm"] = torch.stack([gradient.norm() for gradient in gradients.values()]).norm()
        put(f, "", dict(outputs_f64=outputs, grads_f64=gradients))
        model.zero_grad(set_to_none=True)
        put(f, "train_log_f64", train(c, trainer, model, list(zip(images.double(), labels))))
        put(f, "after_steps_f64", model.state_dict())
        put_schedules(f, trainer)


def write_raster(public, out, image=224, seed=16, length=128):
    """Pictures of signals with special shapes, then of recorded ones, drawn by the public notebook."""
    cells = ["".join(cell["source"]) for cell in json.loads((public / "ts2seq/finetune.ipynb").read_text())["cells"]]
    names = {}
    exec(next(cell for cell in cells if "class MultiChannelTimeSeriesImageConverter" in cell), names)
    rng, t = np.random.default_rng(seed), np.arange(length)
    shapes = [0.0 * t, (t >= length // 2) * 1.0, t % 2 * 1.0, 1.0 * t, -1.0 * t, (t == length // 3) * 1.0, np.sin(t)]
    shapes += [3.0 + 1e-10 * t, -2.0 + 1e-7 * t, np.cumsum(rng.normal(size=length)), rng.normal(size=length)]
    shapes.append(np.round(rng.normal(size=length), 1))
    with stored("har_raster.h5") as reference:
        signals = np.concatenate([shapes, reference["inputs/sequences"][len(shapes) :]])
    converter = names["MultiChannelTimeSeriesImageConverter"](image_height=image, image_width=image)
    pictures = converter.convert_multivariate_sequence(torch.from_numpy(signals)).numpy()
    assert (pictures[:, 0] == pictures[:, 1]).all() and (pictures[:, 2] == 1).all(), "a picture is not blue on white"
    import PIL

    with h5py.File(out / "har_raster.h5", "w") as f:
        f.attrs.update(image=image, seed=seed, line_width=2, margin=int(image * 0.05), pillow_version=PIL.__version__)
        put(f, "inputs/sequences", signals)
        put(f, "outputs/mask", pictures[:, 0] == 0, np.uint8)
        put(f, "outputs/x_coords", np.linspace(0, image - 1, length), int)


def make(name, public, out):
    with quiet():
        write_raster(public, out) if name == "har_raster" else write_network(name, public, out)


if __name__ == "__main__":
    run(__doc__, make, [*NETWORKS, "har_raster"])
