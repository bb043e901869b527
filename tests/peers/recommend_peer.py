#!/usr/bin/env python3
"""The loop that users of PyTorch write to recommend items to all users, beside `lockstep predict`: a check of its lists, and users per second.

  recommend_peer.py --data ml1m.h5 --checkpoint sasrec/checkpoints/best.h5 --lists top.h5          a sequence model of the default architecture
  recommend_peer.py --data kgat.h5 --users users.h5 --items items.h5 --lists top.h5                 embeddings that `--embeddings` wrote

`--lists` is the output of `lockstep predict --all-users`. The loop builds the windows of a block of users, computes their states and the scores of all
items, hides what the users have, and takes the best. Prints one JSON line; the share of equal items is below 1 only where scores tie or nearly so.
On a busy machine compare the processor's seconds.
"""
import argparse
import json
import time

import h5py
import numpy as np
import torch


def sequence_model(o):
    """A function from user numbers to states, the item table, and the items of each user, counted from 0."""
    from sasrec_peer import Network

    with h5py.File(o.checkpoint) as file:
        a = file["sequence_model"].attrs
        arch = argparse.Namespace(model="tisasrec" if a["timed"] else "sasrec", mhc=a["mhc"].decode(), hidden=int(a["hidden_units"]),
                                  heads=int(a["num_heads"]), blocks=int(a["num_blocks"]), maxlen=int(a["maxlen"]), time_span=int(a["time_span"]),
                                  streams=int(a["mhc_expansion_rate"]), ln_eps=float(a["ln_eps"]), dropout=0.0, time_dropout="table", sdpa=not a["timed"])
        net = Network(arch, int(a["items"]))
        net.load_state_dict({n: torch.from_numpy(file["model/" + n][()]) for n, _ in net.named_parameters()})
    net.eval()
    with h5py.File(o.data) as file:
        offsets, item = file["users/offsets"][()], file["inter/item"][()].astype(np.int64)
        scaled = file["inter/time_scaled"][()] if net.timed else item
    T = arch.maxlen

    def states(users):
        longest = int(min(T, max(offsets[u + 1] - offsets[u] for u in users)))  # leading padding is left out
        seq, when = np.zeros((len(users), longest), np.int64), np.zeros((len(users), longest), np.int64)
        for row, u in enumerate(users):
            n = min(longest, offsets[u + 1] - offsets[u])
            seq[row, longest - n:] = item[offsets[u + 1] - n:offsets[u + 1]]
            when[row, longest - n:] = scaled[offsets[u + 1] - n:offsets[u + 1]]
        return net.features(torch.from_numpy(seq), torch.from_numpy(when) if net.timed else None)[:, -1]

    return states, net.item_emb.weight.detach()[1:], [np.unique(x) - 1 for x in np.split(item, offsets[1:-1])]


def factors(o):
    with h5py.File(o.users) as users, h5py.File(o.items) as items:
        of_users, of_items = torch.from_numpy(users["embedding"][()]), torch.from_numpy(items["embedding"][()])
    with h5py.File(o.data) as file:
        parts = [np.split(file[f"cf/{s}/item"][()], file[f"cf/{s}/indptr"][1:-1]) for s in ("train", "valid", "test") if f"cf/{s}" in file]
    return lambda users: of_users[users.start:users.stop], of_items, [np.concatenate(p) for p in zip(*parts)]


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("data", "lists"):
        p.add_argument("--" + name, required=True)
    for name in ("checkpoint", "users", "items"):
        p.add_argument("--" + name)
    p.add_argument("--block", type=int, default=256)
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--repeat", type=int, default=3)
    o = p.parse_args()
    torch.set_num_threads(o.threads)
    states, table, known = sequence_model(o) if o.checkpoint else factors(o)
    with h5py.File(o.lists) as file:
        theirs, scores = file["item"][()], file["score"][()]
    count = theirs.shape[1]
    best_s = cpu_s = float("inf")
    with torch.inference_mode():
        for _ in range(o.repeat):
            start, cpu = time.perf_counter(), time.process_time()
            items, values = [], []
            for first in range(0, len(known), o.block):
                users = range(first, min(first + o.block, len(known)))
                block = states(users) @ table.T
                rows = np.concatenate([np.full(len(known[u]), u - first) for u in users])
                block[torch.from_numpy(rows), torch.from_numpy(np.concatenate([known[u] for u in users]).astype(np.int64))] = -float("inf")
                top = torch.topk(block, count, dim=1)
                values.append(top.values)
                items.append(top.indices)
            best_s, cpu_s = min(best_s, time.perf_counter() - start), min(cpu_s, time.process_time() - cpu)
    values, items = torch.cat(values).numpy(), torch.cat(items).numpy()
    if o.checkpoint:
        with h5py.File(o.data) as file:
            items = file["items/raw_id"][()][items]
    error = np.abs(values - scores).max() / np.abs(values).max()
    assert error < 1e-4, f"scores differ by {error} of the largest"
    print(json.dumps({"users": len(known), "seconds": best_s, "cpu_seconds": cpu_s, "users_per_s": len(known) / best_s, "equal_items": float((items == theirs).mean()),
                      "largest_score_difference": float(error)}))


if __name__ == "__main__":
    main()
