#!/usr/bin/env python3
"""clang-tidy over files of a build:   lint.py BUILD JOBS < FILES

Reading the headers takes clang-tidy five times as long as reading a source. So sources of one folder that are compiled
with the same options are read together, as one file that includes them; in two halves if that does not compile, because
two of them use one name. Headers are read alone. Exit code 1: there are findings.
"""
import json
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

build, jobs = os.path.abspath(sys.argv[1]), int(sys.argv[2])
files = [os.path.abspath(line.strip()) for line in sys.stdin]
folder, most = os.path.join(build, "together"), 16
# Clang lacks GCC's function of vectors. Any function of its arguments serves: nothing runs.
extra = ["-Wno-unknown-warning-option", "-Wno-unused-value", "-D__builtin_shuffle(a,...)=((void)(__VA_ARGS__),a)"]
os.makedirs(folder, exist_ok=True)


def tidy(path, database):
    command = ["clang-tidy-16", "-p", database, "--quiet", *(f"--extra-arg={option}" for option in extra), path]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    return done.returncode, done.stdout + "".join(re.findall("(?m)^.*error:.*\n", done.stderr))


def read(group):
    """Findings of a group: a list of sources, their options, and the name of the group."""
    sources, options, name = group
    if not options:
        return tidy(sources[0], build)
    path, database = os.path.join(folder, f"{name}.cpp"), os.path.join(folder, name)
    os.makedirs(database, exist_ok=True)
    with open(path, "w") as out:
        out.writelines(f'#include "{source}"  // NOLINT\n' for source in sources)
    with open(os.path.join(database, "compile_commands.json"), "w") as out:
        json.dump([{"directory": build, "file": path, "command": f"{options} -c {path}"}], out)
    code, text = tidy(path, database)
    if "clang-diagnostic-error" not in text or len(sources) == 1:
        return code, text
    half = len(sources) // 2
    results = [read((sources[:half], options, name + "a")), read((sources[half:], options, name + "b"))]
    return max(code for code, _ in results), "".join(text for _, text in results)


groups = {}
with open(os.path.join(build, "compile_commands.json")) as database:
    for entry in json.load(database):
        if entry["file"] in files:
            files.remove(entry["file"])
            options = re.sub(r" -o \S+ -c \S+$", "", entry["command"]) + f" -I{os.path.dirname(entry['file'])}"
            if "/tests/" in entry["file"]:  # Clang 16 with OpenMP refuses structured bindings in the lambdas of doctest
                options += " -fno-openmp -Wno-source-uses-openmp -Wno-unused-variable"
            groups.setdefault(options, []).append(entry["file"])
parts = [(sources[i:i + most], options) for options, sources in groups.items() for i in range(0, len(sources), most)]
parts += [([path], "") for path in files if path.endswith(".hpp")]
failed = 0
with ThreadPoolExecutor(jobs) as pool:
    for code, text in pool.map(read, [(*part, str(number)) for number, part in enumerate(parts)]):
        failed = max(failed, code)
        print(text, end="", flush=True)
sys.exit(1 if failed else 0)
