"""Reads the files of recommend_test.sh with h5py and pandas. Argument: recall@20 of KGAT's test items, as `eval` says."""
import sys

import h5py
import numpy as np
import pandas as pd

for kind in ("tisasrec", "kgat"):
    csv = pd.read_csv(f"1/{kind}.csv")
    lines = pd.read_json(f"1/{kind}.jsonl", lines=True)
    with h5py.File(f"1/{kind}.h5") as file:
        user, item, score = file["user"][:], file["item"][:], file["score"][:]
        assert file.attrs["kind"].decode() == kind and file.attrs["data_hash"]
        assert b"--all-users" in file.attrs["command"] and b"--output" not in file.attrs["command"]
    assert item.shape == score.shape == (len(user), 5) and score.dtype == np.float32
    assert (csv["user"] == user).all() and (lines["user"] == user).all()
    assert (csv[[f"item_{k}" for k in range(1, 6)]] == item).all(axis=None)
    assert (np.array(lines["item"].tolist()) == item).all()
    assert (csv[[f"score_{k}" for k in range(1, 6)]].to_numpy(np.float32) == score).all()
    assert (np.array(lines["score"].tolist(), np.float32) == score).all()
    assert (np.diff(score, axis=1) <= 0).all()

# Scores are inner products of the embeddings, and candidates have the scores of the lists.
with h5py.File("users.h5") as users, h5py.File("items.h5") as items, h5py.File("1/tisasrec.h5") as lists:
    products = users["embedding"][:].astype(float) @ items["embedding"][:].astype(float).T
    row = {item: i for i, item in enumerate(items["item"][:])}
    for u in range(len(products)):
        own = [products[u, row[item]] for item in lists["item"][u]]
        assert np.allclose(own, lists["score"][u], rtol=1e-5, atol=1e-6)
    candidates = pd.read_csv("candidates.csv")
    assert (candidates[["item_1", "item_2", "item_3"]] == [3, 1, 2]).all(axis=None)
    assert np.allclose(candidates["score_2"], products[:, row[1]], rtol=1e-5, atol=1e-6)

# What a user has is left out, and the metric of the lists is that of `eval`.
with h5py.File("planted.h5") as data, h5py.File("1/kgat.h5") as everything, h5py.File("known.h5") as of_known:
    have = {
        split: np.split(data[f"cf/{split}/item"][:], data[f"cf/{split}/indptr"][1:-1]) for split in ("train", "valid", "test")
    }
    recall = []
    for u in range(len(everything["user"])):
        assert not set(everything["item"][u]) & set(np.concatenate([have[split][u] for split in have]))
        top = set(of_known["item"][u])
        assert not top & (set(have["train"][u]) | set(have["valid"][u]))
        if len(have["test"][u]):
            recall.append(len(top & set(have["test"][u])) / len(have["test"][u]))
assert abs(np.mean(recall) - float(sys.argv[1])) < 1e-6, (np.mean(recall), sys.argv[1])
