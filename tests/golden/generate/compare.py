#!/usr/bin/env python3
"""Compares regenerated reference files with the stored ones:   compare.py NEW [NEW ...] [--stored DIR]

Each NEW file is compared with the file of the same name in DIR (default: the folder above this one).
  .h5 .nc  the same arrays and attributes, with the same types and shapes. Integers and text are equal. Floating-point
           values differ by at most 5e-5 (single precision) or 1e-9 (double) of the largest magnitude in the stored
           array, or of 1e-6 where that is larger: some gradients are zero but for rounding. A group that has a twin for
           double precision (NAME_f64) comes from a run in single precision, whatever its types. Attributes in VERSIONS
           and ROUNDING are left out.
  other    the same bytes.
Prints a line per file and one per difference. Exit code: 0 all agree, 1 at least one does not, 77 a package is missing.
"""
import argparse
import sys
from pathlib import Path

try:
    import h5py
    import numpy as np
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

VERSIONS = {"torch", "torch_version", "pillow_version"}  # of the packages that made the file
ROUNDING = {f"f32_vs_f64_{kind}_diff" for kind in ("max_rel_grad", "max_logit", "after_max_abs", "after_p999_abs")}
HIDDEN = {"_NCProperties", "REFERENCE_LIST", "DIMENSION_LIST"}  # of the NetCDF library
TOLERANCES, FLOOR = dict(single=5e-5, double=1e-9), 1e-6


def entries(path):
    """Arrays by name and attributes by GROUP@NAME."""
    found = {}

    def visit(name, item):
        for key in item.attrs.keys() - VERSIONS - ROUNDING - HIDDEN:
            found[f"{name}@{key}"] = np.asarray(item.attrs[key])
        if isinstance(item, h5py.Dataset):
            found[name] = np.asarray(item[()])

    with h5py.File(path) as file:
        visit("", file)
        file.visititems(visit)
    return found


def difference(new, stored):
    """Largest difference as a share of the largest stored magnitude; inf where type, shape, integers or text differ."""
    real = stored.dtype.kind == "f"
    if new.shape != stored.shape or new.dtype.kind != stored.dtype.kind or (real and new.dtype != stored.dtype):
        return np.inf
    if np.array_equal(new, stored, equal_nan=real):
        return 0.0
    finite = np.isfinite(stored) if real else np.zeros(stored.shape, bool)
    if not np.array_equal(new[~finite], stored[~finite], equal_nan=real):
        return np.inf
    gap = np.abs(new[finite].astype(float) - stored[finite]).max(initial=0.0)
    return float(gap / max(np.abs(stored[finite]).max(initial=0.0), FLOOR))


def compare(new_path, stored_path):
    if stored_path.suffix not in (".h5", ".nc"):
        same = new_path.read_bytes() == stored_path.read_bytes()
        print(f"{stored_path.name}: {'agrees: the same bytes' if same else 'DIFFERS'}")
        return same
    new, stored = entries(new_path), entries(stored_path)
    gaps = {name: difference(new[name], value) for name, value in stored.items() if name in new}
    bad = [f"missing {name}" for name in stored if name not in new]
    bad += [f"extra {name}" for name in new if name not in stored]
    worst, groups = dict.fromkeys(TOLERANCES, 0.0), {name.split("/")[0] for name in stored}
    for name, gap in gaps.items():
        twin = name.split("/")[0] + "_f64"
        run = "single" if stored[name].dtype == np.float32 or twin in groups else "double"
        worst[run] = max(worst[run], gap)
        if gap > TOLERANCES[run]:
            bad.append(f"differs {name} {gap:.1e}")
    equal = sum(gap == 0 for gap in gaps.values())
    gap = f"largest difference {worst['single']:.1e} in single and {worst['double']:.1e} in double precision"
    verdict = "DIFFERS" if bad else "agrees"
    print(f"{stored_path.name}: {verdict}: {equal} of {len(stored)} arrays and attributes are equal, {gap}")
    for line in bad[:20] + [f"and {len(bad) - 20} more"] * (len(bad) > 20):
        print(f"  {line}")
    return not bad


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("new", nargs="+", type=Path)
    parser.add_argument("--stored", type=Path, default=Path(__file__).resolve().parent.parent)
    options = parser.parse_args()
    results = [compare(path, options.stored / path.name) for path in options.new]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
