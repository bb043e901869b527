#!/usr/bin/env python3
"""Do constexpr functions that kernels may call only call functions that exist on a GPU?

    constexpr_calls.py NVCC HOST_COMPILER [OPTION...]

nvcc's --expt-relaxed-constexpr lets kernels call constexpr functions of the host. If such a function calls a host
function that is not constexpr, nvcc drops the statement without a message, and the kernel computes something else. For
functions marked __host__ __device__ the same call is an error. So this script copies the headers that kernels include,
marks their constexpr functions, and compiles the copies.

Exit code 0: no such call; 1: nvcc's messages name them; 77: no nvcc.
"""
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDERS = [ROOT / "include", ROOT / "src"]
# A constexpr function: "(" comes before the ";", "=" or "{" that would make it a variable.
FUNCTION = re.compile(r"(?<!if )\bconstexpr\b(?=(?:[^;={}()]|operator(?:==|!=|<=|>=|\(\)|\[\]))*?\()")
VARIABLE = re.compile(r"\bconstexpr \w+ k[A-Z]\w*\(")  # constexpr Site kSite("name")


def headers_of_kernels():
    """All our headers that .cu files include, directly or through others."""
    found, queue = set(), [source for folder in FOLDERS for source in folder.rglob("*.cu")]
    while queue:
        path = queue.pop()
        if path in found:
            continue
        found.add(path)
        for name in re.findall(r'#include "([^"]+)"', path.read_text()):
            queue += [p for p in ((f / name).resolve() for f in (path.parent, *FOLDERS)) if p.exists()][:1]
    return sorted(path for path in found if path.suffix == ".hpp")


def marked(text):
    """The text with all constexpr functions for host and device, and how many there are."""
    lines, count = text.split("\n"), 0
    for i, line in enumerate(lines):
        code = line.split("//")[0]
        if "constexpr" not in code or "__device__" in code or "__device__" in "".join(lines[max(i - 1, 0):i]) or VARIABLE.search(code):
            continue
        found = FUNCTION.search(code + " " + "".join(lines[i + 1:i + 2]))
        if found and found.start() < len(code):
            lines[i] = line[:found.start()] + "__host__ __device__ " + line[found.start():]
            count += 1
    return "\n".join(lines), count


def compiles(folder, nvcc, compiler, options, source):
    """Whether the front end of nvcc accepts this source, and its messages."""
    (folder / "all.cu").write_text(source)
    command = [nvcc, f"-ccbin={compiler}", f"-I{folder}/include", f"-I{folder}/src", "-DLOCKSTEP_HAS_CUDA=1", "-std=c++20",
               "--expt-relaxed-constexpr", "-Werror", "cross-execution-space-call", "-ptx", *options,
               "-o", str(folder / "all.ptx"), str(folder / "all.cu")]
    result = subprocess.run(command, capture_output=True, text=True)
    return result.returncode == 0, result.stdout + result.stderr


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    nvcc, compiler, *options = sys.argv[1:]
    if not shutil.which(nvcc):
        print(f"skipped: there is no {nvcc}")
        sys.exit(77)
    with tempfile.TemporaryDirectory() as name:
        folder, total, includes = pathlib.Path(name), 0, []
        for path in FOLDERS:
            shutil.copytree(path, folder / path.name)
        for path in headers_of_kernels():
            text, count = marked(path.read_text())
            if count:
                (folder / path.relative_to(ROOT)).write_text(text)
                includes.append(f'#include "{folder / path.relative_to(ROOT)}"')
                total += count
        includes = "\n".join(includes) + "\n"
        # The check itself: a call that must not pass.
        wrong = "inline int host() { return 1; }\n__host__ __device__ constexpr int both(int i) { return i < 0 ? 0 : host(); }\n"
        if compiles(folder, nvcc, compiler, options, wrong)[0]:
            sys.exit("FAILED: nvcc accepts a call of a host function")
        accepted, messages = compiles(folder, nvcc, compiler, options, includes)
    if not accepted or total < 50:
        sys.exit(f"{messages}FAILED: {total} constexpr functions of headers that kernels include")
    print(f"ok  {total} constexpr functions call none of the host's")


if __name__ == "__main__":
    main()
