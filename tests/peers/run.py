"""run.py SCRIPT ARGUMENTS...: runs a script. Exit code 77 (skipped) if a package that it imports is missing."""
import runpy
import sys
from pathlib import Path

PACKAGES = ("h5py", "numpy", "onnx", "onnxruntime", "safetensors", "torch")

sys.argv.pop(0)
sys.path[0] = str(Path(sys.argv[0]).resolve().parent)
try:
    runpy.run_path(sys.argv[0], run_name="__main__")
except ModuleNotFoundError as missing:
    if missing.name.split(".")[0] not in PACKAGES:
        raise
    print("skipped:", missing)
    sys.exit(77)
