"""emulator_synth.h5: the models behind the generated emulator data, in double precision, with derivatives by autograd.

No public code is needed. Formulas and constants: docs/models/emulator.md and the headers of the generators.
"""
import h5py
import numpy as np
import torch
from common import put
from torch.autograd.functional import jvp, vjp

ICE = dict(
    k_i=2.03, k_s=0.31, rho_a=1.3, cp=1005.0, L_s=2.835e6, C_H=1.75e-3, emis=0.97, sigma=5.670374419e-8, albedo=0.75,
    gamma_T=2.5, dT0=0.8, h0=0.35, h_min=0.2, p_sfc=1.0e5,
)
K = type("Constants", (), ICE)
TWO_SCALE = dict(K=8, J=32, F=20.0, h=1.0, b=10.0, c=10.0)


def freezing_point(salinity):
    return -0.0575 * salinity + 1.710523e-3 * salinity * salinity.sqrt() - 2.154996e-4 * salinity * salinity


def humidity_at_saturation(t):
    pressure = 611.2 * torch.exp(22.46 * t / (272.62 + t))
    return 0.622 * pressure / (K.p_sfc - 0.378 * pressure)


def conductance(x):
    hi, hs = x[:, 7], x[:, 8]
    return K.k_i * K.k_s / (K.k_s * (hi + K.h_min) + K.k_i * hs)


def flux(surface, x):
    """Net heat flux into the surface at this temperature (degC); zero at the temperature sought."""
    _, salinity, air, wind, q, longwave, shortwave = x[:, :7].unbind(1)
    radiation = (1 - K.albedo) * shortwave + K.emis * (longwave - K.sigma * (surface + 273.15) ** 4)
    sensible = K.rho_a * K.cp * K.C_H * wind * (air - surface)
    latent = K.rho_a * K.L_s * K.C_H * wind * (q - humidity_at_saturation(surface))
    return radiation + sensible + latent + conductance(x) * (freezing_point(salinity) - surface)


def newton_step(t, x):
    """A step from t with a slope held constant: at the root its derivative is that of the implicit function."""
    at = t.detach().requires_grad_(True)
    slope = torch.autograd.grad(flux(at, x.detach()).sum(), at)[0]
    return t - flux(t, x) / slope


def ice_column(x):
    t = x[:, 2].detach().clamp(-60, 5)
    for _ in range(60):
        t = newton_step(t, x.detach()).detach()
    t = newton_step(t, x).clamp(max=0.0)
    freezing = freezing_point(x[:, 1])
    cover = torch.sigmoid(K.gamma_T * (freezing + K.dT0 - x[:, 0])) * (1 - torch.exp(-x[:, 7] / K.h0))
    return torch.stack([cover, t, conductance(x) * (freezing - t)], 1)


def lorenz96(x, F=8.0):
    return (x.roll(-1, -1) - x.roll(2, -1)) * x.roll(1, -1) - x + F


def lorenz96_two_scale(z, K, J, F, h, b, c):
    x, y = z[..., :K], z[..., K:]
    coupling = h * c / b
    dx = -x.roll(1, -1) * (x.roll(2, -1) - x.roll(-1, -1)) - x + F - coupling * y.unflatten(-1, (K, J)).sum(-1)
    dy = -c * b * y.roll(-1, -1) * (y.roll(-2, -1) - y.roll(1, -1)) - c * y + coupling * x.repeat_interleave(J, -1)
    return torch.cat([dx, dy], -1)


def runge_kutta(f, x, dt):
    k1 = f(x)
    k2 = f(x + dt / 2 * k1)
    k3 = f(x + dt / 2 * k2)
    return x + dt / 6 * (k1 + 2 * k2 + 2 * k3 + f(x + dt * k3))


def write(_public, out, rows=29, seed=3):
    rng = np.random.default_rng(seed)
    bounds = ((-1.9, 3), (28, 36), (-40, 8), (0.5, 18), (-9, -5.3), (130, 380), (0, 700))
    draws = [rng.uniform(low, high, rows) for low, high in bounds]
    draws[4] = np.exp(draws[4])
    draws += [rng.gamma(2, 0.7, rows), rng.gamma(1.5, 0.12, rows)]
    x = torch.tensor(np.stack(draws, 1))
    torch.set_default_dtype(torch.float64)
    with h5py.File(out / "emulator_synth.h5", "w") as f:
        seeds = torch.eye(3)[:, None].expand(3, rows, 3)
        jacobian = torch.stack([vjp(ice_column, x, seed.contiguous())[1] for seed in seeds], 1)
        put(f, "icecolumn", dict(x=x, y=ice_column(x), jac=jacobian))
        f["icecolumn"].attrs.update(ICE, inputs="sst,sss,tair,wind,qref,flwdn,fswdn,hi,hs", outputs="aice,tsfc,fcond")
        systems = (lorenz96, 40, 0.05, dict(F=8.0)), (lorenz96_two_scale, 264, 0.005, TWO_SCALE)
        for tendency, size, dt, constants in systems:
            name = tendency.__name__
            step = lambda v: runge_kutta(lambda s: tendency(s, **constants), v, dt)
            x0 = torch.tensor(rng.normal(0, 1, (5, size)))
            if constants is TWO_SCALE:
                x0[:, TWO_SCALE["K"] :] *= 0.1
            for _ in range(400):
                x0 = step(x0)
            dx, ly = torch.tensor(rng.normal(0, 0.1, (5, size))), torch.tensor(rng.normal(0, 1, (5, size)))
            put(f, name, dict(x0=x0, x1=step(x0), dx=dx, tl=jvp(step, x0, dx)[1], ly=ly, ad=vjp(step, x0, ly)[1]))
            f[name].attrs.update(constants, dt=dt)
    torch.set_default_dtype(torch.float32)
