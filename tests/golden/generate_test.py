#!/usr/bin/env python3
"""The generator of emulator_synth.h5, which needs no public code, makes the stored file; compare.py sees a changed digit.

Exit 0: both hold; 1: one does not.
"""
import subprocess
import sys
import tempfile
from pathlib import Path

import h5py
import torch  # noqa: F401  without it the test is skipped

GENERATE = Path(__file__).resolve().parent / "generate"


def run(script, *arguments):
    return subprocess.run([sys.executable, GENERATE / script, *map(str, arguments)], check=False).returncode


def main():
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / "emulator_synth.h5"
        if run("emulator.py", "--out", folder, "emulator_synth") != 0 or run("compare.py", made) != 0:
            return "emulator_synth.h5 was not made again"
        with h5py.File(made, "r+") as file:
            file["icecolumn/y"][0, 0] *= 1 + 1e-6
        if run("compare.py", made) != 1:
            return "compare.py does not see a difference of 1e-6 in double precision"
    return 0


if __name__ == "__main__":
    sys.exit(main())
