#!/usr/bin/env python3
"""Mutation check of the CUDA kernels, on the stand-in of tests/cuda_host: does a test fail when a kernel is wrong?

    mutate.py --build BUILD [--per-file N] [--seed S] [--jobs J] [--cases PATTERN] [--list] [FILE.cu ...]

A mutant is a kernel with one small mistake: a sign, an index, a comparison, a constant. Its object is compiled as the host build
compiles it and linked in front of the layers' archives; then the tests run that the host build has for a GPU. A mutant that no test
notices is a missing test, or changes nothing that matters: equivalent.txt lists the latter with their reasons.
Exit code 0: every mutant was noticed; 1: one survived; 2: it could not run. docs/cuda-host.md says more.
"""
import argparse
import concurrent.futures
import dataclasses
import json
import os
import pathlib
import random
import re
import resource
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
# The programs that have tests for a layer's kernels, the nearest first.
PROGRAMS = {"ops": ["test_ops", "test_nn", "test_models"], "optim": ["test_optim"]}
# How the host build's test runs select their cases (tests/CMakeLists.txt), and the environment of each.
SELECTIONS = [(["-ts=*cuda*"], {}),
              (["-tc=*gradient*", "-tse=*cuda*"], {"LOCKSTEP_CUDA_HOST_STREAMS": "late", "LOCKSTEP_CUDA_HOST_ORDER": "reverse"})]
FAST_S = 0.5  # cases that take less run first, together


# --- Mutants ---------------------------------------------------------------------------------------------------------------------

@dataclasses.dataclass(frozen=True)
class Mutant:
    kind: str   # sign, index, compare, constant
    begin: int  # characters of the file that ...
    end: int
    text: str   # ... this replaces

    def applied(self, source):
        return source[:self.begin] + self.text + source[self.end:]

    def line(self, source):
        return source.count("\n", 0, self.begin) + 1

    def lines(self, source):
        """The line as it is and as the mutant has it, without indentation."""
        first = source.rfind("\n", 0, self.begin) + 1
        last = source.find("\n", self.end)
        return source[first:last].strip(), (source[first:self.begin] + self.text + source[self.end:last]).strip()


def without_comments(source):
    """The source with comments, texts and preprocessor lines blanked, every other character where it was."""
    def blank(match):
        return re.sub(r"[^\n]", " ", match.group())
    return re.sub(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|^[ \t]*#[^\n]*', blank, source, flags=re.S | re.M)


def matching(code, at, pair):
    """The place of the bracket that closes the one at `at`."""
    depth = 0
    for i in range(at, len(code)):
        depth += (code[i] == pair[0]) - (code[i] == pair[1])
        if depth == 0:
            return i
    raise ValueError("unbalanced " + pair)


def bodies(code):
    """Ranges of what runs on a GPU: the bodies of __global__ and __device__ functions. A file without any: all of it."""
    found = []
    for match in re.finditer(r"__(?:global|device)__", code):
        at, end = match.end(), match.end()
        while at < len(code) and code[at] not in "{;":
            at = matching(code, at, "()") + 1 if code[at] == "(" else at + 1
        if at < len(code) and code[at] == "{":
            end = matching(code, at, "{}")
            if not found or at > found[-1][1]:
                found.append((at + 1, end))
    return found or [(0, len(code))]


BINARY = {"+": "-", "-": "+", "*": "+", "/": "*", "%": "/", "+=": "-=", "-=": "+=", "*=": "+=",
          "<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==", "&&": "||", "||": "&&",
          "<<": ">>", ">>": "<<", "&": "|", "|": "&", "^": "|"}
COMPARES = {"<", "<=", ">", ">=", "==", "!=", "&&", "||"}
WORDS = {"true": "false", "false": "true", "min": "max", "max": "min"}
NOT_CALLS = {"if", "for", "while", "switch", "return", "sizeof", "min", "max", "static_assert", "static_cast", "defined"}
DECLARATION = re.compile(r"(?:^|[;{(])\s*(?!return\b)(?:[\w:]+\s+)*[\w:]+(?:<[^;]*>)?[\s*&]+(?:\w+(?:\[[^\]]*\])*,\s*)*\w+(?:\[[^\]]*\])*$")


def mutants_of(source):
    """All mutants, in the order of the file."""
    code = without_comments(source)
    found = []
    for begin, end in bodies(code):
        def each(pattern):
            return (m for m in re.compile(pattern).finditer(code, begin, end))

        for m in each(r"(?<=\s)(?:<<|>>|[-+*<>=!]=|&&|\|\||[-+*/%<>&|^])(?=\s)"):  # a binary operator has blanks around it
            if m.group() in BINARY:
                kind = "compare" if m.group() in COMPARES else "sign"
                found.append(Mutant(kind, m.start(), m.end(), BINARY[m.group()]))
        for m in each(r"(?<=[\s(\[{])-(?=[A-Za-z_(])"):  # a negation
            found.append(Mutant("sign", m.start(), m.end(), ""))
        for m in each(r"\b(?:true|false|min|max)\b"):
            found.append(Mutant("compare", m.start(), m.end(), WORDS[m.group()]))
        for m in each(r"(?<=[\w\])])\["):  # an index
            close = matching(code, m.start(), "[]")
            statement = code[max(code.rfind(c, begin, m.start()) for c in ";{}") + 1:m.start()]
            if code[m.end():close].strip() and not DECLARATION.search(statement):
                found.append(Mutant("index", close, close, " + 1"))
        for m in each(r"\b(?:threadIdx|blockIdx)\.x\b"):
            found.append(Mutant("index", m.start(), m.end(), f"({m.group()} + 1)"))
        for m in each(r"(?<![\w.])(?:\d+(?![\w.'])|\d*\.\d+|\d+\.\d*)(?:[eE][-+]?\d+)?"):
            grown = f"{int(m.group()) + 1}" if m.group().isdigit() else f"({m.group()} + 1)"
            found.append(Mutant("constant", m.start(), m.end(), grown))
        for m in each(r"\bk[A-Z]\w*\b(?!\s*(?:[<({=]|::))"):
            found.append(Mutant("constant", m.start(), m.end(), f"({m.group()} - 1)"))
        for m in each(r"\b(\w+)\(([\w.]+), ([\w.]+)(?=[,)])"):  # the first two arguments of a call
            if m.group(1) not in NOT_CALLS and m.group(2) != m.group(3):
                found.append(Mutant("index", m.start(2), m.end(3), f"{m.group(3)}, {m.group(2)}"))
        for m in each(r"(?<![\w.])([A-Za-z_][\w.]*) ([-/]) ([A-Za-z_][\w.]*)\b(?![(\[<])"):
            found.append(Mutant("sign", m.start(), m.end(), f"{m.group(3)} {m.group(2)} {m.group(1)}"))
    return sorted(set(found), key=lambda m: (m.begin, m.end, m.text))


def shuffled(mutants, rng):
    """In random order, every kind as often as the others while it lasts."""
    kinds = {}
    for m in mutants:
        kinds.setdefault(m.kind, []).append(m)
    for of_kind in kinds.values():
        rng.shuffle(of_kind)
    order = sorted(kinds)
    rng.shuffle(order)
    result = []
    while any(kinds.values()):
        result += [kinds[k].pop() for k in order if kinds[k]]
    return result


def equivalents():
    """What equivalent.txt lists: (file, line, mutated line)."""
    known, file, before = set(), None, None
    for line in (HERE / "equivalent.txt").read_text().splitlines():
        if line.startswith("- "):
            before = line[2:].strip()
        elif line.startswith("+ "):
            known.add((file, before, line[2:].strip()))
        elif re.fullmatch(r"\S+\.cu", line):
            file = line
    return known


# --- The build ------------------------------------------------------------------------------------------------------------------

class Build:
    """Compiles, links and runs as the build tree does."""

    def __init__(self, folder):
        self.folder = folder.resolve()
        entries = json.loads((self.folder / "compile_commands.json").read_text())
        self.compile_commands = {pathlib.Path(e["file"]): e["command"] for e in entries if e["file"].endswith("_cuda.cu")}
        if not self.compile_commands:
            raise OSError(f"{self.folder} has no host build of the kernels (LOCKSTEP_CUDA=OFF, LOCKSTEP_TESTS=ON)")
        self.link_commands = {}
        self.golden = next(iter(self.compile_commands)).parents[2] / "tests"
        self.linker = ["-fuse-ld=lld"] if shutil.which("ld.lld") else []

    def compile(self, file, text, folder):
        """The object of `file` with this text, or none."""
        source, to = folder / file.name, folder / "mutant.o"
        source.write_text(text)
        words = shlex.split(self.compile_commands[file])
        words[words.index("-o") + 1] = str(to)
        words[words.index("-c") + 1] = str(source)
        words += ["-w", "-O1", "-iquote", str(file.parent)]  # most of the time would go into optimising
        done = self.run(words, 300, {"CCACHE_DISABLE": "1"})
        return to if done.returncode == 0 else None

    def link(self, program, mutant, folder):
        """The program with an object in front of the archives, which then add nothing of that source."""
        if program not in self.link_commands:
            lines = subprocess.run(["ninja", "-t", "commands", f"cuda_host_{program}"], cwd=self.folder, check=True, text=True,
                                   capture_output=True).stdout.splitlines()
            steps = [part for part in lines[-1].split(" && ") if f"-o cuda-host/bin/{program} " in part]
            self.link_commands[program] = shlex.split(steps[0])
        to, words = folder / program, list(self.link_commands[program])
        at = words.index("-o")
        words[at:at + 2] = ["-o", str(to), str(mutant)]
        done = self.run(words + self.linker, 300)
        if done.returncode != 0:
            raise OSError(f"linking {program}: {done.stderr}")
        return to

    def run(self, words, limit_s, environment=None):
        """Returns no code when it takes more than limit_s of processor time: other work on the machine does not count."""
        env = os.environ | {"OMP_WAIT_POLICY": "passive", "OMP_NUM_THREADS": "1"} | (environment or {})
        limit = (int(limit_s) + 1, int(limit_s) + 2)
        with subprocess.Popen(words, cwd=self.folder, env=env, text=True, errors="replace", stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, start_new_session=True,
                              preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, limit)) as process:
            try:
                out, err = process.communicate(timeout=60 + 20 * limit_s)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                out, err = process.communicate()
            too_long = process.returncode in (-signal.SIGXCPU, -signal.SIGKILL)
            return subprocess.CompletedProcess(words, None if too_long else process.returncode, out, err)


@dataclasses.dataclass
class Case:
    """A test case of a program: how long it takes, and with which environment it runs."""
    program: str
    name: str
    seconds: float
    environment: dict


def pattern(name):
    return re.sub(r"[,\\*\"]", "?", name)  # a comma would end a pattern


class Tests:
    """The cases for a layer, timed with the kernels as they are."""

    def __init__(self, build, layer, cases):
        self.build = build
        self.cases = []
        for program in PROGRAMS[layer]:
            for selection, environment in SELECTIONS:
                words = [str(build.folder / "cuda-host/bin" / program), *selection]
                listed = build.run(words + ["-ltc"], 60).stdout.splitlines()
                wanted = [n.strip() for n in listed if re.fullmatch(".*".join(map(re.escape, cases.split("*"))), n.strip())]
                wanted = [n for n in wanted if not n.startswith(("[doctest]", "="))]
                if not wanted:
                    continue
                words = [words[0], "-d=true", "-tc=" + ",".join(map(pattern, wanted))]
                done = build.run(words, 1200, environment)
                if done.returncode != 0:
                    raise OSError(f"{shlex.join(words)} fails with the kernels as they are:\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
                for seconds, name in re.findall(r"^([0-9.]+) s: (.*)$", done.stdout, flags=re.M):
                    self.cases.append(Case(program, name, float(seconds), environment))
        if not self.cases:
            raise OSError(f"no test case for layer {layer} is called '{cases}'")
        self.with_golden = cases == "*"
        self.killers = {}  # file -> names of cases that noticed a mutant of it: the first to try

    def groups(self, file):
        """Cases of one program and environment that run together, the most promising and the quickest first."""
        killers = self.killers.get(file, [])
        words = file.stem.removesuffix("_cuda").split("_")

        def rank(case):
            if case.name in killers:
                return 0
            if case.seconds < FAST_S:
                return 1 if any(word in case.name.lower() for word in words) else 2
            return 3 + case.seconds
        groups = []
        for case in sorted(self.cases, key=lambda c: (rank(c), PROGRAMS_ORDER.index(c.program), str(c.environment))):
            last = groups[-1] if groups else None
            if last and rank(case) < 3 and rank(last[0]) == rank(case) and \
               (last[0].program, last[0].environment) == (case.program, case.environment):
                last.append(case)
            else:
                groups.append([case])
        return groups

    def notices(self, file, mutant, folder):
        """What noticed the mutant: the name of a test case, how a program ended; none when all passed."""
        linked = {}
        for group in self.groups(file):
            program = group[0].program
            if program not in linked:
                linked[program] = self.build.link(program, mutant, folder)
            words = [str(linked[program]), "-aa=1", "-tc=" + ",".join(pattern(c.name) for c in group)]
            done = self.build.run(words, 10 + 20 * sum(c.seconds for c in group), group[0].environment)
            if done.returncode != 0:
                named = re.findall(r"^TEST CASE:\s+(.*)$", done.stdout, flags=re.M)
                killer = named[-1].strip() if named else group[0].name if len(group) == 1 else None
                if killer and done.returncode is not None:
                    self.killers.setdefault(file, [])
                    if killer not in self.killers[file]:
                        self.killers[file].append(killer)
                how = "takes too long" if done.returncode is None else "ends the program" if done.returncode < 0 else "fails"
                return f"'{killer}' {how}" if killer else f"{program} {how}"
        if self.with_golden:
            lockstep = self.build.link("lockstep", mutant, folder)
            done = self.build.run([str(self.build.golden / "cuda_host/verify.sh"), str(lockstep), str(self.build.golden / "golden")], 900)
            if done.returncode != 0:
                return "a reference file"
        return None


PROGRAMS_ORDER = [p for programs in PROGRAMS.values() for p in programs]


# --- The run --------------------------------------------------------------------------------------------------------------------

OUTCOMES = ["killed", "survived", "equivalent", "not compiled"]


class Campaign:
    def __init__(self, build, options):
        self.build, self.options = build, options
        self.known = equivalents()
        self.tests = {}

    def judge(self, file, source, mutant):
        """(outcome, what noticed it)."""
        name = f"{file.parent.name}/{file.name}"
        if (name, *mutant.lines(source)) in self.known:
            return "equivalent", "listed"
        with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
            folder = pathlib.Path(folder)
            compiled = self.build.compile(file, mutant.applied(source), folder)
            if compiled is None:
                return "not compiled", ""
            by = self.tests[file.parent.name].notices(file, compiled, folder)
            if by:
                return "killed", by
            different = compiled.read_bytes()
            unchanged = self.build.compile(file, source, folder).read_bytes()
            return ("survived", "") if different != unchanged else ("equivalent", "the same object code")

    def of_file(self, file, pool):
        """Counts of one file; prints what it finds."""
        source = file.read_text()
        name = f"{file.parent.name}/{file.name}"
        waiting = shuffled(mutants_of(source), random.Random(f"{self.options.seed} {name}"))
        waiting = waiting[:4 * self.options.per_file]  # those that do not compile are made up for
        counts = dict.fromkeys(OUTCOMES, 0)
        while waiting and (wanted := self.options.per_file - counts["killed"] - counts["survived"]) > 0:
            batch, waiting = waiting[:wanted], waiting[wanted:]
            for mutant, (outcome, by) in zip(batch, pool.map(lambda m: self.judge(file, source, m), batch)):
                counts[outcome] += 1
                before, after = mutant.lines(source)
                if outcome == "survived" or self.options.verbose:
                    print(f"{outcome}: src/{name}:{mutant.line(source)} ({mutant.kind}) {by}\n  - {before}\n  + {after}", flush=True)
        return counts

    def run(self, files):
        """The exit code."""
        for layer in sorted({f.parent.name for f in files}):
            self.tests[layer] = Tests(self.build, layer, self.options.cases)
        print(f"{'kernels':40}" + "".join(f"{o:>14}" for o in OUTCOMES) + "   seconds")
        total = dict.fromkeys(OUTCOMES, 0)
        with concurrent.futures.ThreadPoolExecutor(self.options.jobs) as pool:
            for file in files:
                begun = time.monotonic()
                counts = self.of_file(file, pool)
                print(f"{file.parent.name + '/' + file.name:40}" + "".join(f"{counts[o]:14}" for o in OUTCOMES) +
                      f"{time.monotonic() - begun:10.0f}", flush=True)
                for outcome, count in counts.items():
                    total[outcome] += count
        print(f"{'all':40}" + "".join(f"{total[o]:14}" for o in OUTCOMES))
        return 1 if total["survived"] else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="*", type=pathlib.Path, help="kernels (*_cuda.cu); default: all of src/ops and src/optim")
    parser.add_argument("--build", type=pathlib.Path, default="build", help="a build tree with the host build (Ninja)")
    parser.add_argument("--per-file", type=int, default=3, help="mutants of each file that compile")
    parser.add_argument("--seed", type=int, default=1, help="chooses the mutants")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="mutants at a time")
    parser.add_argument("--cases", default="*", help="only test cases of such names, without reference files")
    parser.add_argument("--verbose", action="store_true", help="every mutant, and what noticed it")
    parser.add_argument("--list", action="store_true", help="print the mutants of the files, and try none")
    options = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        build = Build(options.build)
        files = [f.resolve() for f in options.files] or [f for f in build.compile_commands if f.parent.name in PROGRAMS]
        unknown = [str(f) for f in files if f not in build.compile_commands]
        if unknown:
            raise OSError(f"{options.build} does not compile {', '.join(unknown)}")
        files.sort()
        if not options.list:
            return Campaign(build, options).run(files)
        for file in files:
            source = file.read_text()
            for mutant in mutants_of(source):
                print(f"src/{file.parent.name}/{file.name}:{mutant.line(source)} ({mutant.kind})\n  - %s\n  + %s" % mutant.lines(source))
        return 0
    except (OSError, subprocess.SubprocessError) as error:
        print(f"mutate: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
