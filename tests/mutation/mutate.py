#!/usr/bin/env python3
"""Mutation check of the CUDA kernels on the stand-in of tests/cuda_host: does a test fail when a kernel is wrong?

    mutate.py --build BUILD [--per-function N] [--seed S] [--jobs J] [--cases PATTERN] [--line L] [--verbose]
              [--host] [--program PROGRAM] [--sources PATTERN] [FILE ...]

A mutant is a kernel with one small mistake: a wrong sign, index, comparison or constant. Each file is copied with many
mutants at once. Each mutant has a switch (switches.hpp) that an environment variable turns on at program start, so
every kernel is compiled once and every program linked once. A first run of the test cases and reference files, with all
switches off, records which mutants each of them reaches. Then each mutant is turned on for the cases that reach it,
until one fails.

A surviving mutant is either a missing test or changes nothing that matters. equivalent.txt lists the lines of the
latter, with the reason: `FILE: BEGINNING OF THE LINE  // REASON`, or `FILE FUNCTION: ...` for the first such line of a
function whose siblings have the same line.

Exit code 0: every mutant was killed or is equivalent; 1: a mutant survived; 2: the check could not run. See
docs/cuda-host.md.
"""
import argparse
import concurrent.futures
import dataclasses
import fnmatch
import functools
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
import time
import xml.etree.ElementTree

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
KINDS = ["sign", "index", "compare", "constant"]
OUTCOMES = ["killed", "survived", "equivalent"]
PROGRAMS = "cuda-host/bin/test_*"
EQUIVALENT = [re.fullmatch(r"(\S+)(?: (\w+))?: (.+)  // (.+)", line).groups()
              for line in (HERE / "equivalent.txt").read_text().splitlines()]


# --- Mutants ---------------------------------------------------------------------------------------------------------

@dataclasses.dataclass(frozen=True)
class Mutant:
    kind: str      # one of KINDS
    begin: int     # the first character of the file that is replaced
    end: int       # one past the last
    text: str      # the replacement, for reports
    switched: str  # the replacement with a switch; @ stands for its number

    def line(self, source):
        return source.count("\n", 0, self.begin) + 1

    def lines(self, source):
        """The original line and the mutated line, without indentation."""
        first = source.rfind("\n", 0, self.begin) + 1
        last = source.find("\n", self.end)
        return source[first:last].strip(), (source[first:self.begin] + self.text + source[self.end:last]).strip()


def without_comments(source):
    """The source with comments, strings and preprocessor lines replaced by blanks of the same length."""
    def blank(match):
        return re.sub(r"[^\n]", " ", match.group())
    code = re.sub(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|^[ \t]*#[^\n]*', blank, source, flags=re.S | re.M)
    for assembly in re.finditer(r"\basm\b[^(]*", code):  # only nvcc compiles it
        end = matching(code, assembly.end(), "()") + 1
        code = code[:assembly.start()] + re.sub(r"[^\n]", " ", code[assembly.start():end]) + code[end:]
    return code


@functools.cache
def included(path):
    """This file and the files of src and include that it includes."""
    found = {path}
    for name in re.findall(r'^#include "(.+)"', path.read_text(), re.M):
        for to in (path.parent / name, ROOT / "src" / name, ROOT / "include" / name):
            found |= included(to) if to.exists() else set()
    return found


def matching(code, at, pair):
    """The index of the bracket that closes the one at `at`."""
    depth = 0
    for i in range(at, len(code)):
        depth += (code[i] == pair[0]) - (code[i] == pair[1])
        if depth == 0:
            return i
    raise ValueError("unbalanced " + pair)


def bodies(code):
    """The ranges of the bodies of device functions."""
    found = []
    for match in re.finditer(r"__(?:global|device)__|\bLOCKSTEP_MAP\b", code):
        at = match.end()
        while at < len(code) and code[at] not in "{;":
            at = matching(code, at, "()") + 1 if code[at] == "(" else at + 1
        if at < len(code) and code[at] == "{" and (not found or at > found[-1][1]):
            found.append((at + 1, matching(code, at, "{}")))
    return found


def host_bodies(code):
    """The ranges of the bodies of a host source's functions."""
    found, at = [], -1
    while (at := code.find("{", at + 1)) >= 0:
        head = code[max(code.rfind(c, 0, at) for c in ";{}") + 1:at]
        if re.search(r"\b(?:namespace|struct|class)\b[^()]*$", head):
            continue
        end = matching(code, at, "{}")
        if "(" in head and code[at - 1].isspace():  # not an initializer
            found.append((at + 1, end))
        at = end
    return found


BINARY = {"+": "-", "-": "+", "*": "+", "/": "*", "%": "/", "<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=",
          "!=": "==", "<<": ">>", ">>": "<<", "&": "|", "|": "&", "^": "|"}
COMPARES = {"<", "<=", ">", ">=", "==", "!="}
NOT_CALLS = {"if", "for", "while", "switch", "return", "sizeof", "static_assert", "static_cast", "reinterpret_cast",
             "defined", "fma"}  # fma is symmetric
DECLARATION = re.compile(r"(?:^|[;{(])\s*(?!return\b)(?:[\w:]+\s+)*[\w:]+(?:<[^;]*>)?[\s*&]+"
                         r"(?:\w+(?:\[[^\]]*\])*\s*,\s*)*\w+(?:\[[^\]]*\])*$")


def mutants_of(source, find=bodies):
    """The mutants of each function, in the order of the file."""
    code = without_comments(source)
    # Constant expressions cannot have a switch.
    fixed = {i for i, line in enumerate(code.splitlines())
             if re.search(r"\b(?:constexpr|__shared__|template|static_assert|using)\b", line)}
    result = []
    for begin, end in find(code):
        found, sizes = [], []  # sizes: ranges of array sizes in declarations

        def add(kind, first, last, text, switched):
            if code.count("\n", 0, first) not in fixed and not any(a < first < b for a, b in sizes):
                found.append(Mutant(kind, first, last, text, switched))

        def each(pattern):
            return (m for m in re.compile(pattern).finditer(code, begin, end))

        for m in each(r"(?<=[\w\])])\["):  # an index
            close = matching(code, m.start(), "[]")
            before = re.sub(r"= \{[^{}]*\}", lambda value: " " * len(value.group()), code[begin:m.start()])
            statement = before[max(before.rfind(c) for c in ";{}") + 1:]
            if DECLARATION.search(statement):
                sizes.append((m.start(), close))
            elif code[m.end():close].strip():
                add("index", close, close, " + 1", " + mutation::on(@)")
        for m in each(r"(?<=\s)(?:<<|>>|[<>=!]=|[-+*/%<>&|^])(?=\s)"):  # a binary operator
            if m.group() in BINARY:
                op = m.group()
                add("compare" if op in COMPARES else "sign", m.start(), m.end(), BINARY[op],
                    f"{op} mutation::At<@>{{}} {op}")
        for m in each(r"(?<=\s)[-+]=(?=\s)"):
            value = re.match(r"[^;]*", code[m.end():]).group()
            if not re.search(r"\?|\s(?:[=!<>]=|[<>&|^]|&&|\|\|)\s", value):  # these bind weaker than *
                add("sign", m.start(), m.end(), {"+=": "-=", "-=": "+="}[m.group()], m.group() + " mutation::sign(@) *")
        for m in each(r"(?<=\s)(&&|\|\|)(?=\s)"):
            if m.group() == "&&":
                add("compare", m.start(), m.end(), "&& false &&", "&& !mutation::on(@) &&")
            else:
                add("compare", m.start(), m.end(), "|| true ||", "|| mutation::on(@) ||")
        for m in each(r"(?<=[\s(\[{])-(?=[A-Za-z_(])"):  # a negation
            add("sign", m.start(), m.end(), "", "mutation::minus(@) * ")
        for m in each(r"\b(?:true|false)\b"):
            add("compare", m.start(), m.end(), {"true": "false", "false": "true"}[m.group()],
                f"({m.group()} != mutation::on(@))")
        for m in each(r"\b(?:threadIdx|blockIdx)\.[xyz]\b"):
            add("index", m.start(), m.end(), f"({m.group()} + 1)", f"({m.group()} + mutation::on(@))")
        for m in each(r"(?<![\w.])(?:\d+|\d*\.\d+|\d+\.\d*)(?:[eE][-+]?\d+)?f?(?![\w.'])"):
            value = f"{int(m.group()) + 1}" if m.group().isdigit() else f"({m.group()} + 1)"
            add("constant", m.start(), m.end(), value, f"({m.group()} + mutation::on(@))")
        for m in each(r"(?<![\w:])(?:\w+::)*k[A-Z]\w*\b(?!\s*(?:[<({=]|::))"):
            add("constant", m.start(), m.end(), f"({m.group()} - 1)", f"({m.group()} - mutation::on(@))")
        for m in each(r"\b(\w+)\(([\w.]+), ([\w.]+)(?=[,)])"):  # the first two arguments of a call
            name, first, second = m.groups()
            if name not in NOT_CALLS and first != second:
                add("index", m.start(2), m.end(3), f"{second}, {first}",
                    f"mutation::either(@, {first}, {second}), mutation::either(@, {second}, {first})")
        result.append(sorted(set(found), key=lambda m: (m.begin, m.end, m.text)))
    return result


def in_turn(mutants, rng):
    """The mutants in random order, alternating between kinds."""
    kinds = {k: [m for m in mutants if m.kind == k] for k in KINDS}
    for of_kind in kinds.values():
        rng.shuffle(of_kind)
    result = []
    while any(kinds.values()):
        result += [kinds[k].pop() for k in KINDS if kinds[k]]
    return result


def equivalents(path, source):
    """Line numbers of a file that equivalent.txt lists, with the reasons."""
    lines = [line.strip() for line in source.splitlines()]
    found = {}
    for _, function, begin, reason in (entry for entry in EQUIVALENT if entry[0] == path.name):
        numbers = [number for number, line in enumerate(lines, 1) if line.startswith(begin)]
        if function:
            first = next((number for number, line in enumerate(lines, 1) if f"{function}(" in line), len(lines))
            numbers = [number for number in numbers if number > first][:1]
        if not numbers:
            raise OSError(f"{path.name} has no line '{begin}', which equivalent.txt lists")
        found.update(dict.fromkeys(numbers, reason))
    return found


class File:
    """A file with kernels or, if `find` is host_bodies, a host source, and the mutants that are in its copy."""

    def __init__(self, path, find):
        self.path = path
        self.find = find
        self.name = str(path.relative_to(ROOT))
        self.source = path.read_text()
        self.equivalent = equivalents(path, self.source)
        self.waiting = []  # for each function, the mutants that are not in the copy
        self.switches = {}  # number -> mutant

    def choose(self, options, numbers):
        rng = random.Random(f"{options.seed} {self.name}")
        for function in mutants_of(self.source, self.find):
            if options.lines:
                function = [m for m in function if m.line(self.source) in options.lines]
            self.waiting.append(in_turn(function, rng))
            self.take(self.waiting[-1], len(function) if options.lines else options.per_function, numbers)

    def take(self, waiting, count, numbers):
        for mutant in list(waiting):
            if count == 0:
                break
            if not any(m.begin < mutant.end and mutant.begin < m.end for m in self.switches.values()):
                waiting.remove(mutant)
                self.switches[next(numbers)] = mutant
                count -= 1

    def drop(self, lines, numbers):
        """Replaces mutants on lines that do not compile by others of the same functions. Returns whether any were."""
        bad = {n: m for n, m in self.switches.items() if m.line(self.source) in lines}
        for number in bad:
            del self.switches[number]
        for function, waiting in zip(mutants_of(self.source, self.find), self.waiting):
            mine = sum(m in function for m in bad.values())
            waiting[:] = [m for m in waiting if m.line(self.source) not in lines]
            self.take(waiting, mine if self.path.suffix == ".cu" else 0, numbers)
        return bool(bad)

    def function_at(self, line):
        """The lines of the function that contains this one."""
        for begin, end in self.find(without_comments(self.source)):
            first, last = self.source.count("\n", 0, begin) + 1, self.source.count("\n", 0, end) + 1
            if first <= line <= last:
                return range(first, last + 1)
        return ()

    def copy(self):
        """The source with all switches."""
        parts, at = [], 0
        for number, m in sorted(self.switches.items(), key=lambda item: (item[1].begin, item[1].end)):
            parts += [self.source[at:m.begin], m.switched.replace("@", str(number))]
            at = m.end
        return "".join(parts) + self.source[at:]


# --- The build -------------------------------------------------------------------------------------------------------

class Build:
    """Compiles, links and runs copies of the sources with switches, in a folder of the build tree."""

    def __init__(self, options):
        self.folder = options.build.resolve()
        self.work = self.folder / "mutation"
        self.programs = options.program
        other = f"LOCKSTEP_HAS_CUDA={0 if self.programs.startswith('cuda-host') else 1}"
        self.commands = {}  # object file -> source and command; a CPU kernel has a command for each instruction set
        for entry in json.loads((self.folder / "compile_commands.json").read_text()):
            path, words = pathlib.Path(entry["file"]), shlex.split(entry["command"])
            if (path.suffix in (".cu", ".cpp" if options.host else ".cu") and f"-D{other}" not in words and
                    {ROOT / "src", self.folder / "src"} & {*path.parents}):
                self.commands[words[words.index("-o") + 1]] = path, words
        if not self.commands:
            raise OSError(f"{self.folder} has no host build of the kernels (LOCKSTEP_CUDA=OFF, LOCKSTEP_TESTS=ON)")
        self.headers = [h for where in ("src", "include") for h in sorted((ROOT / where).rglob("*.hpp"))]
        self.linker = ["-fuse-ld=lld"] if shutil.which("ld.lld") else []
        self.launcher = [shutil.which("ccache")] if shutil.which("ccache") else []

    def place(self, path):
        """The copy of a source or header. A file that the build made, which includes a source, has none."""
        return path if self.folder in path.parents else self.work / path.relative_to(ROOT)

    def write(self, path, text):
        to = self.place(path)
        to.parent.mkdir(parents=True, exist_ok=True)
        if not to.exists() or to.read_text() != text:
            to.write_text(text)

    def compile(self, source, to, words):
        """Returns the compiler's messages if it fails, else None. Includes find the copies first."""
        words = [w for w in words if not w.endswith("ccache")]
        words[words.index("-o") + 1] = str(to)
        words[words.index("-c") + 1] = str(source)
        own = [f"-I{self.work / 'include'}", f"-I{self.work / 'src'}", f"-I{HERE}"]
        # -O1: more optimisation would take longer than the tests.
        words = self.launcher + words[:1] + own + words[1:] + ["-w", "-O1", "-include", str(HERE / "switches.hpp")]
        done = self.run(words, 600)
        return None if done.returncode == 0 else done.stderr

    def blamed(self, text, files):
        """The (file, line) pairs of these files that compiler errors name, or else that other messages name."""
        places = [(str((self.folder / name).resolve()), int(line), kind)  # resolve: ccache shortens paths
                  for name, line, kind in re.findall(r"^(\S+?):(\d+):\d+: *(\w+)", text, re.M)]
        errors = {(name, line) for name, line, kind in places if kind in ("error", "fatal") and name in files}
        return errors or {(name, line) for name, line, _ in places if name in files}

    def compile_all(self, files, sources, jobs, numbers):
        """Compiles these object files with the switches of all files. Returns their copies."""
        objects = {s: self.work / s for s in sources}
        for to in objects.values():
            to.parent.mkdir(parents=True, exist_ok=True)
        switches = self.work / "switches.o"
        said = self.compile(HERE / "switches.cpp", switches, self.commands[sources[0]][1])
        if said:
            raise OSError(f"compiling switches.cpp: {said}")
        by_place = {str(self.place(f.path)): f for f in files}
        texts = {path: path.read_text() for s in sources for path in included(self.commands[s][0])}
        for path, text in (texts | {f.path: f.copy() for f in files}).items():
            if path != self.place(path):
                self.write(path, text)
        # One source for each header finds the mutants of headers that do not compile, before all sources are compiled.
        first = {s for f in files if f.path.suffix == ".hpp"
                 for s in [s for s in sources if f.path in included(self.commands[s][0])][:1]}
        for pending in (first, set(sources) - first):
            while pending:
                with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
                    compile_one = lambda s: self.compile(self.place(self.commands[s][0]), objects[s],
                                                         self.commands[s][1])
                    said = dict(zip(pending, pool.map(compile_one, pending)))
                wrong, lines = {s: text for s, text in said.items() if text}, {}
                for text in wrong.values():
                    for name, line in self.blamed(text, by_place):
                        lines.setdefault(name, set()).add(line)
                dropped = [by_place[name].drop(of_file, numbers) for name, of_file in lines.items()]
                if wrong and not any(dropped):  # then the cause is elsewhere in the function
                    dropped = [f.drop({n for at in of_file for n in f.function_at(at)}, numbers)
                               for f, of_file in ((by_place[name], lines[name]) for name in lines)]
                if wrong and not any(dropped):
                    source, text = next(iter(wrong.items()))
                    raise OSError(f"{source} does not compile with any choice of mutants:\n{text[:3000]}")
                for name in lines:
                    self.write(by_place[name].path, by_place[name].copy())
                pending = set(wrong)
        return [switches] + [objects[s] for s in sources]

    def link(self, program, objects):
        """Links the program with these objects before the archives, so that they replace the archives' members."""
        lines = subprocess.run(["ninja", "-t", "commands", program], cwd=self.folder, check=True, text=True,
                               capture_output=True).stdout.splitlines()
        step = next(part for part in lines[-1].split(" && ") if f"-o {program} " in part)
        words, to = shlex.split(step), self.work / program.split("/")[-1]
        at = words.index("-o")
        words[at:at + 2] = ["-o", str(to), *map(str, objects)]
        done = self.run(words + self.linker, 300)
        if done.returncode != 0:
            raise OSError(f"linking {program}: {done.stderr}")
        return to

    def entries(self):
        """ctest's entries for the wanted programs of tests: the words before the program, its path in the build tree,
        its options, and the environment. Of entries that run in several ways only one: those of two ranks, and not the
        late streams."""
        done = subprocess.run(["ctest", "--show-only=json-v1"], cwd=self.folder, check=True, text=True,
                              capture_output=True)
        for test in json.loads(done.stdout)["tests"]:
            words = [word.removeprefix(f"{self.folder}/") for word in test.get("command", [])]
            at = next((i for i, word in enumerate(words) if fnmatch.fnmatch(word, self.programs)), None)
            if at is None or re.search(r"\.(mpi-[^2]|late)$", test["name"]):
                continue
            values = [p["value"] for p in test["properties"] if p["name"] == "ENVIRONMENT"]
            yield words[:at], words[at], words[at + 1:], dict(value.split("=", 1) for value in sum(values, []))

    def run(self, words, limit_s, environment=None):
        """Runs a program. returncode is None if it takes more than limit_s of CPU time (independent of other load)."""
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


# --- The tests -------------------------------------------------------------------------------------------------------

@dataclasses.dataclass
class Case:
    """A test case or reference file: its command, and after its first run its time and the mutants that it reaches."""
    name: str
    words: list
    environment: dict
    seconds: float = 0
    reached: frozenset = frozenset()


def pattern(name):
    return re.sub(r"[,\\*\"]", "?", name)  # a comma would end the pattern


class Tests:
    def __init__(self, build, objects, options):
        self.build = build
        self.cases = []
        wanted = ".*".join(map(re.escape, options.cases.split("*")))
        programs = {}
        for launcher, program, selection, environment in build.entries():
            if not (build.folder / program).exists():
                continue
            if program not in programs:
                programs[program] = build.link(program, objects)
            words = [str(programs[program])]
            listed = build.run(words + selection + ["-ltc", "-r=xml"], 60)
            for case in xml.etree.ElementTree.fromstring(listed.stdout).iter("TestCase"):
                name, suite = case.get("name"), case.get("testsuite") or ""
                if case.get("skipped") != "true" and re.fullmatch(wanted, name):
                    select = [f"-tc={pattern(name)}"] + ([f"-ts={pattern(suite)}"] if suite else [])
                    # A rank that ended its case early would leave the others in a collective.
                    early = [] if launcher else ["-aa=1"]
                    self.cases.append(Case(f"{suite}: {name}", launcher + words + early + select, environment))
        if options.cases == "*" and options.program == PROGRAMS:
            beside = build.work / "lockstep-prep"  # lockstep looks for it in its own folder
            if not beside.is_symlink():
                beside.symlink_to(build.folder / "bin/lockstep-prep")
            words = [str(ROOT / "tests/cuda_host/verify.sh"), str(build.link("cuda-host/bin/lockstep", objects))]
            for file in sorted((ROOT / "tests/golden").glob("*.h5")):
                alone = build.work / "golden" / file.stem
                alone.mkdir(parents=True, exist_ok=True)
                if not (alone / file.name).exists():
                    (alone / file.name).symlink_to(file)
                for precision in ("--no-double", "--double"):
                    self.cases.append(Case(f"{file.name} {precision}", words + [str(alone), precision], {}))
        if not self.cases:
            raise OSError(f"no test case matches '{options.cases}'")
        with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
            list(pool.map(self.explore, self.cases))
        self.killers = {}  # file -> cases that killed a mutant of it; these run first

    def explore(self, case):
        """Runs a case with all mutants off."""
        to = self.build.work / f"reached-{id(case)}"
        to.unlink(missing_ok=True)
        begun = time.monotonic()
        done = self.build.run(case.words, 1200, case.environment | {"LOCKSTEP_MUTANTS_REACHED": str(to)})
        case.seconds = time.monotonic() - begun
        if done.returncode != 0:
            output = done.stdout[-3000:] + done.stderr[-3000:]
            raise OSError(f"{shlex.join(case.words)} fails without mutants:\n{output}")
        if to.exists():  # reference files of preparation programs run no kernel
            case.reached = frozenset(map(int, to.read_text().split()))
            to.unlink()

    def notice(self, file, number):
        """The case that killed a mutant and how. None if all passed, empty if no case reaches the mutant."""
        cases = [c for c in self.cases if number in c.reached]
        first = self.killers.setdefault(file, [])
        for case in sorted(cases, key=lambda c: (c.name not in first, c.seconds)):
            environment = case.environment | {"LOCKSTEP_MUTANT": str(number)}
            done = self.build.run(case.words, 5 + 10 * case.seconds, environment)
            if done.returncode != 0:
                if case.name not in first and done.returncode is not None:
                    first.append(case.name)
                how = ("takes too long" if done.returncode is None else
                       "ends the program" if done.returncode < 0 else "fails")
                return f"'{case.name}' {how}"
        return None if cases else ""


# --- The run ---------------------------------------------------------------------------------------------------------

def report(file, mutant, outcome, by):
    before, after = mutant.lines(file.source)
    print(f"{outcome}: {file.name}:{mutant.line(file.source)} ({mutant.kind}) {by}\n  - {before}\n  + {after}",
          flush=True)


def campaign(build, files, options):
    """Compiles the mutants, tries them and prints the results. Returns the exit code."""
    numbers = iter(range(1, 1 << 16))
    for file in files:
        file.choose(options, numbers)
    sources = [s for s, (path, _) in sorted(build.commands.items())
               if included(path) & {f.path for f in files} and re.search(options.sources, str(path))]
    begun = time.monotonic()
    objects = build.compile_all(files, sources, options.jobs, numbers)
    compiled = time.monotonic()
    tests = Tests(build, objects, options)
    print(f"{sum(len(f.switches) for f in files)} mutants in {len(sources)} sources, compiled in "
          f"{compiled - begun:.0f} s; {len(tests.cases)} test cases and reference files, "
          f"{time.monotonic() - compiled:.0f} s", flush=True)
    total = dict.fromkeys(OUTCOMES, 0)

    def evaluate(file, number):
        mutant = file.switches[number]
        by = tests.notice(file.name, number)
        reason = file.equivalent.get(mutant.line(file.source))
        outcome = "killed" if by else "equivalent" if reason else "survived"
        if outcome == "survived" or options.verbose:
            report(file, mutant, outcome, by or reason or ("no test reaches it" if by == "" else ""))
        return outcome

    print(f"{'file':40}" + "".join(f"{o:>14}" for o in OUTCOMES) + "   seconds", flush=True)
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for file in files:
            begun = time.monotonic()
            found = list(pool.map(lambda number: evaluate(file, number), sorted(file.switches)))
            for outcome in found:
                total[outcome] += 1
            print(f"{file.name:40}" + "".join(f"{found.count(o):14}" for o in OUTCOMES) +
                  f"{time.monotonic() - begun:10.0f}", flush=True)
    print(f"{'all':40}" + "".join(f"{total[o]:14}" for o in OUTCOMES))
    return 1 if total["survived"] else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("files", nargs="*", help="names of sources and headers with kernels; default: all")
    add("--host", action="store_true", help="mutants of host functions: files are sources and headers for the CPU")
    add("--build", type=pathlib.Path, default="build", help="a Ninja build tree with the host build")
    add("--per-function", type=int, default=2, help="mutants per function")
    add("--seed", type=int, default=1, help="chooses the mutants")
    add("--jobs", type=int, default=os.cpu_count(), help="programs that run at a time")
    add("--cases", default="*", help="a pattern of test cases; without reference files")
    add("--program", default=PROGRAMS, help="a pattern of programs of tests in the build tree, such as bin/test_ops")
    add("--sources", default="", help="a regular expression: compile only these of the sources that include a file")
    add("--line", type=int, action="append", dest="lines", help="only mutants of this line, all of them; repeatable")
    add("--verbose", action="store_true", help="report every mutant and what killed it")
    options = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        build = Build(options)
        find = host_bodies if options.host else bodies
        known = sorted({*build.headers, *(path for path, _ in build.commands.values() if ROOT / "src" in path.parents)})
        names = [pathlib.Path(f).name for f in options.files]
        there = {path.name for where in ("src", "include") for path in (ROOT / where).rglob("*")}
        unknown = {*names} - {p.name for p in known} | {entry[0] for entry in EQUIVALENT} - there
        if unknown:
            raise OSError(f"{options.build} does not compile {', '.join(sorted(unknown))}")
        files = [File(path, find) for path in known]
        chosen = [f for f in files if f.path.name in names or not names]
        return campaign(build, [f for f in chosen if find(without_comments(f.source))], options)
    except (OSError, subprocess.SubprocessError) as error:
        print(f"mutate: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
