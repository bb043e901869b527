#!/usr/bin/env python3
"""The cross-entropy over all items in PyTorch, forward and backward: of all targets at once, and in the best chunks.

  softmax_peer.py [TARGETS ITEMS WIDTH [CALLS]]     one JSON line: CPU seconds, median, in one thread
"""
import json
import statistics
import sys
import time

import torch
import torch.nn.functional as F

sizes = [int(a) for a in sys.argv[1:]]
targets, items, width, calls = (sizes + [13400, 3266, 50, 5][len(sizes):])[:4]
torch.set_num_threads(1)
torch.manual_seed(1)
features = torch.randn(targets, width, requires_grad=True)
table = torch.randn(items, width, requires_grad=True)
labels = torch.arange(targets) * 7 % items


def step(chunk):
    features.grad = table.grad = None
    for f, label in zip(features.split(chunk), labels.split(chunk)):
        F.cross_entropy(f @ table.T, label, reduction="sum").backward()


def seconds(chunk):
    step(chunk)
    times = []
    for _ in range(calls):
        begin = time.process_time()
        step(chunk)
        times.append(time.process_time() - begin)
    return statistics.median(times)


chunks = {chunk: seconds(chunk) for chunk in (128, 256, 512, 1024)}
best = min(chunks, key=chunks.get)
print(json.dumps({"seconds": seconds(targets), "chunked": chunks[best], "chunk": best, "torch": torch.__version__}))
