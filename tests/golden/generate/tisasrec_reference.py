"""SASRec and TiSASRec, with and without streams of hyper-connections, where no pad is attended: no public code does so.

Plain functions of a dictionary of weights, written from docs/models/sasrec.md for reading, not for speed.
"""
import math

import torch
import torch.nn.functional as F


def linear(p, name, x):
    return F.linear(x, p[name + ".weight"].squeeze(-1), p[name + ".bias"])


def attention(p, i, c, query, key, seq, rel):
    """Att(...) of block i, without its residual."""
    timed = c["model"] == "tisasrec"
    heads = lambda x: x.unflatten(-1, (c["heads"], -1))
    names, inputs = ("Q_w", "K_w", "V_w") if timed else ("q_w", "k_w", "v_w"), (query, key, key)
    q, k, v = (heads(linear(p, f"attention_layers.{i}.{name}", x)) for name, x in zip(names, inputs))
    if timed:
        k, v = k + heads(p["abs_pos_K_emb.weight"]), v + heads(p["abs_pos_V_emb.weight"])
    scores = torch.einsum("bthc,bshc->bhts", q, k)
    if timed:
        scores = scores + torch.einsum("bthc,btshc->bhts", q, heads(p["time_matrix_K_emb.weight"][rel]))
    seen = torch.ones(seq.shape[1], seq.shape[1]).tril().bool() & (seq != 0)[:, None, None]
    shares = torch.softmax((scores / math.sqrt(q.shape[-1])).masked_fill(~seen, -1e300), -1) * seen
    out = torch.einsum("bhts,bshc->bthc", shares, v)
    if timed:
        return (out + torch.einsum("bhts,btshc->bthc", shares, heads(p["time_matrix_V_emb.weight"][rel]))).flatten(-2)
    return linear(p, f"attention_layers.{i}.out_w", out.flatten(-2))


def connection_maps(p, site, X, c):
    """H_pre (B, T, n), H_post (B, T, n) and the doubly stochastic H_res (B, T, n, n) of the streams X (B, T, n, d)."""
    r = X.flatten(-2)
    r = r * (r.square().mean(-1, keepdim=True) + c["mhc_rms_eps"]).rsqrt()
    w = lambda which: p[f"{site}.phi_{which}.weight"]
    pre, post, res = (p[f"{site}.alpha_{k}"] * (r @ w(k).T) + p[f"{site}.phi_{k}.bias"] for k in ("pre", "post", "res"))
    m = res.unflatten(-1, (c["n_streams"], -1)).clamp(-10, 10).exp()
    for _ in range(c["sinkhorn_iters"]):
        m = m / m.sum(-2, keepdim=True)
        m = m / m.sum(-1, keepdim=True)
    return torch.sigmoid(pre), 2 * torch.sigmoid(post), m


def features(p, c, seq, rel, found):
    """f (B, T, d); found receives the intermediate values."""
    timed, real = c["model"] == "tisasrec", (seq != 0).unsqueeze(-1)
    x = p["item_emb.weight"][seq] * math.sqrt(c["hidden"])
    if not timed:
        x = x + p["pos_emb.weight"][torch.arange(1, seq.shape[1] + 1) * (seq != 0)]
    x = x * real
    found["embedded"] = x
    X = x.unsqueeze(2).expand(-1, -1, c["n_streams"], -1)
    for i in range(c["blocks"]):
        norm = lambda layer, z: F.layer_norm(z, z.shape[-1:], p[f"{layer}.weight"], p[f"{layer}.bias"], c["ln_eps"])
        norm1, norm2 = lambda z: norm(f"attention_layernorms.{i}", z), lambda z: norm(f"forward_layernorms.{i}", z)
        dense = lambda k, z: linear(p, f"forward_layers.{i}.conv{k}", z)
        feed_forward = lambda z: dense(2, dense(1, z).relu())
        attend = lambda q, z: attention(p, i, c, q, z if timed else q, seq, rel)
        if c["mhc"] == "streams":
            for site, layer in (("attn", lambda u: attend(norm1(u), u)), ("ffn", lambda u: feed_forward(norm2(u)))):
                pre, post, res = connection_maps(p, f"mhc_{site}.{i}", X, c)
                u = (pre.unsqueeze(-1) * X).sum(2)
                y = layer(u)
                X = (res @ X + post.unsqueeze(-1) * y.unsqueeze(2)) * real.unsqueeze(2)
                found[f"block{i}/{site}"] = dict(H_pre=pre, H_post=post, H_res=res, u=u, y=y, X=X)
            continue
        q = norm1(x)
        out = attend(q, x)
        x = norm2(q + out) if timed else x + out
        y = feed_forward(x if timed else norm2(x))
        x = (x + y) * real
        found[f"block{i}"] = dict(attn_out=out, ffn_out=y, out=x)
    x = X.sum(2) if c["mhc"] == "streams" else x
    found["log_feats"] = F.layer_norm(
        x, x.shape[-1:], p["last_layernorm.weight"], p["last_layernorm.bias"], c["ln_eps"]
    )
    return found["log_feats"]
