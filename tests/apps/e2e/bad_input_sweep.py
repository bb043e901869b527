#!/usr/bin/env python3
"""Gives every option of every command, as --help lists them, what it cannot take: twice each, values of the wrong type,
and for each file argument a directory, a pipe, an unreadable file, a file of another kind and none; for outputs a file
in a read-only directory. The program must answer at once with one line of error and exit code 2 or 3, and leave the
file as it was.   bad_input_sweep.py BIN_DIR DATA CHECKPOINT"""
import os
import re
import stat
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

BIN, DATA, CHECKPOINT = sys.argv[1:]
GOLDEN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../golden/emulator_default.h5")
WORK = tempfile.mkdtemp(dir=os.getcwd())
os.chmod(WORK, 0o755)
WRITTEN = {"output", "history", "profile", "raw", "text", "man", "run.dir"}  # the others are read
GOOD = {"data.path": DATA, "checkpoint": CHECKPOINT, "input": DATA, "golden": GOLDEN, "rate": "50", "seconds": "0.1", "steps": "1",
        "names": "x", "user": "1", "train.steps": "1", "train.epochs": "1", "batch.size": "10"}
# Root reads every file unless it gives this right up. (Another user may not enter the program's folder, such as /root.)
AS_ORDINARY_USER = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"] if os.geteuid() == 0 else []


def call(words, user=()):
    environment = dict(os.environ, OMP_NUM_THREADS="1")
    try:
        done = subprocess.run([*user, *words], cwd=WORK, env=environment, stdin=subprocess.DEVNULL, capture_output=True, timeout=60)
        return done.returncode, (done.stdout + done.stderr).decode(errors="replace")
    except subprocess.TimeoutExpired:
        return "no end", ""


class Option:
    def __init__(self, names, value):
        self.flag = names[0].startswith("--[no-]")
        self.name, self.value = names[0].replace("--[no-]", "--")[2:], value
        self.file = re.match(r"([a-z]+\|)*(FILE|DIR)", value) is not None
        self.typed = self.flag or re.match(r"(N|NUMBER|TIME|SIZE)$", value) or (re.match(r"[a-z0-9_]+\|", value) and not self.file)


class Command:
    """A command as a user types it, with the options and the positional files of its help."""

    def __init__(self, words):
        self.words = words
        code, text = call([*words[:2 if words[1] == "checkpoint" else None], "--help"])
        assert code == 0, (words, text)
        self.options = []
        for line in text.splitlines():
            match = re.match(r"  ((?:--?[^ ,]+)(?:, --?[^ ,]+)*)(?: (\S+))?(?:  |$)", line)
            if match and not match[1].startswith(("--help", "--set")):
                self.options.append(Option(match[1].split(", "), match[2] or ""))
        usage = re.search(r"usage: (.*)", text)[1]
        self.needs = [o for o in self.options if f"--{o.name} {o.value}" in usage.replace("[--config FILE]", "")]
        self.takes_files = re.search(r" (\[)?FILE(\.h5)? ?\.\.\.", usage) is not None

    def good(self, *but):
        """Values for the options that the command needs."""
        return [f"--{o.name}={GOOD.get(o.name, GOOD.get(o.name.split('.')[-1], 'none.h5'))}" if o.name not in WRITTEN else
                f"--{o.name}={tempfile.mktemp(dir=WORK)}" for o in self.needs if o.name not in but]


def names_in(text, title):
    """The names in a list of an overview."""
    return re.findall(r"^  ([a-z][a-z0-9-]+)  ", re.split(r"\n\n", text[text.index("\n" + title):].lstrip())[0], re.M)


def commands():
    lockstep, prep = os.path.join(BIN, "lockstep"), os.path.join(BIN, "lockstep-prep")
    overview, preparing = call([lockstep, "help"])[1], call([prep, "--help"])[1]
    for name in names_in(overview, "Commands"):
        if name == "checkpoint":
            yield from (Command([lockstep, name, verb]) for verb in ("verify", "diff", "merge", "keep", "unkeep"))
        elif name in ("train", "predict"):
            for kind in names_in(overview, "Kinds of model"):
                if call([lockstep, name, "--model.kind", kind, "--help"])[0] == 0:
                    yield Command([lockstep, name, "--model.kind", kind])
        else:
            yield Command([lockstep, name])
    for name in names_in(preparing, "Sources") + re.findall(r"^  lockstep-prep ([a-z]+) ", preparing, re.M):
        yield Command([prep, name])


def problem(code, text, expected=(2, 3), names=""):
    errors = re.findall(r"^error", text, re.M)
    if code not in expected:
        return f"exit code {code}"
    if len(errors) != 1:
        return f"{len(errors)} lines of error"
    return "" if names in text.replace("-", "_") else f"no word of {names}"


def wrong_types(command, seen):
    for option in command.options:
        key = (command.words[0], option.name, option.value) if "." in option.name else (*command.words, option.name)
        if option.typed and key not in seen:
            seen.add(key)
            words = [*command.words, *command.good(option.name), f"--{option.name}=@bad@"]
            yield words, lambda words=words, name=option.name: problem(*call(words), (2,), name.replace("-", "_"))


def twice(command):
    """All options at once, each two times: that is no error, but --config names no file."""
    options = [o for o in command.options if o.name not in ("model", "model.kind")]
    values = [f"--{o.name}=false" if o.flag else f"--{o.name}={o.value.split('|')[0]}" for o in options
              if o.flag or (o.typed and "|" in o.value)]
    words = [*command.words, *command.good(), *values, *values, *[w for w in command.good()], "--no-such-option"]
    yield words, lambda: problem(*call(words), (2,), "no_such_option")


def places():
    """What is no file of the right kind: name, path, user."""
    for kind in ("directory", "pipe", "text", "hdf5", "absent", "unreadable", "closed"):
        path = tempfile.mktemp(dir=WORK, suffix="-" + kind)
        user = ()
        if kind == "directory":
            os.mkdir(path)
        elif kind == "closed":
            os.mkdir(path, 0o555)
            path, user = os.path.join(path, "file"), AS_ORDINARY_USER
        elif kind == "pipe":
            os.mkfifo(path)
        elif kind == "hdf5":
            subprocess.run(["cp", GOLDEN, path], check=True)
        elif kind != "absent":
            with open(path, "w") as file:
                file.write("no such thing\n")
        if kind == "unreadable":
            os.chmod(path, 0)
            user = AS_ORDINARY_USER
        yield kind, path, user


def bad_files(command, seen):
    targets = [o for o in command.options if o.file] + ([None] if command.takes_files else [])
    for option in targets:
        key = (*command.words[:2], option.name) if option else (*command.words, "FILE")
        # Only train has a run directory; other commands take its configuration as it is.
        if key in seen or (option and option.name.startswith("run.") and command.words[1] != "train"):
            continue
        seen.add(key)
        for kind, path, user in places():
            written = option is not None and option.name in WRITTEN
            if written and (kind in ("text", "hdf5", "absent", "unreadable") or (kind == "directory" and option.value == "DIR")):
                continue  # an output may replace a file
            if not written and kind == "closed":
                continue  # for outputs only
            if option is not None and option.name == "data.stage" and (kind == "directory" or command.words[1] in ("bench", "comm-test")):
                continue  # any directory will do; these two have no data set to copy here
            given = [path, path] if option is None else [f"--{option.name}={path}"]
            words = [*command.words, *command.good(option.name if option else ""), *given]
            verb = command.words[-1]
            if verb == "unkeep" and kind in ("text", "hdf5", "unreadable"):
                continue  # files without protection: nothing to do
            piped = kind == "pipe" and option is not None and option.name == "config"  # as in --config <(...)

            def check(words=words, path=path, user=user, kind=kind, piped=piped, verb=verb):
                before = os.stat(path).st_mode if os.path.exists(path) else None
                writer = subprocess.Popen(["sh", "-c", f": >{path}"]) if piped else None
                code, text = call(words, user)
                if writer:
                    writer.kill(), writer.wait()
                if piped and code == 0:
                    return ""  # an empty configuration
                wrong = "" if verb == "verify" and code == 3 and f"{path}: refused" in text else problem(code, text)
                if before is not None and (not os.path.exists(path) or os.stat(path).st_mode != before):
                    wrong = "the file is another one now"
                return wrong

            if kind == "hdf5" and option is not None and option.name == "golden":
                continue
            yield words, check


def main():
    seen, cases = set(), []
    for command in commands():
        cases += [*wrong_types(command, seen), *twice(command), *bad_files(command, seen)]
    with ThreadPoolExecutor(int(os.environ.get("SWEEP_THREADS", "4"))) as pool:
        results = list(pool.map(lambda case: case[1](), cases))
    failed = [(words, wrong) for (words, _), wrong in zip(cases, results) if wrong]
    for words, wrong in failed:
        print(f"{wrong}: {' '.join(os.path.basename(w) if i == 0 else w for i, w in enumerate(words))}")
    print(f"{len(cases)} calls, {len(failed)} problems")
    assert len(cases) > 500, "the help texts are read wrongly"
    sys.exit(bool(failed))


main()
