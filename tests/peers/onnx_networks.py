#!/usr/bin/env python3
"""Runs the ONNX files of make_models by ONNX Runtime and compares the scores with those of our networks.

    onnx_networks.py MODELS

Exit 0: all agree; 77: a package is missing (skipped).
"""
import glob
import os
import sys

try:
    import numpy as np
    import onnx
    import onnxruntime
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

TOLERANCE = 1e-5  # relative to the largest score
NUMPY = {"tensor(float)": np.float32, "tensor(int64)": np.int64}
failures = []
checked = 0
for expected_path in sorted(glob.glob(os.path.join(sys.argv[1], "*.scores"))):
    base = expected_path[: -len(".scores")]
    if not os.path.exists(base + ".onnx"):
        continue
    model = onnx.load(base + ".onnx")
    onnx.checker.check_model(model, full_check=True)
    session = onnxruntime.InferenceSession(base + ".onnx", providers=["CPUExecutionProvider"])
    feed = {}
    for i, entry in enumerate(session.get_inputs()):
        feed[entry.name] = np.fromfile(f"{base}.input{i}", NUMPY[entry.type]).reshape(-1, *entry.shape[1:])
    width = session.get_outputs()[0].shape[1]
    expected = np.fromfile(expected_path, np.float32).reshape(-1, width)
    for rows in (slice(None), slice(0, 1)):
        found = session.run(["scores"], {name: values[rows] for name, values in feed.items()})[0]
        if found.shape != expected[rows].shape:
            failures.append(f"{base}: shape {found.shape}, expected {expected[rows].shape}")
            continue
        difference = np.abs(found - expected[rows]).max() / np.abs(expected).max()
        print(f"{os.path.basename(base)}: {difference:.1e}")
        if not difference <= TOLERANCE:
            failures.append(f"{base}: {difference:.2e} apart, tolerance {TOLERANCE:.0e}")
    if session.get_modelmeta().custom_metadata_map["kind"] not in ("har", "sasrec") or model.opset_import[0].version != 13:
        failures.append(f"{base}: metadata or opset")
    checked += 1
if checked < 8:
    failures.append(f"only {checked} networks")
print("\n".join(failures))
sys.exit(1 if failures else 0)
